"""Definitions that all outputs share: start of an operation, extent, bandwidth, percentiles.

When an operation began (`began_ns`, `BEGAN_SQL`, `BEGAN_RAW_SQL`)
    Its start on the GPU. Where that is not known: its launch, else its call, else its enqueueing.
    Selections by time, slices of time and drawings all use this order.

The extent of a run (`extent`)
    From the first call to the last end. This begins with the call, not with the start on the GPU:
    the first call of a communicator connects its ranks, and that time belongs to the run. Hence
    the other order of columns.

Bandwidth (`EXACT_SOURCES`, `counts_for_bandwidth`, `bus_bytes`, `busbw_gbs`)
    Bytes divided by time, both summed over the operations that count: their duration comes from an
    exact source, and their size is known. `gpu-early` does not count, its durations are lower
    bounds; nor do `gpu-event-upper`, which are upper bounds, `gpu-event-rough`, whose error is more
    than a tenth of them (process/launch_times.py), and times of the host. nccl/bandwidth.py has the
    factor of each function.
    Who waited for whom needs more than that, see model/streams.py: there a `gpu-partial` operation
    does not count, because any channel may be the first to start or the last to end.

Durations (`GRADES`, `durations`)
    Of several operations: only those from the best kind of clock that timed any of them. A mean of
    GPU times and times of the host would be neither.

Percentiles (`percentiles`, `histogram_percentiles`)
    A value that occurred: the smallest that at least p % of the values do not exceed. Of an even
    number the median is the lower of the two in the middle. numpy calls this `inverted_cdf`, SQL
    `quantile_disc`. Of a histogram: where that value is if those of its bucket lie evenly in it.

Classes of sizes (`size_class`, `SIZE_CLASS_SQL`)
    The power of two at or below a size in bytes; sizes below 1 are classes of their own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE, SOURCES, Columns
from ncclscope.nccl.bandwidth import bandwidth_gbs, bus_factor

Rows = slice | Ints
ALL_ROWS = slice(None)

# ---- when an operation began, and how long the run was ----
BEGAN_COLUMNS = ("start_ns", "launch_ns", "call_ns", "enqueue_ns")  # the first that is known
_FIRST_COLUMNS = ("call_ns", "launch_ns", "start_ns", "enqueue_ns")  # of the run's extent
_LAST_COLUMNS = ("end_ns", "launch_end_ns", "call_end_ns", "enqueue_ns", "call_ns")
# The same as `began_ns` in SQL: over views of the model, in which unknown times are NULL …
BEGAN_SQL = f"coalesce({', '.join(BEGAN_COLUMNS)})"
# … and over raw columns, in which they are NONE.
BEGAN_RAW_SQL = (
    f"case {' '.join(f'when {name} <> {NONE} then {name}' for name in BEGAN_COLUMNS[:-1])} "
    f"else {BEGAN_COLUMNS[-1]} end"
)


def _first_known(operations: Columns, names: Sequence[str], rows: Rows) -> Ints:
    """By operation the first of these times that is known; NONE where none is."""
    times = np.asarray(operations[names[0]][rows]).astype(np.int64)
    for name in names[1:]:
        unknown = times == NONE
        if not unknown.any():
            break
        times[unknown] = operations[name][rows][unknown]
    return times


def began_ns(operations: Columns, rows: Rows = ALL_ROWS) -> Ints:
    """When those operations began; NONE where no time of them is known."""
    return _first_known(operations, BEGAN_COLUMNS, rows)


def extent(
    operations: Columns, keep: Callable[[slice], Bools] | None = None
) -> tuple[int, int] | None:
    """When the run began and ended: first call, last end. None where no time is known.

    `keep`: which of some rows count; all of them where it is not given.
    """
    calls, ends = operations["call_ns"], operations["end_ns"]
    if keep is None and len(calls) and calls.min() != NONE != ends.min():
        first = int(calls.min())
        return first, max(int(ends.max()), first)
    extents: list[tuple[int, int]] = []
    for rows in row_chunks(len(calls)):
        first_ns = _first_known(operations, _FIRST_COLUMNS, rows)
        known = first_ns != NONE if keep is None else (first_ns != NONE) & keep(rows)
        if known.any():
            last_ns = _first_known(operations, _LAST_COLUMNS, rows)[known]
            extents.append((int(first_ns[known].min()), int(last_ns.max())))
    if not extents:
        return None
    first = min(begin for begin, _ in extents)
    return first, max(first, *(end for _, end in extents))


# ---- bandwidth ----
EXACT_SOURCES = ("gpu", "gpu-repaired", "gpu-event", "gpu-partial")
IS_EXACT = np.array([*(name in EXACT_SOURCES for name in SOURCES), False])  # by code; -1: none


def counts_for_bandwidth(operations: Columns, rows: Rows = ALL_ROWS) -> Bools:
    """Which of those operations have an exact duration and a known size."""
    exact: Bools = IS_EXACT[operations["source"][rows]]
    exact &= operations["duration_ns"][rows] != NONE
    exact &= operations["size_bytes"][rows] != NONE
    return exact


def bus_factors(model: Model, rows: Rows = ALL_ROWS) -> Floats:
    """busbw / algbw of each of those operations; NaN where nccl-tests define none."""
    operations = model.tables["operations"]
    names = [*model.words["function"], ""]  # the last place stands for NONE
    ranks, place = np.unique([*model.tables["communicators"]["ranks"], NONE], return_inverse=True)
    factors = np.array(
        [[bus_factor(name, count) for name in names] for count in ranks.tolist()], np.float64
    )
    communicator, function = operations["communicator"][rows], operations["function"][rows]
    return np.asarray(factors[place.reshape(-1)[communicator], function])


def bus_bytes(model: Model, rows: Rows = ALL_ROWS) -> Floats:
    """Bytes x factor of each of those operations: what busbw divides by time. NaN where the size
    is not known or nccl-tests define no factor.
    """
    size = np.asarray(model.tables["operations"]["size_bytes"][rows]).astype(np.float64)
    return np.where(size == NONE, np.nan, size * bus_factors(model, rows))


def busbw_gbs(model: Model, rows: Rows = ALL_ROWS) -> float | None:
    """Bus bandwidth of those operations together, over those that count. None where none counts,
    or where nccl-tests define no bus bandwidth for one that does.
    """
    operations = model.tables["operations"]
    counts = counts_for_bandwidth(operations, rows)
    time_ns = int(operations["duration_ns"][rows][counts].sum())
    moved = float(bus_bytes(model, rows)[counts].sum())
    return None if np.isnan(moved) else bandwidth_gbs(moved, time_ns)


# ---- durations ----
# Kinds of clocks, best first; a grade is a place in this list.
GRADES = ("gpu", "proxy", "host", "enqueue")
GRADE_OF = dict.fromkeys(GPU_SOURCES, 0) | {"proxy": 1, "host": 2, "enqueue": 3}
EARLY_SOURCE = "gpu-early"  # its durations are lower bounds
UPPER_SOURCE = "gpu-event-upper"  # its durations are upper bounds
_GRADE_OF_CODE = np.array([GRADE_OF.get(name, len(GRADES)) for name in SOURCES], np.int8)
GRADE_SQL = (
    f"case when source in ({', '.join(map(repr, GPU_SOURCES))}) then 0 "
    "when source = 'proxy' then 1 when source = 'host' then 2 else 3 end"
)


@dataclass(frozen=True, slots=True)
class Durations:
    """Times of several operations, all from the best kind of clock that timed any of them."""

    grade: str  # of GRADES
    operations: int
    total_ns: int
    shortest_ns: float
    median_ns: float | None  # None: not asked for
    mean_ns: float
    p99_ns: float | None
    longest_ns: float
    lower_bound: bool  # some are gpu-early: the truth is not less
    upper_bound: bool = False  # some are gpu-event-upper: the truth is not more


def durations(operations: Columns, rows: Rows = ALL_ROWS) -> Durations | None:
    """Durations of those operations; None where none has one."""
    values = np.asarray(operations["duration_ns"][rows])
    source = np.asarray(operations["source"][rows])
    timed = np.flatnonzero(values != NONE)
    if not len(timed):
        return None
    grades = _GRADE_OF_CODE[source[timed]]
    grade = min(int(grades.min()), len(GRADES) - 1)
    best = timed[grades == grades.min()]
    times = values[best]
    total = int(times.sum())
    median, p99 = percentiles(times)
    return Durations(
        grade=GRADES[grade],
        operations=len(times),
        total_ns=total,
        shortest_ns=int(times.min()),
        median_ns=median,
        mean_ns=total / len(times),
        p99_ns=p99,
        longest_ns=int(times.max()),
        lower_bound=bool((source[best] == SOURCES.index(EARLY_SOURCE)).any()),
        upper_bound=bool((source[best] == SOURCES.index(UPPER_SOURCE)).any()),
    )


# ---- percentiles ----
SIZE_CLASS_SQL = (
    "case when size_bytes < 1 then size_bytes "
    "else cast(pow(2, floor(log2(size_bytes))) as bigint) end"
)


def size_class(sizes: Ints) -> Ints:
    """The class of each size."""
    powers = np.left_shift(1, np.log2(np.maximum(sizes, 1)).astype(np.int64))
    return np.where(sizes < 1, sizes, powers)


PERCENTS = (50, 99)  # median and p99


def percentiles(values: Ints | Floats, percents: Sequence[int] = PERCENTS) -> list[float]:
    """Of at least one value: the smallest values that these percents of all do not exceed.

    This is the definition. percentiles.sql, quantile_disc in SQL and WeightedTimes.percentile of
    sampling.py follow it.
    """
    # As np.percentile with inverted_cdf, which takes a tenth of a millisecond for any array.
    places = [max(math.ceil(len(values) * (percent / 100) - 1), 0) for percent in percents]
    exact: list[float] = np.partition(values, places)[places].tolist()
    return exact


def histogram_percentiles(
    counts: Ints, low: Floats, high: Floats, percents: Sequence[int] = PERCENTS
) -> list[float]:
    """The same of a histogram with at least one value, whose buckets reach from `low` to `high`: of
    n values in a bucket, number k is taken to lie (k - 1/2) / n into it.
    """
    running = np.cumsum(counts)
    # Divided last: a whole number of values must not become a little more than that.
    wanted = [max(math.ceil(percent * int(running[-1]) / 100), 1) for percent in percents]
    places = np.searchsorted(running, wanted)
    number = np.array(wanted) - (running - counts)[places]
    width = high[places] - low[places]
    return [float(v) for v in low[places] + (number - 0.5) / counts[places] * width]
