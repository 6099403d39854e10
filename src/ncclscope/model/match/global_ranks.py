"""The rank in the job of each rank that a process has in its communicators.

NCCL does not know ranks of the job. Without a launcher's word, the rank in the widest communicator
is taken: nearly every job makes one over all ranks. A launcher that counts more ranks than that
communicator has knows better, unless the process drives several GPUs: then its one number cannot
be that of all of them.

    WORLD_SIZE 8, RANK 5; communicators: rank 1 of 4, rank 0 of 2     ->  5
    WORLD_SIZE 8, RANK 5; communicators: rank 6 of 8, rank 0 of 2     ->  6
    WORLD_SIZE 2, RANK 1; GPU a: rank 2 of 4, GPU b: rank 3 of 4      ->  a: 2, b: 3
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ncclscope import launchers
from ncclscope.model.schema import NONE


@dataclass(frozen=True, slots=True)
class LocalRank:
    """A rank that a process has in one of its communicators."""

    number: int  # of the communicator in its process
    gpu: str  # tells the process's GPUs apart
    rank: int  # NONE where the interface does not tell
    ranks: int  # of the communicator; below 1 where the interface does not tell


def global_ranks(local_ranks: Iterable[LocalRank], identity: Mapping[str, str]) -> dict[int, int]:
    """Ranks in the job by communicator number; NONE where nothing tells."""
    given = launchers.global_rank(identity, launchers.RECORDED)
    world = launchers.world_size(identity, launchers.RECORDED)
    by_gpu: dict[str, list[LocalRank]] = {}
    for local in local_ranks:
        by_gpu.setdefault(local.gpu, []).append(local)
    out: dict[int, int] = {}
    for on_gpu in by_gpu.values():
        rank = NONE if given is None else given
        ranked = [local for local in on_gpu if local.rank >= 0]
        if ranked:
            widest = max(ranked, key=lambda local: (local.ranks, -local.number))
            if given is None or len(by_gpu) > 1 or world <= widest.ranks:
                rank = widest.rank
        out |= {local.number: rank for local in on_gpu}
    return out


def lowest_known(ranks: Iterable[int], identity: Mapping[str, str]) -> int:
    """The rank by which reports name a process: the lowest of its own, else the launcher's."""
    given = launchers.global_rank(identity, launchers.RECORDED)
    return min((rank for rank in ranks if rank != NONE), default=NONE if given is None else given)
