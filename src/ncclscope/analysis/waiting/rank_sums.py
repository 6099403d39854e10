"""Sums by rank of what its edges are longer, or of what waiting they were charged with."""

import numpy as np

from ncclscope.analysis.robust_statistics import DEVIATIONS
from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.arrays import _abi
from ncclscope.arrays.intervals import union_lengths
from ncclscope.arrays.types import Bools, Floats
from ncclscope.model.schema import NONE

_FEW_MEETINGS = 0.02  # of all kernels


def sums_by_rank(waiting: Waiting, values: Floats) -> Floats:
    """Sums of values of kernels by rank."""
    kernels = waiting.kernels
    return np.bincount(kernels.rank, values, minlength=len(kernels.ranks)).astype(np.float64)


def steady_charges(waiting: Waiting) -> Floats:
    """Charges by kernel and event without the start-up."""
    charged = waiting.charges.by_event.reshape(-1, 3).astype(np.float64)
    charged[waiting.start_up] = 0
    root = waiting.dependencies.edge.reshape(-1, 3) == _abi.EDGE_ROOT
    charged[root] = 0
    return charged


def share_of_wall_time(waiting: Waiting) -> Floats:
    """By rank how long it waited, as a share of the sum of its waits: less than 1 where kernels of
    several CUDA streams wait at the same time.
    """
    kernels, start = waiting.kernels, waiting.arrivals.events_ns[:, START]
    wait, rank = waiting.arrivals.wait_ns, kernels.rank.astype(np.int32)
    waited = union_lengths(rank, len(kernels.ranks), start, start + wait)
    return np.asarray(waited / np.maximum(sums_by_rank(waiting, wait.astype(np.float64)), 1.0))


def are_significant(waiting: Waiting, lengths: Floats, place: int, candidates: Bools) -> bool:
    """Whether `lengths` by kernel sum to more on the rank at a place than on ranks that are no
    candidates, by more than as many delays of these lengths vary by chance.
    """
    sums, squares = sums_by_rank(waiting, lengths), sums_by_rank(waiting, lengths * lengths)
    most = float(sums[~candidates].max(initial=0.0))
    return bool(sums[place] > most + DEVIATIONS * np.sqrt(squares[place]))


def is_tied_loosely(waiting: Waiting) -> bool:
    """Whether ranks meet in sends and receives alone. They then keep a lead over each other that
    nobody loses time by: a rank that began late stays the last one, and never waits.
    """
    kernels = waiting.kernels
    meets = (kernels.meeting != NONE) & ~waiting.start_up
    return bool(meets.sum() < _FEW_MEETINGS * (~waiting.start_up).sum())
