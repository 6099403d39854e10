"""How long each operation took by the best source, what became of it, and why not better."""

from dataclasses import dataclass

import numpy as np

from ncclscope.capture.clock import Clock
from ncclscope.capture.columns import START_NS, STOP_NS, STOPPED, choice, key
from ncclscope.capture.joins import find, pick
from ncclscope.model import stamps
from ncclscope.model.calls import Rows
from ncclscope.model.channels import KernelTimes
from ncclscope.model.decode import Bools, Decoded, Ints
from ncclscope.model.sizes import SOUND_ALGORITHMS
from ncclscope.model.tables import COPY_ENGINE, NONE, SOURCES, STATES, Columns
from ncclscope.model.words import Words
from ncclscope.model.works import Works

GPU, GPU_REPAIRED, GPU_PARTIAL, GPU_EARLY, PROXY, HOST, ENQUEUE, NO_SOURCE = range(len(SOURCES))
DONE, IN_FLIGHT, NEVER_LAUNCHED, CAPTURED, UNKNOWN = range(len(STATES))
EARLY = "the stop stamp may come before the end"
_KERNEL_CH_BIT = 1 << 6
_FIRST_WITH_STAMPS = 4  # interface


@dataclass(frozen=True, slots=True)
class Proxies:
    """Each work's proxy ops."""

    start_ns: Ints  # of the first, NONE without any
    end_ns: Ints  # of the last
    running: Bools


def proxies_of(decoded: Decoded, works: Works) -> Proxies:
    """First start and last stop of each work's proxy ops."""
    events = decoded["ProxyOp"]
    first, last = np.full(len(works), stamps.FAR_FUTURE), np.full(len(works), NONE)
    read = events.read(parent=key("parent"), start=START_NS, stop=STOP_NS)
    work, stop = find(works.keys, read["parent"]), read["stop"]
    mine = np.flatnonzero(work != NONE)
    np.minimum.at(first, work[mine], read["start"][mine])
    np.maximum.at(last, work[mine], stop[mine])
    running = np.zeros(len(works), bool)
    running[work[mine[stop[mine] == NONE]]] = True
    return Proxies(np.where(first < stamps.FAR_FUTURE, first, NONE), last, running)


def set_times(
    columns: Columns, works: Works, rows: Rows, kernel: KernelTimes, proxies: Proxies, words: Words
) -> None:
    """Start, end, duration and source of each row; the reason where the source is not `gpu`."""
    sound = np.isin(works.algorithm, words.known("algorithm", SOUND_ALGORITHMS)) & ~works.symmetric
    timed = (kernel.start_ns != NONE) & ~kernel.running
    unstamped = (kernel.stamp == stamps.MISSING) & (kernel.reason == stamps.OK)
    by_host = unstamped & (kernel.seen_end_ns != NONE)
    by_proxy = (proxies.end_ns != NONE) & ~proxies.running & ~kernel.running
    by_enqueue = (works.form == COPY_ENGINE) & (works.stopped_ns != NONE)
    source = np.select(
        [
            timed & ~sound,
            timed & kernel.partial,
            timed & (kernel.stamp > stamps.VALID),
            timed,
            by_host,  # before the proxy: it covers the kernel, if late
            by_proxy,
            by_enqueue,
        ],
        [GPU_EARLY, GPU_PARTIAL, GPU_REPAIRED, GPU, HOST, PROXY, ENQUEUE],
        NO_SOURCE,
    )
    spans = (
        (source <= GPU_EARLY, kernel.start_ns, kernel.end_ns),
        (source == HOST, kernel.seen_start_ns, kernel.seen_end_ns),
        (source == PROXY, proxies.start_ns, proxies.end_ns),
        (source == ENQUEUE, works.enqueue_ns, works.stopped_ns),
    )
    conditions = [mask for mask, _, _ in spans]
    start = np.select(conditions, [first for _, first, _ in spans], NONE)
    end = np.select(conditions, [last for _, _, last in spans], NONE)
    columns["start_ns"], columns["end_ns"] = pick(start, rows.work), pick(end, rows.work)
    has_both = (columns["end_ns"] != NONE) & (columns["start_ns"] != NONE)
    columns["duration_ns"] = np.where(has_both, columns["end_ns"] - columns["start_ns"], NONE)
    columns["source"] = pick(source, rows.work, NO_SOURCE).astype(np.int8)
    reasons = np.array([words.code("reason", text) for text in stamps.REASONS], np.int8)
    of_stamps = reasons[pick(kernel.reason.astype(np.int64), rows.work, 0)]
    columns["reason"] = np.where(columns["source"] == GPU, 0, of_stamps).astype(np.int8)
    columns["reason"][columns["source"] == GPU_EARLY] = words.code("reason", EARLY)


def reject_impossible(columns: Columns, clock: Clock, words: Words) -> None:
    """Takes away times that run backwards, or that the process cannot have lived to see."""
    start, end = columns["start_ns"], columns["end_ns"]
    wrong = (columns["source"] != NO_SOURCE) & ~((end >= start) & clock.covers(start))
    wrong |= (columns["source"] != NO_SOURCE) & ~clock.covers(end)
    if wrong.any():
        for name in ("start_ns", "end_ns", "duration_ns"):
            columns[name][wrong] = NONE
        columns["source"][wrong] = NO_SOURCE
        columns["reason"][wrong] = words.code("reason", "its times cannot be")


def set_states(
    columns: Columns,
    rows: Rows,
    kernel: KernelTimes,
    proxies: Proxies,
    group_open: Bools,
) -> None:
    """What became of each row. `group_open`: its group call has not returned."""
    by_proxy = (kernel.kernels == 0) & (proxies.start_ns != NONE)
    running = kernel.running | (by_proxy & proxies.running)
    seen = (kernel.kernels > 0) | by_proxy | (kernel.start_ns != NONE)
    of_work = np.select([running, seen], [IN_FLIGHT, DONE], UNKNOWN)
    state = pick(of_work, rows.work, UNKNOWN)
    state[rows.captured] = CAPTURED
    _settle(columns, state)
    stuck = (state == UNKNOWN) & (rows.work == NONE) & group_open
    state[stuck] = NEVER_LAUNCHED
    columns["state"] = state.astype(np.int8)


def _settle(columns: Columns, state: Ints) -> None:
    """NCCL runs a communicator's operations in order: what comes before a done one is done."""
    when = first_time(columns)
    comm = columns["communicator"].astype(np.int64)
    latest = np.full(int(comm.max(initial=0)) + 1, NONE)
    done = state == DONE
    np.maximum.at(latest, comm[done], when[done])
    state[(state == UNKNOWN) & (when <= latest[comm])] = DONE


def first_time(columns: Columns) -> Ints:
    """When each row was heard of first."""
    call, enqueue = columns["call_ns"], columns["enqueue_ns"]
    return np.asarray(np.where(call != NONE, call, enqueue))


def explain(columns: Columns, rows: Rows, decoded: Decoded, words: Words) -> None:
    """Reasons of rows whose source is not `gpu`, where their stamps gave none."""
    reason, source, state = columns["reason"], columns["source"], columns["state"]
    without = source == NO_SOURCE
    broadcast = np.isin(columns["function"], words.known("function", ("Broadcast",)))
    for mask, text in (
        (without & (state == CAPTURED), "captured into a CUDA graph, see its replays"),
        (without & (state == IN_FLIGHT), "in flight"),
        (without & (state == NEVER_LAUNCHED), "never launched"),
        (
            without & broadcast & (rows.work == NONE),
            "Broadcast takes NCCL's AllGatherV path, which reports no kernel",
        ),
        (without | (source == PROXY), _why_no_kernels(decoded)),
        (source == HOST, _why_no_stamps(decoded)),
        (source == ENQUEUE, "copy engines have no stamps: the time of queueing"),
        (source == GPU_PARTIAL, "some channels have no stamp"),
        (source == GPU_REPAIRED, "NCCL had given its stamps to another operation"),
    ):
        chosen = mask & (reason == 0)
        if chosen.any():
            reason[chosen] = words.code("reason", text)


def _why_no_stamps(decoded: Decoded) -> str:
    version = max((comm.version for comm in decoded.process.communicators), default=0)
    old = version < _FIRST_WITH_STAMPS
    return "this NCCL gives no GPU stamps" if old else "NCCL gave it no GPU stamp"


def _why_no_kernels(decoded: Decoded) -> str:
    comms = decoded.process.communicators
    if comms and not any(comm.mask & _KERNEL_CH_BIT for comm in comms):
        old = max(comm.version for comm in comms) <= 2
        return "this NCCL reports no kernels" if old else "GPU timing was switched off"
    lost = any(
        name.startswith("dropped_") and event in (1, 2, 6) and count
        for (name, event), count in decoded.process.counters.items()
    )
    return "its events were dropped" if lost else "NCCL reported no kernel of it"


def group_is_open(decoded: Decoded, group_call: Ints) -> Bools:
    """Whether each GroupApi is on record and has not stopped."""
    groups = decoded["GroupApi"]
    return ~pick(groups.one(choice(STOPPED)), groups.find(group_call), 1)
