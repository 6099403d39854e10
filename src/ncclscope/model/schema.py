"""The model's tables: every column with its type, unit and meaning. docs/schema.md is made of this.

Integers are signed, because Spark turns unsigned ones into decimals. NONE stands for "not known" or
"does not apply"; views for SQL and exports turn it into NULL. Times are ns on the one clock of the
capture: CLOCK_MONOTONIC of its first node. Names are kept as codes into `Model.words`.

detail_schema.py has the tables that are made when asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.library import full_array
from ncclscope.capture import layout

Columns = dict[str, npt.NDArray[Any]]  # by name

NONE = -1
LATEST_NS = 1 << 61  # sums and differences of two times fit into 63 bits
LARGEST = 1 << 62
MOST_RANKS = 1 << 24  # of a job; more is damage, for which no array is made
ANY_NUMBER = ("id", "tag", "stream", "event", "group_call")  # the job's or the recorder's own
SCHEMA_VERSION = 3
FORMER_NAMES = {"last_communicator_rank": "last_rank"}  # of columns in version 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `words`: its values are codes into the list of names of that column."""

    name: str
    dtype: str
    meaning: str
    words: bool = False


def value_range(column: Column) -> tuple[int, int]:
    """The least and the largest value that a column can have; NONE is in it."""
    if column.name in ANY_NUMBER:
        return -(1 << 63), (1 << 63) - 1
    if column.name.endswith("_ns"):
        return -LATEST_NS, LATEST_NS
    if "rank" in column.name or column.name in ("nodes", "peer", "root"):
        return NONE, MOST_RANKS
    return NONE, LARGEST


def table_columns(*rows: tuple[str, str, str]) -> tuple[Column, ...]:
    """Columns from names, types and meanings; of type `word`: values are codes of names."""
    return tuple(
        Column(name, "i1" if dtype == "word" else dtype, meaning, dtype == "word")
        for name, dtype, meaning in rows
    )


# Where an operation's duration comes from, best first (truth before availability).
SOURCES = (
    "gpu",
    "gpu-repaired",
    "gpu-event",
    "gpu-partial",
    "gpu-event-rough",
    "gpu-early",
    "gpu-event-upper",
    "proxy",
    "host",
    "enqueue",
    "none",
)
GPU_SOURCES = SOURCES[:7]  # times by the GPU's own clocks
GPU_CODES = tuple(range(len(GPU_SOURCES)))
EVENT_SOURCES = ("gpu-event", "gpu-event-rough", "gpu-event-upper")  # CUDA events around launches
NOT_SAMPLED = "not sampled"  # a reason: other operations were chosen to be timed
TIMING_OFF = "GPU timing was off at the time"  # a reason: nothing was chosen, as `ctl` had asked
# What became of an operation. captured: recorded into a CUDA graph, carried out by its replays.
STATES = ("done", "in flight", "never launched", "captured", "unknown")
DONE, IN_FLIGHT, NEVER_LAUNCHED, CAPTURED, UNKNOWN = range(len(STATES))
FORMS = ("collective", "send", "recv", "copy-engine")
COLLECTIVE, SEND, RECV, COPY_ENGINE = range(len(FORMS))
# What became of the stamps of one channel of an operation.
STAMPS = ("valid", "repaired", "recovered", "rejected", "missing")
# What a training loop does; how the steps of a job are known, best first; how the phase and module
# of an operation are known.
PHASE_NAMES = ("data", "forward", "backward", "optimizer", "checkpoint", "evaluation")
DATA, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, EVALUATION = PHASE_NAMES
ORIGINS = ("marks", "optimizer", "ranges", "root calls", "period")
CONTEXTS = ("range", "mark", "bucket", "thread", "replay", "time")
# What a counter counts: the user's calls, the works that NCCL made of them, copies by copy engines.
LEVELS = ("call", "work", "copy-engine")
CALL_LEVEL, WORK_LEVEL, COPY_ENGINE_LEVEL = range(len(LEVELS))
# Columns of `counters` with operations that the recorder did not time, and why.
UNTIMED_REASONS = {f"untimed_{reason.replace(' ', '_')}": reason for reason in layout.UNTIMED}
UNTIMED_REASONS["untimed_timing_off"] = TIMING_OFF

OPERATIONS = table_columns(
    ("process", "i4", "row of `processes`"),
    ("communicator", "i4", "row of `communicators`"),
    ("rank", "i4", "rank in the communicator"),
    ("global_rank", "i4", "rank in the job"),
    ("node", "i4", "row of `nodes`: hosts that share a clock"),
    ("thread", "i4", "id of the thread that called, else of the one that enqueued"),
    ("form", "word", "collective, send, recv or copy-engine"),
    ("function", "word", "NCCL's name of the operation; inferred where `inferred` is 1"),
    ("datatype", "word", "float32, bfloat16 …"),
    ("algorithm", "word", "RING, TREE, NVLS …"),
    ("protocol", "word", "LL, LL128, SIMPLE"),
    ("variant", "word", "kernel of a symmetric operation; in-place or not, of nccl-tests"),
    ("count", "i8", "elements, as the caller gave them"),
    ("size_bytes", "i8", "bytes as nccl-tests count them"),
    ("root", "i4", "root where the function has one"),
    ("peer", "i4", "other rank of a send or receive"),
    ("channels", "i2", "channels used"),
    ("warps", "i2", "warps a channel"),
    ("tag", "i8", "the caller's profiler tag"),
    ("stream", "i8", "CUDA stream"),
    ("call_ns", "i8", "the call began"),
    ("call_end_ns", "i8", "the call was queued"),
    ("launch_ns", "i8", "its kernel's launch began"),
    ("launch_end_ns", "i8", "its kernel's launch returned"),
    ("enqueue_ns", "i8", "NCCL reported the work as queued"),
    ("start_ns", "i8", "the GPU began, mapped to the host's clock"),
    ("end_ns", "i8", "the GPU ended, mapped to the host's clock"),
    ("duration_ns", "i8", "end - start of the best source there is"),
    ("source", "word", "where the duration comes from"),
    ("reason", "word", "why the source is not `gpu`"),
    ("wait_ns", "i8", "of the duration: until the last rank arrived"),
    ("wire_ns", "i8", "of the duration: after the last rank arrived"),
    ("relative_wait_ns", "i8", "duration less the shortest of all ranks: needs no clock"),
    ("instance", "i8", "row of `instances`: the same operation on all ranks"),
    ("call_order", "i8", "number of the call on its communicator and rank, where none is missing"),
    ("sequence", "i8", "NCCL's number, by communicator and function"),
    ("group_call", "i8", "the group call it was part of, by process"),
    ("replay", "i1", "1: a replay of a captured call"),
    ("symmetric", "i1", "1: on symmetric memory"),
    ("inferred", "i1", "1: the function is inferred from a group of sends and receives"),
    ("part_of", "i8", "row of the operation that this send or receive is a part of"),
    ("state", "word", "done, in flight, never launched, captured, unknown"),
    ("event", "i8", "stream << 37 | index of its main event: `stream.index` in `dump`"),
    ("replays", "i8", "of a captured call: its replays, counted by a marker and not on record"),
    ("step", "i4", "training step, numbered from 0 or as the program does"),
    ("phase", "word", "of the training loop: data, forward, backward, optimizer …"),
    ("module", "i4", "row of `modules`: the module whose data it moves"),
    ("prefetch", "i1", "1: called ahead of its module's own turn"),
    (
        "context",
        "word",
        "how they are known: range, mark, bucket, thread, replay or time",
    ),
)
# Columns without a file where no process recorded ranges: nothing is known of any row.
CONTEXT_COLUMNS = ("step", "phase", "module", "prefetch", "context")
OPTIONAL_COLUMNS = {"operations": CONTEXT_COLUMNS}

# Columns of operations with times on the one clock.
TIME_COLUMNS = (
    "call_ns",
    "call_end_ns",
    "launch_ns",
    "launch_end_ns",
    "enqueue_ns",
    "start_ns",
    "end_ns",
)

INSTANCES = table_columns(
    ("communicator", "i4", "row of `communicators`"),
    ("form", "word", "collective or send"),
    ("function", "word", "of the majority of its ranks"),
    ("size_bytes", "i8", "of the majority of its ranks"),
    (
        "call_order",
        "i8",
        "number on its communicator; of a pair, on its source and destination; where calls are "
        "missing, NCCL's number by function",
    ),
    ("source_rank", "i4", "of a send and receive pair"),
    ("destination_rank", "i4", "of a send and receive pair"),
    ("ranks_seen", "i4", "operations that belong to it"),
    ("ranks_expected", "i4", "operations that must exist"),
    ("ranks_timed", "i4", "operations with times good enough to compare"),
    ("mismatch", "i1", "1: ranks disagree on function, bytes or datatype"),
    ("first_start_ns", "i8", "first arrival"),
    ("last_start_ns", "i8", "last arrival"),
    ("last_end_ns", "i8", "last end"),
    (
        "last_communicator_rank",
        "i4",
        "rank in the communicator that arrived last, where that is certain",
    ),
    ("skew_ns", "i8", "last arrival - first arrival"),
    ("error_ns", "i8", "how far the clocks of its nodes may be apart"),
)

COMMUNICATORS = table_columns(
    ("id", "i8", "NCCL's hash"),
    ("name_inferred", "i1", "1: the name is inferred from membership"),
    ("ranks", "i4", "number of ranks"),
    ("nodes", "i4", "number of nodes"),
    ("parent", "i4", "row of the smallest communicator that contains it"),
    ("created_ns", "i8", "first creation of it on any rank"),
    ("dimension", "word", "of parallelism: dp, tp, pp, ep, cp …, or the user's own name"),
)

MEMBERS = table_columns(
    ("communicator", "i4", "row of `communicators`"),
    ("rank", "i4", "rank in it"),
    ("process", "i4", "row of `processes`"),
    ("global_rank", "i4", "rank in the job"),
    ("node", "i4", "row of `nodes`"),
    ("opened_ns", "i8", "created on this rank"),
    ("closed_ns", "i8", "destroyed on this rank"),
)

# Of processes that recorded totals only for some of their time: see `ctl`.
WINDOWS = table_columns(
    ("process", "i4", "row of `processes`"),
    ("start_ns", "i8", "from here on it recorded single calls"),
    ("end_ns", "i8", "up to here"),
)

# What every recorded process counts in every mode, exactly. NCCL may report works of a call under
# another datatype, so calls and works are rows of their own.
COUNTERS = table_columns(
    ("process", "i4", "row of `processes`"),
    ("communicator", "i4", "row of `communicators`"),
    ("rank", "i4", "rank in the communicator"),
    ("global_rank", "i4", "rank in the job"),
    ("level", "word", "what is counted: call, work or copy-engine"),
    ("function", "word", "NCCL's name of the operation"),
    ("datatype", "word", "float32, bfloat16 …"),
    ("algorithm", "word", "RING, TREE, NVLS …; of works"),
    ("protocol", "word", "LL, LL128, SIMPLE; of works"),
    ("count", "i8", "elements of one call; where `folded` is 1, the power of two below"),
    ("size_bytes", "i8", "bytes of one call as nccl-tests count them, made of `count`"),
    ("folded", "i1", "1: sizes up to the next power of two are counted together"),
    ("captured", "i1", "1: calls recorded into a CUDA graph"),
    ("calls", "i8", "how many"),
    ("bytes", "i8", "bytes of all of them together"),
    ("gpu_count", "i8", "works timed by stamps of the GPU"),
    ("gpu_sum_ns", "i8", "their time together"),
    ("gpu_min_ns", "i8", "the shortest"),
    ("gpu_max_ns", "i8", "the longest"),
    ("host_count", "i8", "works timed as the host noticed them"),
    ("host_sum_ns", "i8", "their time together"),
    ("host_min_ns", "i8", "the shortest"),
    ("host_max_ns", "i8", "the longest"),
    ("event_count", "i8", "works timed by CUDA events around their launches"),
    ("event_sum_ns", "i8", "their time together, without the events' excess"),
    ("event_min_ns", "i8", "the shortest"),
    ("event_max_ns", "i8", "the longest"),
    ("event_shared", "i8", "of these works, those that shared their launch: each has its time"),
    ("event_firsts", "i8", "of these works, first calls that were all timed"),
    ("event_firsts_ns", "i8", "their time together"),
    ("replays", "i8", "replays of these captured calls, counted by markers and not timed"),
    *(
        (column, "i8", f"works without a time by the GPU: {reason}")
        for column, reason in UNTIMED_REASONS.items()
    ),
)

COUNTER_HISTOGRAMS = table_columns(
    ("counter", "i8", "row of `counters`"),
    ("source", "word", "gpu, gpu-event or host: who timed these works"),
    ("from_ns", "i8", "they took at least this long, with the excess of CUDA events"),
    ("to_ns", "i8", "and less than this; NULL: any longer time"),
    ("works", "i8", "how many"),
    ("firsts", "i8", "of these, first calls that were all timed by CUDA events"),
)

# Of jobs that recorded ranges: their training steps on each process, and the phases of these.
STEPS = table_columns(
    ("process", "i4", "row of `processes`"),
    ("step", "i4", "number of the step"),
    ("start_ns", "i8", "it began: the step before had ended"),
    ("end_ns", "i8", "it ended; NULL: it is under way"),
    ("origin", "word", "how steps are known: marks, optimizer, ranges, root calls or period"),
    ("data_ns", "i8", "of the host's time: waiting for data"),
    ("forward_ns", "i8", "of the host's time: forward"),
    ("backward_ns", "i8", "of the host's time: backward"),
    ("optimizer_ns", "i8", "of the host's time: optimizer"),
    ("tokens", "i8", "tokens of this process, as the program said"),
    ("flops", "i8", "floating-point operations of this process, as the program said"),
)

PHASES = table_columns(
    ("process", "i4", "row of `processes`"),
    ("step", "i4", "number of its step"),
    ("phase", "word", "data, forward, backward, optimizer, checkpoint or evaluation"),
    ("thread", "i4", "id of the thread"),
    ("start_ns", "i8", "it began on the host"),
    ("end_ns", "i8", "it ended; NULL: it is under way"),
)

MODULES = table_columns(
    ("operations", "i8", "operations that move its data"),
)

PROCESSES = table_columns(
    ("process", "i4", "row"),
    ("folder", "text", "its folder in the capture"),
    ("host", "text", "name of its host"),
    ("node", "i4", "row of `nodes`"),
    ("pid", "i4", "process id"),
    ("global_rank", "i4", "rank in the job; of several, the lowest"),
    ("mode", "text", "profile, trace or full; of an import, the format"),
    ("nccl_version", "text", "NCCL's release"),
    ("interface", "i4", "version of NCCL's profiler interface"),
    ("gpu", "text", "bus id or uuid of its first GPU"),
    ("attempt", "i4", "attempt of the job, from 0, as its launcher counts or as times show"),
    ("started_ns", "i8", "start by the wall clock: ns since 1970"),
    (
        "ended",
        "i1",
        "1: ended by itself; 0: ended abruptly, or still runs",
    ),
    ("gpu_clock_error_ns", "i8", "how far GPU times may be off on the host's clock"),
    ("calls", "i8", "calls on record"),
    ("calls_counted", "i8", "calls that it counted, whatever it recorded"),
    ("lived_ns", "i8", "from its first communicator until it was last heard of"),
    ("recorded_ns", "i8", "how long of that it recorded single calls"),
    ("fullest_mode", "text", "the mode in which it recorded most; `mode` is that of its start"),
    ("gpu_timing", "text", "where GPU times came from: kernel, sampled or off"),
    ("gpu_timing_asked", "text", "what was asked for: one of these, or auto"),
    ("gpu_timing_reason", "text", "why it is not what was asked for, or why auto chose it"),
    ("event_excess_ns", "i8", "what was taken off times by CUDA events, as calibrated"),
    ("event_error_ns", "i8", "how far times by CUDA events may be off after that"),
    ("gpu_timing_off_ns", "i8", "how long `ctl` had switched GPU timing off"),
    (
        "gpu_timing_changes",
        "text",
        "changes of GPU timing by `ctl`, as `off 12.5, sampled 40.1`: seconds of its life",
    ),
)

GPUS = table_columns(
    ("gpu", "i4", "row"),
    ("process", "i4", "row of `processes`: the process that used it"),
    ("global_rank", "i4", "rank in the job that ran on it"),
    ("uuid", "text", "NVIDIA's uuid: 32 hexadecimal digits"),
    ("bus_id", "text", "PCI bus id"),
)

NODES = table_columns(
    ("node", "i4", "row"),
    ("host", "text", "name of the host"),
    ("tied", "i1", "1: on the one clock by what its ranks did; 0: by the wall clock only"),
    ("clock_error_ns", "i8", "how far its times may be off on the one clock: median over the run"),
)

# Tables that a model keeps.
TABLES = {
    "operations": OPERATIONS,
    "instances": INSTANCES,
    "communicators": COMMUNICATORS,
    "members": MEMBERS,
    "windows": WINDOWS,
    "counters": COUNTERS,
    "counter_histograms": COUNTER_HISTOGRAMS,
    "steps": STEPS,
    "phases": PHASES,
    "modules": MODULES,
}
# Small tables, which a model keeps as objects (rows.py).
SMALL_TABLES = {"processes": PROCESSES, "gpus": GPUS, "nodes": NODES}


def empty(columns: Sequence[Column], rows: int) -> Columns:
    """Columns of that many rows, everything NONE."""
    return {column.name: full_array(rows, column.dtype, NONE) for column in columns}


def columns_from(columns: Sequence[Column], values: Mapping[str, Sequence[int]]) -> Columns:
    """The columns of a table from lists by name; all of them must be given."""
    return {column.name: np.array(values[column.name], column.dtype) for column in columns}
