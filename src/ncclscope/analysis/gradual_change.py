"""Communicators that become slower and slower, rather than at once.

A change at one time compares what came before with what came after. Where that rises as well, the
time before is no measure of how fast the network was, and nothing began at the change. The first
instances are one:

    time on the wire    1.0  1.3  1.6 | 1.9  2.2  2.5    the change: 2.2 instead of 1.3 times
    of the first        1.0  1.3  1.6   1.9  2.2  2.5    in blocks of equal number
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ncclscope.analysis.robust_statistics import certainly_larger
from ncclscope.arrays.types import Floats, Ints

_BLOCKS = 10
_LEAST_OF_BLOCK = 6  # instances
_FIRST = 16  # the first instances are a share of 1 / 16
_LEAST_RISE = 0.2  # of the whole rise, before or after the change: less is noise
_NOTABLE = np.log(1.1)  # above the first: slower from there on
_SHORT_PAST = 2  # blocks before that: fewer show nothing else


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the run in which a communicator was slower than at first."""

    factor: float  # of its time on the wire
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Rise:
    """How a communicator became slower and slower."""

    stretches: tuple[Stretch, ...]  # in the order of time
    lost_ns: float  # on the wire
    from_the_first: bool  # nothing shows how long work beside these transfers takes without it

    @property
    def factor(self) -> float:
        """How much longer it takes in the end than at first."""
        return self.stretches[-1].factor


def rise_of(relative: Floats, wire_ns: Floats, end_ns: Ints, later: int) -> Rise | None:
    """How instances of a communicator, in the order of time, became slower and slower; None where
    they did so at once. `relative`: logarithms of their times on the wire; `later`: the first after
    the change.
    """
    count = len(relative)
    blocks = min(_BLOCKS, count // _LEAST_OF_BLOCK)
    if min(later, count - later) < 2 * _LEAST_OF_BLOCK:
        return None
    edges = np.arange(blocks + 1) * count // blocks
    level = np.array([np.median(relative[a:b]) for a, b in pairwise(edges.tolist())])
    before, after = relative[:later], relative[later:]
    rises = [_rises(part, _LEAST_RISE * float(level[-1] - level[0])) for part in (before, after)]
    if not any(rises):
        return None
    first = relative[: max(_LEAST_OF_BLOCK, count // _FIRST)] if rises[0] else before
    at_first = float(np.median(first))
    above = level - at_first
    # Slower from the block on from which none is as fast as the first.
    since = int(np.flatnonzero(np.append(_NOTABLE, above) <= _NOTABLE)[-1])
    if since >= blocks:
        return None
    from_the_first = since < _SHORT_PAST
    if from_the_first:  # the first ones rise as well: by half of them since the beginning
        at_first -= max(float(level[1] - level[0]), 0.0) * len(first) / 2 / (count / blocks)
    longer = np.maximum(relative - at_first, 0.0)
    begin = 0 if from_the_first else edges[since]
    lost = float((wire_ns * (1 - np.exp(-longer)))[begin:].sum())
    began_ns = (end_ns - wire_ns).astype(np.int64)
    stretches = tuple(
        Stretch(float(np.exp(above[b])), int(began_ns[edges[b]]), int(end_ns[edges[b + 1] - 1]))
        for b in range(since, blocks)
    )
    return Rise(stretches, lost, from_the_first)


def _rises(values: Floats, least: float) -> bool:
    """Whether the second half of a series is above the first, by at least so much."""
    half = len(values) // 2
    one, two = values[:half], values[half:]
    return float(np.median(two) - np.median(one)) >= least and certainly_larger(two, one)
