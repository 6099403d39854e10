"""A process's communicators as its events refer to them: by number."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture.process import Process
from ncclscope.model.process.works import Numbers, Works
from ncclscope.model.schema import NONE

Ints = npt.NDArray[np.int64]
_MOST_RANKS = 1 << 20  # more is damage


@dataclass(frozen=True, slots=True)
class LocalCommunicators:
    """Arrays by communicator number; the last place stands for events without one."""

    id: Ints  # NCCL's hash, 0 where nobody tells
    rank: Ints
    ranks: Ints
    nodes: Ints
    gpu: Ints  # number of the GPU within the process
    version: Ints


def _from_works(values: Numbers, comm: Numbers, size: int) -> Ints:
    """The largest value that any work of a communicator carries."""
    out = np.full(size, NONE, np.int64)
    inside = np.flatnonzero(comm < size)
    np.maximum.at(out, comm[inside], values[inside])
    return out


def local_communicators(process: Process, works: Works) -> LocalCommunicators:
    """What init told, and for interfaces 1 to 3, which tell nothing then, what works carry."""
    size = max((comm.number for comm in process.communicators), default=-1) + 2
    found = LocalCommunicators(
        *(np.full(size, fill, np.int64) for fill in (0, NONE, NONE, NONE, 0, 7))
    )
    gpus: dict[str, int] = {}
    for comm in process.communicators:
        number = comm.number
        found.id[number] = np.array(comm.id, np.uint64).view(np.int64)
        found.version[number] = comm.version
        found.gpu[number] = gpus.setdefault(comm.gpu_uuid or comm.gpu_bus_id, len(gpus))
        told = 0 < comm.ranks <= _MOST_RANKS
        if 0 <= comm.rank < (comm.ranks if told else _MOST_RANKS):
            found.rank[number] = comm.rank
        if told:
            found.ranks[number], found.nodes[number] = comm.ranks, comm.nodes
    known = (found.id[:-1] != 0).all() and (found.rank[:-1] != NONE).all()
    if not known or (works.comm >= size - 1).any():
        _add_works(found, works, size)
    return found


def _add_works(found: LocalCommunicators, works: Works, size: int) -> None:
    """Ids and ranks that only works tell."""
    hashes = np.zeros(size, np.int64)
    inside = np.flatnonzero((works.comm_hash != 0) & (works.comm < size))
    hashes[works.comm[inside]] = works.comm_hash[inside]
    found.id[:] = np.where(found.id == 0, hashes, found.id)
    ranks = _from_works(works.rank, works.comm, size)
    found.rank[:] = np.where(found.rank == NONE, ranks, found.rank)
