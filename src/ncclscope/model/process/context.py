"""Which step, phase and module each operation of one process belongs to, and how that is known.

In this order: the ranges around the call; the mark of a module's backward pass before the call;
DistributedDataParallel's buckets, by address or by order and size; the name of the calling thread
(PyTorch's autograd threads run backward); the phase that the process was in at the time of the
call. A replay has what is known of the call that was captured: the host may be anywhere by then.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import layout
from ncclscope.capture.context_lines import Bucket
from ncclscope.capture.process import Process
from ncclscope.model.process.events import stream_of
from ncclscope.model.process.range_meaning import (
    FLOPS_TEXT,
    ROOT_MODULE,
    TOKENS_TEXT,
    Meaning,
    meaning_of,
)
from ncclscope.model.process.ranges import Ranges
from ncclscope.model.process.training_steps import TrainingSteps, meanings_of_texts, steps_of
from ncclscope.model.schema import (
    BACKWARD,
    CONTEXTS,
    FORWARD,
    NONE,
    ORIGINS,
    PHASE_NAMES,
    PHASES,
    STEPS,
    Columns,
    empty,
)

_BACKWARD, _FORWARD = PHASE_NAMES.index(BACKWARD), PHASE_NAMES.index(FORWARD)
_AUTOGRAD_THREADS = "pt_autograd"
_PHASE_TIMES = {"data": "data_ns", "forward": "forward_ns", "backward": "backward_ns",
                "optimizer": "optimizer_ns"}  # fmt: skip
_CODE = {name: code for code, name in enumerate(CONTEXTS)}
_MOST_MODULES = 1 << 16


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What a process's ranges say besides the context of its operations."""

    steps: Columns  # of `steps`, less their process
    phases: Columns  # of `phases`, likewise
    modules: list[str]


@dataclass(slots=True)
class _Modules:
    """Names of modules as numbers of the process."""

    names: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        if name not in self.names and len(self.names) >= _MOST_MODULES:
            return NONE
        return self.names.setdefault(name, len(self.names)) if name else NONE


@dataclass(frozen=True, slots=True)
class ContextRows:
    """Operations as their context needs them, row by row."""

    key: Ints  # of the call, of replays the captured one
    time_ns: Ints  # of the same
    call: Ints  # its row among the calls, or NONE
    began_ns: Ints  # the operation's own first time
    replay: Bools
    thread: npt.NDArray[np.int32]
    size_bytes: Ints
    is_all_reduce: Bools
    send_buffer: Ints | None = None  # address, where buckets have one


def context_of(
    process: Process, ranges: Ranges, calls: ContextRows, buckets: tuple[Bucket, ...]
) -> tuple[Columns, ProcessContext]:
    """Columns of the operations, and the steps, phases and modules of the process."""
    kinds, places = _meanings(ranges)
    phase, module, prefetch = _inherited(ranges, kinds, places)
    modules = _Modules()
    number_of = np.array([modules.number(kind.module) for kind in kinds], np.int64)
    module_of_range = np.where(module == NONE, NONE, number_of[np.maximum(module, 0)])
    steps = steps_of(ranges, meanings_of_texts(ranges))
    intervals = _phase_intervals(ranges, phase)

    around = ranges.around(calls.key, calls.time_ns)
    inside = around != NONE
    at = np.maximum(around, 0)
    columns: Columns = {
        "phase": np.where(inside, phase[at], NONE).astype(np.int8),
        "module": np.where(inside, module_of_range[at], NONE).astype(np.int32),
        "prefetch": np.where(inside, prefetch[at], 0).astype(np.int8),
        "context": np.full(len(around), NONE, np.int8),
    }
    has_context = inside & ((columns["phase"] != NONE) | (columns["module"] != NONE))
    columns["context"][has_context] = _CODE["range"]
    columns["context"][has_context & calls.replay] = _CODE["replay"]
    _set_step(columns, steps, calls)
    _add_thread(columns, process, calls)
    _add_time(columns, intervals, calls)
    _add_module_marks(columns, ranges, number_of, places, calls)
    _add_buckets(columns, buckets, modules, calls)
    inherit_captured(columns, calls)
    columns["prefetch"][columns["module"] == NONE] = NONE
    return columns, ProcessContext(
        _step_columns(steps, ranges, intervals), _phase_columns(steps, intervals),
        list(modules.names),
    )  # fmt: skip


def _meanings(ranges: Ranges) -> tuple[list[Meaning], Ints]:
    """The distinct meanings by text and writer, and the place of each range's among them."""
    pairs = ranges.text.astype(np.int64) << 8 | ranges.source.astype(np.int64)
    distinct, places = np.unique(pairs, return_inverse=True)
    kinds = [meaning_of(ranges.texts[pair >> 8], pair & 0xFF) for pair in distinct.tolist()]
    return kinds, places.reshape(-1)


def _inherited(ranges: Ranges, kinds: list[Meaning], places: Ints) -> tuple[Ints, Ints, Ints]:
    """Phase, place of the meaning with the module, and prefetch of each range: its own, else that
    of the range around it. Backward stays backward: forward inside it computes activations again;
    except in pipelines, whose stages say what they do whatever their loop is called.

    Blocks say their names in forward alone, so a block in no phase is forward.

    FSDP names the module in each of its texts and leaves the name out for the outermost module. So
    where other texts have names, a text without one, inside none with a name, is that module's.
    Releases that name no modules (before PyTorch 2.4) say nothing.
    """
    phases = np.array([PHASE_NAMES.index(k.phase) if k.phase else NONE for k in kinds], np.int64)
    modules = np.array([n if k.module else NONE for n, k in enumerate(kinds)], np.int64)
    ahead = np.array([k.prefetch for k in kinds], np.int64)
    certain = np.array([k.is_certain for k in kinds], np.bool_)[places]
    phase, module, prefetch = phases[places], modules[places], ahead[places]
    unnamed = np.array([k.of_fsdp_module and not k.module for k in kinds], np.bool_)
    root = NONE
    if unnamed.any() and any(k.of_fsdp_module and k.module for k in kinds):
        root = len(kinds)
        kinds.append(Meaning(module=ROOT_MODULE))
    of_block = (ranges.source == layout.RANGE_MODULE) & ~ranges.is_mark
    levels = ranges.levels()
    for level in levels[:1]:
        module[level] = np.where(unnamed[places[level]], root, module[level])
        phase[level] = np.where(of_block[level], _FORWARD, phase[level])
    for level in levels[1:]:
        outer = ranges.parent[level]
        own = phase[level]
        keeps = (own != NONE) & ((phase[outer] != _BACKWARD) | certain[level])
        phase[level] = np.where(keeps, own, phase[outer])
        phase[level] = np.where(phase[level] == NONE, own, phase[level])
        forward = of_block[level] & (phase[level] == NONE)
        phase[level] = np.where(forward, _FORWARD, phase[level])
        module[level] = np.where(module[level] == NONE, module[outer], module[level])
        nameless = unnamed[places[level]] & (module[level] == NONE)
        module[level] = np.where(nameless, root, module[level])
        prefetch[level] |= prefetch[outer]
    return phase, module, prefetch


@dataclass(frozen=True, slots=True)
class _PhaseIntervals:
    """Stretches of one phase of the thread that runs the training loop, in their order."""

    phase: Ints
    thread: npt.NDArray[np.int32]
    start_ns: Ints
    end_ns: Ints  # NONE: not ended


def _phase_intervals(ranges: Ranges, phase: Ints) -> _PhaseIntervals:
    """Phases of the thread that says most of them.

    FSDP names the hooks of its modules, not what lies between them. So stretches of one phase that
    follow each other are one, and forward lasts until backward begins. The engine's ranges are
    whole backward passes: between two of them, as in a pipeline, the host does something else.
    """
    outer = np.where(ranges.parent == NONE, NONE, phase[np.maximum(ranges.parent, 0)])
    begins = np.flatnonzero((phase != NONE) & (phase != outer) & ~ranges.is_mark & ~ranges.is_loose)
    if not len(begins):
        none = np.empty(0, np.int64)
        return _PhaseIntervals(none, none.astype(np.int32), none, none)
    begins = begins[np.argsort(ranges.start_ns[begins], kind="stable")]
    length = np.maximum(ranges.end_ns[begins] - ranges.start_ns[begins], 0)
    threads, place = np.unique(ranges.thread[begins], return_inverse=True)
    main = threads[np.argmax(np.bincount(place.reshape(-1), length))]
    begins = begins[ranges.thread[begins] == main]
    own = phase[begins]
    is_pass = ranges.source[begins] == layout.RANGE_ENGINE
    first = np.flatnonzero(np.append(True, (own[1:] != own[:-1]) | is_pass[1:] | is_pass[:-1]))
    last = np.append(first[1:], len(own)) - 1
    start, end = ranges.start_ns[begins[first]], ranges.end_ns[begins[last]]
    until_backward = (own[first][:-1] == _FORWARD) & (own[first][1:] == _BACKWARD)
    end[:-1][until_backward] = start[1:][until_backward]
    return _PhaseIntervals(own[first], ranges.thread[begins[first]], start, end)


def _set_step(columns: Columns, steps: TrainingSteps | None, calls: ContextRows) -> None:
    columns["step"] = np.full(len(calls.key), NONE, np.int32)
    if steps is None:
        return
    place = steps.at(calls.began_ns)
    known = place != NONE
    columns["step"][known] = steps.number[place[known]]
    columns["context"][known & (columns["context"] == NONE)] = _CODE["time"]


def _add_thread(columns: Columns, process: Process, calls: ContextRows) -> None:
    """Backward for calls of PyTorch's autograd threads."""
    threads = [tid for tid, name in process.threads.items() if name.startswith(_AUTOGRAD_THREADS)]
    if not threads:
        return
    backward = np.isin(calls.thread, threads) & ~calls.replay
    unknown = backward & (columns["phase"] == NONE)
    columns["phase"][backward] = _BACKWARD
    columns["context"][unknown & (columns["module"] == NONE)] = _CODE["thread"]


def _add_time(columns: Columns, intervals: _PhaseIntervals, calls: ContextRows) -> None:
    """The phase that the process was in, for calls whose own thread says none."""
    unknown = (columns["phase"] == NONE) & (columns["step"] != NONE) & ~calls.replay
    rows = np.flatnonzero(unknown)
    if not len(rows) or not len(intervals.phase):
        return
    place = np.searchsorted(intervals.start_ns, calls.began_ns[rows], side="right") - 1
    end = intervals.end_ns[np.maximum(place, 0)]
    inside = (place >= 0) & ((end == NONE) | (calls.began_ns[rows] <= end))
    columns["phase"][rows[inside]] = intervals.phase[place[inside]]


def _add_module_marks(
    columns: Columns, ranges: Ranges, number_of: Ints, places: Ints, calls: ContextRows
) -> None:
    """Modules of backward calls by the mark before them in their stream."""
    marks = np.flatnonzero(ranges.is_mark & (ranges.source == layout.RANGE_MODULE))
    rows = np.flatnonzero((columns["module"] == NONE) & (columns["phase"] == _BACKWARD))
    if not len(marks) or not len(rows):
        return
    last = np.searchsorted(ranges.keys[marks], calls.key[rows]) - 1
    mark = marks[np.maximum(last, 0)]
    same = (last >= 0) & (stream_of(ranges.keys[mark]) == stream_of(calls.key[rows]))
    columns["module"][rows[same]] = number_of[places[mark[same]]]
    columns["context"][rows[same]] = _CODE["mark"]


def _add_buckets(
    columns: Columns, buckets: tuple[Bucket, ...], modules: _Modules, calls: ContextRows
) -> None:
    """Modules of DistributedDataParallel's AllReduces: by the bucket's address where that is known
    of all buckets. Otherwise by order and size. It reduces its buckets in their order, so the k-th
    AllReduce of a bucket's size in a step is bucket k; a size that only one bucket has names it
    whatever the order.
    """
    if not buckets:
        return
    sizes = np.array([bucket.size_bytes for bucket in buckets], np.int64)
    numbers = np.array([modules.number(module_of_bucket(b.parameters)) for b in buckets], np.int32)
    rows = np.flatnonzero(
        (columns["module"] == NONE) & (columns["phase"] == _BACKWARD) & calls.is_all_reduce
        & np.isin(calls.size_bytes, sizes)
    )  # fmt: skip
    if not len(rows):
        return
    if calls.send_buffer is not None and all(bucket.address for bucket in buckets):
        at = {(bucket.address, bucket.size_bytes): k for k, bucket in enumerate(buckets)}
        sent = zip(calls.send_buffer[rows].tolist(), calls.size_bytes[rows].tolist(), strict=True)
        _set_buckets(columns, rows, np.array([at.get(key, NONE) for key in sent]), numbers)
        return
    rows = rows[np.lexsort((calls.key[rows], calls.began_ns[rows], columns["step"][rows]))]
    step = columns["step"][rows]
    first = np.searchsorted(step, step)
    order = (np.arange(len(rows)) - first) % len(buckets)
    by_order = sizes[order] == calls.size_bytes[rows]
    lone = {size: k for k, size in enumerate(sizes.tolist()) if (sizes == size).sum() == 1}
    by_size = np.array([lone.get(size, NONE) for size in calls.size_bytes[rows].tolist()], np.int64)
    bucket = np.where(by_size != NONE, by_size, np.where(by_order, order, NONE))
    _set_buckets(columns, rows, bucket, numbers)


def inherit_captured(columns: Columns, calls: ContextRows) -> None:
    """Phase and module of replays: those of the captured call, however they are known."""
    has_call = calls.call != NONE
    replays, made = (np.flatnonzero(has_call & which) for which in (calls.replay, ~calls.replay))
    if not len(replays) or not len(made):
        return
    row_of_call = np.full(calls.call.max() + 1, NONE, np.int64)
    row_of_call[calls.call[made]] = made
    captured = row_of_call[calls.call[replays]]
    replays, captured = replays[captured != NONE], captured[captured != NONE]
    for name in ("phase", "module", "prefetch"):
        columns[name][replays] = columns[name][captured]
    has_context = (columns["phase"][replays] != NONE) | (columns["module"][replays] != NONE)
    columns["context"][replays[has_context]] = _CODE["replay"]


def _set_buckets(
    columns: Columns, rows: Ints, bucket: Ints, numbers: npt.NDArray[np.int32]
) -> None:
    """`bucket`: of each of the rows, or NONE. `numbers`: the module of each bucket."""
    known = bucket != NONE
    columns["module"][rows[known]] = numbers[bucket[known]]
    columns["context"][rows[known]] = _CODE["bucket"]


def module_of_bucket(parameters: tuple[str, ...]) -> str:
    """The modules whose gradients a bucket holds, first to last.

    >>> module_of_bucket(("layers.2.a.weight", "layers.2.b.bias"))
    'layers.2'
    >>> module_of_bucket(("head.weight", "layers.3.a.weight", "layers.2.b.bias"))
    'head … layers.2'
    """
    owners = [name.removeprefix("module.").rsplit(".", 1)[0] for name in parameters]
    if not owners:
        return ""
    parts = [owner.split(".") for owner in owners]
    common = []
    for pieces in zip(*parts, strict=False):
        if len(set(pieces)) > 1:
            break
        common.append(pieces[0])
    if common and (len(common) > 1 or len(set(owners)) == 1):
        return ".".join(common)
    ends = [_block(parts[0]), _block(parts[-1])]
    return " … ".join(dict.fromkeys(ends))


def _block(parts: list[str]) -> str:
    """The name up to its first number: a block of layers."""
    for place, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: place + 1])
    return ".".join(parts[:1])


def _step_columns(
    steps: TrainingSteps | None, ranges: Ranges, intervals: _PhaseIntervals
) -> Columns:
    count = 0 if steps is None else len(steps.number)
    columns = empty(STEPS, count)
    if steps is None:
        return columns
    columns["step"][:] = steps.number
    columns["start_ns"][:], columns["end_ns"][:] = steps.start_ns, steps.end_ns
    columns["origin"][:] = ORIGINS.index(steps.origin)
    ended = intervals.end_ns != NONE
    place = steps.at(intervals.start_ns)
    for phase, name in _PHASE_TIMES.items():
        own = np.flatnonzero(
            ended & (place != NONE) & (intervals.phase == PHASE_NAMES.index(phase))
        )
        lengths = intervals.end_ns[own] - intervals.start_ns[own]
        columns[name][:] = np.bincount(place[own], lengths, minlength=count).astype(np.int64)
    for text, name in ((TOKENS_TEXT, "tokens"), (FLOPS_TEXT, "flops")):
        if text in ranges.texts:
            marks = np.flatnonzero(ranges.is_mark & (ranges.text == ranges.texts.index(text)))
            at = steps.at(ranges.start_ns[marks])
            marks, at = marks[at != NONE], at[at != NONE]
            columns[name][at] = 0
            np.add.at(columns[name], at, ranges.payload[marks])
    return columns


def _phase_columns(steps: TrainingSteps | None, intervals: _PhaseIntervals) -> Columns:
    columns = empty(PHASES, len(intervals.phase))
    columns["phase"][:], columns["thread"][:] = intervals.phase, intervals.thread
    columns["start_ns"][:], columns["end_ns"][:] = intervals.start_ns, intervals.end_ns
    if steps is not None:
        place = steps.at(intervals.start_ns)
        known = place != NONE
        columns["step"][known] = steps.number[place[known]]
    return columns
