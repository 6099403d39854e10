"""Operations of one process: a row for each call, and one for each replay of a captured call.

Rows are in the order of time. Communicators are still numbers of the process, times are on its
host's clock.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.chunks import map_chunks
from ncclscope.arrays.joins import running_count, take, take_small
from ncclscope.arrays.library import full_array
from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture.context_lines import read_context
from ncclscope.capture.metadata import Graphs
from ncclscope.capture.process import Process
from ncclscope.model.process import durations, launch_times, stamp_repair
from ncclscope.model.process.calls import CALL_PLANS, Calls, Rows, calls_of, link, rows_of
from ncclscope.model.process.channels import CHANNEL_PLANS, Channels, KernelTimes, times_of_works
from ncclscope.model.process.communicators import LocalCommunicators, local_communicators
from ncclscope.model.process.context import ContextRows, ProcessContext, context_of
from ncclscope.model.process.events import ProcessEvents, events_of
from ncclscope.model.process.gpu_clock import GpuClock
from ncclscope.model.process.gpu_stamps import StartBounds, assign_stamps
from ncclscope.model.process.launch_times import TimedRows
from ncclscope.model.process.nvtx_call_times import set_call_times
from ncclscope.model.process.operation_bytes import IN_BYTES, size_bytes
from ncclscope.model.process.proxy_starts import begin_after_stream
from ncclscope.model.process.ranges import RANGE_PLANS, ranges_of
from ncclscope.model.process.send_buffers import send_buffers
from ncclscope.model.process.unrecorded_works import unrecorded_works_of
from ncclscope.model.process.works import LAUNCHED, WORK_PLANS, Works, launches_of, works_of
from ncclscope.model.schema import (
    CAPTURED,
    COPY_ENGINE,
    NONE,
    OPERATIONS,
    RECV,
    SEND,
    Columns,
    empty,
)
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.functions import WITH_ROOT

KINDS = (
    "Group",
    "Coll",
    "P2p",
    "CeColl",
    "KernelCh",
    "KernelLaunch",
    "ProxyOp",
    "GroupApi",
    "CollApi",
    "P2pApi",
    *launch_times.KINDS,
    "Range",
)


PLANS = WORK_PLANS | CALL_PLANS | CHANNEL_PLANS | launch_times.LAUNCH_PLANS | RANGE_PLANS


@dataclass(frozen=True, slots=True)
class StampCounts:
    """Works by what became of their stamps."""

    valid: int = 0
    repaired: int = 0
    recovered: int = 0
    partial: int = 0
    rejected: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class WorkChannels:
    """Channels of a process's rows."""

    row: Ints  # NONE: its work is not on record
    channels: Channels


@dataclass(frozen=True, slots=True)
class ProcessOperations:
    """One process's operations and what they rest on."""

    process: Process
    local: LocalCommunicators
    columns: Columns
    channels: WorkChannels
    clocks: dict[int, GpuClock]  # by GPU of the process
    event_clocks: dict[int, GpuClock]  # of CUDA events, by number
    stamp_counts: StampCounts
    context: ProcessContext | None  # None: the process recorded no ranges


def operations_of(process: Process, words: Vocabulary) -> ProcessOperations:
    """The operations of a process."""
    return operations_from(events_of(process, KINDS, PLANS), words)


def operations_from(decoded: ProcessEvents, words: Vocabulary) -> ProcessOperations:
    """The operations of a process from its events of KINDS."""
    process = decoded.process
    works, calls = works_of(decoded, words), calls_of(decoded, words)
    local, links = local_communicators(process, works), link(calls, works)
    rows = rows_of(calls, links)
    launched = decoded["KernelLaunch"].read(**LAUNCHED)
    launch = launches_of(decoded, launched, works, links.group_call)
    launches = StartBounds(
        take(launched["start_ns"], launch), take(launched["end_ns"], launch), links.replay
    )
    unseen = unrecorded_works_of(process, works, words)
    channels, clocks = assign_stamps(decoded, works, launches, local.gpu, local.rank, unseen)
    kernel = times_of_works(works, channels, clocks)
    columns = _columns(calls, works, rows, launches, words)
    _set_communicator(columns, works, rows, local, words)
    proxies = durations.proxies_of(decoded, works)
    durations.set_times(columns, works, rows, kernel, proxies, words)
    timed = None
    if launch_times.is_sampled(decoded):
        timed = launch_times.timed_rows(decoded, calls, rows, launch)
        durations.set_event_times(columns, timed, words)
        _set_replays(columns, rows, timed, process.graphs)
    durations.reject_impossible(columns, process.clock, words)
    begin_after_stream(columns)
    durations.set_states(columns, rows, kernel, proxies, decoded)
    if timed is not None:
        durations.explain_sampling(columns, timed, words)
    durations.explain(columns, rows, decoded, words)
    context = _add_context(decoded, columns, calls, works, rows, words)
    when, order = durations.first_time(columns), None
    if (when[1:] < when[:-1]).any():
        order = np.argsort(when, kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
    return ProcessOperations(
        process,
        local,
        columns,
        WorkChannels(_rows_of_channels(rows, order, channels, len(works)), channels),
        clocks,
        timed.clocks if timed else {},
        _count_stamps(works, kernel),
        context,
    )


def _add_context(
    decoded: ProcessEvents,
    columns: Columns,
    calls: Calls,
    works: Works,
    rows: Rows,
    words: Vocabulary,
) -> ProcessContext | None:
    """Adds the columns of the training context where the process recorded ranges."""
    ranges = ranges_of(decoded)
    if ranges is None:
        return None
    if not len(calls):
        set_call_times(columns, ranges, words.lists["function"])
    replay = rows.replay
    began_ns = durations.first_time(columns)
    captured_ns = take(calls.start_ns, rows.call)
    buckets = read_context(decoded.process.path).buckets
    send_buffer = None
    if any(bucket.address for bucket in buckets):
        send_buffer = rows.of_work(send_buffers(decoded, works.keys))
    own, context = context_of(
        decoded.process,
        ranges,
        ContextRows(
            key=np.where(replay, take(calls.keys, rows.call), columns["event"]),
            time_ns=np.where(replay, captured_ns, began_ns),
            call=rows.call,
            began_ns=began_ns,
            replay=replay,
            thread=columns["thread"],
            size_bytes=columns["size_bytes"],
            is_all_reduce=words.among("function", ("AllReduce",), columns["function"]),
            send_buffer=send_buffer,
        ),
        buckets,
    )
    columns |= own
    return context


_OF_EITHER = ("thread", "function", "datatype", "count", "tag", "stream")
_OF_WORK = ("algorithm", "protocol", "variant", "peer", "sequence", "channels", "warps")
# Columns that later stages fill.
_LATER = (
    "process", "node", "global_rank", "wait_ns", "wire_ns", "relative_wait_ns", "instance",
    "call_order", "part_of",
)  # fmt: skip


def _columns(
    calls: Calls, works: Works, rows: Rows, launches: StartBounds, words: Vocabulary
) -> Columns:
    """Columns from calls and works; where both have a value, the call's counts."""
    count = len(rows)
    columns = empty([column for column in OPERATIONS if column.name in _LATER], count)
    for name in _OF_EITHER:
        columns[name] = rows.column(
            (getattr(calls, name), rows.call), (getattr(works, name), rows.work)
        )
    if columns["count"].min(initial=NONE) < NONE:  # damaged counts are negative
        columns["count"] = np.maximum(columns["count"], NONE)
    columns["communicator"] = rows.column((calls.comm, rows.call), (works.comm, rows.work))
    for name in _OF_WORK:
        columns[name] = rows.of_work(getattr(works, name))
    columns["form"] = rows.column((works.form, rows.work), (calls.form, rows.call))
    columns["event"] = rows.column((calls.keys, rows.called), (works.keys, rows.work))
    columns["group_call"] = rows.column((calls.group_call, rows.called))
    columns["call_ns"] = rows.column((calls.start_ns, rows.called))
    columns["call_end_ns"] = rows.column((calls.end_ns, rows.called))
    columns["enqueue_ns"] = rows.of_work(works.enqueue_ns)
    columns["launch_ns"] = rows.of_work(launches.start_ns)
    columns["launch_end_ns"] = rows.of_work(launches.end_ns)
    columns["replay"] = rows.replay.astype(np.int8)
    columns["symmetric"] = rows.of_work(works.symmetric, 0).astype(np.int8)
    columns["inferred"] = np.zeros(count, np.int8)
    columns["replays"] = full_array(count, np.int64, NONE)
    rooted = words.among("function", WITH_ROOT, columns["function"])
    if rooted.any():
        root = rows.column((calls.root, rows.call), (works.root, rows.work))
        columns["root"] = np.where(rooted, root, np.int32(NONE))
    else:
        columns["root"] = np.full(count, NONE, np.int32)
    return columns


def _set_replays(columns: Columns, rows: Rows, timed: TimedRows, graphs: Graphs) -> None:
    """Sets how often captured calls were replayed by what markers counted, where NCCL reports no
    replays itself.
    """
    reported = np.isin(rows.call, rows.call[rows.replay])
    counted = rows.captured & ~reported & np.isin(timed.capture, list(graphs.replays))
    captures = timed.capture[counted].tolist()
    columns["replays"][counted] = [graphs.replays[capture] for capture in captures]


def _set_communicator(
    columns: Columns, works: Works, rows: Rows, local: LocalCommunicators, words: Vocabulary
) -> None:
    """Sets rank and bytes, which depend on the communicator."""
    number, last = columns["communicator"], len(local.rank) - 1
    if number.max(initial=0) > last:
        number = columns["communicator"] = np.minimum(number, np.int32(last))
    rank = take_small(local.rank.astype(np.int32), number)
    unknown = rank == NONE
    if unknown.any():
        rank = np.where(unknown, rows.of_work(works.rank), rank)
    columns["rank"] = rank
    # Works of some functions count bytes; the caller's datatype is unknown then.
    in_bytes = rows.call == NONE
    if in_bytes.any():
        in_bytes &= rows.of_work(works.counted_in_bytes, 0)
    datatype = columns["datatype"]
    if in_bytes.any():
        if (rows.call != NONE).any():  # with calls reported, NCCL's own datatype says nothing
            columns["datatype"] = np.where(in_bytes, np.int8(NONE), datatype)
        datatype = np.where(in_bytes, IN_BYTES, datatype)
    columns["size_bytes"] = size_bytes(
        columns["count"],
        datatype,
        columns["function"],
        number,
        words.lists["datatype"],
        words.lists["function"],
        local.ranks,
    )


def set_orders(columns: Columns) -> None:
    """Sets `call_order`: the number of each collective on its communicator, of each send and
    receive with its peer. Inferred operations are numbered apart, by function: not all ranks may
    have them.
    """
    eager = (columns["replay"] == 0) & (columns["state"] != CAPTURED)
    p2p = (columns["form"] == SEND) | (columns["form"] == RECV)
    comm = map_chunks(lambda number: number.astype(np.int64), np.int64, columns["communicator"])
    inferred = columns["inferred"] == 1
    plain = eager & ~p2p & ~inferred
    if plain.all():
        columns["call_order"] = running_count(comm)
        return
    columns["call_order"] = full_array(len(eager), np.int64, NONE)
    _number(columns["call_order"], plain, comm)
    if inferred.any():
        function = columns["function"].astype(np.int64)
        _number(columns["call_order"], inferred, comm << 8 | function)
    if p2p.any():
        peer, form = columns["peer"].astype(np.int64), columns["form"].astype(np.int64)
        known = eager & p2p & (peer != NONE)
        _number(columns["call_order"], known, comm << 34 | peer << 2 | form)


def _number(out: Ints, mask: Bools, key: Ints) -> None:
    """Numbers the rows of a mask from 0 for each key, in their order."""
    rows = np.flatnonzero(mask)
    out[rows] = running_count(key[rows])


def _rows_of_channels(rows: Rows, order: Ints | None, channels: Channels, works: int) -> Ints:
    """The row of each channel's work. `order`: how rows were sorted, None if they were not."""
    if rows.paired and order is None:
        return channels.work
    row_of_work = np.full(works, NONE, np.int64)
    work = rows.work if order is None else rows.work[order]
    row_of_work[work[work != NONE]] = np.flatnonzero(work != NONE)
    return take(row_of_work, channels.work)


def _count_stamps(works: Works, kernel: KernelTimes) -> StampCounts:
    """Works by what became of their stamps; copy engines and running works have none."""
    finished = (works.form != COPY_ENGINE) & ~kernel.running
    timed = kernel.start_ns != NONE
    whole, none = finished & timed & ~kernel.partial, finished & ~timed
    # NCCL 2.26 gives no stamps at all: none went to another work.
    given = (kernel.stamp != stamp_repair.MISSING) | (kernel.reason != stamp_repair.OK)

    def count(mask: npt.NDArray[np.bool_]) -> int:
        return int(np.count_nonzero(mask))

    return StampCounts(
        valid=count(whole & (kernel.stamp == stamp_repair.VALID)),
        repaired=count(whole & (kernel.stamp == stamp_repair.REPAIRED)),
        recovered=count(whole & (kernel.stamp == stamp_repair.RECOVERED)),
        partial=count(finished & kernel.partial),
        rejected=count(none & (kernel.stamp >= stamp_repair.REJECTED) & given),
        missing=count(none & ((kernel.stamp == NONE) | ~given)),
    )
