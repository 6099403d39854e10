"""A process's communicators by their numbers, as its events refer to them."""

from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.capture.process import Process
from ncclscope.model.process.works import Numbers, Works
from ncclscope.model.schema import NONE
from ncclscope.nccl.limits import MOST_RANKS


@dataclass(frozen=True, slots=True)
class LocalCommunicators:
    """Arrays by communicator number; the last place stands for events without a communicator."""

    id: Ints  # NCCL's hash, 0 where it is unknown
    rank: Ints
    ranks: Ints
    nodes: Ints
    gpu: Ints  # number of the GPU within the process
    version: Ints


def _largest_by_communicator(values: Numbers, comm: Numbers, size: int) -> Ints:
    """The largest value of each communicator's works."""
    out = np.full(size, NONE, np.int64)
    inside = np.flatnonzero(comm < size)
    np.maximum.at(out, comm[inside], values[inside])
    return out


def local_communicators(process: Process, works: Works) -> LocalCommunicators:
    """The communicators by their inits; interfaces 1 to 3 say nothing then, so by their works."""
    size = max((comm.number for comm in process.communicators), default=-1) + 2
    local = LocalCommunicators(
        *(np.full(size, fill, np.int64) for fill in (0, NONE, NONE, NONE, 0, 7))
    )
    gpus: dict[str, int] = {}
    for comm in process.communicators:
        number = comm.number
        local.id[number] = np.array(comm.id, np.uint64).view(np.int64)
        local.version[number] = comm.version
        local.gpu[number] = gpus.setdefault(comm.gpu_uuid or comm.gpu_bus_id, len(gpus))
        has_ranks = 0 < comm.ranks <= MOST_RANKS
        if 0 <= comm.rank < (comm.ranks if has_ranks else MOST_RANKS):
            local.rank[number] = comm.rank
        if has_ranks:
            local.ranks[number], local.nodes[number] = comm.ranks, comm.nodes
    complete = (local.id[:-1] != 0).all() and (local.rank[:-1] != NONE).all()
    if not complete or (works.comm >= size - 1).any():
        _add_from_works(local, works, size)
    return local


def _add_from_works(local: LocalCommunicators, works: Works, size: int) -> None:
    """Adds ids and ranks that only works carry."""
    hashes = np.zeros(size, np.int64)
    inside = np.flatnonzero((works.comm_hash != 0) & (works.comm < size))
    hashes[works.comm[inside]] = works.comm_hash[inside]
    local.id[:] = np.where(local.id == 0, hashes, local.id)
    ranks = _largest_by_communicator(works.rank, works.comm, size)
    local.rank[:] = np.where(local.rank == NONE, ranks, local.rank)
