"""The counters of one process, as rows of `counters` and `counter_histograms`.

Communicators are still numbers of the process, names its own codes. `bytes` holds the sum of the
calls' counts: how many bytes that is depends on the communicator's number of ranks, which may be
known only when all processes are read.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.call_counts import CallKey, bucket_bounds_ns
from ncclscope.capture.process import Process
from ncclscope.capture.process_strings import ProcessStrings
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
from ncclscope.nccl.algorithms import ALGORITHMS, PROTOCOLS

Ints = npt.NDArray[np.int64]
LARGEST = 1 << 61  # that a counter can hold: damaged captures may say more
_LEVELS = {
    layout.LEVEL_CALL: CALL_LEVEL,
    layout.LEVEL_WORK: WORK_LEVEL,
    layout.LEVEL_COPY_ENGINE: COPY_ENGINE_LEVEL,
}
_TIMES = ("count", "sum_ns", "min_ns", "max_ns")


@dataclass(frozen=True, slots=True)
class ProcessCounters:
    """Columns of both tables, without those that other processes are needed for."""

    counters: Columns
    histograms: Columns  # `counter` is a place in `counters`


def counters_of(process: Process, words: Vocabulary) -> ProcessCounters:
    """All counters of a process, in the order in which it keeps them."""
    counts = process.tallies
    times = np.array([one.times for one in counts], dtypes.OURS.times)
    keys = [one.key for one in counts]
    bits = np.array([key.bits for key in keys], np.int64)
    columns: Columns = {
        "communicator": _numbers([key.communicator for key in keys]),
        "level": np.array([_LEVELS.get(key.level, NONE) for key in keys], np.int8),
        "count": _numbers([key.count for key in keys]),
        "folded": ((bits & layout.TALLY_FOLDED) != 0).astype(np.int8),
        "captured": ((bits & layout.TALLY_CAPTURED) != 0).astype(np.int8),
        "calls": _numbers([one.calls for one in counts]),
        "bytes": _numbers([one.count_sum for one in counts]),
        **_names(keys, ProcessStrings(process.strings), words),
    }
    for source in ("gpu", "host"):
        timed = times[f"{source}_count"] > 0
        for name in _TIMES:
            values = _bounded(times[f"{source}_{name}"])
            columns[f"{source}_{name}"] = (
                np.where(timed, values, NONE) if name in ("min_ns", "max_ns") else values
            )
    for place, name in enumerate(UNTIMED_REASONS):
        columns[name] = _bounded(times["untimed"][:, place])
    return ProcessCounters(columns, _histograms(times))


def _numbers(values: list[int]) -> Ints:
    return np.array([min(value, LARGEST) for value in values], np.int64)


def _bounded(values: npt.NDArray[np.unsignedinteger]) -> Ints:
    bounded: Ints = np.minimum(values, LARGEST).astype(np.int64)
    return bounded


def _names(keys: list[CallKey], strings: ProcessStrings, words: Vocabulary) -> Columns:
    """Codes of the names in the keys, NONE for unknown ones."""

    def numbered(names: tuple[str, ...], number: int, v1: bool) -> str:
        if not v1:
            return strings.plain(number)
        return names[number] if number < len(names) else ""

    def codes(sort: str, names: list[str]) -> npt.NDArray[np.int8]:
        return np.array([words.code(sort, name) if name else NONE for name in names], np.int8)

    v1 = [bool(key.bits & layout.TALLY_NUMBERS) for key in keys]
    both = list(zip(keys, v1, strict=True))
    return {
        "function": codes("function", [strings.function(k.function, old) for k, old in both]),
        "datatype": codes("datatype", [strings.datatype(k.datatype, old) for k, old in both]),
        "algorithm": codes("algorithm", [numbered(ALGORITHMS, k.algorithm, o) for k, o in both]),
        "protocol": codes("protocol", [numbered(PROTOCOLS, k.protocol, o) for k, o in both]),
    }


def _histograms(times: npt.NDArray[np.void]) -> Columns:
    """A row for each bucket that holds works."""
    bounds = bucket_bounds_ns().astype(np.int64)
    ends = np.append(bounds[1:], NONE)
    parts: list[tuple[Ints, ...]] = []
    for source in ("gpu", "host"):
        histogram = times[f"{source}_histogram"]
        counter, bucket = np.nonzero(histogram)
        code = np.full(len(counter), SOURCES.index(source), np.int64)
        works = histogram[counter, bucket].astype(np.int64)
        parts.append((counter, code, bounds[bucket], ends[bucket], works))
    names = ("counter", "source", "from_ns", "to_ns", "works")
    joined = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return dict(zip(names, joined, strict=True))
