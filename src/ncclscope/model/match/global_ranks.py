"""The rank in the job of each rank that a process has in its communicators.

NCCL does not know ranks of the job. Without a launcher's word, the rank in the widest communicator
is taken: nearly every job makes one over all ranks. A launcher that counts more ranks than that
communicator has knows better, unless the process drives several GPUs: then its one number cannot
be that of all of them. Ranks of a process that share a GPU, or whose GPUs are not known, are told
apart by a communicator in which they differ.

    WORLD_SIZE 8, RANK 5; communicators: rank 1 of 4, rank 0 of 2     ->  5
    WORLD_SIZE 8, RANK 5; communicators: rank 6 of 8, rank 0 of 2     ->  6
    WORLD_SIZE 2, RANK 1; GPU a: rank 2 of 4, GPU b: rank 3 of 4      ->  a: 2, b: 3
    no launcher; one GPU, one communicator: rank 0 of 2, rank 1 of 2  ->  0, 1
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
    id: int = 0  # of the communicator, 0 where the interface does not tell


def global_ranks(local_ranks: Iterable[LocalRank], identity: Mapping[str, str]) -> dict[int, int]:
    """Ranks in the job by communicator number; NONE where nothing tells."""
    given = launchers.global_rank(identity, launchers.RECORDED)
    world = launchers.world_size(identity, launchers.RECORDED)
    by_gpu: dict[str, list[LocalRank]] = {}
    for local in local_ranks:
        by_gpu.setdefault(local.gpu, []).append(local)
    groups = [group for on_gpu in by_gpu.values() for group in _by_rank(on_gpu)]
    out: dict[int, int] = {}
    for group in groups:
        rank = NONE if given is None else given
        ranked = [local for local in group if local.rank >= 0]
        if ranked:
            widest = max(ranked, key=lambda local: (local.ranks, -local.number))
            if given is None or len(groups) > 1 or world <= widest.ranks:
                rank = widest.rank
        out |= {local.number: rank for local in group}
    return out


def _by_rank(on_gpu: list[LocalRank]) -> list[list[LocalRank]]:
    """Ranks on one GPU, those of each rank of the job together.

    A communicator that has several of them tells how many there are. Their order is the same in
    all communicators; of communicators that have fewer, they were made in turn.
    """
    by_id: dict[int, list[LocalRank]] = {}
    for local in sorted(on_gpu, key=lambda local: (local.rank, local.number)):
        if local.id and local.rank >= 0:
            by_id.setdefault(local.id, []).append(local)
    several = max((len({local.rank for local in own}) for own in by_id.values()), default=1)
    if several <= 1:
        return [on_gpu]
    groups: list[list[LocalRank]] = [[] for _ in range(several)]
    turns: dict[int, int] = {}  # by size of communicators, how many were placed
    for local in sorted(on_gpu, key=lambda local: local.number):
        ranks = sorted({other.rank for other in by_id.get(local.id, [])})
        if len(ranks) == several and local.rank in ranks:
            groups[ranks.index(local.rank)].append(local)
        else:
            turn = turns[local.ranks] = turns.get(local.ranks, -1) + 1
            groups[turn % several].append(local)
    return [group for group in groups if group]


def lowest_known(ranks: Iterable[int], identity: Mapping[str, str]) -> int:
    """The rank by which reports name a process: the lowest of its own, else the launcher's."""
    given = launchers.global_rank(identity, launchers.RECORDED)
    return min((rank for rank in ranks if rank != NONE), default=NONE if given is None else given)
