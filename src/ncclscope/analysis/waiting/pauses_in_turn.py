"""Pauses of hosts that go round: now one rank and now another, each of them seldom.

A garbage collection of Python stops each process for some ten milliseconds now and then. With many
ranks somebody pauses in nearly every step, and all others wait. No rank stands out.

    step      1   2   3   4   5   6   7   8
    rank 0    █               █                 each rank pauses in one step of four,
    rank 1        █               █             the run in all of them
    rank 2            █               █
    rank 3                █               █
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.pauses import LEAST_SHARE, BeyondMedian, notable_prediction
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.rank_delays import DENSE, MOST_KERNELS
from ncclscope.analysis.waiting.what_if import WhatIf
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Ints

_LEAST_PAUSES = 10
_LEAST_RANKS_IN_TURN = 4
_LEAST_OF_RANKS = 0.5  # of all ranks: with fewer, these have something that others lack
_TIMES_MEAN = 3.0  # of the pauses of a rank: one with more is apart from the others
_TIMES_NOISE = 4.0  # what calls have beyond the usual where they have anything
_TOGETHER = 0.5  # of the pauses, at most: most ranks have them at the same time
_ALIKE = 0.5  # the lower quartile of their lengths by the upper one: chance varies more
_HALF, _PAUSE = 0.35, 0.65  # of a typical pause: shorter and longer ones
_FEW = 0.2  # of the pauses: calls that are late by about half as much


@dataclass(frozen=True, slots=True)
class PausesInTurn:
    """Pauses of many ranks, each at another time."""

    ranks: tuple[int, ...]  # global, that paused
    times: int
    typical_ns: int  # beyond the usual
    prediction: Prediction  # without them


def pauses_in_turn(waiting: Waiting, what_if: WhatIf) -> PausesInTurn | None:
    """Such pauses, where the run is notably shorter without them."""
    kernels = waiting.kernels
    if len(kernels) > MOST_KERNELS or len(kernels.ranks) < _LEAST_RANKS_IN_TURN:
        return None
    events = _long_calls(waiting)
    lengths = waiting.excess_ns[events]
    if len(events) < _LEAST_PAUSES or lengths.sum() < LEAST_SHARE * waiting.judged_ns:
        return None
    low, typical, high = np.quantile(lengths, (0.25, 0.5, 0.75)).tolist()
    if low < _ALIKE * high or not _go_round(waiting, events):
        return None
    if not _are_apart(waiting, typical):
        return None
    if BeyondMedian(waiting).of_all_ranks(events).mean() > _TOGETHER:
        return None
    ranks = tuple(kernels.ranks[np.unique(kernels.rank[events // 3])].tolist())
    prediction = notable_prediction(waiting, what_if, ranks, events)
    if prediction is None:
        return None
    return PausesInTurn(ranks, len(events), round(typical), prediction)


def _of_hosts(waiting: Waiting) -> Bools:
    """By kernel whether its call came after work of the host, and not in the start-up."""
    edge = waiting.dependencies.edge[::3]
    own = (edge == _abi.EDGE_HOST) | (edge == _abi.EDGE_HOST_AFTER_SYNC)
    return np.asarray(own & ~waiting.start_up)


def _are_apart(waiting: Waiting, typical_ns: float) -> bool:
    """Whether hardly any call is late by about half as much. Of many ranks that are late at random
    one is always the latest, and that by a similar time; then others are late by less.
    """
    excess = waiting.excess_ns[::3][_of_hosts(waiting)] / typical_ns
    pauses = int((excess > _PAUSE).sum())
    return int(((excess > _HALF) & (excess <= _PAUSE)).sum()) < _FEW * pauses


def _long_calls(waiting: Waiting) -> Ints:
    """Calls on the critical path that their hosts made far later than usual."""
    own = _of_hosts(waiting)
    excess = waiting.excess_ns[::3]
    longer = excess[own & (excess > 0)]
    if not len(longer):
        return np.empty(0, np.int64)
    limit = _TIMES_NOISE * float(np.median(longer))
    return np.asarray(3 * np.flatnonzero(own & (waiting.excess_on_path_ns[::3] > limit)))


def _go_round(waiting: Waiting, events: Ints) -> bool:
    """Whether many ranks have these pauses, about as often as each other, and each of them seldom:
    in few of its calls at the same positions.
    """
    kernels, position = waiting.kernels, waiting.dependencies.position
    ranks = len(kernels.ranks)
    times = np.bincount(kernels.rank[events // 3], minlength=ranks)
    paused = times > 0
    at = np.isin(position, np.unique(position[events // 3]))
    chances = np.bincount(kernels.rank[at], minlength=ranks)
    return bool(
        paused.sum() >= max(_LEAST_RANKS_IN_TURN, _LEAST_OF_RANKS * ranks)
        and times.max() <= _TIMES_MEAN * times[paused].mean()
        and times.sum() < DENSE * chances.sum()
    )
