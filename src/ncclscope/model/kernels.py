"""GPU times of one process's works, from the stamps of their channels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.capture import layout
from ncclscope.model import stamps
from ncclscope.model.decode import Bools, Decoded, Ints, find
from ncclscope.model.gpu_clock import Bound, GpuClock, lower_bound, upper_bound
from ncclscope.model.stamps import FAR_FUTURE, FAR_PAST, Claims
from ncclscope.model.tables import COLLECTIVE, COPY_ENGINE, NONE, RECV, SEND, Columns
from ncclscope.model.works import Works

_SAMPLE = 10_000  # kernel events that show how quickly the host notices


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels of works, one row each. Stamps are GPU ns until they are mapped."""

    work: Ints  # place among the works, NONE: its work is not on record
    channel: Ints
    gpu: Ints
    gpu_start: Ints
    gpu_stop: Ints
    seen_start_ns: Ints
    seen_end_ns: Ints  # NONE: still running
    stamp: npt.NDArray[np.int8]
    reason: npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """For each work what its channels tell."""

    start_ns: Ints  # host clock; NONE without a believable stamp
    end_ns: Ints
    stamp: npt.NDArray[np.int8]  # the worst of its channels; NONE without any
    reason: npt.NDArray[np.int8]  # of stamps.REASONS
    partial: Bools  # some channels have no believable stamp
    seen_start_ns: Ints  # when the host noticed; NONE without kernel events
    seen_end_ns: Ints
    running: Bools  # a channel started and did not stop
    kernels: Ints  # channels that NCCL reported


@dataclass(frozen=True, slots=True)
class Launches:
    """What bounds a work's start: the launch of an eager one, the report of a replayed one."""

    start_ns: Ints  # NONE
    end_ns: Ints  # NONE
    replay: Bools

    def not_before_ns(self, works: Works) -> Ints:
        """The earliest moment at which each work can have started."""
        eager = np.where(self.start_ns != NONE, self.start_ns, FAR_PAST)
        return np.where(self.replay, works.enqueue_ns, eager)


def _reported(decoded: Decoded, works: Works, gpu_of_comm: Ints) -> Channels:
    """Kernel events as NCCL reported them."""
    events = decoded["KernelCh"]
    slots, clock = events.slots, decoded.process.clock
    stopped = (slots["states"] & layout.STATE_FIRST) != 0
    no_stamp = (slots["flags"] & layout.FLAG_NO_STAMP) != 0
    ended = (slots["states"] & layout.STATE_STOPPED) != 0
    seen_end = np.where(stopped, clock.to_ns(slots["t_stop"]), NONE)
    seen_end = np.where(~stopped & ended, clock.to_ns(slots["t1"]), seen_end)
    has_both = stopped & ~no_stamp
    return Channels(
        work=find(works.keys, decoded.parents(slots["parent"])),
        channel=slots["chan"].astype(np.int64),
        gpu=gpu_of_comm[np.minimum(slots["comm"].astype(np.int64), len(gpu_of_comm) - 1)],
        gpu_start=np.where(no_stamp, NONE, slots["gpu_start"].astype(np.int64)),
        gpu_stop=np.where(has_both, slots["gpu_stop"].astype(np.int64), NONE),
        seen_start_ns=events.start_ns,
        seen_end_ns=seen_end,
        stamp=np.full(len(events), stamps.MISSING, np.int8),
        reason=np.zeros(len(events), np.int8),
    )


@dataclass(frozen=True, slots=True)
class _Uncounted:
    """Works that the device counted and the host did not, in the order of their reports."""

    work: Ints
    comm: Ints
    enqueue_ns: Ints
    first_channels: Ints  # it used channels 0 up to this; FAR_FUTURE: any


def _uncounted(works: Works, kernels: Ints, rank_of_comm: Ints, timed_comms: Ints) -> _Uncounted:
    own_rank = rank_of_comm[np.minimum(works.comm, len(rank_of_comm) - 1)]
    to_self = np.isin(works.form, (SEND, RECV)) & (works.peer == own_rank)
    mine = (
        (kernels == 0)
        & (works.channels > 0)
        & ~works.symmetric
        & (works.form != COPY_ENGINE)
        & ~(to_self & (works.form == RECV))  # the pair is one work
        & np.isin(works.comm, timed_comms)
    )
    chosen = np.flatnonzero(mine)
    if not len(chosen):
        return _Uncounted(chosen, chosen, chosen, chosen)
    chosen = chosen[np.argsort(works.enqueue_ns[chosen], kind="stable")]
    _, group, members = np.unique(works.group, return_inverse=True, return_counts=True)
    alone = (members[group] == 1) | (works.group == NONE)
    first = np.where(
        to_self, 1, np.where((works.form == COLLECTIVE) & alone, works.channels, FAR_FUTURE)
    )
    return _Uncounted(chosen, works.comm[chosen], works.enqueue_ns[chosen], first[chosen])


def _claims_of(
    channels: Channels,
    mine: Ints,
    works: Works,
    launches: Launches,
    not_before_ns: Ints,
    lower: Bound,
    uncounted_at: Ints,
    uncounted_groups: Ints,
) -> Claims:
    """One channel's kernel events as claims. `uncounted_at`: when its uncounted works came."""
    work = channels.work[mine]
    known, at = work != NONE, np.maximum(work, 0)
    offset = lower.at(channels.seen_end_ns[mine])
    not_before = not_before_ns[at]
    launch_end = np.where(launches.end_ns[at] != NONE, launches.end_ns[at], FAR_FUTURE)
    group = np.where(known, works.group[at], NONE)
    when = np.where(known, works.enqueue_ns[at], channels.seen_start_ns[mine])
    return Claims(
        gpu_start=channels.gpu_start[mine],
        gpu_stop=channels.gpu_stop[mine],
        latest_start_ns=channels.gpu_start[mine] - offset,
        latest_stop_ns=channels.gpu_stop[mine] - offset,
        group=group,
        not_before_ns=np.where(known, not_before, FAR_PAST),
        launch_end_ns=np.where(known & ~launches.replay[at], launch_end, FAR_FUTURE),
        uncounted_before=np.searchsorted(uncounted_at, when),
        uncounted_in_group=np.isin(group, uncounted_groups) & (group != NONE),
    )


def _recover(
    channels: Channels, left_over: Ints, candidates: Ints, not_before_ns: Ints, lower: Bound
) -> list[tuple[int, int]]:
    """(work, kernel event that brought its stamps) for works that the host did not count."""
    found, next_one = [], 0
    latest = channels.gpu_start[left_over] - lower.at(channels.seen_end_ns[left_over])
    for event, latest_ns in zip(left_over.tolist(), latest.tolist(), strict=True):
        if next_one == len(candidates):
            break
        if not_before_ns[next_one] <= latest_ns:
            found.append((int(candidates[next_one]), event))
            next_one += 1
    return found


def _nothing_to_doubt(
    channels: Channels, mine: Ints, works: Works, not_before_ns: Ints, lower: Bound
) -> bool:
    """Whether all stamps of a channel fit as they are. Without uncounted works no other reading is
    possible then, and most channels end here.
    """
    start, stop, work = channels.gpu_start[mine], channels.gpu_stop[mine], channels.work[mine]
    if (work == NONE).any() or (stop < start).any() or (np.diff(start) < 0).any():
        return False
    latest_start_ns = start - lower.at(channels.seen_end_ns[mine])
    if (latest_start_ns < not_before_ns[work]).any():
        return False
    overlapping = np.flatnonzero(stop[:-1] > start[1:])
    group = works.group[work]
    return bool((group[overlapping] == group[overlapping + 1]).all())


def _by_channel(channels: Channels, comm: Ints, stamped: Ints) -> list[Ints]:
    """Kernel events with stamps, one array for each communicator and channel, in order."""
    if not len(stamped):
        return []
    where = comm[stamped] << 8 | channels.channel[stamped]
    if int(where.max()) < 1 << 16:
        where = where.astype(np.uint16)  # sorted by radix
    order = np.argsort(where, kind="stable")
    cuts = np.flatnonzero(np.diff(where[order].astype(np.int64))) + 1
    return np.split(stamped[order], cuts)


def _lower_bounds(channels: Channels, stamped: Ints) -> dict[int, Bound]:
    """By GPU the least that its clock is ahead of the host's."""
    gpu = channels.gpu[stamped]
    found = {}
    for number in np.flatnonzero(np.bincount(gpu)).tolist():
        mine = stamped[gpu == number]
        found[number] = lower_bound(channels.seen_end_ns[mine], channels.gpu_stop[mine])
    return found


def judge_channels(
    decoded: Decoded, works: Works, launches: Launches, gpu_of_comm: Ints, rank_of_comm: Ints
) -> tuple[Channels, dict[int, GpuClock]]:
    """All channels with stamps that are theirs, recovered ones included; clocks by GPU."""
    channels = _reported(decoded, works, gpu_of_comm)
    comm = decoded["KernelCh"].slots["comm"].astype(np.int64)
    kernels = np.bincount(channels.work[channels.work >= 0], minlength=len(works))
    stamped = np.flatnonzero((channels.gpu_stop != NONE) & (len(works) > 0))
    lower = _lower_bounds(channels, stamped)
    timed_comms = np.flatnonzero(np.bincount(comm[stamped]))
    uncounted = _uncounted(works, kernels, rank_of_comm, timed_comms)
    true_start, true_stop = channels.gpu_start.copy(), channels.gpu_stop.copy()
    recovered: list[tuple[int, int]] = []
    not_before = launches.not_before_ns(works)
    for mine in _by_channel(channels, comm, stamped):
        bound = lower[int(channels.gpu[mine[0]])]
        can_use = (uncounted.comm == comm[mine[0]]) & (
            channels.channel[mine[0]] < uncounted.first_channels
        )
        candidates = uncounted.work[can_use]
        if not len(candidates) and _nothing_to_doubt(channels, mine, works, not_before, bound):
            channels.stamp[mine] = stamps.VALID
            continue
        when, groups = uncounted.enqueue_ns[can_use], works.group[candidates]
        claims = _claims_of(channels, mine, works, launches, not_before, bound, when, groups)
        verdicts = stamps.judge(claims)
        channels.stamp[mine] = verdicts.stamp
        channels.reason[mine] = verdicts.reason
        owner = mine[np.maximum(verdicts.owner, 0)]
        true_start[mine] = np.where(verdicts.owner != NONE, channels.gpu_start[owner], NONE)
        true_stop[mine] = np.where(verdicts.owner != NONE, channels.gpu_stop[owner], NONE)
        left = mine[verdicts.left_over]
        recovered += _recover(channels, left, candidates, not_before[candidates], bound)
    return _with_recovered(channels, true_start, true_stop, works, recovered), {
        gpu: _clock(bound, gpu, channels, true_start, launches) for gpu, bound in lower.items()
    }


def _clock(
    lower: Bound, gpu: int, channels: Channels, true_start: Ints, launches: Launches
) -> GpuClock:
    """The GPU's clock; only stamps that are sure, of eager works, bound it from above."""
    work = np.maximum(channels.work, 0)
    sure = (
        (channels.gpu == gpu)
        & (channels.work != NONE)
        & np.isin(channels.stamp, (stamps.VALID, stamps.REPAIRED))
        & (true_start != NONE)
        & ~launches.replay[work]
        & (launches.start_ns[work] != NONE)
    )
    upper = upper_bound(launches.start_ns[work][sure], true_start[sure])
    mine = np.flatnonzero((channels.gpu == gpu) & (channels.gpu_stop != NONE))[:_SAMPLE]
    seen = channels.seen_end_ns[mine]
    notice = np.median(lower.at(seen) - (channels.gpu_stop[mine] - seen))
    return GpuClock(lower, upper, int(notice))


def _with_recovered(
    channels: Channels,
    true_start: Ints,
    true_stop: Ints,
    works: Works,
    recovered: list[tuple[int, int]],
) -> Channels:
    """Channels with their true stamps; the works that got left-over ones as rows at the end."""
    work = np.array([work for work, _ in recovered], np.int64)
    event = np.array([event for _, event in recovered], np.int64)
    # A receive from itself ran in its send's work.
    twins, origin = _self_receives(works, work)
    work, event = np.concatenate([work, twins]), np.concatenate([event, event[origin]])
    none = np.full(len(work), NONE, np.int64)
    return Channels(
        work=np.concatenate([channels.work, work]),
        channel=np.concatenate([channels.channel, channels.channel[event]]),
        gpu=np.concatenate([channels.gpu, channels.gpu[event]]),
        gpu_start=np.concatenate([true_start, channels.gpu_start[event]]),
        gpu_stop=np.concatenate([true_stop, channels.gpu_stop[event]]),
        seen_start_ns=np.concatenate([channels.seen_start_ns, none]),
        seen_end_ns=np.concatenate([channels.seen_end_ns, none]),
        stamp=np.concatenate([channels.stamp, np.full(len(work), stamps.RECOVERED, np.int8)]),
        reason=np.concatenate([channels.reason, np.zeros(len(work), np.int8)]),
    )


def _self_receives(works: Works, sends: Ints) -> tuple[Ints, Ints]:
    """The receives that ran in the works of these sends to self: (receive, place in `sends`)."""
    receives = np.flatnonzero((works.form == RECV) & (works.group != NONE))
    chosen = np.flatnonzero((works.form[sends] == SEND) & (works.group[sends] != NONE))
    both = np.concatenate([receives, sends[chosen]])
    alike = [column[both] for column in (works.group, works.comm, works.peer)]
    order = np.lexsort(alike)
    new = np.ones(len(both), bool)
    new[1:] = np.any([np.diff(column[order]) != 0 for column in alike], axis=0)
    place = np.empty(len(both), np.int64)
    place[order] = np.cumsum(new) - 1
    first = np.full(len(both), NONE, np.int64)  # receive of each (group, communicator, peer)
    first[place[: len(receives)][::-1]] = receives[::-1]
    twin = first[place[len(receives) :]]
    return twin[twin != NONE], chosen[twin != NONE]


class _PerWork:
    """Smallest and largest values of channels by work. Most often they lie next to each other."""

    def __init__(self, work: Ints, works: int) -> None:
        self._work, self._works = work, works
        self._sorted = bool((np.diff(work) >= 0).all())
        self._first = np.flatnonzero(np.diff(work, prepend=NONE)) if self._sorted else work

    def _reduce(self, how: np.ufunc, values: npt.NDArray[Any], start: int) -> npt.NDArray[Any]:
        out = np.full(self._works, start, values.dtype)
        if not len(self._work):
            return out
        if self._sorted:
            out[self._work[self._first]] = how.reduceat(values, self._first)
        else:
            how.at(out, self._work, values)
        return out

    def smallest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """By work; FAR_FUTURE without any."""
        return self._reduce(np.minimum, values, FAR_FUTURE)

    def largest(self, values: npt.NDArray[Any], otherwise: int = NONE) -> npt.NDArray[Any]:
        """By work."""
        return self._reduce(np.maximum, values, otherwise)

    def count(self) -> Ints:
        """How many channels each work has."""
        return np.bincount(self._work, minlength=self._works)


def times_of_works(
    works: Works, channels: Channels, clocks: dict[int, GpuClock]
) -> tuple[KernelTimes, Ints, Ints]:
    """Works' times over all their channels; start and end of each channel on the host's clock."""
    start, end, good = _on_host_clock(channels, clocks)
    count = len(works)
    fine = np.flatnonzero(good & (channels.work != NONE))
    per_timed = _PerWork(channels.work[fine], count)
    first, last = per_timed.smallest(start[fine]), per_timed.largest(end[fine])
    timed = per_timed.count()
    owned = np.flatnonzero(channels.work != NONE)
    per_owned = _PerWork(channels.work[owned], count)
    by_host = owned[channels.stamp[owned] != stamps.RECOVERED]
    reported = np.bincount(channels.work[by_host], minlength=count)
    return (
        KernelTimes(
            start_ns=np.where(timed > 0, first, NONE),
            end_ns=last,
            stamp=per_owned.largest(channels.stamp[owned]),
            reason=per_owned.largest(channels.reason[owned], 0),
            partial=(timed > 0) & (timed < np.maximum(reported, works.channels)),
            **_seen(works, channels, owned),
            kernels=reported,
        ),
        start,
        end,
    )


def _on_host_clock(channels: Channels, clocks: dict[int, GpuClock]) -> tuple[Ints, Ints, Bools]:
    """Start and end of each channel, NONE without a believable stamp; which have one."""
    start, end = np.full(len(channels.work), NONE), np.full(len(channels.work), NONE)
    good = (channels.gpu_stop != NONE) & (channels.stamp <= stamps.RECOVERED)
    for gpu, clock in clocks.items():
        mine = np.flatnonzero(good & (channels.gpu == gpu))
        start[mine] = clock.to_host(channels.gpu_start[mine])
        end[mine] = start[mine] + channels.gpu_stop[mine] - channels.gpu_start[mine]
    # Not after it was seen; bounds leave single points out by fractions of a microsecond.
    own = good & (channels.stamp == stamps.VALID) & (channels.seen_end_ns != NONE)
    late = np.where(own, np.maximum(end - channels.seen_end_ns, 0), 0)
    return start - late, end - late, good


def _seen(works: Works, channels: Channels, owned: Ints) -> Columns:
    """When the host noticed start and end of each work."""
    reported = owned[channels.seen_start_ns[owned] != NONE]
    per_work = _PerWork(channels.work[reported], len(works))
    first = per_work.smallest(channels.seen_start_ns[reported])
    last = per_work.largest(channels.seen_end_ns[reported])
    running = np.zeros(len(works), bool)
    running[channels.work[reported[channels.seen_end_ns[reported] == NONE]]] = True
    return {
        "seen_start_ns": np.where(first < FAR_FUTURE, first, NONE),
        "seen_end_ns": np.where(running, NONE, last),
        "running": running,
    }
