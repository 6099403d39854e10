"""The account of waiting: where all waiting of a run began.

Waiting = origins + structure + start-up + below the clock error + unknown, exactly.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.arrivals import END, Arrivals, arrivals_of
from ncclscope.analysis.waiting.clocks import with_agreeing_ends
from ncclscope.analysis.waiting.critical_path import CriticalPath, critical_path
from ncclscope.analysis.waiting.delays import Charges, charge_waits
from ncclscope.analysis.waiting.dependencies import Dependencies, dependencies_of
from ncclscope.analysis.waiting.kernels import Kernels, kernels_of
from ncclscope.analysis.waiting.positions import positions_of, start_up_of, with_burst_places
from ncclscope.analysis.waiting.usual_lengths import UsualLengths, usual_lengths_of
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.schema import NONE

# Kinds of origins by the edge that was longer than usual.
KINDS = {
    _abi.EDGE_HOST_AFTER_SYNC: "host after sync",
    _abi.EDGE_HOST: "host",
    _abi.EDGE_LAUNCH: "launch",
    _abi.EDGE_GPU: "gpu",
    _abi.EDGE_TRANSFER: "transfer",
}
# Between counting events (0) and summing them (1): one pause does not hide a habit, nor does noise
# hide a pause.
_WEIGHT = 0.75
_NOTABLE = 0.25  # of what is typical
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
    excess_ns: int  # of all edges together that are notably longer than usual
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

    def __init__(self, run: Run, kernels: Kernels) -> None:
        self.run = run
        self.kernels = kernels
        self.arrivals: Arrivals = arrivals_of(kernels)
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
        end_ns = self.arrivals.events_ns[:, END]
        return usual_lengths_of(self.kernels, self.dependencies, end_ns, self.start_up)

    @cached_property
    def start_up(self) -> Bools:
        """Kernels of the start-up."""
        return start_up_of(self.kernels, self.arrivals.events_ns)

    @cached_property
    def start_up_ns(self) -> int:
        """How long the start-up took: until the first call after it."""
        call = self.arrivals.events_ns[:, 0]
        steady = call[~self.start_up]
        return int(steady.min() - call.min()) if len(steady) else 0

    @property
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

    def charges_of(self, chosen: Bools | None) -> Charges:
        """Waits of these kernels, charged."""
        return charge_waits(self.kernels, self.arrivals, self.dependencies, self.usual, chosen)

    @cached_property
    def time_ns(self) -> Ints:
        """When each event happened."""
        return self.arrivals.events_ns.reshape(-1)

    @cached_property
    def excess_ns(self) -> Floats:
        """By event how much longer than usual the edge before it is; 0 where nothing is usual."""
        excess = self.dependencies.length_ns - self.usual.median_ns
        return np.maximum(np.nan_to_num(excess, nan=0.0), 0.0)

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
        steady = self.arrivals.events_ns[~self.start_up, 0]
        since = int(steady.min()) if len(steady) else None
        return critical_path(self.time_ns, self.dependencies, since, None)

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
    return Waiting(run, with_burst_places(with_agreeing_ends(run, kernels)))


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
    origins = _origins(waiting, charged, charged + slow)
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
    split = np.flatnonzero(np.diff(key)) + 1
    groups = np.split(events, split) if len(events) else []
    origins = [_origin(waiting, own, charged[own], weight[own]) for own in groups]
    return tuple(sorted(origins, key=lambda origin: -origin.waiting_ns))


def _origin(waiting: Waiting, events: Ints, charged: Ints, weight: Ints) -> Origin:
    """Events of one kind of edge of one rank, or transfers of one communicator."""
    kernels, kernel = waiting.kernels, int(events[0]) // 3
    name = KINDS[int(waiting.shown_edge[events[0]])]
    is_transfer = name == "transfer"
    waiting_ns = int(charged.sum())
    on_path_ns = int(waiting.excess_on_path_ns[events].sum())
    if is_transfer:  # one transfer is an edge on each of its ranks
        once = _once_each(kernels, events, weight, waiting.excess_ns)
        events, weight = events[once], weight[once]
    excess = waiting.excess_ns[events]
    typical, counted = typical_excess(excess, weight.astype(np.float64))
    times = waiting.time_ns[events[counted]]
    notable = (weight > 0) & (excess >= typical * _NOTABLE)
    return Origin(
        kind=name,
        rank=None if is_transfer else int(kernels.ranks[kernels.rank[kernel]]),
        communicator=int(kernels.communicator[kernel]) if is_transfer else None,
        waiting_ns=waiting_ns,
        times=int(counted.sum()),
        typical_ns=int(typical),
        excess_ns=int(excess[notable].sum())
        if is_transfer
        else excess_once_ns(waiting, events[notable]),
        on_path_ns=on_path_ns,
        first_ns=int(times.min()),
        last_ns=int(times.max()),
    )


def excess_once_ns(waiting: Waiting, events: Ints) -> int:
    """The excess of edges of one rank. Of edges that run beside each other time counts once: work
    that two kernels wait for makes both edges longer.
    """
    events = events[np.argsort(waiting.time_ns[events], kind="stable")]
    end, length = waiting.time_ns[events], waiting.dependencies.length_ns[events]
    before = np.concatenate([end[:1] - length[:1], end[:-1]])
    covered_ns = np.clip(before - (end - length), 0, length)
    return int((waiting.excess_ns[events] * (1 - covered_ns / np.maximum(length, 1))).sum())


def _once_each(kernels: Kernels, events: Ints, weight: Ints, excess: Floats) -> Ints:
    """Places of one edge of each transfer, that with the most weight. Of several partners the one
    whose own transfer took longest is at the other end of what was slow.
    """
    kernel = events // 3
    first = kernels.partner_first[kernel]
    count = kernels.partner_first[kernel + 1] - first
    own = np.repeat(np.arange(len(kernel)), count)
    place = np.arange(len(own)) - np.repeat(np.cumsum(count) - count, count)
    other = kernels.partner[np.repeat(first, count) + place].astype(np.int64)
    order = np.lexsort((excess[3 * other + END], own))
    partner = np.full(len(kernel), np.iinfo(np.int64).max)
    partner[own[order]] = other[order]  # the last one assigned stays
    together = np.where(
        kernels.meeting[kernel] != NONE, -1 - kernels.meeting[kernel], np.minimum(kernel, partner)
    )
    order = np.lexsort((-weight, together))
    return order[np.flatnonzero(np.diff(together[order], prepend=np.iinfo(np.int64).min))]


def typical_excess(excess: Floats, weight: Floats) -> tuple[float, Bools]:
    """The typical excess of edges by their weight, and which edges have at least half of it; edges
    without weight do not count.
    """
    counted = weight > 0
    if not counted.any():
        return 0.0, counted
    weights = np.where(counted, weight, 0.0) ** _WEIGHT
    order = np.argsort(excess)
    middle = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2))
    typical = float(excess[order[min(middle, len(order) - 1)]])
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
