"""Times of launches between two CUDA events, and the operations that they are times of.

Two events are recorded around a launch. The GPU reaches the first one before the kernel starts and
the second one after it has ended, so the time between them has an excess over the kernel's own. The
recorder measures the excess with marker kernels when a communicator is made. It is taken off, at
the start: that is where the GPU waits for the launch. What remains may be off by the spread of the
excess, or by half the difference between an idle and a busy stream, if that is more; and by what
NCCL's kernels add themselves, NCCL_KERNEL_ERROR_NS. Example: 127 µs between the events, an excess
of 6 ± 2 µs: the kernel took 121 ± 12 µs.

    gpu-event         the error is at most EXACT_ERROR_SHARE of the time: good for bandwidth
    gpu-event-rough   the error is more than that
    gpu-event-upper   an upper bound: the excess is not known, or several operations share the
                      launch, and each has its whole time

Events are on a clock of their own for each CUDA context, which is mapped to the host's as a GPU's
clock is: the first event came after it was recorded, the second before it was seen to be over.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import factorize, positions_of, take
from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS, HeadFilter, ReadPlan, flag_column, key, number, time
from ncclscope.capture.metadata import EventClock, timing_reason
from ncclscope.capture.recording_windows import windows_of
from ncclscope.model.process.calls import Calls, Rows
from ncclscope.model.process.events import ProcessEvents
from ncclscope.model.process.gpu_clock import GpuClock, lower_bound, upper_bound
from ncclscope.model.schema import NONE, NOT_SAMPLED, TIMING_OFF, Columns

EXACT_ERROR_SHARE = 0.1
# NCCL's kernels are larger than a marker kernel, and stamp themselves after they began and before
# they end. On an H200 AllReduce's events exceeded its KernelCh times by 9 to 11 µs at the median
# and 12 to 14 µs at the 95th percentile where markers had said 4 µs: docs/measurements/nccl.md.
NCCL_KERNEL_ERROR_NS = 10_000
NEVER_READ = "its CUDA events were not read before the record ended"
SHARED = "the time of its launch, which other operations share"
ROUGH = "by CUDA events, with an error of more than a tenth"
BY_EVENTS = "by CUDA events around its launch"
NOT_CALIBRATED = "by CUDA events whose excess is not known"
KINDS = ("LaunchTime",)
_TIMED = {
    "parent": key("parent"),
    "recorded_ns": START_NS,
    "seen_ns": time("t1"),
    "gpu_start": number("gpu_start_ns"),
    "gpu_stop": number("gpu_stop_ns"),
    "clock": number("clock", "i4"),
    "reason": number("reason", "i2"),
}
CHOSEN = flag_column(HeadFilter(states=layout.STATE_NOTED))
CAPTURED = flag_column(HeadFilter(flags=layout.FLAG_GRAPH))
LAUNCH_PLANS = {"LaunchTime": ReadPlan(_TIMED)}


@dataclass(frozen=True, slots=True)
class EventExcess:
    """What was taken off the times of a process, and how far they may be off after that."""

    excess_ns: int = 0
    error_ns: int = 0


def clock_error_ns(clock: EventClock) -> int:
    """How far a time by this clock may be off after its excess was taken off."""
    marker_ns = max(clock.spread_ns, abs(clock.excess_idle_ns - clock.excess_busy_ns) // 2)
    return marker_ns + NCCL_KERNEL_ERROR_NS


def event_excess(clocks: Mapping[int, EventClock]) -> EventExcess:
    """Of several clocks the mean excess, and an error that covers all of them."""
    known = [clock for clock in clocks.values() if clock.calibrated]
    if not known:
        return EventExcess()
    mean = sum(clock.excess_ns for clock in known) // len(known)
    return EventExcess(
        mean, max(clock_error_ns(clock) + abs(clock.excess_ns - mean) for clock in known)
    )


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """Launches that were to be timed, in the order of their keys; times on the host's clock."""

    keys: Ints  # of the KernelLaunch, or of the GroupApi where there is none
    start_ns: Ints  # NONE: not timed
    end_ns: Ints
    error_ns: Ints
    calibrated: Bools
    reason: npt.NDArray[np.int16]  # of layout.TIMING_REASONS
    clocks: dict[int, GpuClock]


def launch_times(decoded: ProcessEvents) -> LaunchTimes:
    """All LaunchTimes of a process; of several with one parent, the first."""
    read = decoded["LaunchTime"].read(**_TIMED)
    _, first = np.unique(read["parent"], return_index=True)
    columns = {name: values[first] for name, values in read.items()}
    timed = (columns["reason"] == 0) & (columns["gpu_stop"] >= columns["gpu_start"])
    count = len(first)
    start, end = np.full(count, NONE, np.int64), np.full(count, NONE, np.int64)
    error, calibrated = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    clocks: dict[int, GpuClock] = {}
    for clock in np.unique(columns["clock"][timed]).tolist():
        own = np.flatnonzero(timed & (columns["clock"] == clock))
        clocks[clock] = _host_clock(columns, own)
        start[own], end[own] = _on_host_clock(columns, own, clocks[clock])
        known = decoded.process.event_clocks.get(clock)
        if known is not None and known.calibrated:
            calibrated[own], error[own] = True, clock_error_ns(known)
            start[own] = np.minimum(start[own] + known.excess_ns, end[own])
    return LaunchTimes(columns["parent"], start, end, error, calibrated, columns["reason"], clocks)


def _host_clock(columns: Columns, own: Ints) -> GpuClock:
    seen, stop = columns["seen_ns"][own], columns["gpu_stop"][own]
    lower = lower_bound(seen, stop)
    notice = int(np.median(lower.at(seen) - (stop - seen)))
    recorded, start = columns["recorded_ns"][own], columns["gpu_start"][own]
    return GpuClock(lower, upper_bound(recorded, start, lower.drift), notice)


def _on_host_clock(columns: Columns, own: Ints, clock: GpuClock) -> tuple[Ints, Ints]:
    """Start and end of events on the host's clock: in the middle of what is possible."""
    recorded = columns["recorded_ns"][own]
    offset = (clock.lower.at(recorded) - clock.minus_upper.at(recorded)) // 2
    return columns["gpu_start"][own] - offset, columns["gpu_stop"][own] - offset


@dataclass(frozen=True, slots=True)
class TimedRows:
    """Operations by what CUDA events say about them."""

    start_ns: Ints  # NONE: not timed
    end_ns: Ints
    exact: Bools
    shared: Bools  # with other operations of the same launch
    calibrated: Bools
    reason: list[str]  # texts
    reason_code: Ints  # places in `reason`; NONE: nothing is known
    capture: Ints  # the graph capture that took its launch, NONE
    clocks: dict[int, GpuClock]


def is_sampled(decoded: ProcessEvents) -> bool:
    """Whether the process timed a sample of its launches by CUDA events."""
    identity = decoded.process.identity
    return identity.get("gpu_timing.in_force") == "sampled" and len(decoded["GroupApi"]) > 0


def timed_rows(decoded: ProcessEvents, calls: Calls, rows: Rows, launch: Ints) -> TimedRows:
    """What the sampled launches say about a process's rows. `launch`: the KernelLaunch of each
    work, NONE where there is none.
    """
    times, launches = launch_times(decoded), decoded["KernelLaunch"]
    launched = launches.read(
        parent=key("parent"), comm=number("comm", "i4"), chosen=CHOSEN, captured=CAPTURED,
        capture=number("capture"),
    )  # fmt: skip
    at = _launch_of_rows(launched, calls, rows, launch)
    keys = np.where(at != NONE, take(launches.keys, at), take(calls.group_call, rows.called))
    place = positions_of(times.keys, keys)
    chosen = take(launched["chosen"], at, 0).astype(np.bool_) | (place != NONE)
    start, end = take(times.start_ns, place), take(times.end_ns, place)
    duration, timed = end - start, start != NONE
    shared = timed & _is_shared(place, len(times.keys))
    calibrated = take(times.calibrated, place, 0).astype(np.bool_)
    error = take(times.error_ns, place, 0)
    exact = timed & calibrated & ~shared & (error <= EXACT_ERROR_SHARE * duration)
    texts = [NOT_SAMPLED, NEVER_READ, *(timing_reason(n) for n in range(256)), TIMING_OFF]
    codes = np.where(chosen, 1, np.where(_is_off(decoded, calls, rows), len(texts) - 1, 0))
    codes = np.where(
        (place != NONE) & ~timed, take(times.reason, place).astype(np.int64) + 2, codes
    )
    captured = take(launched["captured"], at, 0).astype(np.bool_)
    capture = np.where(captured, take(launched["capture"], at), NONE)
    return TimedRows(start, end, exact, shared, calibrated, texts, codes, capture, times.clocks)


def _is_off(decoded: ProcessEvents, calls: Calls, rows: Rows) -> Bools:
    """Which rows were called while GPU timing was switched off."""
    periods = windows_of(decoded.process).timing_off
    edges = np.array([edge for period in periods for edge in period], np.int64)
    called: Ints = take(calls.start_ns, rows.called)
    return np.asarray((called != NONE) & (np.searchsorted(edges, called, side="right") % 2 == 1))


def _is_shared(place: Ints, launches: int) -> Bools:
    """Which rows have the launch of another row, too."""
    known = place != NONE
    rows = np.bincount(place[known], minlength=launches + 1)
    return np.asarray(known & (rows[place] > 1))


def _launch_of_rows(launched: Columns, calls: Calls, rows: Rows, launch: Ints) -> Ints:
    """The KernelLaunch of each row: that of its work; without a work, the only one of its group
    call and communicator.
    """
    of_work: Ints = take(launch, rows.work)
    alone = np.flatnonzero((rows.work == NONE) & (rows.called != NONE))
    if not len(alone) or not len(launched["parent"]):
        return of_work
    called, launches = rows.called[alone], len(launched["parent"])
    group, _ = factorize(np.concatenate([launched["parent"], calls.group_call[called]]))
    comm = np.concatenate([launched["comm"], calls.comm[called]]).astype(np.int64)
    pair = np.where(group == NONE, NONE, group.astype(np.int64) << 17 | comm)
    order = np.argsort(pair[:launches], kind="stable")
    among, wanted = pair[order], pair[launches:]
    low, high = np.searchsorted(among, wanted), np.searchsorted(among, wanted, side="right")
    only = (high - low == 1) & (wanted != NONE)
    of_work = of_work.copy()
    of_work[alone[only]] = order[low[only]]
    return of_work
