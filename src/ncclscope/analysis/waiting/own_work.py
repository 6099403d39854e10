"""How long GPUs of ranks work between operations, and whose calls nobody else makes."""

import numpy as np

from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats

_SHARED = 0.1  # of the calls of a rank, at positions of others as well: these show little of it


def own_work_ns(waiting: Waiting) -> Floats:
    """By rank the time that its GPU works between operations, without the start-up."""
    kernels, dependencies = waiting.kernels, waiting.dependencies
    shown = (dependencies.edge[START::3] == _abi.EDGE_GPU) & (dependencies.blocked == 0)
    shown &= ~waiting.start_up
    length = dependencies.length_ns[START::3] * shown
    return np.bincount(kernels.rank, length, minlength=len(kernels.ranks)).astype(np.float64)


def ranks_without_peers(waiting: Waiting) -> Bools:
    """By rank whether hardly any of its calls has a position that other ranks have as well: a stage
    of a pipeline with one rank. What is usual of it is its own past.
    """
    kernels, dependencies = waiting.kernels, waiting.dependencies
    ranks, position = len(kernels.ranks), dependencies.position
    first = np.full(dependencies.positions, ranks)
    last = np.full(dependencies.positions, -1)
    np.minimum.at(first, position, kernels.rank)
    np.maximum.at(last, position, kernels.rank)
    is_shared = (first != last)[position]
    calls = np.bincount(kernels.rank, minlength=ranks)
    shared = np.bincount(kernels.rank, is_shared, minlength=ranks)
    return np.asarray(shared <= _SHARED * calls)
