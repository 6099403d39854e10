"""Collectives that may use a link that sends use.

The record does not say which links a collective uses. One of two ranks uses the link between them.
One of more ranks, both ends of the link among them, may be as slow as the link is:

    ranks of it    slow itself                   as ever, and without peers
    0, 1           uses the link 0-1             uses the link 0-1
    0 to 7         perhaps because of the link   perhaps as slow as the link from the first call on
    2 to 7         for other reasons             does not use it
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ncclscope.analysis.waiting.arrivals import END
from ncclscope.analysis.waiting.exchange_groups import SLOWER
from ncclscope.analysis.waiting.kernels import without_peers
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.arrays.types import Bools

_SHOWN = 0.3  # of the collectives of a kind: fewer long ones are the usual noise


class SharedLinks:
    """Collectives by the links that they may use."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        kernels, rows = waiting.kernels, ~waiting.kernels.pair
        shape = len(kernels.communicator_class), len(kernels.ranks)
        self._has = np.zeros(shape, bool)  # by communicator and rank
        self._has[kernels.communicator[rows], kernels.rank[rows]] = True

    def may_gain_ns(
        self, links: Sequence[tuple[int, int]], slow: Iterable[tuple[int, int, float]]
    ) -> int:
        """What the rank with most of it may gain at most, if its collectives are slow because of
        these links. `slow`: of these, how many times as slow as their peers they are.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        lasting = ~waiting.start_up
        taken, usual = waiting.dependencies.length_ns[END::3], waiting.usual.median_ns[END::3]
        is_slow = lasting & (taken > SLOWER * np.nan_to_num(usual, nan=np.inf))
        slow_now, both = is_slow.copy(), np.zeros(len(kernels), bool)
        for a, b in links:
            both |= self._of_both(a, b)
            is_slow &= ~self.of_these(a, b)  # a replay has these as usual
        least = np.where(is_slow, usual, taken)
        # What became slow shows by itself how fast it is without that.
        kind = kernels.transfer_kind.astype(np.int64)
        shown = np.bincount(kind, slow_now) > _SHOWN * np.bincount(kind)
        alone = without_peers(kernels)[kernels.communicator] & lasting & ~shown[kind]
        for a, b, slowness in slow:
            own = self._of_both(a, b) & alone
            least[own] = np.minimum(least, taken / slowness)[own]
        more = np.where(both, np.maximum(taken - least, 0.0), 0.0)
        return int(np.bincount(kernels.rank, more, minlength=1).max())

    def of_these(self, a: int, b: int) -> Bools:
        """By kernel whether it is a collective of these two ranks alone."""
        two = (self._has.sum(axis=1) == 2)[self._waiting.kernels.communicator]
        return np.asarray(self._of_both(a, b) & two)

    def _of_both(self, a: int, b: int) -> Bools:
        """By kernel whether it is a collective of a communicator that has both of these ranks."""
        kernels = self._waiting.kernels
        both = self._has[:, np.isin(kernels.ranks, (a, b))].sum(axis=1) == 2
        return np.asarray(both[kernels.communicator] & ~kernels.pair)
