"""Which attempt of the job each process of a capture belongs to: a launcher that restarts its
ranks, a job that is queued again and a second `run` into the same directory all leave several.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessSpan:
    """One process: as whom it was there, with whom, and when."""

    rank: int  # in the job, negative where nobody tells
    restarts: int  # before it, as its launcher counts them; 0 where it does not
    communicators: frozenset[int]  # ids that other processes know too
    began_ns: int  # wall clock
    ended_ns: int  # when it was last heard of


@dataclass(frozen=True, slots=True)
class _JobGroup:
    """Processes that met in communicators, directly or through others: surely of one attempt."""

    places: tuple[int, ...]
    restarts: int
    by_rank: dict[int, tuple[int, int]]  # began, ended


def attempts_of(stays: Sequence[ProcessSpan]) -> list[int]:
    """The attempt of each process, from 0: who comes after somebody else of the same rank, and
    never met him, is of a later one. Ranks that are there twice at the same time are not: several
    small jobs may share a capture.
    """
    numbers = [0] * len(stays)
    earlier: dict[int, list[tuple[_JobGroup, int]]] = {}  # by rank
    highest = 0
    for party in _parties(stays):
        before = {id(one): (one, n) for rank in party.by_rank for one, n in earlier.get(rank, ())}
        number = max((n + _comes_after(party, one) for one, n in before.values()), default=highest)
        number = max(number, party.restarts)
        highest = max(highest, number)
        for rank in party.by_rank:
            earlier.setdefault(rank, []).append((party, number))
        for place in party.places:
            numbers[place] = number
    return numbers


def _comes_after(party: _JobGroup, other: _JobGroup) -> bool:
    """Whether it took the other's place: as its launcher counts, or because no rank of both was
    there as both for long (hosts' wall clocks may differ a little).
    """
    if party.restarts > other.restarts:
        return True
    for rank in party.by_rank.keys() & other.by_rank.keys():
        (began, ended), (began_there, ended_there) = party.by_rank[rank], other.by_rank[rank]
        together = min(ended, ended_there) - began
        if together > min(ended - began, ended_there - began_there) // 2:
            return False
    return True


def _parties(stays: Sequence[ProcessSpan]) -> list[_JobGroup]:
    """By their beginning."""
    groups: dict[int, list[int]] = {}
    for place, head in enumerate(joined([stay.communicators for stay in stays])):
        groups.setdefault(head, []).append(place)
    parties = []
    for places in sorted(groups.values(), key=lambda places: _began(stays, places)):
        mine = [stays[place] for place in places]
        by_rank: dict[int, tuple[int, int]] = {}
        for stay in mine:
            if stay.rank >= 0:
                began, ended = by_rank.get(stay.rank, (stay.began_ns, stay.ended_ns))
                span = min(began, stay.began_ns), max(ended, stay.ended_ns)
                by_rank[stay.rank] = span
        parties.append(_JobGroup(tuple(places), max(s.restarts for s in mine), by_rank))
    return parties


def _began(stays: Sequence[ProcessSpan], places: Iterable[int]) -> int:
    return min(stays[place].began_ns for place in places)


def joined(groups: Sequence[frozenset[int]]) -> list[int]:
    """For each group a number that it shares with all it overlaps with, directly or through
    others.
    """
    heads = list(range(len(groups)))

    def head(place: int) -> int:
        while heads[place] != place:
            heads[place] = heads[heads[place]]
            place = heads[place]
        return place

    first_with: dict[int, int] = {}
    for place, group in enumerate(groups):
        for member in group:
            heads[head(place)] = head(first_with.setdefault(member, place))
    return [head(place) for place in range(len(groups))]
