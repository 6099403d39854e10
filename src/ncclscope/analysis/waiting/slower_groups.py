"""Communicators whose collectives take far longer than those of their peers, as a habit.

Where other work goes on beside them nobody waits for their transfers, so that no waiting begins
there. What makes them slow is there all the same, and larger communicators may use the same link:

    communicator    ranks     AllGather    peers          next to no waiting begins on cp#5, and
    cp#5            8, 9      1936 µs      41 µs (5)      AllReduces of world, which have no peers,
    world           0 to 11   1508 µs      none           may be as slow because of it
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.arrivals import END
from ncclscope.analysis.waiting.kernels import Kernels, without_peers
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays.types import Bools, Floats, Ints

_FAR_SLOWER = 3.0  # times as slow as usual
_AS_USUAL = 1.5  # times as slow: all peers are faster
_SEVERAL_PEERS = 3
_LEAST_REPEATS_OF_RANK = 10
_PARTS = 1_000  # of a time: quantiles are of whole numbers


@dataclass(frozen=True, slots=True)
class SlowerGroup:
    """A communicator that is far slower than all of its peers."""

    communicator: int  # row
    slowness: float  # times what transfers of its peers take
    peers: int
    shared: tuple[int, ...]  # rows of communicators without peers that have all of its ranks
    shared_ns: int  # what these may gain at most, if they are as slow for the same reason


def slower_groups(waiting: Waiting) -> tuple[SlowerGroup, ...]:
    """All of them, the slowest first."""
    kernels = waiting.kernels
    class_of = kernels.communicator_class
    classes = np.unique(class_of[_steadily_slower(waiting)])
    if not len(classes):
        return ()
    has = _has(kernels)
    slowness, times = _slowness(waiting, np.isin(class_of, classes))
    often = np.flatnonzero(times >= _LEAST_REPEATS_OF_RANK * np.maximum(has.sum(axis=1), 1))
    found = []
    for row in often[slowness[often] >= _FAR_SLOWER].tolist():
        peers = often[(class_of[often] == class_of[row]) & (often != row)]
        if len(peers) >= _SEVERAL_PEERS and (slowness[peers] < _AS_USUAL).all():
            own = float(slowness[row])
            found.append(SlowerGroup(row, own, len(peers), *_shared(waiting, has, row, own)))
    return tuple(sorted(found, key=lambda group: -group.slowness))


def _steadily_slower(waiting: Waiting) -> Ints:
    """Communicators whose transfers are surely longer than usual, by a bound that is at hand."""
    usual = waiting.usual
    rest = usual.steady_transfer_ns - usual.steady_transfer_excess_ns
    return np.flatnonzero(usual.steady_transfer_ns > _AS_USUAL * np.maximum(rest, 1.0))


def _slowness(waiting: Waiting, looked_at: Bools) -> tuple[Floats, Ints]:
    """By communicator, of those that are `looked_at`, how many times as long as usual its median
    transfer takes, and how many transfers of collectives there are.
    """
    kernels = waiting.kernels
    chosen = ~kernels.pair & ~waiting.start_up & looked_at[kernels.communicator]
    usual = waiting.usual.median_ns[END::3]
    rows = np.flatnonzero(chosen & (usual > 0))
    own = kernels.communicator[rows].astype(np.int64)
    taken = waiting.dependencies.length_ns[END::3][rows]
    times = (_PARTS * taken / usual[rows]).astype(np.int64)
    median = quantile_by_group(own, len(looked_at), times, 0.5) / _PARTS
    return np.nan_to_num(median), np.bincount(own, minlength=len(looked_at))


def _has(kernels: Kernels) -> Bools:
    """By communicator and place of a rank whether the rank has collectives of it."""
    has = np.zeros((len(kernels.communicator_class), len(kernels.ranks)), bool)
    rows = ~kernels.pair
    has[kernels.communicator[rows], kernels.rank[rows]] = True
    return has


def _shared(waiting: Waiting, has: Bools, row: int, slowness: float) -> tuple[tuple[int, ...], int]:
    """Communicators without peers that have all ranks of this one, and what the rank with most of
    it would gain if their transfers were as many times faster.
    """
    kernels = waiting.kernels
    larger: Ints = np.flatnonzero((has & has[row]).sum(axis=1) == has[row].sum())
    larger = larger[without_peers(kernels)[larger] & (larger != row)]
    own = np.isin(kernels.communicator, larger) & ~kernels.pair & ~waiting.start_up
    taken = waiting.dependencies.length_ns[END::3] * own
    by_rank = np.bincount(kernels.rank, taken, minlength=1)
    used = np.intersect1d(larger, kernels.communicator[own])
    return tuple(used.tolist()), int(by_rank.max() * (1 - 1 / slowness))
