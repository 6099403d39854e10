"""Which attempt of the job each process of a capture belongs to.

A launcher that restarts its ranks, a job that is queued again and a second `run` into the same
directory all leave several processes of one rank. Example, times in seconds, communicators A and B:

    rank 0: 0-10 in A     rank 0: 20-30 in B
    rank 1: 0-10 in A     rank 1: 20-30 in B

Processes that share a communicator are one group: {A} and {B}. The group {B} has the ranks of {A}
and came after it, so it is attempt 1. Groups with the same ranks at the same time stay one attempt:
several small jobs may share a capture.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessSpan:
    """One process: its rank, its communicators, and when it lived."""

    rank: int  # in the job, negative where nobody tells
    restarts: int  # before it, as its launcher counts them; 0 where it does not
    communicators: frozenset[int]  # ids that other processes know too
    began_ns: int  # wall clock
    ended_ns: int  # when it was last heard of


@dataclass(frozen=True, slots=True)
class _JobGroup:
    """Processes that share communicators, directly or through others: surely one attempt."""

    places: tuple[int, ...]
    restarts: int
    span_of_rank: dict[int, tuple[int, int]]  # began, ended


def attempts_of(spans: Sequence[ProcessSpan]) -> list[int]:
    """The attempt of each process, from 0."""
    numbers = [0] * len(spans)
    groups_of_rank: dict[int, list[tuple[_JobGroup, int]]] = {}  # with their attempts
    highest = 0
    for group in _job_groups(spans):
        earlier = {
            id(other): (other, number)
            for rank in group.span_of_rank
            for other, number in groups_of_rank.get(rank, ())
        }
        number = max(
            (number + _replaces(group, other) for other, number in earlier.values()),
            default=highest,
        )
        number = max(number, group.restarts)
        highest = max(highest, number)
        for rank in group.span_of_rank:
            groups_of_rank.setdefault(rank, []).append((group, number))
        for place in group.places:
            numbers[place] = number
    return numbers


def _replaces(group: _JobGroup, other: _JobGroup) -> bool:
    """Whether a group is a later attempt than one that began before it: by its launcher's count,
    or because no rank of both lived in both for long. Wall clocks of hosts may differ a little, so
    half of the shorter life must overlap.
    """
    if group.restarts > other.restarts:
        return True
    for rank in group.span_of_rank.keys() & other.span_of_rank.keys():
        began, ended = group.span_of_rank[rank]
        other_began, other_ended = other.span_of_rank[rank]
        together = min(ended, other_ended) - began
        if together > min(ended - began, other_ended - other_began) // 2:
            return False
    return True


def _job_groups(spans: Sequence[ProcessSpan]) -> list[_JobGroup]:
    """All groups, in the order in which they began."""
    members: dict[int, list[int]] = {}
    for place, group in enumerate(connected_components([span.communicators for span in spans])):
        members.setdefault(group, []).append(place)
    groups = []
    for places in sorted(members.values(), key=lambda places: _began_ns(spans, places)):
        span_of_rank: dict[int, tuple[int, int]] = {}
        for span in (spans[place] for place in places):
            if span.rank >= 0:
                began, ended = span_of_rank.get(span.rank, (span.began_ns, span.ended_ns))
                span_of_rank[span.rank] = min(began, span.began_ns), max(ended, span.ended_ns)
        restarts = max(spans[place].restarts for place in places)
        groups.append(_JobGroup(tuple(places), restarts, span_of_rank))
    return groups


def _began_ns(spans: Sequence[ProcessSpan], places: Iterable[int]) -> int:
    return min(spans[place].began_ns for place in places)


def connected_components(sets: Sequence[frozenset[int]]) -> list[int]:
    """A number for each set; sets that overlap, directly or through others, have the same one.

    >>> connected_components([frozenset({1, 2}), frozenset({3}), frozenset({2, 4}), frozenset({4})])
    [0, 1, 0, 0]
    """
    heads = list(range(len(sets)))

    def head(place: int) -> int:
        while heads[place] != place:
            heads[place] = heads[heads[place]]
            place = heads[place]
        return place

    first_with: dict[int, int] = {}
    for place, members in enumerate(sets):
        for member in members:
            heads[head(place)] = head(first_with.setdefault(member, place))
    return [head(place) for place in range(len(sets))]
