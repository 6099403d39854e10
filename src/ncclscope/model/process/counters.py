"""The counters of one process, as rows of `counters` and `counter_histograms`.

Communicators are still numbers of the process, names its own codes. `bytes` holds the sum of the
calls' counts: how many bytes that is depends on the communicator's number of ranks, which may be
known only when all processes are read.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Ints
from ncclscope.capture import dtypes, layout
from ncclscope.capture.call_counts import CallKey, bucket_bounds_ns
from ncclscope.capture.metadata import Graphs
from ncclscope.capture.process import Process
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.model.process.launch_times import event_excess
from ncclscope.model.schema import (
    CALL_LEVEL,
    COPY_ENGINE_LEVEL,
    NONE,
    SOURCES,
    UNTIMED_REASONS,
    WORK_LEVEL,
    Columns,
)
from ncclscope.model.vocabulary import Vocabulary

LARGEST = 1 << 61  # that a counter can hold: damaged captures may say more
_LEVELS = {
    layout.LEVEL_CALL: CALL_LEVEL,
    layout.LEVEL_WORK: WORK_LEVEL,
    layout.LEVEL_COPY_ENGINE: COPY_ENGINE_LEVEL,
}
# Histograms: fields of the format, and the source whose times they hold.
_SIDES = (("gpu_histogram", "gpu"), ("host_histogram", "host"), ("event_histogram", "gpu-event"))
_EVENTS = 2
_SIDE_CODES = np.array([SOURCES.index(source) for _, source in _SIDES], np.int64)
_BOUNDS_NS = np.append(bucket_bounds_ns(), NONE).astype(np.int64)
_FIRSTS = dtypes.OURS.times["event_first_buckets"].shape[0]


@dataclass(frozen=True, slots=True)
class ProcessCounters:
    """Columns of both tables, without those that other processes are needed for; empty where the
    process counted nothing.
    """

    counters: Columns
    histograms: Columns  # `counter` is a place in `counters`


def counters_of(process: Process, words: Vocabulary) -> ProcessCounters:
    """All counters of a process, in the order in which it keeps them."""
    counts = process.call_counts
    if not counts:
        return ProcessCounters({}, {})
    times = np.array([one.times for one in counts], dtypes.OURS.times)
    keys = [one.key for one in counts]
    bits = np.array([key.bits for key in keys], np.int64)
    columns: Columns = {
        "communicator": _numbers([key.communicator for key in keys]),
        "level": np.array([_LEVELS.get(key.level, NONE) for key in keys], np.int8),
        "count": _numbers([key.count for key in keys]),
        "folded": (bits & layout.TALLY_FOLDED) != 0,
        "captured": (bits & layout.TALLY_CAPTURED) != 0,
        "calls": _numbers([one.calls for one in counts]),
        "bytes": _numbers([one.count_sum for one in counts]),
        "replays": _replays(keys, process.graphs),
        **_names(keys, ProcessStrings(process.strings), words),
        **_times(times, event_excess(process.event_clocks).excess_ns),
    }
    return ProcessCounters(columns, _histograms(times))


def _replays(keys: list[CallKey], graphs: Graphs) -> Ints:
    """Operations that replays of captured calls were, by key. Where NCCL reports replays itself,
    markers are not needed, and there are none.
    """
    operations: Counter[tuple[int, ...]] = Counter()
    for call in graphs.calls:
        key = (call.communicator, call.function, call.datatype, call.count, call.bits)
        operations[key] += call.calls * graphs.replays.get(call.capture, 0)
    return _numbers(
        [
            operations[key.communicator, key.function, key.datatype, key.count, key.bits]
            if key.level == layout.LEVEL_CALL
            else 0
            for key in keys
        ]
    )


def _numbers(values: list[int]) -> Ints:
    return np.array([min(value, LARGEST) for value in values], np.int64)


def _times(times: npt.NDArray[np.void], excess_ns: int) -> Columns:
    """Columns of times and of works without one. `excess_ns`: what is too much in times by CUDA
    events.
    """
    offsets = {name: offset // 8 for name, (_, offset, *_) in (times.dtype.fields or {}).items()}
    # Everything before the histograms is numbers of 64 bits.
    numbers = np.ascontiguousarray(times).view(np.uint64).reshape(len(times), -1)
    numbers = np.minimum(numbers[:, : offsets["gpu_histogram"]], LARGEST).astype(np.int64)
    columns: Columns = {}
    for source in ("gpu", "host"):
        for name in ("count", "sum_ns", "min_ns", "max_ns"):
            columns[f"{source}_{name}"] = numbers[:, offsets[f"{source}_{name}"]]
        untimed = columns[f"{source}_count"] == 0
        for name in ("min_ns", "max_ns"):
            columns[f"{source}_{name}"][untimed] = NONE
    for place, name in zip(range(len(layout.UNTIMED)), UNTIMED_REASONS, strict=False):
        columns[name] = numbers[:, offsets["untimed"] + place]
    columns["untimed_timing_off"] = np.minimum(times["timing_off"], LARGEST).astype(np.int64)
    return columns | _event_times(times, excess_ns)


def _event_times(times: npt.NDArray[np.void], excess_ns: int) -> Columns:
    """Columns of times by CUDA events."""

    def field(name: str) -> Ints:
        return np.asarray(np.minimum(times[f"event_{name}"], LARGEST), np.int64)

    count = field("count")
    firsts = np.minimum(count, _FIRSTS)
    columns: Columns = {"event_count": count, "event_shared": field("grouped")}
    columns["event_sum_ns"] = np.maximum(field("sum_ns") - count * excess_ns, 0)
    for name in ("min_ns", "max_ns"):
        value = np.maximum(field(name) - excess_ns, 0)
        columns[f"event_{name}"] = np.where(count > 0, value, NONE)
    columns["event_firsts"] = firsts
    columns["event_firsts_ns"] = np.maximum(field("first_sum_ns") - firsts * excess_ns, 0)
    return columns


def _names(keys: list[CallKey], strings: ProcessStrings, words: Vocabulary) -> Columns:
    """Codes of the names in the keys, NONE for unknown ones."""

    def codes(sort: str, names: list[str]) -> npt.NDArray[np.int8]:
        return np.array([words.code(sort, name) if name else NONE for name in names], np.int8)

    v1 = [bool(key.bits & layout.TALLY_NUMBERS) for key in keys]
    both = list(zip(keys, v1, strict=True))
    return {
        "function": codes("function", [strings.function(k.function, old) for k, old in both]),
        "datatype": codes("datatype", [strings.datatype(k.datatype, old) for k, old in both]),
        "algorithm": codes("algorithm", [strings.algorithm(k.algorithm, old) for k, old in both]),
        "protocol": codes("protocol", [strings.protocol(k.protocol, old) for k, old in both]),
    }


def _histograms(times: npt.NDArray[np.void]) -> Columns:
    """A row for each bucket that holds works."""
    sides = np.stack([times[name] for name, _ in _SIDES], axis=1)
    firsts = np.zeros_like(sides)
    for place in range(_FIRSTS):
        own = np.flatnonzero(times["event_count"] > place)
        firsts[own, _EVENTS, times["event_first_buckets"][own, place]] += 1
    counter, side, bucket = np.nonzero(sides)
    return {
        "counter": counter,
        "source": _SIDE_CODES[side],
        "from_ns": _BOUNDS_NS[bucket],
        "to_ns": _BOUNDS_NS[bucket + 1],
        "works": sides[counter, side, bucket].astype(np.int64),
        "firsts": np.minimum(firsts, sides)[counter, side, bucket].astype(np.int64),
    }
