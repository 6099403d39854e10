"""How long each operation took by the best source, its state, and why the source is no better."""

from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.chunks import map_chunks
from ncclscope.arrays.joins import positions_of, take, take_small
from ncclscope.arrays.library import full_array
from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import (
    STOP_NS,
    STOPPED,
    HeadFilter,
    flag_column,
    key,
    time,
)
from ncclscope.capture.tick_clock import TickClock
from ncclscope.model.process import launch_times, stamp_repair
from ncclscope.model.process.calls import Rows
from ncclscope.model.process.channels import KernelTimes
from ncclscope.model.process.events import ProcessEvents
from ncclscope.model.process.launch_times import TimedRows
from ncclscope.model.process.works import Works
from ncclscope.model.schema import (
    CAPTURED,
    COPY_ENGINE,
    DONE,
    IN_FLIGHT,
    NEVER_LAUNCHED,
    NONE,
    SOURCES,
    UNKNOWN,
    Columns,
)
from ncclscope.model.vocabulary import Codes, Vocabulary
from ncclscope.nccl.algorithms import WITH_EXACT_STOP
from ncclscope.nccl.events import BIT, FIRST_WITH_KERNELS, FIRST_WITH_STAMPS, NUMBER

(
    GPU, GPU_REPAIRED, GPU_EVENT, GPU_PARTIAL, GPU_EVENT_ROUGH, GPU_EARLY, GPU_EVENT_UPPER,
    PROXY, HOST, ENQUEUE, NO_SOURCE,
) = range(len(SOURCES))  # fmt: skip
EARLY = "the stop stamp may come before the end"
GIVEN_UP = "older than the kernels that the flight recorder or the disk limit left"
COUNTED_REPLAYS = "replays of a CUDA graph, counted by a marker and not timed"
IMPOSSIBLE_TIMES = "its times cannot be"
# NCCL queues a proxy op when the call is enqueued, maybe long before the proxy thread gets to it.
# Releases that do not report the latter leave the former.
_PROXY_BEGIN_NS = time(
    "t_in_progress",
    HeadFilter(states=layout.STATE_FIRST),
    otherwise=time("t0", HeadFilter(not_states=layout.STATE_FIRST)),
)
# Without these an operation has no kernel times.
_NEEDED_EVENTS = tuple(NUMBER[name] for name in ("Coll", "P2p", "KernelCh"))


@dataclass(frozen=True, slots=True)
class Proxies:
    """When each work's proxy ops ran."""

    start_ns: Ints  # when the proxy thread began the first, NONE without any
    end_ns: Ints  # of the last
    running: Bools


def proxies_of(decoded: ProcessEvents, works: Works) -> Proxies:
    """First begin and last stop of each work's proxy ops."""
    events = decoded["ProxyOp"]
    if not len(events):
        none = full_array(len(works), np.int64, NONE)
        return Proxies(none, none, np.zeros(len(works), bool))
    first, last = np.full(len(works), stamp_repair.FAR_FUTURE), np.full(len(works), NONE)
    read = events.read(parent=key("parent"), start=_PROXY_BEGIN_NS, stop=STOP_NS)
    work, stop = positions_of(works.keys, read["parent"]), read["stop"]
    own = np.flatnonzero(work != NONE)
    np.minimum.at(first, work[own], read["start"][own])
    np.maximum.at(last, work[own], stop[own])
    running = np.zeros(len(works), bool)
    running[work[own[stop[own] == NONE]]] = True
    return Proxies(np.where(first < stamp_repair.FAR_FUTURE, first, NONE), last, running)


def set_times(
    columns: Columns,
    works: Works,
    rows: Rows,
    kernel: KernelTimes,
    proxies: Proxies,
    words: Vocabulary,
) -> None:
    """Sets start, end, duration and source of each row, and the reason why it is not `gpu`."""
    exact = words.among("algorithm", WITH_EXACT_STOP, works.algorithm) & ~works.symmetric
    timed = (kernel.start_ns != NONE) & ~kernel.running
    source = np.full(len(works), NO_SOURCE, np.int8)
    if not timed.all():
        _set_without_stamps(source, works, kernel, proxies)
    for mask, code in (  # of several, the last holds
        (timed, GPU),
        (timed & (kernel.stamp > stamp_repair.VALID), GPU_REPAIRED),
        (timed & kernel.partial, GPU_PARTIAL),
        (timed & ~exact, GPU_EARLY),
    ):
        if mask.any():
            np.copyto(source, np.int8(code), where=mask)
    start, end = _spans(source, works, kernel, proxies)
    columns["start_ns"], columns["end_ns"] = rows.of_work(start), rows.of_work(end)
    columns["duration_ns"] = map_chunks(_between, np.int64, columns["start_ns"], columns["end_ns"])
    columns["source"] = rows.of_work(source, NO_SOURCE)
    reasons = np.array([words.code("reason", text) for text in stamp_repair.REASONS], np.int8)
    of_stamps = take_small(reasons, rows.of_work(kernel.reason, 0))
    columns["reason"] = np.where(columns["source"] == GPU, np.int8(0), of_stamps)
    columns["reason"][columns["source"] == GPU_EARLY] = words.code("reason", EARLY)


def set_event_times(columns: Columns, timed: TimedRows, words: Vocabulary) -> None:
    """Sets the times of rows that have none by stamps of the GPU, and whose launch was timed."""
    own = (timed.start_ns != NONE) & (columns["source"] >= PROXY)
    if not own.any():
        return
    upper = timed.shared | ~timed.calibrated
    source = np.where(timed.exact, GPU_EVENT, np.where(upper, GPU_EVENT_UPPER, GPU_EVENT_ROUGH))
    columns["source"] = np.where(own, source.astype(np.int8), columns["source"])
    columns["start_ns"] = np.where(own, timed.start_ns, columns["start_ns"])
    columns["end_ns"] = np.where(own, timed.end_ns, columns["end_ns"])
    columns["duration_ns"] = np.where(own, timed.end_ns - timed.start_ns, columns["duration_ns"])
    columns["reason"] = columns["reason"].copy()
    for mask, text in (  # of several, the last holds
        (own, launch_times.ROUGH),
        (own & timed.exact, launch_times.BY_EVENTS),
        (own & ~timed.calibrated, launch_times.NOT_CALIBRATED),
        (own & timed.shared, launch_times.SHARED),
    ):
        if mask.any():
            columns["reason"][mask] = words.code("reason", text)


def explain_sampling(columns: Columns, timed: TimedRows, words: Vocabulary) -> None:
    """Sets the reasons of rows without a time where launches were sampled."""
    reason, state = columns["reason"], columns["state"]
    counted = columns["replays"] != NONE
    if counted.any():
        reason[counted] = words.code("reason", COUNTED_REPLAYS)
    source = columns["source"]
    left = ((source == NO_SOURCE) | (source == PROXY)) & (reason == 0)
    left &= (state == DONE) | (state == UNKNOWN)
    for code in np.unique(timed.reason_code[left]).tolist():
        text = timed.reason[code]
        reason[left & (timed.reason_code == code)] = words.code("reason", text)


def _set_without_stamps(source: Codes, works: Works, kernel: KernelTimes, proxies: Proxies) -> None:
    """Sets the sources of works without stamps of the GPU."""
    unstamped = (kernel.stamp == stamp_repair.MISSING) & (kernel.reason == stamp_repair.OK)
    for mask, code in (  # of several, the last holds
        ((works.form == COPY_ENGINE) & (works.stopped_ns != NONE), ENQUEUE),
        ((proxies.end_ns != NONE) & ~proxies.running & ~kernel.running, PROXY),
        (unstamped & (kernel.seen_end_ns != NONE), HOST),  # covers the kernel, but ends late
    ):
        np.copyto(source, np.int8(code), where=mask)


def _between(start: Ints, end: Ints) -> Ints:
    return np.where((start != NONE) & (end != NONE), end - start, NONE)


def _spans(source: Codes, works: Works, kernel: KernelTimes, proxies: Proxies) -> tuple[Ints, Ints]:
    """Start and end of each work by its source."""
    by_gpu = source < PROXY
    if by_gpu.all():
        return kernel.start_ns, kernel.end_ns
    start, end = np.where(by_gpu, kernel.start_ns, NONE), np.where(by_gpu, kernel.end_ns, NONE)
    for code, first, last in (
        (HOST, kernel.seen_start_ns, kernel.seen_end_ns),
        (PROXY, proxies.start_ns, proxies.end_ns),
        (ENQUEUE, works.enqueue_ns, works.stopped_ns),
    ):
        own = source == code
        if own.any():
            start[own], end[own] = first[own], last[own]
    return start, end


def reject_impossible(columns: Columns, clock: TickClock, words: Vocabulary) -> None:
    """Removes times that run backwards, or that the process cannot have lived to see."""
    wrong = ~map_chunks(
        lambda start, end: (end >= start) & clock.covers(start) & clock.covers(end),
        np.bool_,
        columns["start_ns"],
        columns["end_ns"],
    )
    wrong &= columns["source"] != NO_SOURCE
    if wrong.any():
        for name in ("start_ns", "end_ns", "duration_ns"):
            columns[name] = np.where(wrong, NONE, columns[name])
        columns["source"] = np.where(wrong, np.int8(NO_SOURCE), columns["source"])
        columns["reason"][wrong] = words.code("reason", IMPOSSIBLE_TIMES)


def set_states(
    columns: Columns,
    rows: Rows,
    kernel: KernelTimes,
    proxies: Proxies,
    decoded: ProcessEvents,
) -> None:
    """Sets the state of each row."""
    of_work = np.full(len(kernel.kernels), DONE, np.int8)
    silent = np.flatnonzero(kernel.kernels == 0)
    by_proxy = proxies.start_ns[silent] != NONE
    of_work[silent[~by_proxy & (kernel.start_ns[silent] == NONE)]] = UNKNOWN
    of_work[silent[by_proxy & proxies.running[silent]]] = IN_FLIGHT
    of_work[kernel.running] = IN_FLIGHT
    state = rows.of_work(of_work, UNKNOWN).copy()
    state[columns["source"] <= GPU_EVENT_UPPER] = DONE
    state[rows.captured] = CAPTURED
    _settle(columns, state)
    stuck = (state == UNKNOWN) & (rows.work == NONE)
    if stuck.any():
        state[stuck & group_is_open(decoded, columns["group_call"])] = NEVER_LAUNCHED
    columns["state"] = state


def _settle(columns: Columns, state: Codes) -> None:
    """Sets unknown states to done before the last done operation of a communicator: NCCL runs its
    operations in order.
    """
    if not (state == UNKNOWN).any():
        return
    when = first_time(columns)
    comm = columns["communicator"].astype(np.int64)
    latest = np.full(int(comm.max(initial=0)) + 1, NONE)
    done = state == DONE
    np.maximum.at(latest, comm[done], when[done])
    state[(state == UNKNOWN) & (when <= latest[comm])] = DONE


def first_time(columns: Columns) -> Ints:
    """When each row was first reported: its call, else its work."""
    call, enqueue = columns["call_ns"], columns["enqueue_ns"]
    return call if call.min(initial=0) > NONE else np.where(call != NONE, call, enqueue)


def explain(columns: Columns, rows: Rows, decoded: ProcessEvents, words: Vocabulary) -> None:
    """Sets the reasons of rows whose source is not `gpu`, where their stamps gave none."""
    reason, source, state = columns["reason"], columns["source"], columns["state"]
    if not ((source != GPU) & (reason == 0)).any():
        return
    without = source == NO_SOURCE
    broadcast = words.among("function", ("Broadcast",), columns["function"])
    for mask, text in (
        (without & (state == CAPTURED), "captured into a CUDA graph, see its replays"),
        (without & (state == IN_FLIGHT), "in flight"),
        (without & (state == NEVER_LAUNCHED), "never launched"),
        (
            without & broadcast & (rows.work == NONE),
            "Broadcast takes NCCL's AllGatherV path, which reports no kernel",
        ),
        (
            without & (state == UNKNOWN) & (not decoded.process.ended),
            "the record ends before it began on the GPU",
        ),
        (without & _before_kernels(columns, decoded), GIVEN_UP),
        (without | (source == PROXY), _why_no_kernels(decoded)),
        (source == HOST, _why_no_stamps(decoded)),
        (source == ENQUEUE, "copy engines have no stamps: the time of queueing"),
        (source == GPU_PARTIAL, "some channels have no stamp"),
        (source == GPU_REPAIRED, "NCCL had given its stamps to another operation"),
    ):
        unexplained = mask & (reason == 0)
        if unexplained.any():
            reason[unexplained] = words.code("reason", text)


def _before_kernels(columns: Columns, decoded: ProcessEvents) -> Bools:
    """Rows before the first row of their communicator that has a kernel, where old events were
    given up: threads keep different lengths of time.
    """
    if not decoded.process.gave_up_events():
        return np.zeros(len(columns["source"]), bool)
    when, comm = first_time(columns), columns["communicator"].astype(np.int64)
    first = np.full(int(comm.max(initial=0)) + 2, stamp_repair.FAR_FUTURE)  # the last: of none
    has_times = (columns["source"] < PROXY) | (columns["source"] == HOST)
    np.minimum.at(first, comm[has_times], when[has_times])
    before: Bools = when < first[comm]
    return before


def _why_no_stamps(decoded: ProcessEvents) -> str:
    version = max((comm.version for comm in decoded.process.communicators), default=0)
    old = version < FIRST_WITH_STAMPS
    return "this NCCL gives no GPU stamps" if old else "NCCL gave it no GPU stamp"


def _why_no_kernels(decoded: ProcessEvents) -> str:
    comms = decoded.process.communicators
    if comms and not any(comm.mask & BIT["KernelCh"] for comm in comms):
        old = max(comm.version for comm in comms) < FIRST_WITH_KERNELS
        return "this NCCL reports no kernels" if old else "GPU timing was switched off"
    lost = any(
        name.startswith("dropped_") and event in _NEEDED_EVENTS and count
        for (name, event), count in decoded.process.counters.items()
    )
    if lost:
        return "its events were dropped"
    if any(not change.writes for change in decoded.process.mode_changes):
        return "no kernel of it is on record, which paused at times"
    return "NCCL reported no kernel of it"


def group_is_open(decoded: ProcessEvents, group_call: Ints) -> Bools:
    """Whether each GroupApi is on record and has not stopped."""
    groups = decoded["GroupApi"]
    return ~take(groups.one(flag_column(STOPPED)), groups.find(group_call), 1)
