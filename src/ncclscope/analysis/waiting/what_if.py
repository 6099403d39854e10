"""What a run and a step of it would take without some of the delays: a replay with other lengths.

"As usual" is a rank without its habit: what it takes longer than others in the median repeat is
taken away, and no edge is longer than the 90th percentile of the usual rank, or communicator. With
the median, the noise of a healthy rank would count as a gain. Of many ranks the others wait for the
longest noise: to cut all of it off would be a gain by itself, and a part of it stays. Transfers
keep their lengths otherwise; contention and NCCL's choice of algorithms may change with the
schedule, which a replay does not know. Work that other kernels hide in every step on record may be
long or short: the error covers both. prediction_errors.py has the other parts of it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ncclscope.analysis.measures import bus_bytes
from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.exchange_groups import SLOWER
from ncclscope.analysis.waiting.kernels import LEAST_TIMED
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.overlapped_work import done_meanwhile_ns, remaining_work_ns
from ncclscope.analysis.waiting.positions import period_of
from ncclscope.analysis.waiting.prediction import SURE, Prediction, with_most_gain
from ncclscope.analysis.waiting.prediction_errors import PredictionErrors
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.analysis.waiting.replay import Replay, run_ns
from ncclscope.analysis.waiting.shared_links import SharedLinks
from ncclscope.analysis.waiting.short_steps import short_steps_ns
from ncclscope.analysis.waiting.work_during_chains import WorkDuringChains, work_during_chains
from ncclscope.arrays import _abi
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.errors import UsageError
from ncclscope.model.schema import NONE
from ncclscope.threads import Threads

_OFTEN = 6  # repeats that show a habit
_MOST_NOISE = 2.0  # beyond the high quantile, times its distance from the median
_KEPT_NOISE = 0.36  # all of it is too much for even jobs, nothing too little for real noise
_MANY = 0.25  # of all ranks, and several: the longest of their noise is what others wait for
_MODEL_ERROR = 0.01  # of the time: what replays of real twins were off by


@dataclass(frozen=True, slots=True)
class Change:
    """What is changed: edges that are as usual, transfers that take other times."""

    ranks: tuple[int, ...] = ()  # global: their own edges are as usual
    communicators: tuple[int, ...] = ()  # rows: their transfers are as usual
    links: tuple[tuple[int, int], ...] = ()  # global ranks: transfers between them are as usual
    free: tuple[int, ...] = ()  # rows: their transfers take no time
    bandwidths: tuple[tuple[int, float], ...] = ()  # rows, and GB/s of their transfers
    # Rows, how many times faster their collectives are, and from when to when in ns.
    faster: tuple[tuple[int, float, int, int], ...] = ()
    # Global ranks, and how many times as slow as its peers the link between them is. In an exchange
    # of all ranks one slow adapter slows down most kernels, so that slow ones are usual.
    slow_links: tuple[tuple[int, int, float], ...] = ()
    # The same of links that are slow both ways, by the way that is less so: collectives of both
    # ranks, which nothing else shows to be slow, may be as slow because of them.
    slow_both_ways: tuple[tuple[int, int, float], ...] = ()
    quicker: tuple[tuple[int, float], ...] = ()  # ranks, and how many times as quick


def _are_equal(a: Bools | None, b: Bools | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


class WhatIf:
    """Predictions about a run."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._replay = Replay(waiting)
        self._errors = PredictionErrors(waiting)
        # The last one: what a search for causes has replayed is predicted right after it.
        self._replayed: tuple[Change, Bools | None, Ints, int | None] | None = None

    @cached_property
    def _shared(self) -> SharedLinks:
        return SharedLinks(self._waiting)

    @cached_property
    def _work_during_chains(self) -> WorkDuringChains:
        return work_during_chains(self._waiting)

    @property
    def why_not(self) -> str:
        """Why a prediction would be wrong; "" where it can be made."""
        share = self._waiting.kernels.timed_share
        if share >= LEAST_TIMED:
            return ""
        return f"only {100 * share:.0f} % of its operations have GPU times"

    @property
    def has_gaps(self) -> bool:
        """Whether the record hides what follows what, so that a replay may gain too little."""
        return self._errors.has_gaps

    def may_gain_ns(self, ranks: tuple[int, ...], gained_ns: int) -> int:
        """What ranks may gain at most, where a replay shows little of it; else 0."""
        return self._errors.may_gain_ns(ranks, gained_ns) or 0

    def hold_back(self, ranks: tuple[int, ...]) -> bool:
        """Whether all others wait for these ranks: nothing shows how quick these could be."""
        return self._errors.hold_back(ranks)

    def check(self, change: Change) -> None:
        """Raises where a change is of ranks or links that the record does not have."""
        ranks = set(self._waiting.kernels.ranks.tolist())
        for rank in (*change.ranks, *(end for ends in change.links for end in ends)):
            if rank not in ranks:
                raise UsageError(
                    f"cannot change rank {rank}: the capture has no GPU times of it",
                    f"It has {len(ranks)} ranks, from {min(ranks)} to {max(ranks)}",
                )
        # Of the links of a whole host many are never used: one that is makes a change.
        if change.links and not any(self._between(a, b).any() for a, b in change.links):
            raise UsageError(
                "cannot change link {}-{}: these ranks do not send to each other".format(
                    *change.links[0]
                ),
                "Collectives use links of many ranks: say --comm NAME at median, or at 100 GB/s",
            )

    def predict(self, change: Change, keep: Bools | None = None) -> Prediction:
        """What the run takes with a change. `keep`: events before which nothing is changed."""
        prediction = self._by_replays(change, keep)
        if change != Change(ranks=change.ranks):
            return prediction  # transfers of others may be faster
        return with_most_gain(prediction, self._errors.most_gained_ns(change.ranks))

    def _by_replays(self, change: Change, keep: Bools | None) -> Prediction:
        """The same by what replays say, without regard to how long others waited."""
        now = self._waiting.arrivals.events_ns
        then, least_ns = self.events_and_least_ns(change, keep)
        spread = (run_ns(then) - least_ns) / 2
        start_up, gain = self._waiting.start_up_ns, run_ns(now) - run_ns(then)
        noise = float(np.hypot(spread, _MODEL_ERROR * max(run_ns(then) - start_up, 0)))
        doubt = self._errors.doubt(change.ranks, change.communicators, bool(change.links))
        error = float(np.hypot(noise, doubt * max(gain, 0)))
        error = self._errors.error_ns(
            change.ranks, change.communicators, keep, (run_ns(now), run_ns(then)), error
        )
        if change.links and gain <= error:
            error = max(error, self._transfers_ns(change.links))
        more_ns = (
            self._shared.may_gain_ns(change.links, change.slow_both_ways) if change.links else 0
        )
        hidden = 0
        if self._replay.has_hidden_work:
            most = self._replay.events_ns(self._lengths(change, keep, high=True), hidden=True)
            hidden = run_ns(most) - run_ns(then)
        if more_ns > noise:  # the middle of what is possible
            return Prediction(
                run_ns(now), run_ns(then) - more_ns // 2, self._step_ns(now), None,
                round(error) + hidden + more_ns // 2, hidden, start_up, round(noise), more_ns,
            )  # fmt: skip
        less_ns = self._hidden_by_waiting_ns(change, keep, run_ns(then))
        may_gain = self._errors.may_gain_ns(change.ranks, gain)
        if less_ns > SURE * run_ns(then):  # the middle of what is possible
            return Prediction(
                run_ns(now), run_ns(then) + less_ns // 2, self._step_ns(now), None,
                round(error) + hidden + less_ns // 2, hidden, start_up, round(noise), 0, less_ns,
            )  # fmt: skip
        if may_gain is not None:  # the middle of what is possible
            return Prediction(
                run_ns(now), run_ns(now) - may_gain // 2, self._step_ns(now), None, may_gain // 2,
                0, start_up, round(noise),
            )  # fmt: skip
        return Prediction(
            run_ns(now), run_ns(then), self._step_ns(now), self._step_ns(then),
            round(error) + hidden, hidden, start_up, round(noise),
        )  # fmt: skip

    def _hidden_by_waiting_ns(self, change: Change, keep: Bools | None, then_ns: int) -> int:
        """How much longer the run takes, if others did their work while they waited for changed
        ranks: where these are as late each time, nothing on record tells.
        """
        if not change.ranks:
            return 0
        starts = 3 * np.flatnonzero(self._as_usual(change)[START::3]) + START
        if np.isnan(done_meanwhile_ns(self._waiting, starts)).all():
            return 0  # a replay of a large run takes seconds
        length = self._lengths(change, keep, high=True, done_meanwhile=True)
        return max(run_ns(self._replay.events_ns(length)) - then_ns, 0)

    def events_ns(self, change: Change, keep: Bools | None = None) -> Ints:
        """When everything happens with a change: call, start and end by kernel."""
        known = self._last_replay(change, keep)
        if known is not None:
            return known[0]
        events = self._replay.events_ns(self._lengths(change, keep, high=True))
        self._replayed = change, keep, events, None
        return events

    def events_and_least_ns(self, change: Change, keep: Bools | None = None) -> tuple[Ints, int]:
        """The same, and the run with what is changed as short as the median, where the noise of a
        healthy rank counts as a gain. Replays leave other threads room: both are made at once.
        """
        events, least = self._last_replay(change, keep) or (None, None)
        with Threads(1) as threads:
            made = None if least is not None else threads.submit(self._least_ns, change, keep)
            if events is None:
                events = self._replay.events_ns(self._lengths(change, keep, high=True))
            least_ns = least if made is None else made.result()
        assert least_ns is not None
        self._replayed = change, keep, events, least_ns
        return events, least_ns

    def _least_ns(self, change: Change, keep: Bools | None) -> int:
        return run_ns(self._replay.events_ns(self._lengths(change, keep, high=False)))

    def _last_replay(self, change: Change, keep: Bools | None) -> tuple[Ints, int | None] | None:
        last = self._replayed
        same = last is not None and last[0] == change and _are_equal(last[1], keep)
        return last[2:] if last is not None and same else None

    def _lengths(
        self, change: Change, keep: Bools | None, high: bool, done_meanwhile: bool = False
    ) -> Ints:
        waiting, kernels = self._waiting, self._waiting.kernels
        length: Ints = waiting.dependencies.length_ns.copy()
        as_usual = self._as_usual(change)
        if keep is not None:
            as_usual &= ~keep
        events = np.flatnonzero(as_usual)
        shorter = waiting.usual.median_ns[events]
        if high:
            without_habit = np.fmax(shorter, length[events] - self._habit_ns(events))
            high_ns = waiting.usual.high_ns[events]
            noise = _MOST_NOISE * (high_ns - shorter)  # a pause is longer
            shorter = np.fmin(high_ns, without_habit)
            if len(change.ranks) > max(_MANY * len(kernels.ranks), 1):
                shorter += _KEPT_NOISE * np.fmin(without_habit - shorter, noise)
        length[events] = np.fmin(length[events], np.nan_to_num(shorter, nan=np.inf))
        if change.ranks:
            starts = events[events % 3 == START]
            during = self._work_during_chains
            short = short_steps_ns(waiting, change.ranks, during.waited_ns)[starts // 3]
            length[starts] = np.fmin(length[starts], np.nan_to_num(short, nan=np.inf))
            own = events[events % 3 != END]
            length[own] = np.fmax(length[own], remaining_work_ns(waiting, own, during.overlaps))
            if done_meanwhile:
                length[own] = np.fmax(length[own], done_meanwhile_ns(waiting, own))
        self._start_in_time(change, length)
        transfer = np.zeros(len(length), bool)
        for row in change.free:
            transfer[2::3] = kernels.communicator == row
            length[transfer] = 0
        for row, gb_s in change.bandwidths:
            own = kernels.communicator == row
            length[2::3][own] = self._bus_bytes()[own] / gb_s
        end_ns = waiting.arrivals.events_ns[:, END]
        meets = np.where(kernels.pair, NONE, kernels.communicator)
        rows_of = {row: np.flatnonzero(meets == row) for row in {row for row, *_ in change.faster}}
        for row, factor, since_ns, until_ns in change.faster:
            own = rows_of[row]
            own = own[(end_ns[own] >= since_ns) & (end_ns[own] <= until_ns)]
            length[3 * own + END] = length[3 * own + END] / factor
        for rank, factor in change.quicker:
            quicker = self._own_work(rank)
            length[quicker] = length[quicker] / factor
        if change.slow_links:
            length[2::3] = self._at_speed_of_peers(change, length[2::3])
        return length

    def _own_work(self, rank: int) -> Ints:
        """Starts of a rank that followed other kernels: its GPU worked before them."""
        waiting, kernels = self._waiting, self._waiting.kernels
        own = (kernels.ranks[kernels.rank] == rank) & ~waiting.start_up
        own &= waiting.dependencies.edge[START::3] == _abi.EDGE_GPU
        return np.asarray(3 * np.flatnonzero(own) + START)

    def _at_speed_of_peers(self, change: Change, length: Ints) -> Ints:
        """By kernel its transfer with slow links as fast as their peers. What was as fast already
        stays as it is.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        factor = np.ones(len(kernels))
        for a, b, slowness in change.slow_links:
            factor = np.where(self._between(a, b), np.maximum(factor, slowness), factor)
        rows = np.flatnonzero((factor > 1.0) & ~waiting.start_up)
        kind = kernels.transfer_kind[rows].astype(np.int64)
        typical = quantile_by_group(kind, int(kind.max(initial=0)) + 1, length[rows], 0.5)[kind]
        # What is usual tells it better, unless it is as slow.
        slow = ~(waiting.usual.median_ns[3 * rows + END] * SLOWER < typical)
        rows, typical = rows[slow], typical[slow]
        peers = np.maximum(length[rows], typical) / factor[rows]
        faster: Ints = length.copy()
        faster[rows] = np.minimum(length[rows], peers)
        return faster

    def _habit_ns(self, events: Ints) -> Floats:
        """By event how much longer than usual the edge before it is in the median repeat of its
        position on its rank, or of its kind on its communicator; 0 where repeats are few.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        dependencies, kernel = waiting.dependencies, events // 3
        edge = dependencies.edge[events].astype(np.int64)
        place = (dependencies.position[kernel] * 8 + edge) * 16 + dependencies.back[events]
        is_transfer = edge == _abi.EDGE_TRANSFER
        place = np.where(is_transfer, -1 - kernels.transfer_kind[kernel], place)
        member = np.where(is_transfer, kernels.communicator[kernel], kernels.rank[kernel])
        group = factorize(place << 24 | member)[0].astype(np.int64)
        groups = int(group.max(initial=-1)) + 1
        median = quantile_by_group(group, groups, dependencies.length_ns[events], 0.5)
        often = np.bincount(group, minlength=groups) >= _OFTEN
        habit = np.where(often, median, 0.0)[group] - waiting.usual.median_ns[events]
        return np.maximum(np.nan_to_num(habit, nan=0.0), 0.0)

    def _start_in_time(self, change: Change, length: Ints) -> None:
        """Lets changed ranks make their first calls no later than the usual rank: the edge before
        a first call has the length 0, and is negative here.
        """
        kernels = self._waiting.kernels
        first = 3 * kernels.first_of_rank
        calls = self._waiting.time_ns[first]
        usual = np.sort(calls)[(len(calls) - 1) // 2]
        own = np.isin(kernels.ranks, change.ranks)
        length[first[own]] = np.minimum(usual - calls[own], 0)

    def _as_usual(self, change: Change) -> Bools:
        """Which edges are as usual; what happens in the start-up stays."""
        waiting, kernels = self._waiting, self._waiting.kernels
        chosen = np.zeros((len(kernels), 3), bool)
        own = np.isin(kernels.ranks, change.ranks)[kernels.rank]
        chosen[:, :2] = own[:, None]
        chosen[:, 2] = np.isin(kernels.communicator, change.communicators)
        for a, b in change.links:
            chosen[:, 2] |= self._between(a, b) | self._shared.of_these(a, b)
        chosen[waiting.start_up] = False
        flat = chosen.reshape(-1)
        return np.asarray(flat & (waiting.dependencies.edge != _abi.EDGE_ROOT))

    def _transfers_ns(self, links: tuple[tuple[int, int], ...]) -> float:
        """What transfers between these ranks took, of the rank with most: links that were slow from
        the first call on look like links that cannot be faster.
        """
        waiting, kernels = self._waiting, self._waiting.kernels
        own = np.any([self._between(a, b) for a, b in links], axis=0) & ~waiting.start_up
        length = waiting.dependencies.length_ns[2::3] * own
        return float(np.bincount(kernels.rank, length, minlength=1).max())

    def _between(self, a: int, b: int) -> Bools:
        """Kernels of sends and receives between two ranks."""
        kernels = self._waiting.kernels
        own = np.repeat(np.arange(len(kernels)), np.diff(kernels.partner_first))
        ends = kernels.ranks[kernels.rank[own]], kernels.ranks[kernels.rank[kernels.partner]]
        match = ((ends[0] == a) & (ends[1] == b)) | ((ends[0] == b) & (ends[1] == a))
        between = np.zeros(len(kernels), bool)
        between[own[match]] = True
        return between & kernels.pair

    def _bus_bytes(self) -> Floats:
        """By kernel the bytes that bus bandwidth counts."""
        run, kernels = self._waiting.run, self._waiting.kernels
        return bus_bytes(run.model, kernels.row)

    def _step_ns(self, events_ns: Ints) -> int | None:
        """The mean time of a step: from one start to the next of the same call."""
        kernels = self._waiting.kernels
        found = period_of(kernels)
        if found is None:
            return None
        begin, period = found
        counts = np.bincount(kernels.rank, minlength=len(kernels.ranks))
        median = np.sort(counts)[len(counts) // 2]
        first_call = begin + 2 * period
        steps = int((median - 1 - first_call) // period)
        if steps < 1:
            return None
        first = kernels.first_of_rank[counts == median] + first_call
        starts = events_ns[:, START]
        return int(np.mean(starts[first + steps * period] - starts[first]) / steps)
