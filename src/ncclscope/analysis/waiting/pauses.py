"""Single pauses of ranks: delays that are no habit, and cost a notable part of the run.

A checkpoint, an evaluation or a garbage collection of one rank stops all others once or a few
times. What counts is the share of the run that is lost, not how often it happened.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.analysis.waiting.rank_delays import (
    DENSE,
    LEAST_PAUSE,
    MOST_KERNELS,
    OFTEN,
    is_idle_root,
)
from ncclscope.analysis.waiting.rank_sums import is_tied_loosely
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.threads import in_threads

LEAST_SHARE = 0.03  # of the run, by all pauses of a rank
_TIMES_NOISE = 4.0  # what is long on other ranks
_LONG = 0.99  # quantile of the excess of edges
_SAME_HOST = 0.75  # of the ranks of a host that pause together
_MOST_OF_HOST = 20  # pauses of a rank: more are a habit
_MORE_TOGETHER = 1.5  # times what is gained without the pauses of one rank or host
_SAME_TIME = 0.5  # of a pause, in the median of other ranks: all of them paused
_AS_LONG = 0.5  # of a pause, on another rank of the host: less is a delay of its own


@dataclass(frozen=True, slots=True)
class Pauses:
    """The pauses of one rank, of all ranks of a host, or of some ranks that pause together."""

    ranks: tuple[int, ...]  # global
    events: Ints  # in the order of time
    length_ns: Ints  # beyond the usual
    at_ns: Ints  # when each began to be late
    prediction: Prediction  # without them
    as_idle_root: bool  # as Delays.as_idle_root


@dataclass(frozen=True, slots=True)
class Standstills:
    """Pauses of all ranks at the same time."""

    length_ns: Ints  # beyond the usual, in the order of time
    at_ns: Ints  # when each began


def pauses_of(waiting: Waiting, what_if: WhatIf, late: Mapping[int, Ints]) -> tuple[Pauses, ...]:
    """Ranks with pauses that make the run notably longer, the most costly first. `late`: ranks
    whose delays are a habit, and events that the habit does not explain.
    """
    beyond = BeyondMedian(waiting)
    hosts = _of_hosts(waiting, what_if, beyond)
    on_hosts = {rank for own in hosts for rank in own.ranks}
    of_ranks = _of_ranks(waiting, what_if, late, beyond)
    alone = [own for own in of_ranks if own.ranks[0] not in on_hosts]
    shortest_ns = min((own.prediction.run_then_ns for own in [*hosts, *alone]), default=None)
    several = _of_several(waiting, what_if, {*late, *on_hosts}, beyond, shortest_ns)
    together = {rank for own in several for rank in own.ranks}
    alone = [own for own in alone if own.ranks[0] not in together]
    return tuple(sorted([*hosts, *several, *alone], key=lambda own: own.prediction.run_then_ns))


def _of_calls_and_starts(waiting: Waiting, by_event: Ints | Floats) -> Floats:
    """Values by event as those of calls and starts by kernel, without the start-up and what comes
    first on a rank.
    """
    values = by_event.reshape(-1, 3)[:, :2].astype(np.float64)
    values[waiting.start_up] = 0
    values[waiting.dependencies.edge.reshape(-1, 3)[:, :2] == _abi.EDGE_ROOT] = 0
    return values


def _of_ranks(
    waiting: Waiting, what_if: WhatIf, late: Mapping[int, Ints], beyond: "BeyondMedian"
) -> list[Pauses]:
    """Pauses of single ranks."""
    kernels = waiting.kernels
    now = waiting.judged_ns
    on_path = _of_calls_and_starts(waiting, waiting.excess_on_path_ns)
    sums = np.bincount(
        kernels.rank, (on_path * (on_path > LEAST_PAUSE * now)).sum(axis=1), len(kernels.ranks)
    )
    pauses = []
    places = np.flatnonzero(sums >= LEAST_SHARE * now).tolist()
    long_ns = _long_ns(waiting) if places else np.empty(0)
    for place in places:
        rank = int(kernels.ranks[place])
        events = _long_delays(waiting, place, on_path, LEAST_PAUSE * now, long_ns)
        if rank in late:
            events = np.intersect1d(_seldom(waiting, place, events), late[rank])
        events = events[~beyond.of_all_ranks(events)]
        own = _without(waiting, what_if, (rank,), events) if len(events) else None
        if own is not None:
            pauses.append(own)
    return pauses


def _without(
    waiting: Waiting, what_if: WhatIf, ranks: tuple[int, ...], events: Ints
) -> Pauses | None:
    """These pauses, where the run is notably shorter without them."""
    prediction = notable_prediction(waiting, what_if, ranks, events)
    if prediction is None:
        return None
    length = waiting.excess_ns[events].astype(np.int64)
    began = waiting.time_ns[events] - length
    return Pauses(ranks, events, length, began, prediction, is_idle_root(waiting, events))


def notable_prediction(
    waiting: Waiting, what_if: WhatIf, ranks: tuple[int, ...], events: Ints
) -> Prediction | None:
    """The run without these pauses of ranks; None where it is not notably shorter."""
    keep = np.ones(len(waiting.time_ns), bool)
    keep[events] = False
    prediction = what_if.predict(Change(ranks=ranks), keep)
    gained = prediction.run_now_ns - prediction.run_then_ns
    is_notable = gained >= max(LEAST_SHARE * waiting.judged_ns, prediction.noise_ns)
    return prediction if is_notable else None


def _of_hosts(waiting: Waiting, what_if: WhatIf, beyond: "BeyondMedian") -> list[Pauses]:
    """Pauses that all ranks of a host have at the same time, or those of several hosts that share a
    storage. Without those of one rank, or of one of these hosts, nothing is gained: the others
    pause as long.
    """
    ranks = waiting.kernels.ranks
    node_of = waiting.run.node_of[ranks]
    nodes, count = np.unique(node_of, return_counts=True)
    if len(nodes) < 2 or len(waiting.kernels) > MOST_KERNELS:
        return []
    excess = _of_calls_and_starts(waiting, waiting.excess_ns)
    places = {node: np.flatnonzero(node_of == node) for node in nodes[count > 1].tolist()}
    longest_ns = np.maximum.reduceat(excess.max(axis=1), waiting.kernels.first_of_rank)
    paused = longest_ns > LEAST_PAUSE * waiting.judged_ns  # hardly any rank, of very many
    events = {
        node: _common_pauses(waiting, own, excess, beyond)
        for node, own in places.items()
        if paused[own].any() and len(own) < len(ranks)
    }
    hosts: list[Pauses] = []
    for group in _that_pause_together(waiting, {n: own for n, own in events.items() if len(own)}):
        of_group = tuple(ranks[np.sort(np.concatenate([places[node] for node in group]))].tolist())
        own = _without(waiting, what_if, of_group, np.concatenate([events[n] for n in group]))
        if own is not None:
            longest = _one_a_pause(own)
            hosts.append(replace(own, length_ns=own.length_ns[longest], at_ns=own.at_ns[longest]))
    return hosts


def _of_several(
    waiting: Waiting,
    what_if: WhatIf,
    others: Collection[int],
    beyond: "BeyondMedian",
    shortest_ns: int | None,
) -> list[Pauses]:
    """Pauses that some ranks have at the same time, as those that write a checkpoint: one of each
    host, or all of one replica. Without those of one of them little is gained: the others pause as
    long. `others`: ranks whose delays have another reason; `shortest_ns`: the run without the
    pauses of one rank, or of a host, which more must be gained than by that.
    """
    kernels, now = waiting.kernels, waiting.judged_ns
    if len(kernels) > MOST_KERNELS:
        return []
    excess = _of_calls_and_starts(waiting, waiting.excess_ns)
    limit = max(LEAST_PAUSE * now, _TIMES_NOISE * float(np.quantile(excess, _LONG)))
    longest_ns = np.maximum.reduceat(excess.max(axis=1), kernels.first_of_rank)
    paused = np.flatnonzero((longest_ns > limit) & ~np.isin(kernels.ranks, list(others)))
    if len(paused) < 2 or len(paused) > len(kernels.ranks) / 2:
        return []
    events = {}
    for place in paused.tolist():
        own_events = _rank_events(waiting, place, excess, limit, beyond)
        if len(own_events):
            events[place] = own_events
    several = []
    for group in _that_pause_together(waiting, events):
        if len(group) < 2:
            continue
        ranks = tuple(kernels.ranks[np.sort(group)].tolist())
        own = _without(waiting, what_if, ranks, np.concatenate([events[p] for p in group]))
        gained = (own.prediction.run_now_ns - own.prediction.run_then_ns) if own else 0
        most = (own.prediction.run_now_ns - shortest_ns) if own and shortest_ns is not None else 0
        if own is not None and gained > _MORE_TOGETHER * most:
            longest = _one_a_pause(own)
            several.append(replace(own, length_ns=own.length_ns[longest], at_ns=own.at_ns[longest]))
    return several


def _rank_events(
    waiting: Waiting, place: int, excess: Floats, limit: float, beyond: "BeyondMedian"
) -> Ints:
    """Events of a rank with a pause before them that not all ranks have; none where pauses are a
    habit.
    """
    kernels, positions = waiting.kernels, waiting.dependencies.position
    first, end = np.append(kernels.first_of_rank, len(kernels))[[place, place + 1]].tolist()
    rows, columns = np.nonzero(excess[first:end] > limit)
    rows += first
    chances = int(np.isin(positions[first:end], np.unique(positions[rows])).sum())
    if len(rows) > _MOST_OF_HOST or (len(rows) >= OFTEN and len(rows) >= DENSE * chances):
        return np.empty(0, np.int64)
    events = np.sort(3 * rows + columns)
    return np.asarray(events[~beyond.of_all_ranks(events)])


def _that_pause_together(waiting: Waiting, events: dict[int, Ints]) -> list[list[int]]:
    """Nodes, or ranks, by the times of their pauses: those that mostly pause at the same time are
    together.
    """
    groups: list[list[int]] = []
    for node in events:
        for group in groups:
            if _are_at_the_same_time(waiting, events[node], events[group[0]]):
                group.append(node)
                break
        else:
            groups.append([node])
    return groups


def _are_at_the_same_time(waiting: Waiting, one: Ints, other: Ints) -> bool:
    """Whether most of these pauses lie within some of the others, and the other way round."""
    end = [waiting.time_ns[events] for events in (one, other)]
    begin = [end[0] - waiting.excess_ns[one], end[1] - waiting.excess_ns[other]]
    overlap = (begin[0][:, None] < end[1]) & (begin[1] < end[0][:, None])
    return bool(min(overlap.any(axis=0).mean(), overlap.any(axis=1).mean()) >= _SAME_HOST)


def _common_pauses(waiting: Waiting, places: Ints, excess: Floats, beyond: "BeyondMedian") -> Ints:
    """Events with a pause before them that nearly all of these ranks have at the same time, and
    other ranks have not. `excess`: of calls and starts without the start-up.
    """
    kernels, time = waiting.kernels, waiting.time_ns
    of_host = np.isin(np.arange(len(kernels.ranks)), places)[kernels.rank]
    limit = LEAST_PAUSE * waiting.judged_ns
    limit = max(limit, _TIMES_NOISE * float(np.quantile(excess[~of_host], _LONG)))
    rows, columns = np.nonzero((excess > limit) & of_host[:, None])
    if not len(rows) or len(rows) > _MOST_OF_HOST * len(places):
        return np.empty(0, np.int64)
    events = 3 * rows + columns
    chosen, length = np.zeros(len(events), bool), waiting.excess_ns[events]
    for number, event in enumerate(events.tolist()):
        near = np.abs(time[events] - time[event]) <= length[number]
        near &= length >= _AS_LONG * length[number]
        count = len(np.unique(kernels.rank[rows[near]]))
        chosen[number] = count >= _SAME_HOST * len(places)
    events = events[chosen]
    events = events[~beyond.of_all_ranks(events)]
    return np.asarray(events[np.argsort(time[events], kind="stable")])


def _one_a_pause(pauses: Pauses) -> Ints:
    """Of the events of one pause of a host, the place of the longest."""
    order = np.argsort(pauses.at_ns, kind="stable")
    at, length = pauses.at_ns[order], pauses.length_ns[order]
    new = np.append(True, np.diff(at) > length[:-1])
    number = np.cumsum(new) - 1
    longest = np.lexsort((-length, number))
    return np.asarray(order[longest[np.flatnonzero(np.diff(number[longest], prepend=-1))]])


def standstills_of(waiting: Waiting) -> Standstills | None:
    """When all ranks paused together; None where that costs no notable part of the run, and where
    ranks are tied loosely: a late one delays its neighbours, and these theirs.
    """
    if is_tied_loosely(waiting):
        return None
    now = waiting.judged_ns
    path, beyond = waiting.path, BeyondMedian(waiting)
    events = path.events
    length = np.minimum(beyond.of(events), path.length_ns)
    chosen = (length > LEAST_PAUSE * now) & ~waiting.start_up[events // 3]
    chosen &= waiting.dependencies.edge[events] != _abi.EDGE_ROOT
    events, length = events[chosen][::-1], length[chosen][::-1]
    together = beyond.of_all_ranks(events)
    events, length = events[together], length[together].astype(np.int64)
    if length.sum() < LEAST_SHARE * now:
        return None
    return Standstills(length, waiting.time_ns[events] - length)


class BeyondMedian:
    """How much longer the edge before a call or a start is than the median one of its position,
    whatever it followed; transfers 0. What all ranks do now and then is usual in its way, and still
    a pause.
    """

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    @cached_property
    def _median_ns(self) -> tuple[Floats, ...]:
        """By position, of calls and of starts."""
        dependencies = self._waiting.dependencies
        position, positions = dependencies.position.astype(np.int64), dependencies.positions
        length = dependencies.length_ns.reshape(-1, 3)
        calls, starts = in_threads(
            lambda event: quantile_by_group(position, positions, length[:, event], 0.5), (0, 1), 2
        )
        return calls, starts

    def of(self, events: Ints) -> Floats:
        """By event how much longer the edge before it is."""
        dependencies, beyond = self._waiting.dependencies, np.zeros(len(events))
        for event, median in enumerate(self._median_ns):
            own = np.flatnonzero(events % 3 == event)
            usual = median[dependencies.position[events[own] // 3]]
            beyond[own] = np.maximum(dependencies.length_ns[events[own]] - usual, 0.0)
        return beyond

    @cached_property
    def _longer(self) -> tuple[Ints, Floats, Ints]:
        """Times of all calls and starts whose edges are longer, by how much, and their ranks."""
        kernels, dependencies = self._waiting.kernels, self._waiting.dependencies
        times, excess, ranks = [], [], []
        for event, median in enumerate(self._median_ns):
            beyond = dependencies.length_ns[event::3] - median[dependencies.position]
            rows = np.flatnonzero(beyond > 0)
            times.append(self._waiting.time_ns[event::3][rows])
            excess.append(beyond[rows])
            ranks.append(kernels.rank[rows])
        return np.concatenate(times), np.concatenate(excess), np.concatenate(ranks)

    def of_all_ranks(self, events: Ints) -> Bools:
        """Which of these pauses most other ranks had at the same time: who paused longest is
        chance. Those of ranks that waited for a late one begin later, and end after it.
        """
        together = np.zeros(len(events), bool)
        if not len(events):
            return together
        kernels, lengths = self._waiting.kernels, self.of(events).tolist()
        time, beyond, rank = self._longer
        for place, (event, length) in enumerate(zip(events.tolist(), lengths, strict=True)):
            ended = int(self._waiting.time_ns[event])
            began = ended - int(length)
            near = np.flatnonzero((time > began) & (time - beyond < ended))
            both = np.minimum(time[near], ended) - np.maximum(time[near] - beyond[near], began)
            longest = np.zeros(len(kernels.ranks))
            np.maximum.at(longest, rank[near], both)
            others = np.delete(longest, kernels.rank[event // 3])
            together[place] = np.median(others) >= _SAME_TIME * length
        return together


def _long_ns(waiting: Waiting) -> Floats:
    """By rank how long excess is that only one edge in a hundred has, of calls and starts."""
    kernels, count = waiting.kernels, len(waiting.kernels.ranks)
    rank = np.repeat(kernels.rank[~waiting.start_up].astype(np.int64), 2)
    excess = waiting.excess_ns.reshape(-1, 3)[~waiting.start_up, :2].reshape(-1)
    return np.nan_to_num(quantile_by_group(rank, count, excess.astype(np.int64), _LONG))


def _long_delays(
    waiting: Waiting, place: int, on_path: np.ndarray, least_ns: float, long_ns: Floats
) -> Ints:
    """Events of a rank with a delay before them that is far longer than what is long on the median
    other rank: another one that is late now and then hides no pause. `long_ns`: by rank.
    """
    others = np.sort(np.delete(long_ns, place))
    noise = float(others[(len(others) - 1) // 2]) if len(others) else 0.0
    limit = max(least_ns, _TIMES_NOISE * noise)
    own = waiting.kernels.rank == place
    rows, columns = np.nonzero((on_path > limit) & own[:, None])
    return np.asarray(np.sort(3 * rows + columns))


def _seldom(waiting: Waiting, place: int, events: Ints) -> Ints:
    """These events of a rank; none where such delays are a habit."""
    if len(events) < OFTEN:
        return events
    own = waiting.kernels.rank == place
    positions = np.unique(waiting.dependencies.position[events // 3])
    chances = int(np.isin(waiting.dependencies.position[own], positions).sum())
    return events if len(events) < DENSE * chances else events[:0]
