"""The account of waiting: where all waiting of a run began.

Waiting = origins + structure + start-up + below the clock error + unknown, exactly.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting import origin_groups
from ncclscope.analysis.waiting.arrivals import END, START, Arrivals, arrivals_of
from ncclscope.analysis.waiting.clocks import with_agreeing_ends
from ncclscope.analysis.waiting.critical_path import CriticalPath, critical_path
from ncclscope.analysis.waiting.delays import (
    WORTH_THREADS,
    CertainWaits,
    Charges,
    certain_waits,
    charge_waits,
    waits_because_of,
)
from ncclscope.analysis.waiting.dependencies import Dependencies, dependencies_of
from ncclscope.analysis.waiting.kernels import Kernels, kernels_of
from ncclscope.analysis.waiting.origin_groups import (
    GroupExcess,
    group_excess,
    launches_in_calls,
    once_each,
    sums_once,
)
from ncclscope.analysis.waiting.positions import positions_of, start_up_of, with_burst_places
from ncclscope.analysis.waiting.shorter_edges import (
    Deviations,
    made_up_by_group,
    places_in_step,
    shorter_on_path,
)
from ncclscope.analysis.waiting.two_speeds import slower_ranks
from ncclscope.analysis.waiting.usual_lengths import UsualLengths, usual_lengths_of
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.threads import Threads

# Kinds of origins by the edge that was longer than usual.
KINDS = {
    _abi.EDGE_HOST_AFTER_SYNC: "host after sync",
    _abi.EDGE_HOST: "host",
    _abi.EDGE_LAUNCH: "launch",
    _abi.EDGE_GPU: "gpu",
    _abi.EDGE_TRANSFER: "transfer",
}
# A healthy job of 40 steps on an H200, two thirds start-up, has a rank that costs 5 % of the rest.
_TIMES_REST = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """Waiting that began in one kind of edge of one rank, or in transfers of one communicator."""

    kind: str
    rank: int | None  # global; None for transfers
    communicator: int | None  # row; None for ranks
    waiting_ns: int  # of all ranks together, because of it
    times: int  # edges that are about as much longer than usual as is typical
    typical_ns: int  # by how much
    excess_ns: int  # of all edges that are notably longer than usual, less what is as far below it
    on_path_ns: int  # beyond the usual, on the critical path
    first_ns: int  # when the first and the last of these edges ended
    last_ns: int


@dataclass(frozen=True, slots=True)
class RankWaiting:
    """One rank as the last arrival, as an origin, and as one that waits."""

    rank: int  # global
    times_last: int  # its kernels that others waited for
    caused_ns: int  # how long they did
    own_ns: int  # of that, what began on this rank
    origin_ns: int  # all waiting that began on this rank, also what others passed on
    waited_ns: int

    @property
    def passed_on_ns(self) -> int:
        """Waiting for this rank that began elsewhere."""
        return self.caused_ns - self.own_ns


@dataclass(frozen=True, slots=True)
class WaitingAccount:
    """Where waiting began; sums conserve."""

    total_ns: int
    origins: tuple[Origin, ...]  # the largest first
    structure_ns: int
    start_up_ns: int
    below_clock_error_ns: int
    unknown_ns: int
    ranks: tuple[RankWaiting, ...]  # the one with most origin first
    unseen: dict[str, int]  # operations whose waiting cannot be seen, by reason


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the run; None: from its beginning, to its end."""

    since_ns: int | None = None
    until_ns: int | None = None


ALL_TIME = Span()


class Waiting:
    """The dependencies of a run and what follows from them. Parts are made when first asked for.

    kernels        one row a kernel, by rank and call
    arrivals       whom each waited for
    dependencies   which event each event followed
    usual          usual lengths of edges
    start_up       by kernel whether it belongs to the start-up
    charges        waits charged to edges
    path           the critical path since the start-up
    """

    def __init__(self, run: Run, kernels: Kernels, span: Span = ALL_TIME) -> None:
        self.run = run
        self.kernels = kernels
        self.span = span
        self.arrivals: Arrivals = arrivals_of(kernels)
        with Threads(1) as threads:
            if len(kernels) > WORTH_THREADS:  # both take seconds, and need nothing of each other
                threads.submit(lambda: self.certain_waits)
            position, positions = positions_of(kernels)
            self.dependencies: Dependencies = dependencies_of(
                run, kernels, self.arrivals, position, positions
            )

    def replayed(self, events_ns: Ints) -> "Waiting":
        """The same run with other times of its events."""
        kernels = self.kernels
        launched = kernels.launched_ns + events_ns[:, 0] - kernels.events_ns[:, 0]
        return Waiting(self.run, replace(kernels, events_ns=events_ns, launched_ns=launched))

    @cached_property
    def usual(self) -> UsualLengths:
        """Usual lengths of all edges."""
        usual = usual_lengths_of(
            self.kernels, self.dependencies, self.arrivals, self.start_up, self.span == ALL_TIME
        )
        if self.span.since_ns is not None:  # what came before is cut off, and not start-up
            usual.median_ns[self.dependencies.edge == _abi.EDGE_ROOT] = np.nan
        return usual

    @cached_property
    def start_up(self) -> Bools:
        """Kernels of the start-up."""
        if self.span.since_ns is not None:
            return np.zeros(len(self.kernels), bool)
        own_ns = self.dependencies.length_ns.reshape(-1, 3)[:, :2]
        return start_up_of(self.kernels, self.arrivals.events_ns, own_ns)

    @cached_property
    def slower_ranks(self) -> Bools:
        """By rank whether it is of the slower of two speeds."""
        return slower_ranks(self.kernels, self.dependencies, self.start_up)

    def are_of_one_speed(self, ranks: Collection[int]) -> bool:
        """Whether these are the ranks of the slower of two speeds."""
        slower = self.kernels.ranks[self.slower_ranks].tolist()
        return bool(slower) and set(ranks) == set(slower)

    @cached_property
    def start_up_ns(self) -> int:
        """How long the start-up took: until the first call after it."""
        call = self.arrivals.events_ns[:, 0]
        steady = call[~self.start_up]
        return int(steady.min() - call.min()) if len(steady) else 0

    @cached_property
    def steady_ns(self) -> int:
        """How long the run took without its start-up."""
        events = self.arrivals.events_ns
        return int(events[:, END].max() - events[:, 0].min()) - self.start_up_ns

    @property
    def judged_ns(self) -> int:
        """What shares of the run are taken of: the run, but of one that is mostly start-up three
        times the rest. The first minutes of a long job are mostly start-up on record, and must not
        hide what comes in every step.
        """
        return min(self.steady_ns + self.start_up_ns, _TIMES_REST * self.steady_ns)

    @cached_property
    def charges(self) -> Charges:
        """All waits, charged."""
        return self.charges_of(None)

    @cached_property
    def certain_waits(self) -> CertainWaits:
        """All waits that are longer than clocks are off."""
        return certain_waits(self.kernels, self.arrivals, self.arrivals.wait_ns)

    def charges_of(self, chosen: Bools | None) -> Charges:
        """Waits of these kernels, charged; of all without `chosen`."""
        kernels, arrivals = self.kernels, self.arrivals
        if chosen is None:
            wait, waits = arrivals.wait_ns, self.certain_waits
        else:
            wait = np.where(chosen, arrivals.wait_ns, 0)
            waits = certain_waits(kernels, arrivals, wait)
        return charge_waits(kernels, arrivals, self.dependencies, self.usual, waits, wait)

    def waits_because_of(self, ranks: Sequence[int]) -> dict[int, Ints]:
        """By rank of these (global) how long each rank waited because of it."""
        places = np.searchsorted(self.kernels.ranks, ranks).tolist()
        rows = waits_because_of(
            self.kernels, self.arrivals, self.dependencies, self.usual, self.certain_waits, places
        )
        return dict(zip(ranks, rows, strict=True))

    @cached_property
    def time_ns(self) -> Ints:
        """When each event happened."""
        return self.arrivals.events_ns.reshape(-1)

    @cached_property
    def excess_ns(self) -> Floats:
        """By event how much longer than usual the edge before it is; 0 where nothing is usual."""
        excess: Floats = self.dependencies.length_ns - self.usual.median_ns
        np.nan_to_num(excess, copy=False, nan=0.0)
        return np.maximum(excess, 0.0, out=excess)

    @cached_property
    def own_excess_ns(self) -> Floats:
        """By kernel how much longer than usual the edges before its call and its start are, without
        the start-up.
        """
        return (self.excess_ns[::3] + self.excess_ns[START::3]) * ~self.start_up

    @cached_property
    def shown_edge(self) -> npt.NDArray[np.int8]:
        """Kinds of edges as reports name them: from a call to a start that came long after the
        launch had ended, the GPU was busy with other work.
        """
        edge: npt.NDArray[np.int8] = self.dependencies.edge.copy()
        call, start = self.kernels.events_ns[:, 0], self.kernels.events_ns[:, 1]
        queued = start - self.kernels.launched_ns > self.kernels.launched_ns - call
        of_start = edge[1::3]
        of_start[queued & (of_start == _abi.EDGE_LAUNCH)] = _abi.EDGE_GPU
        return edge

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path of the run, without its start-up."""
        since = self.span.since_ns
        if since is None:
            steady = self.arrivals.events_ns[~self.start_up, 0]
            since = int(steady.min()) if len(steady) else None
        return critical_path(self.time_ns, self.dependencies, since, self.span.until_ns)

    @cached_property
    def excess_on_path_ns(self) -> Ints:
        """By event what its edge has beyond the usual on the critical path."""
        on_path = np.zeros(len(self.time_ns), np.int64)
        path = self.path
        on_path[path.events] = np.minimum(self.excess_ns[path.events], path.length_ns)
        return on_path


def waiting_of(run: Run) -> Waiting | None:
    """The dependencies of a run; None where fewer than two ranks have GPU times."""
    kernels = kernels_of(run)
    if kernels is None:
        return None
    return waiting_of_kernels(run, kernels)


def waiting_of_kernels(run: Run, kernels: Kernels, span: Span = ALL_TIME) -> Waiting:
    """The dependencies of kernels; `span`: the part of the run that they are of."""
    return Waiting(run, with_burst_places(with_agreeing_ends(run, kernels)), span)


def account_of(waiting: Waiting, chosen: Bools | None = None) -> WaitingAccount:
    """Where the waiting of these kernels began; of all without `chosen`."""
    charges = waiting.charges if chosen is None else waiting.charges_of(chosen)
    edge = waiting.dependencies.edge
    fresh = np.repeat(waiting.start_up, 3) | (edge == _abi.EDGE_ROOT)
    start_up = int(charges.by_event[fresh].sum())
    charged = np.where(fresh, 0, charges.by_event)
    # Transfers that are longer than usual cost time where nobody waits for another rank, too.
    slow = np.where((edge == _abi.EDGE_TRANSFER) & ~fresh, waiting.excess_on_path_ns, 0)
    if chosen is not None:
        slow[~np.repeat(chosen, 3)] = 0
    slow += charged  # in place: both are as long as the run
    origins = _origins(waiting, charged, slow)
    return WaitingAccount(
        total_ns=charges.total_ns,
        origins=origins,
        structure_ns=charges.structure_ns + charges.quicker_ns,
        start_up_ns=start_up,
        below_clock_error_ns=charges.below_error_ns,
        unknown_ns=charges.unknown_ns,
        ranks=_ranks(waiting, charges, origins),
        unseen=waiting.kernels.unseen,
    )


def waiting_by_rank(origins: Iterable[Origin]) -> dict[int, int]:
    """Waiting in ns by the rank (global) that it began on."""
    sums: dict[int, int] = {}
    for origin in origins:
        if origin.rank is not None:
            sums[origin.rank] = sums.get(origin.rank, 0) + origin.waiting_ns
    return sums


def _origins(waiting: Waiting, charged: Ints, weight: Ints) -> tuple[Origin, ...]:
    """Charges by rank and kind, and by communicator, of events with a weight."""
    kernels, edge = waiting.kernels, waiting.shown_edge
    events = np.flatnonzero(weight)
    kernel = events // 3
    transfer = edge[events] == _abi.EDGE_TRANSFER
    whose = np.where(transfer, kernels.communicator[kernel], kernels.rank[kernel])
    key = whose.astype(np.int64) * 8 + edge[events]
    order = np.argsort(key, kind="stable")
    events, key = events[order], key[order]
    if not len(events):
        return ()
    first = np.concatenate([[0], np.flatnonzero(np.diff(key)) + 1, [len(events)]])
    leads = events[first[:-1]]  # of each group
    waiting_ns = np.add.reduceat(charged[events], first[:-1])
    on_path_ns = np.add.reduceat(waiting.excess_on_path_ns[events], first[:-1])
    is_transfer = edge[leads] == _abi.EDGE_TRANSFER
    parts = [events[begin:end] for begin, end in pairwise(first.tolist())]
    for place in np.flatnonzero(is_transfer).tolist():  # an edge on each of its ranks
        own = parts[place]
        parts[place] = own[once_each(kernels, own, weight[own], waiting.excess_ns)]
    events = np.concatenate(parts)
    first = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    excess = waiting.excess_ns[events]
    found = group_excess(first, excess, weight[events].astype(np.float64), waiting.time_ns[events])
    excess_ns = _excess_sums(waiting, events, first, found.notable, is_transfer, np.unique(key))
    excess_ns = np.maximum(excess_ns - _made_up(waiting, events, first, found, np.unique(key)), 0.0)
    numbers = (
        waiting_ns, found.times, found.typical_ns, excess_ns, on_path_ns, found.first_ns,
        found.last_ns,
    )  # fmt: skip
    origins = [
        Origin(
            KINDS[kind],
            None if transfers else rank,
            communicator if transfers else None,
            *map(int, values),
        )
        for kind, transfers, rank, communicator, *values in zip(
            edge[leads].tolist(),
            is_transfer.tolist(),
            kernels.ranks[kernels.rank[leads // 3]].tolist(),
            kernels.communicator[leads // 3].tolist(),
            *(values.tolist() for values in numbers),
            strict=True,
        )
    ]
    return tuple(sorted(origins, key=lambda origin: -origin.waiting_ns))


def _excess_sums(
    waiting: Waiting, events: Ints, first: Ints, notable: Bools, is_transfer: Bools, keys: Ints
) -> Floats:
    """By group the excess of its edges that are notably longer than usual. `keys`: of groups."""
    kept = np.concatenate([[0], np.cumsum(notable)])[first]
    events = events[notable]
    excess, end = waiting.excess_ns[events], waiting.time_ns[events]
    length = waiting.dependencies.length_ns[events]
    sums = sums_once(kept, excess, length, end)
    sums -= launches_in_calls(keys, kept, excess, length, end)
    for place in np.flatnonzero(is_transfer).tolist():
        sums[place] = excess[kept[place] : kept[place + 1]].sum()
    return sums


def _made_up(waiting: Waiting, events: Ints, first: Ints, found: GroupExcess, keys: Ints) -> Floats:
    """By group what edges that are shorter than usual make up for; 0 for transfers. `keys`: of
    groups, in order.
    """
    dependencies, notable = waiting.dependencies, found.notable
    group = np.repeat(np.arange(len(keys)), np.diff(first))[notable]
    events = events[notable]
    longer = Deviations(group, places_in_step(dependencies, events), waiting.excess_ns[events])
    events, shorter_ns = shorter_on_path(
        waiting.path, dependencies, waiting.usual.median_ns, waiting.start_up
    )
    key = waiting.kernels.rank[events // 3].astype(np.int64) * 8 + waiting.shown_edge[events]
    group = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    shorter = Deviations(group, places_in_step(dependencies, events), shorter_ns)
    return made_up_by_group(found.typical_ns, longer, shorter.of(keys[group] == key))


def excess_once_ns(waiting: Waiting, events: Ints) -> int:
    """The excess of edges of one rank; what runs beside each other counts once."""
    lengths, end = waiting.dependencies.length_ns[events], waiting.time_ns[events]
    whole = np.array([0, len(events)])
    return int(sums_once(whole, waiting.excess_ns[events], lengths, end)[0])


def typical_excess(excess: Floats, weight: Floats) -> tuple[float, Bools]:
    """The typical excess of edges by their weight, and which edges have at least half of it; edges
    without weight do not count.
    """
    counted = weight > 0
    if not counted.any():
        return 0.0, counted
    typical = float(origin_groups.typical_excess(excess[None], weight[None])[0])
    return typical, np.asarray(counted & (excess >= typical / 2))


def _ranks(
    waiting: Waiting, charges: Charges, origins: tuple[Origin, ...]
) -> tuple[RankWaiting, ...]:
    own: dict[int, int] = {}
    for origin in origins:
        if origin.rank is not None:
            own[origin.rank] = own.get(origin.rank, 0) + origin.waiting_ns
    table = [
        RankWaiting(
            rank,
            int(charges.times_last[place]),
            int(charges.caused_ns[place]),
            int(charges.caused_own_ns[place]),
            own.get(rank, 0),
            int(charges.waited_ns[place]),
        )
        for place, rank in enumerate(waiting.kernels.ranks.tolist())
    ]
    return tuple(sorted(table, key=lambda row: (-row.origin_ns, row.rank)))
