"""What a critical path runs through: ranks, communicators, functions and gaps."""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows
from ncclscope.analysis.waiting.critical_path import CriticalPath
from ncclscope.analysis.waiting.origins import KINDS, Waiting
from ncclscope.arrays import _abi
from ncclscope.model.schema import NONE


@dataclass(frozen=True, slots=True)
class PathPart:
    """Edges of one kind of one rank, or transfers of one function on one communicator."""

    kind: str
    rank: int | None  # global; None for transfers
    communicator: int | None  # row; None for ranks
    function: str  # "" for ranks
    length_ns: int
    edges: int
    excess_ns: int  # beyond the usual


def path_parts(waiting: Waiting, path: CriticalPath) -> tuple[PathPart, ...]:
    """What a path runs through, the longest part first; parts sum to the path."""
    kernels, kernel = waiting.kernels, path.events // 3
    edge = waiting.shown_edge[path.events].astype(np.int64)
    transfer = edge == _abi.EDGE_TRANSFER
    columns = [
        edge,
        np.where(transfer, NONE, kernels.ranks[kernels.rank[kernel]]),
        np.where(transfer, kernels.communicator[kernel], NONE),
        np.where(transfer, kernels.function[kernel], NONE),
    ]
    if not len(kernel):
        return ()
    keys, place = distinct_rows(columns)
    excess = np.minimum(waiting.excess_ns[path.events], path.length_ns)
    length = np.bincount(place, path.length_ns)
    parts = [
        PathPart(
            KINDS.get(code, "start-up"),
            None if rank == NONE else rank,
            None if communicator == NONE else communicator,
            waiting.run.word("function", function),
            int(length[row]),
            int((place == row).sum()),
            int(excess[place == row].sum()),
        )
        for row, (code, rank, communicator, function) in enumerate(keys.tolist())
    ]
    return tuple(sorted(parts, key=lambda part: -part.length_ns))
