"""Counters as operations by key: the table `counters` with the user's calls joined to NCCL's works.

A process counts a call and the work that NCCL makes of it apart, under keys that differ: only works
have an algorithm, and AllGather's and Broadcast's are counted in bytes. Example: 10 calls of
AllReduce, 4 MB float32, of which NCCL reported 9 works:

    level  function   size  datatype  algorithm  protocol  calls
    call   AllReduce  4 MB  float32                           10
    work   AllReduce  4 MB  float32   RING       SIMPLE        7
    work   AllReduce  4 MB  float32   TREE       LL            2

gives three totals: RING/SIMPLE with 7 operations, 7 of the calls, and the call that is left over;
TREE/LL with 2 operations and 2 calls; and one operation without a time, of which NCCL reported no
work.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

from ncclscope.analysis.measures import UPPER_SOURCE, histogram_percentiles
from ncclscope.arrays.types import Ints
from ncclscope.model.model import Model, ProcessRow
from ncclscope.model.process.durations import COUNTED_REPLAYS
from ncclscope.model.process.launch_times import EXACT_ERROR_SHARE
from ncclscope.model.schema import (
    CALL_LEVEL,
    COPY_ENGINE_LEVEL,
    COUNTERS,
    NONE,
    NOT_SAMPLED,
    SOURCES,
    TIMING_OFF,
    UNTIMED_REASONS,
)
from ncclscope.nccl.algorithms import WITH_EXACT_STOP
from ncclscope.nccl.functions import COLL_COUNTS_BYTES

SEVERAL = "several"
NO_WORK = "NCCL reported no work for the call"
SAMPLED_COLUMNS = ("event_count", "event_sum_ns", "event_shared", "event_firsts", "event_firsts_ns")
_EventSource = Callable[[float, bool], str]
_Row = dict[str, Any]  # a row of `counters`: values by column, names for codes, None for NONE


@dataclass(frozen=True, slots=True)
class CounterKey:
    """What operations are told apart by. None: not known."""

    communicator: int | None  # row of `communicators`
    function: str | None
    size_bytes: int | None
    datatype: str | None
    algorithm: str | None
    protocol: str | None
    rank: int | None
    host: str


@dataclass(frozen=True, slots=True)
class SourceTimes:
    """Times of operations from one source."""

    count: int
    total_ns: int
    shortest_ns: int
    longest_ns: int
    histogram: Ints | None  # operations by bucket of `Histograms`; None: see `sampled_counters`


@dataclass(slots=True)
class CounterTotals:
    """What is known of one key."""

    calls: int = 0
    operations: int = 0
    in_flight: int = 0
    bytes: int = 0
    folded: bool = False
    process: int = NONE
    sampled: Counter[str] = field(default_factory=Counter)  # columns of `counters` on events
    counters: list[int] = field(default_factory=list)  # rows of `counters` with times by events
    sources: Counter[str] = field(default_factory=Counter)
    untimed: Counter[str] = field(default_factory=Counter)
    times: dict[str, SourceTimes] = field(default_factory=dict)

    @property
    def mean_bytes(self) -> float:
        """Bytes of one operation; all are alike unless sizes were folded."""
        return self.bytes / self.operations if self.operations else 0.0

    @property
    def gpu_ns(self) -> int:
        """Time on the GPU."""
        return sum(t.total_ns for source, t in self.times.items() if source != "host")


class Histograms:
    """The table `counter_histograms`, with the buckets that occur in it numbered from 0."""

    def __init__(self, model: Model) -> None:
        columns = model.tables["counter_histograms"]
        by_counter = np.argsort(columns["counter"], kind="stable")
        table = {name: np.asarray(values)[by_counter] for name, values in columns.items()}
        self._counter, self._source, self._works = (
            table[name] for name in ("counter", "source", "works")
        )
        self._from_ns, first, bucket = np.unique(
            table["from_ns"], return_index=True, return_inverse=True
        )
        self._bucket = bucket.reshape(-1)
        self._to_ns = table["to_ns"][first]

    def of(self, counter: int, source: str) -> Ints:
        """Works of one counter by bucket."""
        first, last = np.searchsorted(self._counter, (counter, counter + 1))
        rows = np.arange(first, last)[self._source[first:last] == SOURCES.index(source)]
        works = np.zeros(len(self._from_ns), np.int64)
        works[self._bucket[rows]] = self._works[rows]
        return works

    def percentiles(self, works: Ints) -> tuple[float, float]:
        """Median and 99th percentile in ns, interpolated within their buckets."""
        if not works.any():  # of a damaged capture
            return 0.0, 0.0
        to_ns = np.where(self._to_ns == NONE, self._from_ns, self._to_ns)
        median, p99 = histogram_percentiles(works, self._from_ns, to_ns)
        return median, p99


def counter_totals(
    model: Model, histograms: Histograms
) -> Iterator[tuple[CounterKey, CounterTotals]]:
    """Calls and works of every process, joined by communicator, function, size and datatype."""
    for process, rows in groupby(_rows(model), key=lambda row: row["process"]):
        host, joined = model.processes[process].host, dict[CounterKey, list[_Row]]()
        for row in rows:
            joined.setdefault(_stem(row, host), []).append(row)
        source = _event_source(model.processes[process])
        for stem, alike in joined.items():
            for key, total in _join(stem, alike, histograms, source):
                total.process = process
                yield key, total


def _rows(model: Model) -> Iterator[_Row]:
    """The rows of `counters`, with their numbers as `counter`."""
    table = model.tables["counters"]
    lists: dict[str, list[Any]] = {"counter": list(range(len(table["process"])))}
    for column in COUNTERS:
        values = table[column.name].tolist()
        if column.words and column.name != "level":
            names = [*model.words[column.name], None]  # NONE is the last place
            values = [names[value] for value in values]
        lists[column.name] = values
    for name in ("communicator", "global_rank", "size_bytes"):
        lists[name] = [None if value == NONE else value for value in lists[name]]
    # Datasets of earlier releases do not have them.
    for name in (*SAMPLED_COLUMNS, "replays", "untimed_timing_off"):
        lists[name] = [max(value, 0) for value in lists[name]]
    for values in zip(*lists.values(), strict=True):
        yield dict(zip(lists, values, strict=True))


def _stem(row: _Row, host: str) -> CounterKey:
    """What a call and its works have in common."""
    # Works of these are counted in bytes, whatever the caller's datatype.
    datatype = None if row["function"] in COLL_COUNTS_BYTES else row["datatype"]
    return CounterKey(
        communicator=row["communicator"],
        function=row["function"],
        size_bytes=row["size_bytes"],
        datatype=datatype,
        algorithm=None,
        protocol=None,
        rank=row["global_rank"],
        host=host,
    )


def _event_source(process: ProcessRow) -> _EventSource:
    """Names the source of times by CUDA events: by their mean, and by how many share a launch."""

    def source(mean_ns: float, shared: bool) -> str:
        if shared or not process.event_excess_ns:
            return UPPER_SOURCE
        exact = process.event_error_ns <= EXACT_ERROR_SHARE * mean_ns
        return "gpu-event" if exact else "gpu-event-rough"

    return source


def _join(
    stem: CounterKey, rows: list[_Row], histograms: Histograms, event_source: _EventSource
) -> Iterator[tuple[CounterKey, CounterTotals]]:
    """Totals of rows with the same stem; calls go to the works that they can have made."""
    calls = [row for row in rows if row["level"] == CALL_LEVEL]
    works = [row for row in rows if row["level"] != CALL_LEVEL]
    datatypes = {row["datatype"] for row in calls or works}
    stem = replace(stem, datatype=datatypes.pop() if len(datatypes) == 1 else SEVERAL)
    works.sort(key=lambda row: -row["calls"])
    totals = [_of_work(row, histograms, event_source) for row in works]
    called = sum(row["calls"] for row in calls)
    eager = sum(row["calls"] for row in calls if not row["captured"])
    if not calls:
        for total in totals:
            total.calls = total.operations
    elif totals:
        _share_out(called, totals)
    replays = _marked_replays(calls, totals, eager)
    for row, total in zip(works, totals, strict=True):
        yield replace(stem, algorithm=row["algorithm"], protocol=row["protocol"]), total
    missing = max(eager - sum(total.operations for total in totals), 0)
    if calls and (missing or not totals):
        total = _without_work(calls, missing, 0 if totals else called)
        _add_events(total, calls, event_source)
        yield stem, total
    if replays:
        yield stem, _of_replays(calls, replays)


def _share_out(called: int, totals: list[CounterTotals]) -> None:
    """Gives calls to the works that carried them out; what is left over goes to the first."""
    for total in totals:
        total.calls = min(total.operations, called)
        called -= total.calls
    totals[0].calls += called


def _bytes(rows: Iterable[_Row]) -> int:
    """Bytes of all rows together; rows of an unknown datatype do not count."""
    return sum(row["bytes"] for row in rows if row["bytes"] != NONE)


def _without_work(calls: list[_Row], missing: int, called: int) -> CounterTotals:
    """Calls of which NCCL reported no work: Broadcast in recent releases, symmetric memory."""
    all_calls = sum(row["calls"] for row in calls)
    size = _bytes(calls) / all_calls if all_calls else 0
    total = CounterTotals(calls=called, operations=missing, bytes=round(size * missing))
    total.folded = any(row["folded"] for row in calls)
    if missing:
        total.sources["none"] = missing
        total.untimed[NO_WORK] = missing
    return total


def _marked_replays(calls: list[_Row], totals: list[CounterTotals], eager: int) -> int:
    """Replays that markers counted and NCCL did not report. Then what it reported beyond eager
    calls are works at the capture, which carried nothing out: they are taken off.
    """
    replays = sum(row["replays"] for row in calls)
    captured = sum(row["calls"] for row in calls if row["captured"])
    extra = sum(total.operations for total in totals) - eager
    if not replays or extra > captured:
        return 0
    for total in totals:
        for reason in (NOT_SAMPLED, TIMING_OFF):
            taken = min(max(extra, 0), total.untimed.get(reason, 0))
            total.bytes -= round(total.mean_bytes * taken)
            total.operations -= taken
            total.untimed[reason] -= taken
            total.sources["none"] -= min(taken, total.sources["none"])
            extra -= taken
    return int(replays)


def _of_replays(calls: list[_Row], replays: int) -> CounterTotals:
    """Replays of captured calls that markers counted."""
    size = max(calls[0]["size_bytes"] or 0, 0)
    total = CounterTotals(operations=replays, bytes=size * replays)
    total.sources["none"] = total.untimed[COUNTED_REPLAYS] = replays
    return total


def _add_events(total: CounterTotals, rows: list[_Row], event_source: _EventSource) -> None:
    """Adds times by CUDA events."""
    timed = [row for row in rows if row["event_count"] > 0]
    if not timed:
        return
    for row in timed:
        total.sampled.update({name: row[name] for name in SAMPLED_COLUMNS})
        total.counters.append(row["counter"])
    count, sum_ns = total.sampled["event_count"], total.sampled["event_sum_ns"]
    source = event_source(sum_ns / count, 2 * total.sampled["event_shared"] > count)
    total.times[source] = SourceTimes(
        count,
        sum_ns,
        min(row["event_min_ns"] for row in timed),
        max(row["event_max_ns"] for row in timed),
        None,
    )
    left = min(total.sources.pop("none", 0), total.operations) - count
    total.sources[source] = count
    if left > 0:
        total.sources["none"] = left
    if total.untimed.pop(NO_WORK, 0) and left > 0:
        off = min(sum(row["untimed_timing_off"] for row in rows), left)
        total.untimed.update({NOT_SAMPLED: left - off, TIMING_OFF: off})


def _of_work(row: _Row, histograms: Histograms, event_source: _EventSource) -> CounterTotals:
    """Totals of one row of works."""
    operations = row["calls"]
    total = CounterTotals(operations=operations, bytes=_bytes([row]), folded=bool(row["folded"]))
    reasons = {reason: row[column] for column, reason in UNTIMED_REASONS.items()}
    total.untimed.update({reason: count for reason, count in reasons.items() if count})
    if row["level"] == COPY_ENGINE_LEVEL:
        total.sources["none"] = operations
        total.untimed["copy engine"] = operations
        return total
    timed = row["gpu_count"] + row["event_count"]
    total.in_flight = max(operations - timed - sum(reasons.values()), 0)
    if row["gpu_count"]:
        exact = row["algorithm"] in WITH_EXACT_STOP
        _add_times(total, "gpu" if exact else "gpu-early", row, "gpu", histograms)
    elif row["host_count"]:
        _add_times(total, "host", row, "host", histograms)
    rest = operations - sum(total.sources.values())
    if rest > 0:
        total.sources["none"] = rest
    _add_events(total, [row], event_source)
    return total


def _add_times(
    total: CounterTotals, source: str, row: _Row, timed_by: str, histograms: Histograms
) -> None:
    count, sum_ns, least_ns, most_ns = (
        row[f"{timed_by}_{name}"] for name in ("count", "sum_ns", "min_ns", "max_ns")
    )
    total.sources[source] = count
    histogram = histograms.of(row["counter"], timed_by)
    total.times[source] = SourceTimes(count, sum_ns, least_ns, most_ns, histogram)
