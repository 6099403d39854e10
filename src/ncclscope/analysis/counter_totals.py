"""One process's counters as operations by key: the user's calls joined with NCCL's work."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ncclscope.capture import layout
from ncclscope.capture.call_counts import CallCount, bucket_bounds_ns
from ncclscope.capture.process import Process
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.nccl.algorithms import ALGORITHMS, PROTOCOLS, WITH_EXACT_STOP
from ncclscope.nccl.datatypes import DATATYPES_OF_V1, datatype_name
from ncclscope.nccl.functions import COLL_COUNTS_BYTES, NUMBERED_FUNCTIONS
from ncclscope.nccl.operation_bytes import bits_per_count

SEVERAL = "several"


@dataclass(frozen=True, slots=True)
class CounterKey:
    """What calls are told apart by. None: not known."""

    communicator: int | None  # row of `communicators`
    function: str | None
    size_bytes: int | None
    datatype: str | None
    algorithm: str | None
    protocol: str | None
    rank: int | None
    host: str


@dataclass(frozen=True, slots=True)
class Times:
    """Times of operations from one source."""

    count: int
    total_ns: int
    shortest_ns: int
    longest_ns: int
    histogram: npt.NDArray[np.int64]


@dataclass(slots=True)
class CounterTotals:
    """What is known of one leaf."""

    calls: int = 0
    operations: int = 0
    in_flight: int = 0
    bytes: int = 0
    folded: bool = False
    sources: Counter[str] = field(default_factory=Counter)
    untimed: Counter[str] = field(default_factory=Counter)
    times: dict[str, Times] = field(default_factory=dict)

    @property
    def mean_bytes(self) -> float:
        """Bytes of one operation; all are alike unless sizes were folded."""
        return self.bytes / self.operations if self.operations else 0.0

    @property
    def gpu_ns(self) -> int:
        """Time on the GPU."""
        return sum(t.total_ns for source, t in self.times.items() if source != "host")


@dataclass(frozen=True, slots=True)
class _Counted:
    """One tally with names for numbers."""

    tally: CallCount
    communicator: int | None
    rank: int | None
    function: str | None
    datatype: str | None
    algorithm: str | None
    protocol: str | None
    size_bytes: int | None
    bytes: int

    @property
    def level(self) -> int:
        return self.tally.key.level

    @property
    def bits(self) -> int:
        return self.tally.key.bits


def _places(model: Model, row: int, process: Process) -> dict[int, tuple[int, int]]:
    """Row of the communicator and global rank by the process's numbers of communicators.

    Members of one process and id stand in the order in which the process made them.
    """
    ids, members = model.tables["communicators"]["id"], model.tables["members"]
    mine = np.flatnonzero(members["process"] == row)
    waiting: dict[int, list[int]] = {}
    for member in mine.tolist():
        waiting.setdefault(int(ids[members["communicator"][member]]), []).append(member)
    found = {}
    for comm in process.communicators:
        signed = int(np.array(comm.id, np.uint64).view(np.int64))
        if waiting.get(signed):
            member = waiting[signed].pop(0)
            place = int(members["communicator"][member]), int(members["global_rank"][member])
            found[comm.number] = place
    return found


def _name(process: Process, number: int, numbered: tuple[str, ...], bits: int) -> str | None:
    if bits & layout.TALLY_NUMBERS:
        return numbered[number] if number < len(numbered) else None
    return process.strings.get(number) if number else None


def _counted(
    process: Process,
    tally: CallCount,
    places: dict[int, tuple[int, int]],
    ranks_of: npt.NDArray[np.int32],
) -> _Counted:
    key = tally.key
    communicator, rank = places.get(key.communicator, (None, NONE))
    function = _name(process, key.function, NUMBERED_FUNCTIONS, key.bits)
    datatype = _name(process, key.datatype, DATATYPES_OF_V1, key.bits)
    if datatype is not None:
        datatype = datatype_name(datatype)
    ranks = 1 if communicator is None else int(ranks_of[communicator])
    in_coll = key.level == layout.LEVEL_WORK
    bits = bits_per_count(function or "", datatype or "", ranks, in_coll=in_coll)
    return _Counted(
        tally,
        communicator,
        None if rank == NONE else rank,
        function,
        datatype,
        _name(process, key.algorithm, ALGORITHMS, key.bits),
        _name(process, key.protocol, PROTOCOLS, key.bits),
        None if function is None or bits is None else -(-key.count * bits // 8),
        -(-tally.count_sum * (bits or 0) // 8),
    )


def counter_totals_of(
    model: Model, row: int, process: Process
) -> Iterator[tuple[CounterKey, CounterTotals]]:
    """Calls and work of one process, joined by communicator, function, size and datatype."""
    places = _places(model, row, process)
    ranks_of, who = model.tables["communicators"]["ranks"], model.processes[row]
    joined: dict[CounterKey, list[_Counted]] = {}
    for tally in process.call_counts:
        one = _counted(process, tally, places, ranks_of)
        # Work of these is told in bytes, whatever the caller's datatype.
        datatype = None if one.function in COLL_COUNTS_BYTES else one.datatype
        stem = CounterKey(
            one.communicator, one.function, one.size_bytes, datatype, None, None, one.rank, who.host
        )
        joined.setdefault(stem, []).append(one)
    for stem, parts in joined.items():
        for datatype, algorithm, protocol, entry in _entries(parts):
            leaf = replace(stem, datatype=datatype, algorithm=algorithm, protocol=protocol)
            yield leaf, entry


def _entries(
    parts: list[_Counted],
) -> Iterator[tuple[str | None, str | None, str | None, CounterTotals]]:
    """Datatype, algorithm, protocol and numbers; calls go to the work that they can have made."""
    calls = [part for part in parts if part.level == layout.LEVEL_CALL]
    works = [part for part in parts if part.level != layout.LEVEL_CALL]
    named = {part.datatype for part in calls or works}
    datatype = named.pop() if len(named) == 1 else SEVERAL
    called = sum(part.tally.calls for part in calls)
    eager = sum(p.tally.calls for p in calls if not p.bits & layout.TALLY_CAPTURED)
    works.sort(key=lambda part: -part.tally.calls)
    entries = [_work(part) for part in works]
    if not calls:
        for entry in entries:
            entry.calls = entry.operations
    elif entries:
        _share_out(called, entries)
    missing = eager - sum(entry.operations for entry in entries) if calls else 0
    for part, entry in zip(works, entries, strict=True):
        yield datatype, part.algorithm, part.protocol, entry
    if calls and (missing > 0 or not entries):
        yield datatype, None, None, _without_work(calls, max(missing, 0), 0 if entries else called)


def _share_out(called: int, entries: list[CounterTotals]) -> None:
    """Calls to the entries that carried them out; what is more than their work, to the first."""
    for entry in entries:
        entry.calls = min(entry.operations, called)
        called -= entry.calls
    entries[0].calls += called


def _without_work(calls: list[_Counted], missing: int, called: int) -> CounterTotals:
    """Calls of which NCCL reported no work: Broadcast in recent releases, symmetric memory."""
    all_calls = sum(part.tally.calls for part in calls)
    size = sum(part.bytes for part in calls) / all_calls if all_calls else 0
    entry = CounterTotals(calls=called, operations=missing, bytes=round(size * missing))
    entry.folded = any(part.bits & layout.TALLY_FOLDED for part in calls)
    if missing:
        entry.sources["none"] = missing
        entry.untimed["NCCL reported no work for the call"] = missing
    return entry


def _work(part: _Counted) -> CounterTotals:
    """Numbers of one tally of NCCL's work."""
    times, operations = part.tally.times, part.tally.calls
    timed = int(times["gpu_count"])
    reasons = {
        reason: int(count) for reason, count in zip(layout.UNTIMED, times["untimed"], strict=False)
    }
    entry = CounterTotals(operations=operations, bytes=part.bytes)
    entry.folded = bool(part.bits & layout.TALLY_FOLDED)
    entry.untimed.update({reason: count for reason, count in reasons.items() if count})
    if part.level == layout.LEVEL_COPY_ENGINE:
        entry.sources["none"] = operations
        entry.untimed["copy engine"] = operations
        return entry
    entry.in_flight = max(operations - timed - sum(reasons.values()), 0)
    if timed:
        sound = part.algorithm in WITH_EXACT_STOP
        _add_times(entry, "gpu" if sound else "gpu-early", times, "gpu")
    elif int(times["host_count"]):
        _add_times(entry, "host", times, "host")
    rest = operations - sum(entry.sources.values())
    if rest > 0:
        entry.sources["none"] = rest
    return entry


def _add_times(entry: CounterTotals, source: str, times: np.void, side: str) -> None:
    count = int(times[f"{side}_count"])
    entry.sources[source] = count
    entry.times[source] = Times(
        count,
        int(times[f"{side}_sum_ns"]),
        int(times[f"{side}_min_ns"]),
        int(times[f"{side}_max_ns"]),
        times[f"{side}_histogram"].astype(np.int64),
    )


def percentiles(histogram: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Median and 99th percentile in ns, to half the width of a bucket."""
    bounds = bucket_bounds_ns()
    middles = np.append((bounds[:-1] + bounds[1:]) / 2, bounds[-1])
    running = np.cumsum(histogram)
    median, p99 = (np.searchsorted(running, share * running[-1]) for share in (0.5, 0.99))
    return float(middles[median]), float(middles[p99])
