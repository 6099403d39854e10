"""What training steps lose time to: data, communication that nothing hides, late phases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.training_steps import StepSummary
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import BACKWARD, FORWARD, NONE, PHASE_NAMES

_PHASE_COLUMNS = {
    "data loading": "data_ns",
    FORWARD: "forward_ns",
    BACKWARD: "backward_ns",
    "the optimizer": "optimizer_ns",
}
_SOON_NS = 1_000_000  # from launch to start: the GPU had nothing else to do


@dataclass(frozen=True, slots=True)
class PhaseExcess:
    """A phase in which one process takes longer than the others, on average of its steps."""

    phase: str
    longer_ns: float
    step_ns: float  # length of the average step


def phase_excess(model: Model, process: int) -> PhaseExcess | None:
    """The phase that is longest against the median of other processes; None without phases.

    Backward contains the waiting for others, and forward may: they count only where data loading
    and the optimizer, which wait for nobody, are not longer.
    """
    steps = model.tables["steps"]
    ended = np.asarray(steps["end_ns"]) != NONE
    of_process = np.asarray(steps["process"])[ended]
    if not (of_process == process).any() or (of_process == process).all():
        return None
    length = (np.asarray(steps["end_ns"]) - np.asarray(steps["start_ns"]))[ended]
    excess = {}
    for phase, column in _PHASE_COLUMNS.items():
        values = np.maximum(np.asarray(steps[column])[ended], 0).astype(np.float64)
        count = np.bincount(of_process)
        mean = np.bincount(of_process, values) / np.maximum(count, 1)
        others = (count > 0) & (np.arange(len(count)) != process)
        excess[phase] = float(mean[process] - np.median(mean[others]))
    phase = max(excess, key=lambda name: excess[name])
    if excess[phase] <= 0:
        return None
    return PhaseExcess(phase, excess[phase], float(length.mean()))


@dataclass(frozen=True, slots=True)
class LateCalls:
    """Of the operations that a process reaches last; "" where nothing has half of the waiting."""

    module: str
    phase: str


def late_calls(model: Model, process: int) -> LateCalls:
    """The module and the phase in whose operations others wait for a process."""
    operations, instances = model.tables["operations"], model.tables["instances"]
    of_process = np.asarray(operations["process"]) == process
    rows = np.flatnonzero(of_process & (np.asarray(operations["instance"]) != NONE))
    instance = np.asarray(operations["instance"])[rows]
    last = np.asarray(instances["last_communicator_rank"])[instance]
    late = last == np.asarray(operations["rank"])[rows]
    skew_ns = np.where(late, np.maximum(np.asarray(instances["skew_ns"])[instance], 0), 0)
    names = {"module": model.module_names, "phase": PHASE_NAMES}
    return LateCalls(
        **{
            name: _with_half(np.asarray(operations[name])[rows], skew_ns, words)
            for name, words in names.items()
        }
    )


def _with_half(codes: Ints, weights: Ints, words: Sequence[str]) -> str:
    """The word of the code that has half of all weights, "" without one."""
    known = codes != NONE
    if not known.any() or not weights.sum():
        return ""
    sums = np.bincount(codes[known], weights[known])
    largest = int(sums.argmax())
    return words[largest] if 2 * sums[largest] >= weights.sum() else ""


@dataclass(frozen=True, slots=True)
class SerialPart:
    """Operations on the computing streams, of one module or dimension."""

    module: str  # "" where it is not known
    dimension: str
    function: str
    operations: int
    time_ns: int


def serial_parts(model: Model) -> list[SerialPart]:
    """Communication on the streams that compute, the longest first."""
    operations = model.tables["operations"]
    rows = np.flatnonzero(on_compute_stream(model) & (np.asarray(operations["duration_ns"]) > 0))
    if not len(rows):
        return []
    columns = [
        np.asarray(operations[name])[rows].astype(np.int64)
        for name in ("module", "communicator", "function")
    ]
    keys, place = np.unique(np.stack(columns), axis=1, return_inverse=True)
    times = np.bincount(place.reshape(-1), np.asarray(operations["duration_ns"])[rows])
    counts = np.bincount(place.reshape(-1))
    dimensions, functions = model.dimensions, [*model.words["function"], "?"]
    parts = [
        SerialPart(
            model.module_names[module] if module >= 0 else "",
            dimensions[communicator],
            functions[function],
            int(count),
            int(time),
        )
        for (module, communicator, function), count, time in zip(
            keys.T.tolist(), counts, times, strict=True
        )
    ]
    return sorted(parts, key=lambda part: -part.time_ns)


def on_compute_stream(model: Model) -> Bools:
    """Which operations ran on the stream that their process computes on."""
    operations = model.tables["operations"]
    streams = np.full(len(model.processes) + 1, -2, np.int64)  # equal to no stream
    for row, stream in model.training.compute_streams.items():
        if row.isdigit() and int(row) < len(model.processes):
            streams[int(row)] = stream
    mask: Bools = np.asarray(operations["stream"]) == streams[operations["process"]]
    mask &= np.asarray(operations["part_of"]) == NONE
    return mask


def starved_share(model: Model, steps: StepSummary) -> float:
    """The share of steps whose first operation started as soon as it was launched: the GPU had
    nothing left to do, so waiting for data cost time.
    """
    operations = model.tables["operations"]
    step = np.asarray(operations["step"]).astype(np.int64)
    in_later_steps = (step > steps.first) & (np.asarray(operations["start_ns"]) != NONE)
    in_later_steps &= np.asarray(operations["launch_end_ns"]) != NONE
    rows = np.flatnonzero(in_later_steps)
    if not len(rows):
        return 1.0
    key = np.asarray(operations["process"])[rows].astype(np.int64) << 32 | step[rows]
    order = np.lexsort((np.asarray(operations["launch_ns"])[rows], key))
    _, first = np.unique(key[order], return_index=True)
    rows = rows[order][first]
    late = np.asarray(operations["start_ns"])[rows] - np.asarray(operations["launch_end_ns"])[rows]
    return float((late < _SOON_NS).mean())


@dataclass(frozen=True, slots=True)
class Prefetches:
    """AllGathers of modules in backward, and how many were called ahead."""

    all_gathers: int
    ahead: int


def backward_prefetches(model: Model) -> Prefetches:
    """How FSDP's AllGathers in backward were called."""
    operations = model.tables["operations"]
    functions, phases = model.words["function"], model.words["phase"]
    if "AllGather" not in functions:
        return Prefetches(0, 0)
    gathers = np.asarray(operations["function"]) == functions.index("AllGather")
    gathers &= np.asarray(operations["phase"]) == phases.index(BACKWARD)
    gathers &= np.asarray(operations["module"]) != NONE
    ahead = gathers & (np.asarray(operations["prefetch"]) == 1)
    return Prefetches(int(gathers.sum()), int(ahead.sum()))


@dataclass(frozen=True, slots=True)
class LastBucket:
    """The bucket that DistributedDataParallel reduces last: nothing hides it."""

    module: str
    size_bytes: int
    usual_bytes: int  # of the others
    time_ns: float  # of one reduction


def last_bucket(model: Model) -> LastBucket | None:
    """The last bucket of a step; None where there are no buckets, or only one."""
    operations = model.tables["operations"]
    contexts = model.words["context"]
    rows = np.flatnonzero(np.asarray(operations["context"]) == contexts.index("bucket"))
    if not len(rows):
        return None
    key = np.asarray(operations["process"])[rows].astype(np.int64) << 32
    key |= np.asarray(operations["step"])[rows].astype(np.int64)
    order = np.lexsort((np.asarray(operations["call_ns"])[rows], key))
    ends: Ints = np.append(np.flatnonzero(np.diff(key[order])), len(order) - 1)
    last, size = rows[order[ends]], np.asarray(operations["size_bytes"])
    others = np.setdiff1d(rows, last)
    if not len(others):
        return None
    module = int(np.asarray(operations["module"])[last[-1]])
    times = np.asarray(operations["duration_ns"])[last]
    return LastBucket(
        model.module_names[module],
        int(np.median(size[last])),
        int(np.median(size[others])),
        float(times[times > 0].mean()) if (times > 0).any() else 0.0,
    )
