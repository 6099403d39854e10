"""The GPU stamps of one process: which belong to which work; and the clocks of its GPUs.

Where all stamps of a channel fit and no work went uncounted, no other assignment is possible and
they are taken as they are. Other channels go through `stamp_repair`, whose example shows how.
"""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.joins import factorize, mask_of
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.process import stamp_repair
from ncclscope.model.process.channels import Channels, reported
from ncclscope.model.process.events import ProcessEvents
from ncclscope.model.process.gpu_clock import (
    Bound,
    GpuClock,
    lower_bound,
    upper_bound,
    with_quick_notices,
)
from ncclscope.model.process.stamp_repair import FAR_FUTURE, FAR_PAST, ChannelEvents
from ncclscope.model.process.unrecorded_works import UnrecordedWorks
from ncclscope.model.process.works import Numbers, Works
from ncclscope.model.schema import COLLECTIVE, COPY_ENGINE, NONE, RECV, SEND

_SAMPLE = 10_000  # kernel events that show how quickly the host notices


@dataclass(frozen=True, slots=True)
class StartBounds:
    """What bounds a work's start: the launch of an eager one, the report of a replayed one."""

    start_ns: Ints  # NONE
    end_ns: Ints  # NONE
    replay: Bools

    def not_before_ns(self, works: Works) -> Ints:
        """The earliest moment at which each work can have started."""
        known = self.start_ns != NONE
        eager = self.start_ns if known.all() else np.where(known, self.start_ns, FAR_PAST)
        return np.where(self.replay, works.enqueue_ns, eager) if self.replay.any() else eager


@dataclass(frozen=True, slots=True)
class _Uncounted:
    """Works that the device counted and the host did not, in the order of their reports."""

    work: Ints
    comm: Numbers
    enqueue_ns: Ints
    first_channels: Ints  # it used channels 0 up to this; FAR_FUTURE: any


def _cut_off(pauses_ns: Ints, works: Works, has_kernels: Bools) -> Bools:
    """Works without kernels because the process paused recording before their kernels came: those
    after the last work of their communicator that has any. `pauses_ns`: when it paused, in order.
    """
    if not len(pauses_ns):
        return np.zeros(len(works), bool)
    pause = np.searchsorted(pauses_ns, works.enqueue_ns)  # the next one
    before = pause < len(pauses_ns)
    place, places = factorize(works.comm.astype(np.int64) * (len(pauses_ns) + 1) + pause)
    # Of an earlier pause, the last with kernels is before all of these anyway.
    last_ns = np.full(max(places, 1), FAR_PAST, np.int64)
    seen = has_kernels & before
    np.maximum.at(last_ns, place[seen], works.enqueue_ns[seen])
    return before & ~has_kernels & (works.enqueue_ns > last_ns[place])


def _had_kernels(unseen: UnrecordedWorks, works: Works, has_kernels: Bools) -> Bools:
    """Works whose kernels are on record, or are missing because the process paused."""
    cut_off = _cut_off(unseen.ends_ns, works, has_kernels)
    return np.asarray(has_kernels | cut_off | unseen.outside(works.enqueue_ns))


def _uncounted(
    works: Works, has_kernels: Bools, rank_of_comm: Ints, comm: Numbers, stamped: Bools
) -> _Uncounted:
    """Works without kernel events, in the order of their reports. `comm`: of kernel events;
    `stamped`: which of those have stamps.
    """
    silent = ~has_kernels & (works.channels > 0)
    if not silent.any():
        none = np.empty(0, np.int64)
        return _Uncounted(none, none.astype(np.int32), none, none)
    own_rank = rank_of_comm[np.minimum(works.comm, len(rank_of_comm) - 1)]
    to_self = np.isin(works.form, (SEND, RECV)) & (works.peer == own_rank)
    uncounted = (
        silent
        & ~works.symmetric
        & (works.form != COPY_ENGINE)
        & ~(to_self & (works.form == RECV))  # the pair is one work
        & np.isin(works.comm, np.flatnonzero(np.bincount(comm[stamped])))
    )
    chosen = np.flatnonzero(uncounted)
    chosen = chosen[np.argsort(works.enqueue_ns[chosen], kind="stable")]
    _, group, members = np.unique(works.group, return_inverse=True, return_counts=True)
    alone = (members[group] == 1) | (works.group == NONE)
    # Widened first: numpy would squeeze FAR_FUTURE into the column's narrow type, some releases
    # silently.
    channels = works.channels.astype(np.int64)
    first = np.where(to_self, 1, np.where((works.form == COLLECTIVE) & alone, channels, FAR_FUTURE))
    return _Uncounted(chosen, works.comm[chosen], works.enqueue_ns[chosen], first[chosen])


def _asked_ns(channels: Channels, places: Ints, works: Works) -> Ints:
    """When the works of kernel events were reported, else when their kernels were."""
    work = channels.work[places]
    asked = works.enqueue_ns[np.maximum(work, 0)]
    return np.where(work != NONE, asked, channels.seen_start_ns[places])


def _channel_events(
    channels: Channels,
    places: Ints,
    works: Works,
    launches: StartBounds,
    not_before_ns: Ints,
    lower: Bound,
    uncounted_at: Ints,
    uncounted_groups: Ints,
    unseen_before: Ints,
) -> ChannelEvents:
    """Kernel events of one channel with what bounds their lag. `uncounted_at`: when its uncounted
    works came; `unseen_before`: how many more may have come before each event.
    """
    work = channels.work[places]
    known, at = work != NONE, np.maximum(work, 0)
    offset = lower.at(channels.seen_end_ns[places])
    # Clocks drift on while an operation waits: its start has the offset of its own time.
    offset_at_start = lower.at(channels.gpu_start[places] - offset)
    not_before = not_before_ns[at]
    launch_end = np.where(launches.end_ns[at] != NONE, launches.end_ns[at], FAR_FUTURE)
    group = np.where(known, works.group[at], NONE)
    when = _asked_ns(channels, places, works)
    return ChannelEvents(
        gpu_start=channels.gpu_start[places],
        gpu_stop=channels.gpu_stop[places],
        latest_start_ns=channels.gpu_start[places] - np.minimum(offset, offset_at_start),
        latest_stop_ns=channels.gpu_stop[places] - offset,
        group=group,
        not_before_ns=np.where(known, not_before, FAR_PAST),
        launch_end_ns=np.where(known & ~launches.replay[at], launch_end, FAR_FUTURE),
        uncounted_before=np.searchsorted(uncounted_at, when) + unseen_before,
        uncounted_in_group=np.isin(group, uncounted_groups) & (group != NONE),
    )


def _recover(
    channels: Channels, left_over: Ints, candidates: Ints, not_before_ns: Ints, lower: Bound
) -> list[tuple[int, int]]:
    """(work, kernel event that brought its stamps) for works that the host did not count: each
    left-over stamp goes to the next of them, if that was launched before it.
    """
    recovered, place = [], 0
    latest = channels.gpu_start[left_over] - lower.at(channels.seen_end_ns[left_over])
    for event, latest_ns in zip(left_over.tolist(), latest.tolist(), strict=True):
        if place == len(candidates):
            break
        if not_before_ns[place] <= latest_ns:
            recovered.append((int(candidates[place]), event))
            place += 1
    return recovered


def _by_channel(channels: Channels, stamped: Ints) -> list[Ints]:
    """Places of kernel events with stamps: one array per communicator and channel, in order."""
    if not len(stamped):
        return []
    where = channels.comm[stamped] << 8 | channels.channel[stamped]
    if int(where.max()) < 1 << 16:
        where = where.astype(np.uint16)  # sorted by radix
    order = np.argsort(where, kind="stable")
    cuts = np.flatnonzero(np.diff(where[order].astype(np.int64))) + 1
    return np.split(stamped[order], cuts)


def _lower_bounds(channels: Channels, stamped: Bools) -> dict[int, Bound]:
    """By GPU a lower bound of how far its clock is ahead of the host's."""
    if not stamped.any():
        return {}
    gpu, seen, stop = channels.gpu, channels.seen_end_ns, channels.gpu_stop
    if (gpu == gpu[0]).all():
        return {int(gpu[0]): lower_bound(seen, stop, _unless_all(stamped))}
    numbers = np.flatnonzero(np.bincount(gpu[stamped])).tolist()
    return {number: lower_bound(seen, stop, stamped & (gpu == number)) for number in numbers}


def _unless_all(chosen: Bools) -> Bools | None:
    return None if chosen.all() else chosen


def assign_stamps(
    decoded: ProcessEvents,
    works: Works,
    launches: StartBounds,
    gpu_of_comm: Ints,
    rank_of_comm: Ints,
    unseen: UnrecordedWorks,
) -> tuple[Channels, dict[int, GpuClock]]:
    """All channels with their works' own stamps, recovered ones included; clocks by GPU."""
    channels = reported(decoded, works, gpu_of_comm)
    has_kernels = mask_of(channels.work, len(works))
    stamped = (channels.gpu_stop != NONE) & (len(works) > 0)
    lower = _lower_bounds(channels, stamped)
    had_kernels = _had_kernels(unseen, works, has_kernels)
    uncounted = _uncounted(works, had_kernels, rank_of_comm, channels.comm, stamped)
    not_before = launches.not_before_ns(works)
    strand, strands = channels.strands()
    fitting = channels.fitting(strand, strands, lower, not_before, works)
    if fitting.all() and not len(uncounted.work) and not unseen.at_most:
        np.copyto(channels.stamp, np.int8(stamp_repair.VALID), where=stamped)
        repaired = channels
    else:
        places = np.flatnonzero(stamped)
        repaired = _repaired(
            channels, places, strand, fitting, works, launches, lower, uncounted, unseen
        )
    return repaired, {
        gpu: _clock(bound, gpu, channels, repaired, launches) for gpu, bound in lower.items()
    }


def _repaired(
    channels: Channels,
    places: Ints,
    strand: Numbers,
    fitting: Bools,
    works: Works,
    launches: StartBounds,
    lower: dict[int, Bound],
    uncounted: _Uncounted,
    unseen: UnrecordedWorks,
) -> Channels:
    """The channels with stamps repaired, one channel of a communicator after the other."""
    true_start, true_stop = channels.gpu_start.copy(), channels.gpu_stop.copy()
    recovered: list[tuple[int, int]] = []
    not_before = launches.not_before_ns(works)
    for of_channel in _by_channel(channels, places):
        first = of_channel[0]
        bound = lower[int(channels.gpu[first])]
        number, channel = int(channels.comm[first]), int(channels.channel[first])
        can_use = (uncounted.comm == number) & (channel < uncounted.first_channels)
        sure = unseen.at_most.get(number, 0) == 0 or channel >= unseen.channels[number]
        if not can_use.any() and sure and fitting[strand[first]]:
            channels.stamp[of_channel] = stamp_repair.VALID
            continue
        when, groups = uncounted.enqueue_ns[can_use], works.group[uncounted.work[can_use]]
        # Stamps that works before a pause lack came to works that are not on record, so windows
        # are repaired one by one.
        asked_ns = _asked_ns(channels, of_channel, works)
        windows = unseen.window(asked_ns)
        unseen_before = unseen.before(number, channel, asked_ns)
        for window in np.unique(windows).tolist():
            own, hidden = of_channel[windows == window], unseen_before[windows == window]
            events = _channel_events(
                channels, own, works, launches, not_before, bound, when, groups, hidden
            )
            assignment = stamp_repair.repair(events)
            channels.stamp[own] = assignment.stamp
            channels.reason[own] = assignment.reason
            owner = own[np.maximum(assignment.owner, 0)]
            true_start[own] = np.where(assignment.owner != NONE, channels.gpu_start[owner], NONE)
            true_stop[own] = np.where(assignment.owner != NONE, channels.gpu_stop[owner], NONE)
            left = own[assignment.left_over]
            here = can_use & (unseen.window(uncounted.enqueue_ns) == window)
            candidates = uncounted.work[here]
            recovered += _recover(channels, left, candidates, not_before[candidates], bound)
    return _with_recovered(channels, true_start, true_stop, works, recovered)


def _clock(
    lower: Bound, gpu: int, channels: Channels, repaired: Channels, launches: StartBounds
) -> GpuClock:
    """The GPU's clock; only certain stamps of works that are no replays bound it from above."""
    start_ns = launches.start_ns
    if launches.replay.any():
        start_ns = np.where(launches.replay, NONE, start_ns)
    launched, sure, number = repaired.launches(gpu, start_ns)
    chosen = None if number == len(sure) else sure
    upper = upper_bound(launched, repaired.gpu_start, lower.drift, chosen)
    places = _first_stamped(channels, gpu, _SAMPLE)
    seen = channels.seen_end_ns[places]
    notice = int(np.median(lower.at(seen) - (channels.gpu_stop[places] - seen)))
    return GpuClock(lower, with_quick_notices(lower, upper, notice, len(places)), notice)


def _first_stamped(channels: Channels, gpu: int, most: int) -> Ints:
    """Places of the first `most` events of a GPU that have stamps."""
    places, number = [np.empty(0, np.int64)], 0
    for rows in row_chunks(len(channels.work)):
        stamped = (channels.gpu[rows] == gpu) & (channels.gpu_stop[rows] != NONE)
        places.append(rows.start + np.flatnonzero(stamped)[: most - number])
        number += len(places[-1])
        if number == most:
            break
    return np.concatenate(places)


def _with_recovered(
    channels: Channels,
    true_start: Ints,
    true_stop: Ints,
    works: Works,
    recovered: list[tuple[int, int]],
) -> Channels:
    """The channels with their true stamps, and a row at the end for each recovered work."""
    if not recovered:
        return replace(channels, gpu_start=true_start, gpu_stop=true_stop)
    work = np.array([work for work, _ in recovered], np.int64)
    event = np.array([event for _, event in recovered], np.int64)
    # A receive from itself ran in its send's work.
    twins, origin = _self_receives(works, work)
    work, event = np.concatenate([work, twins]), np.concatenate([event, event[origin]])
    none = np.full(len(work), NONE, np.int64)
    return Channels(
        work=np.concatenate([channels.work, work]),
        comm=np.concatenate([channels.comm, channels.comm[event]]),
        channel=np.concatenate([channels.channel, channels.channel[event]]),
        gpu=np.concatenate([channels.gpu, channels.gpu[event]]),
        gpu_start=np.concatenate([true_start, channels.gpu_start[event]]),
        gpu_stop=np.concatenate([true_stop, channels.gpu_stop[event]]),
        seen_start_ns=np.concatenate([channels.seen_start_ns, none]),
        seen_end_ns=np.concatenate([channels.seen_end_ns, none]),
        stamp=np.concatenate([channels.stamp, np.full(len(work), stamp_repair.RECOVERED, np.int8)]),
        reason=np.concatenate([channels.reason, np.zeros(len(work), np.int8)]),
    )


def _self_receives(works: Works, sends: Ints) -> tuple[Ints, Ints]:
    """Receives that ran in the works of these sends of a rank to itself: (receive, place in
    `sends`).
    """
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
