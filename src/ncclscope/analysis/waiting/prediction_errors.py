"""How far a prediction may be off, where the record does not show what a replay needs.

A replay is as good as its dependencies and its usual lengths. Each reason to doubt them has a
bound: the error of a prediction is at least the largest of these. Transfers without peers are no
part of the gain, so what they may gain comes on top of it.

    reason                                              bound
    any prediction                                      a share of the gain
    slow launches, single links, uneven steps, many     a larger share of it
    ranks that are slow one after the other
    few steps, lost records, bad clocks                 to all that the changed parts have beyond
                                                        the usual
    ranks that meet in collectives alone                the same, of what others waited for
    a root that sends when it has something to send     the gain: the root may wait instead
    transfers of a slow link that have no peers         what these transfers took
    a communicator without peers that gains nothing     the same: nothing shows how fast it could be
    links that gain nothing                             the same
    a rank without peers that gains nothing             what it works longer than the median rank

A slow host where others are held back by work of their GPUs has no number, but a range, and so has
a rank that holds all others back: see `may_gain_ns`.
"""

from functools import cached_property

import numpy as np

from ncclscope.analysis.robust_statistics import vary_as_requests
from ncclscope.analysis.waiting.arrivals import END
from ncclscope.analysis.waiting.clocks import GOOD_ERROR_NS
from ncclscope.analysis.waiting.exchange_groups import exchange_groups
from ncclscope.analysis.waiting.kernels import without_peers
from ncclscope.analysis.waiting.origins import Waiting, excess_once_ns
from ncclscope.analysis.waiting.own_work import own_work_ns, ranks_without_peers
from ncclscope.analysis.waiting.positions import period_of
from ncclscope.analysis.waiting.slow_hosts import are_limited
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Ints
from ncclscope.nccl.functions import ROOT_FIRST, waits_for

# Of the gain: what predictions for jobs of the laboratory were off by.
_DOUBT, _DOUBT_OF_UNEVEN_STEPS, _DOUBT_OF_LAUNCHES, _DOUBT_OF_LINKS = 0.08, 0.25, 0.6, 0.6
_DOUBT_OF_TURNS = 0.6
_MANY_TURNS = 4  # ranks that are slow one after the other
_TURN = 0.5  # of the run, at most
_FEW_STEPS = 10
_UNEVEN = 1.12  # 90th percentile by median of the own time before an event
_LONG_NS = 100_000  # own times that count for that
_NOTABLE = 0.1  # of the usual length
_WAITED_ELSEWHERE = 1.1  # times a rank's waits: of 49 gains one was 1.08 times as much
_LITTLE_OF_IT = 0.2  # of what may be gained
_HARDLY = 0.1  # of the kernels of others, and of what any of them waits
_SEVERAL = 8  # calls of a root
_MUCH_LONGER = 10  # times what is short before a call of a root


class PredictionErrors:
    """Bounds of the errors of predictions about a run."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self.has_gaps = _has_gaps(waiting)
        self._shows_little = self.has_gaps or _steps(waiting) < _FEW_STEPS
        self._meets_always = not waiting.kernels.pair.any()
        self._exchanges = exchange_groups(waiting)
        compared = ~np.isnan(self._exchanges.slowness)
        self._without_peers = without_peers(waiting.kernels) & ~compared
        self._waits_for_requests = _waits_for_requests(waiting)

    def doubt(self, ranks: tuple[int, ...], communicators: tuple[int, ...], links: bool) -> float:
        """How far a gain may be off, as a share of it: more where transfers of single links, slow
        launches or uneven steps leave open how long the work beside them takes.
        """
        if links or any(self._has_no_peers(row) for row in communicators):
            return _DOUBT_OF_LINKS
        waiting, kernels = self._waiting, self._waiting.kernels
        own = np.isin(kernels.ranks, ranks)[kernels.rank] & ~waiting.start_up
        if not own.any():
            return _DOUBT
        if _is_slow_to_launch(waiting, own):
            return _DOUBT_OF_LAUNCHES
        if len(ranks) >= _MANY_TURNS and _have_turns(waiting, ranks):
            return _DOUBT_OF_TURNS
        usual, high = (
            values.reshape(-1, 3)[own, :2]
            for values in (waiting.usual.median_ns, waiting.usual.high_ns)
        )
        long = usual > _LONG_NS
        uneven = float(np.median(high[long] / usual[long])) if long.any() else 1.0
        return _DOUBT_OF_UNEVEN_STEPS if uneven > _UNEVEN else _DOUBT

    def error_ns(
        self,
        ranks: tuple[int, ...],
        communicators: tuple[int, ...],
        keep: Bools | None,
        run_ns: tuple[int, int],
        least_ns: float,
    ) -> float:
        """The error of a prediction that is `least_ns` by its noise. `run_ns`: now and then."""
        now, gain = run_ns[0], run_ns[0] - run_ns[1]
        bounds = [least_ns]
        if self._shows_little:
            own = max(self._excess_of_ranks(ranks, keep), self._excess_of_transfers(communicators))
            bounds.append(min(own, now) - gain)
        elif self._meets_always:
            bounds.append(self._waited_for_ns(ranks, keep) - gain)
        if communicators and gain <= least_ns:
            bounds.append(self._unjudged_ns(communicators))
        if ranks and keep is None and gain <= least_ns:
            bounds.append(self._unjudged_work_ns(ranks))
        if ranks and self._waits_for_requests:
            bounds.append(gain)
        return max(bounds) + sum(self._without_peers_ns(row) for row in communicators)

    def may_gain_ns(self, ranks: tuple[int, ...], gained_ns: int) -> int | None:
        """What slow ranks may gain at most, where others do not show how long their work takes;
        None elsewhere: slow hosts, where others may not run far ahead of their GPUs, or in
        pipelines, whose stages have no peers; and ranks that hold all others back, where a replay
        gains little of it (`gained_ns`). Others wait for work of their GPUs that is not on record,
        and that goes on while kernels wait for the slow one: it may hide nothing of its delays, or
        all of them. No run gains more than any other rank waited in all.
        """
        usual = self._waiting.usual
        own = np.isin(self._waiting.kernels.ranks, ranks)
        others = np.flatnonzero(~own)
        if not len(others):
            return None
        most_ns = int(self._waited_ns[others].min())
        if (own & usual.far_slower_hosts).any():
            return most_ns
        if (own & usual.slow_hosts).any() and 2 * self._limited[others].sum() >= len(others):
            return most_ns
        little = gained_ns < _LITTLE_OF_IT * most_ns
        return most_ns if little and self.hold_back(ranks) else None

    def hold_back(self, ranks: tuple[int, ...]) -> bool:
        """Whether these ranks never wait, and all others begin hardly any kernel but right behind
        one in which they waited: when they were ready is not on record.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        own = np.isin(kernels.ranks, ranks)
        if own.all() or not own.any() or not self._meets_always:
            return False
        if self._waited_ns[own].max() > _HARDLY * self._waited_ns[~own].min():
            return False
        theirs = ~own[kernels.rank] & ~waiting.start_up
        return bool((waiting.dependencies.blocked[theirs] != 0).mean() >= 1 - _HARDLY)

    def most_gained_ns(self, ranks: tuple[int, ...]) -> int | None:
        """What a run can gain by quicker ranks at most: each of the others takes as long as before
        for all but its waits, up to its own last end. None where not all waits are seen.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        others = np.flatnonzero(~np.isin(kernels.ranks, ranks))
        if not len(others) or self.has_gaps or kernels.unseen:
            return None
        wait = np.bincount(kernels.rank, waiting.arrivals.wait_ns, minlength=len(kernels.ranks))
        last = np.maximum.reduceat(waiting.arrivals.events_ns[:, END], kernels.first_of_rank)
        idle = last.max() - last  # behind its last end
        return int((_WAITED_ELSEWHERE * wait + idle)[others].min())

    @cached_property
    def _waited_ns(self) -> Ints:
        """By rank how long it waited, without the start-up."""
        waiting, kernels = self._waiting, self._waiting.kernels
        wait = waiting.arrivals.wait_ns * ~waiting.start_up
        return np.bincount(kernels.rank, wait, minlength=len(kernels.ranks)).astype(np.int64)

    @cached_property
    def _limited(self) -> Bools:
        """By rank whether its host is held back by work of its GPU."""
        waiting = self._waiting
        return are_limited(waiting.kernels, waiting.arrivals, waiting.dependencies)

    def _has_no_peers(self, communicator: int) -> bool:
        """Whether no other communicator has such transfers."""
        return bool(self._without_peers[communicator])

    def _excess_of_ranks(self, ranks: tuple[int, ...], keep: Bools | None) -> float:
        """What the changed rank with most of it has beyond the usual in all: the most that can be
        gained.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        excess = waiting.excess_ns.reshape(-1, 3)[:, :2] * ~waiting.start_up[:, None]
        if keep is not None:
            excess = excess * ~keep.reshape(-1, 3)[:, :2]
        sums = np.bincount(kernels.rank, excess.sum(axis=1), minlength=len(kernels.ranks))
        return float(sums[np.isin(kernels.ranks, ranks)].max(initial=0.0))

    def _excess_of_transfers(self, communicators: tuple[int, ...]) -> float:
        """The same of the rank with most of it, of transfers of the changed communicators."""
        waiting, kernels = self._waiting, self._waiting.kernels
        own = np.isin(kernels.communicator, communicators) & ~waiting.start_up
        excess = waiting.excess_ns[2::3] * own
        return float(np.bincount(kernels.rank, excess, minlength=1).max())

    def _waited_for_ns(self, ranks: tuple[int, ...], keep: Bools | None) -> float:
        """What the changed rank with most of it has beyond the usual in edges that others waited
        for. Between ranks that meet in collectives alone little of that is hidden.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        chosen = (waiting.charges.by_event > 0) & ~np.repeat(waiting.start_up, 3)
        chosen &= waiting.excess_ns > _NOTABLE * np.nan_to_num(waiting.usual.median_ns)
        chosen[2::3] = False
        if keep is not None:
            chosen &= ~keep
        places = np.flatnonzero(np.isin(kernels.ranks, ranks)).tolist()
        return max(
            (excess_once_ns(waiting, _events(waiting, chosen, p)) for p in places), default=0
        )

    def _unjudged_ns(self, communicators: tuple[int, ...]) -> float:
        """What the transfers of those without peers took, of the rank with most: a link that was
        slow from the first call on looks like one that cannot be faster.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        rows = [row for row in communicators if self._has_no_peers(row)]
        own = np.isin(kernels.communicator, rows) & ~waiting.start_up
        length = waiting.dependencies.length_ns[2::3] * own
        return float(np.bincount(kernels.rank, length, minlength=1).max())

    def _unjudged_work_ns(self, ranks: tuple[int, ...]) -> float:
        """What the changed rank with most of it works longer than the median rank, of those whose
        calls nobody else makes: a GPU that was slow from the first call on looks like a stage with
        more work.
        """
        waiting = self._waiting
        own = own_work_ns(waiting)
        chosen = np.isin(waiting.kernels.ranks, ranks) & ranks_without_peers(waiting)
        median = np.sort(own)[(len(own) - 1) // 2]
        return float((own[chosen] - median).max(initial=0.0))

    def _without_peers_ns(self, communicator: int) -> float:
        """How much of the transfers of other communicators, which have no peers, may be due to a
        slow link of this one: with two of its ranks, they may use the same link.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        if self._has_no_peers(communicator):
            return 0.0
        members = np.unique(kernels.rank[kernels.communicator == communicator])
        excess = waiting.usual.steady_transfer_excess_ns[communicator]
        share = float(excess / max(waiting.usual.steady_transfer_ns[communicator], 1.0))
        if self._exchanges.slow[communicator]:
            share = max(share, float(1 - 1 / self._exchanges.slowness[communicator]))
        total = 0.0
        for other in np.unique(kernels.communicator[~kernels.pair]).tolist():
            if other == communicator or not self._has_no_peers(other):
                continue
            own = (kernels.communicator == other) & ~waiting.start_up & ~kernels.pair
            if np.isin(members, kernels.rank[own]).sum() > 1:
                length = waiting.dependencies.length_ns[2::3] * own
                total += float(np.bincount(kernels.rank, length)[members].max())
        return share * total


def _events(waiting: Waiting, chosen: Bools, place: int) -> Ints:
    kernels = waiting.kernels
    first = 3 * int(kernels.first_of_rank[place])
    last = first + 3 * int((kernels.rank == place).sum())
    return first + np.flatnonzero(chosen[first:last])


def _have_turns(waiting: Waiting, ranks: tuple[int, ...]) -> bool:
    """Whether most of these ranks take longer in a part of the run only. Of work that others hide,
    each shows too little.
    """
    kernels, excess = waiting.kernels, waiting.own_excess_ns
    call_ns, edges = (
        waiting.arrivals.events_ns[:, 0],
        np.append(kernels.first_of_rank, len(kernels)),
    )
    turns = 0
    for place in np.searchsorted(kernels.ranks, ranks).tolist():
        begin, end = edges[[place, place + 1]].tolist()
        sums = np.cumsum(excess[begin:end])
        if sums[-1] > 0:
            most = np.searchsorted(sums, (0.1 * sums[-1], 0.9 * sums[-1]))
            took_ns = float(np.diff(call_ns[begin + most])[0])
            turns += took_ns < _TURN * waiting.steady_ns
    return 2 * turns > len(ranks)


def _is_slow_to_launch(waiting: Waiting, own: Bools) -> bool:
    """Whether most of what these kernels have beyond the usual lies between calls and launches.
    Where the host waits for the launch, it lies before the next call as well.
    """
    kernels = waiting.kernels
    excess = waiting.excess_ns.reshape(-1, 3)[own, :2]
    launch = waiting.shown_edge.reshape(-1, 3)[own, :2] == _abi.EDGE_LAUNCH
    if (excess * launch).sum() > excess.sum() / 2:
        return True
    took = kernels.launched_ns - waiting.arrivals.events_ns[:, 0]
    counts = np.bincount(kernels.rank, minlength=len(kernels.ranks))
    mean = np.bincount(kernels.rank, took, minlength=len(counts)) / np.maximum(counts, 1)
    usual = float(np.sort(mean)[(len(mean) - 1) // 2])
    return bool((took[own] - usual).sum() > excess.sum() / 2)


def _has_gaps(waiting: Waiting) -> bool:
    """Whether the record hides what follows what: clocks agree badly, or records were lost."""
    lost = bool(waiting.run.model.completeness.dropped)
    return lost or int(waiting.kernels.error_ns.max()) > GOOD_ERROR_NS


def _steps(waiting: Waiting) -> int:
    """How many steps are on record; 0 where calls do not repeat."""
    kernels = waiting.kernels
    period = period_of(kernels)
    return 0 if period is None else len(kernels) // len(kernels.ranks) // period[1]


def _waits_for_requests(waiting: Waiting) -> bool:
    """Whether roots send when they have something to send: the time before their calls varies as
    the gaps between requests do. A server that is faster waits for its next request. When those
    came that were queued is not on record, so that a server which is hardly ever idle may be idle
    for all that it gains.
    """
    run, kernels = waiting.run, waiting.kernels
    sends = np.array([waits_for(name) == ROOT_FIRST for name in run.model.words["function"]])
    rows = np.flatnonzero(sends[kernels.function] & ~kernels.pair & ~waiting.start_up)
    if len(rows):
        row = kernels.row[rows]
        rows = rows[run.column("root", row) == run.column("rank", row)]
    if len(rows) < _SEVERAL:
        return False
    length = waiting.dependencies.length_ns[3 * rows]
    return vary_as_requests(length[length > _MUCH_LONGER * np.quantile(length, 0.1)])
