"""Names of communicators for people: the user's own, else inferred from membership."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ncclscope.model.match.dimensions import dimension_of, joined_dimension


@dataclass(frozen=True, slots=True)
class Membership:
    """One communicator: the user's name for it, its number of ranks, and where they are."""

    name: str  # commName, "" where there is none
    ranks: int
    members: tuple[tuple[int, int], ...]  # (global rank, node) of the ranks that are known
    descriptions: tuple[str, ...] = ()  # of the program's process groups with the same ranks


@dataclass(frozen=True, slots=True)
class Name:
    """A name, unique within its capture."""

    text: str
    inferred: bool
    parent: int  # the smallest communicator that contains it, -1
    dimension: str = ""


def _stride(ranks: Sequence[int]) -> int:
    """The distance of evenly spaced ranks, 0 for others."""
    steps = {b - a for a, b in pairwise(ranks)}
    return steps.pop() if len(steps) == 1 else 0


def _ranges(ranks: Sequence[int]) -> str:
    """Ranks in few characters.

    >>> _ranges([0, 1, 2, 3]), _ranges([0, 4, 8]), _ranges(range(0, 64, 4)), _ranges([0, 1, 5])
    ('0-3', '0,4,8', '0-60/4', '0,1,5')
    """
    if len(ranks) == 1:
        return str(ranks[0])
    stride = _stride(ranks)
    if stride == 1:
        return f"{ranks[0]}-{ranks[-1]}"
    if stride and len(ranks) > 3:
        return f"{ranks[0]}-{ranks[-1]}/{stride}"
    shown = ",".join(map(str, ranks[:4]))
    return shown + (f"…{ranks[-1]}" if len(ranks) > 4 else "")


def _strides(comms: Sequence[Membership]) -> list[int]:
    """Strides above one that occur, smallest first."""
    strides = {
        _stride(sorted(rank for rank, _ in comm.members)) for comm in comms if comm.ranks > 1
    }
    return sorted(stride for stride in strides if stride > 1)


def _infer(
    comm: Membership, world_size: int, node_sizes: Mapping[int, int], strides: list[int]
) -> str:
    """The name that membership suggests, "" unless all ranks are known.

    Launchers number ranks so that tensor-parallel ones are neighbours, data-parallel ones lie
    farther apart, and pipeline stages farthest.
    """
    if comm.ranks == world_size:
        return "world"
    ranks = sorted(rank for rank, _ in comm.members)
    if not ranks or len(ranks) != comm.ranks or len(set(ranks)) != len(ranks) or ranks[0] < 0:
        return ""
    if comm.ranks == 1:
        return f"self:{ranks[0]}"
    where = [node for _, node in comm.members]
    stride = _stride(ranks)
    if len(node_sizes) > 1 and len(set(where)) == 1 and len(where) == node_sizes[where[0]]:
        kind = "node"
    elif len(node_sizes) > 1 and len(where) == len(node_sizes) == len(set(where)):
        kind = "one-per-node"
    elif stride == 1:
        kind = "tp"
    elif stride:
        kind = "pp" if len(strides) > 1 and stride == strides[-1] else "dp"
    else:
        kind = "group"
    return f"{kind}:{_ranges(ranks)}"


def _described(comm: Membership, world_size: int) -> str:
    """The name by the program's own word for its dimension; "" without one."""
    dimension = joined_dimension(comm.descriptions)
    ranks = sorted({rank for rank, _ in comm.members})
    if not dimension or comm.ranks == world_size:
        return dimension
    return f"{dimension}:{_ranges(ranks)}"


def _parents(comms: Sequence[Membership]) -> list[int]:
    """For each communicator the smallest one that contains it and has more ranks. Only those that
    its rarest rank is in can be.
    """
    sets = [frozenset(rank for rank, _ in comm.members) for comm in comms]
    of_rank: dict[int, list[int]] = {}
    for row in sorted(range(len(comms)), key=lambda row: len(sets[row])):
        for rank in sets[row]:
            of_rank.setdefault(rank, []).append(row)
    parents = []
    for members in sets:
        candidates = min((of_rank[rank] for rank in members), key=len, default=[])
        larger = (o for o in candidates if len(sets[o]) > len(members) and members <= sets[o])
        parents.append(next(larger, -1))
    return parents


def role_of_name(name: str) -> str:
    """What communicators of one kind have in common: tp of tp, tp#2 and tp:0-1."""
    return re.split(r"[:#]", name, maxsplit=1)[0]


def name_communicators(comms: Sequence[Membership], world_size: int) -> list[Name]:
    """A unique name for each communicator; inferred names say so."""
    node_of = {rank: node for comm in comms for rank, node in comm.members}
    node_sizes = Counter(node_of.values())
    strides = _strides(comms)
    described = [comm.name or _described(comm, world_size) for comm in comms]
    texts = [
        name or _infer(comm, world_size, node_sizes, strides)
        for comm, name in zip(comms, described, strict=True)
    ]
    parents = _parents(comms)
    seen: dict[str, int] = {}
    names = []
    for row, (comm, text) in enumerate(zip(comms, texts, strict=True)):
        text = text or f"comm{row}"
        seen[text] = seen.get(text, 0) + 1
        unique = text if seen[text] == 1 else f"{text}#{seen[text]}"
        dimension = dimension_of(comm.name) or joined_dimension(comm.descriptions)
        names.append(
            Name(unique, not described[row], parents[row], dimension or dimension_of(texts[row]))
        )
    return names
