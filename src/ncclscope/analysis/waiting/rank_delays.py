"""The delays of one rank: edges that were longer than usual, how often, and of which kind."""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.robust_statistics import vary_as_requests
from ncclscope.analysis.waiting.origins import KINDS, Waiting, typical_excess
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE
from ncclscope.nccl.functions import ROOT_FIRST, waits_for

MOST_KERNELS = 2_000_000  # of a run that is looked at in full: in rounds, and host by host
OFTEN = 5  # times: fewer are pauses
LEAST_PAUSE = 0.01  # of the run: delays that are no habit and longer are pauses
DENSE = 0.12  # of the chances: fewer are pauses
_MOSTLY_AS_ROOT = 0.8  # of the delays of a server
_PAUSE = 10.0  # times what is typical
_AS_LONG = 2.0  # the long delays of a scheduler, times its short ones
_IN_STEP = 0.5  # meetings with ranks that a root does not serve, for each of its delays


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of one rank: edges that were longer than usual and made others wait."""

    rank: int  # global
    waiting_ns: int  # of all ranks together
    times: int  # about as long as is typical
    typical_ns: int
    steady: bool  # in many steps; else single pauses
    kinds_ns: dict[str, int]  # mean excess of a typical delay by kind of edge
    kind: str  # the largest of these
    pauses: Ints  # events far longer than is typical
    before: tuple[int, int]  # most often: code of the function that came late, and communicator
    first_ns: int
    last_ns: int
    as_root: bool = False  # before it sends to all others
    as_idle_root: bool = False  # and each time by another length
    as_scheduler: bool = False  # and nearly each time, by work of its host that takes about as long


def delays_of(waiting: Waiting, rank: int, of_last_arrivals: bool = True) -> Delays:
    """The delays of a rank: edges that waiting was charged to. Of a rank that others hide, or
    without `of_last_arrivals`, all its edges that were longer than usual.
    """
    kernels = waiting.kernels
    place = int(np.searchsorted(kernels.ranks, rank))
    own = np.flatnonzero(kernels.rank == place)
    events = (3 * own[:, None] + np.arange(2)).reshape(-1)
    events = events[~waiting.start_up[events // 3]]
    events = events[waiting.dependencies.edge[events] != _abi.EDGE_ROOT]
    charged = waiting.charges.by_event[events].astype(np.float64)
    excess = waiting.excess_ns[events]
    typical, usual = typical_excess(excess, charged)
    seldom = np.zeros(len(events), bool)
    if usual.sum() < OFTEN and waiting.usual.steady_excess_ns[place] > 0:
        # Single pauses do not hide a habit.
        shorter, often = typical_excess(excess, np.where(usual, 0.0, charged))
        if often.sum() >= OFTEN:
            typical, usual, seldom = shorter, often, usual
        else:
            typical, usual = typical_excess(excess, excess)
    if not of_last_arrivals:
        typical, usual = typical_excess(excess, excess)
    if not usual.any():
        return Delays(rank, 0, 0, 0, False, {}, "", np.empty(0, np.int64), (0, 0), 0, 0)
    pauses = (usual | seldom) & (excess > _PAUSE * typical)
    pauses[pauses] = ~_are_habits(waiting, events[pauses])
    chosen = events[usual & ~pauses]
    times = waiting.time_ns[events[usual]]
    kinds = _by_kind(waiting, chosen)
    late = chosen // 3
    notable = events[(charged > 0) & (excess > typical / 10)]
    as_root = _is_root(waiting, notable)
    return Delays(
        rank=rank,
        waiting_ns=int(charged.sum()),
        times=int(usual.sum()),
        typical_ns=int(typical),
        steady=_is_steady(waiting, events[usual]),
        kinds_ns=kinds,
        kind=max(kinds, key=lambda name: kinds[name]),
        pauses=events[pauses],
        before=_most_often(kernels.function[late], kernels.communicator[late]),
        first_ns=int(times.min()),
        last_ns=int(times.max()),
        as_root=as_root,
        as_idle_root=as_root and is_idle_root(waiting, notable),
        as_scheduler=as_root and _is_scheduler(waiting, notable),
    )


def pauses_of(waiting: Waiting, ranks: tuple[int, ...]) -> Bools:
    """Events that a steady delay does not explain."""
    keep = np.zeros(len(waiting.time_ns), bool)
    for rank in ranks:
        keep[delays_of(waiting, rank).pauses] = True
    return keep


def is_idle_root(waiting: Waiting, events: Ints) -> bool:
    """Whether delays come before a rank sends to all others, and their lengths vary as the gaps
    between requests do: a server that has nothing to do is as late as a slow one. Not where it
    meets others that it does not serve about as often: these are in step, whatever it has to do.
    """
    return (
        vary_as_requests(waiting.excess_ns[events])
        and _is_root(waiting, events)
        and _meetings_with_others(waiting, events // 3) < _IN_STEP * len(events)
    )


def _is_scheduler(waiting: Waiting, events: Ints) -> bool:
    """Whether delays before a rank sends to all others are those of a host that prepares what it
    sends: nearly each time, about as long, and on communicators on which nobody else sends so. No
    other rank shows how long that takes.
    """
    calls = events[events % 3 == 0]
    kernels, run = waiting.kernels, waiting.run
    rows = np.flatnonzero(np.isin(kernels.communicator, kernels.communicator[calls // 3]))
    sends = _sends_to_all(waiting, kernels.row[rows])
    rows = rows[sends & ~waiting.start_up[rows]]
    chances = rows[kernels.rank[rows] == kernels.rank[events[0] // 3]]
    if len(calls) < max(_MOSTLY_AS_ROOT * len(chances), OFTEN):
        return False
    short, long = np.quantile(waiting.excess_ns[calls], (0.1, 0.9))
    root = run.column("root", kernels.row[rows])  # numbered by communicator
    return bool((root == root[0]).all() and long <= _AS_LONG * short)


def _meetings_with_others(waiting: Waiting, served: Ints) -> int:
    """How often the rank of these kernels meets ranks that are not on their communicators."""
    kernels, run = waiting.kernels, waiting.run
    place = int(kernels.rank[served[0]])
    rows = np.unique(kernels.communicator[served]).tolist()
    inside = {rank for row in rows for rank in run.ranks_of(row)}
    meets = (kernels.rank == place) & (kernels.meeting != NONE) & ~waiting.start_up
    met, times = np.unique(kernels.communicator[meets], return_counts=True)
    others = [not inside.issuperset(run.ranks_of(row)) for row in met.tolist()]
    return int(times[others].sum())


def _is_root(waiting: Waiting, events: Ints) -> bool:
    """Whether most of these events come before a rank sends to all others."""
    if not len(events):
        return False
    run, rows = waiting.run, waiting.kernels.row[events // 3]
    is_root = run.column("root", rows) == run.column("rank", rows)
    return float(np.mean(_sends_to_all(waiting, rows) & is_root)) > _MOSTLY_AS_ROOT


def _sends_to_all(waiting: Waiting, rows: Ints) -> Bools:
    """By operation whether its root sends to all others."""
    run = waiting.run
    sends = np.array([waits_for(name) == ROOT_FIRST for name in run.model.words["function"]])
    return np.asarray(sends[run.column("function", rows)])


def _by_kind(waiting: Waiting, events: Ints) -> dict[str, int]:
    edge, excess = waiting.shown_edge[events], waiting.excess_ns[events]
    return {
        KINDS[code]: int(excess[edge == code].sum() / max(len(events), 1))
        for code in np.unique(edge).tolist()
    }


def _most_often(function: Ints, communicator: Ints) -> tuple[int, int]:
    pairs, count = np.unique(np.stack([function, communicator]), axis=1, return_counts=True)
    return int(pairs[0, count.argmax()]), int(pairs[1, count.argmax()])


def _is_steady(waiting: Waiting, events: Ints) -> bool:
    """Whether delays are a habit: often, and in many of the edges of the rank, from the first delay
    to the last, that are of the same kind and at the same position.
    """
    if len(events) < OFTEN:
        return False
    alike = int(
        np.isin(_places(waiting, _between(waiting, events)), _places(waiting, events)).sum()
    )
    return len(events) >= DENSE * alike


def _are_habits(waiting: Waiting, events: Ints) -> Bools:
    """Which of these events of a rank come again and again at their own place of a step: short
    delays elsewhere do not make them pauses.
    """
    if len(events) < OFTEN:
        return np.zeros(len(events), bool)
    place, own = np.unique(_places(waiting, events), return_inverse=True)
    times = np.bincount(own.reshape(-1), minlength=len(place))
    others = _places(waiting, _between(waiting, events))
    chances = np.array([int((others == one).sum()) for one in place.tolist()])
    return np.asarray(((times >= OFTEN) & (times >= DENSE * chances))[own.reshape(-1)])


def _places(waiting: Waiting, events: Ints) -> Ints:
    """By event a number of its position, and of the kind of the edge before it."""
    dependencies = waiting.dependencies
    position = dependencies.position[events // 3].astype(np.int64)
    return np.asarray(position * 8 + dependencies.edge[events])


def _between(waiting: Waiting, events: Ints) -> Ints:
    """All events of the rank from the first to the last of these."""
    kernels, time = waiting.kernels, waiting.time_ns
    place = int(kernels.rank[events[0] // 3])
    first = 3 * int(kernels.first_of_rank[place])
    own = np.arange(first, first + 3 * int((kernels.rank == place).sum()))
    chosen = (time[own] >= time[events].min()) & (time[own] <= time[events].max())
    return np.asarray(own[chosen])
