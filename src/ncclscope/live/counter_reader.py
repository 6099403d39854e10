"""Reads one process's counters again and again, as sums by what metrics distinguish.

A record of the tally file keeps its place and its key for ever, so its class is worked out once;
each reading after that is a few sums over arrays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.sampling import Strata, strata_totals
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.capture import layout
from ncclscope.capture.call_counts import bucket_bounds_ns, read_call_counts
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.live.metrics import DURATION_BOUNDS_NS, size_class
from ncclscope.live.series import Histogram
from ncclscope.model.process.launch_times import EXACT_ERROR_SHARE, EventExcess
from ncclscope.model.schema import NOT_SAMPLED, TIMING_OFF
from ncclscope.nccl.algorithms import WITH_EXACT_STOP
from ncclscope.nccl.bandwidth import bus_factor
from ncclscope.nccl.functions import ALL_WAIT
from ncclscope.nccl.operation_bytes import bits_per_count, operation_bytes

INTRA, INTER, UNKNOWN = "intra", "inter", "unknown"
# The bounds are edges of the recorder's buckets: the number of buckets below each.
_BUCKETS_BELOW = np.searchsorted(bucket_bounds_ns(), DURATION_BOUNDS_NS)
# Reasons of `untimed` that mean: the stamps cannot be the operation's.
_UNSEEN = [layout.UNTIMED.index(name) for name in (NOT_SAMPLED, "launch not timed")]
_BOUNDS_NS = bucket_bounds_ns().astype(np.float64)
_MIDDLES_NS = np.append((_BOUNDS_NS[:-1] + _BOUNDS_NS[1:]) / 2, _BOUNDS_NS[-1])
NO_EXCESS = EventExcess()
_REJECTED = tuple(layout.UNTIMED.index(name) for name in ("stale stamp", "suspect stamp"))
Records = npt.NDArray[np.void]


# ---- what a record counts ----
@dataclass(frozen=True, slots=True)
class OperationKey:
    """What the operations of one record have in common; "" for names that are not known yet."""

    level: int
    communicator: Communicator | None
    function: str
    datatype: str
    algorithm: str
    protocol: str

    @property
    def ranks(self) -> int:
        """Ranks of the communicator; 0 if they are not known."""
        return self.communicator.ranks if self.communicator else 0

    @property
    def bytes_per_count(self) -> float | None:
        """Bytes that one unit of NCCL's counts stands for; None for an unknown datatype."""
        in_coll = self.level == layout.LEVEL_WORK
        bits = bits_per_count(self.function, self.datatype, self.ranks, in_coll=in_coll)
        return None if bits is None else bits / 8

    def size_bytes(self, count: int) -> int | None:
        """Bytes of one operation, by its count; None for an unknown datatype."""
        in_coll = self.level == layout.LEVEL_WORK
        return operation_bytes(self.function, self.datatype, count, self.ranks, in_coll=in_coll)

    @property
    def bus_factor(self) -> float | None:
        """busbw / algbw; None where nccl-tests define none."""
        return bus_factor(self.function, self.ranks)

    @property
    def exact_stop(self) -> bool:
        """Whether GPU times are exact; otherwise they are lower bounds."""
        return self.algorithm in WITH_EXACT_STOP


def operation_key(
    row: np.void, communicators: Mapping[int, Communicator], strings: ProcessStrings
) -> OperationKey:
    """The key of one record, `row` of a Tally slot."""
    v1 = bool(row["bits"] & layout.TALLY_NUMBERS)
    return OperationKey(
        int(row["level"]),
        communicators.get(int(row["comm"])),
        strings.function(int(row["func"]), v1),
        strings.datatype(int(row["dtype"]), v1),
        strings.algorithm(int(row["algo"]), v1),
        strings.protocol(int(row["proto"]), v1),
    )


@dataclass(frozen=True, slots=True)
class OperationClass:
    """Operations that metrics do not distinguish any further."""

    level: int
    communicator: int  # number in the process
    function: str
    scope: str
    size: str  # class of sizes
    bytes_per_count: float | None  # None: unknown datatype
    bus_factor: float | None  # None: nccl-tests define none
    exact_stop: bool = True

    @property
    def for_bandwidth(self) -> bool:
        """Whether the operations count for bandwidth: exact times, and a size that is known."""
        return self.exact_stop and self.bytes_per_count is not None

    @property
    def all_wait(self) -> bool:
        """Whether all ranks wait for the last one: only then a rank that is longer in its kernels
        waited longer. In other functions root, sender and receiver take their own time.
        """
        return self.exact_stop and self.function in ALL_WAIT


def _operation_class(row: np.void, key: OperationKey) -> OperationClass:
    size_bytes = key.size_bytes(int(row["count"]))
    return OperationClass(
        key.level,
        int(row["comm"]),
        key.function or UNKNOWN,
        _scope(key.communicator),
        UNKNOWN if size_bytes is None else size_class(size_bytes),
        key.bytes_per_count,
        key.bus_factor,
        key.exact_stop,
    )


def _scope(communicator: Communicator | None) -> str:
    if communicator is None or communicator.nodes < 1:
        return UNKNOWN
    return INTRA if communicator.nodes == 1 else INTER


# ---- sums ----
@dataclass(frozen=True, slots=True)
class CounterSums:
    """Sums over the operations of a class, since the process started."""

    calls: float = 0.0
    bytes: float = 0.0
    timed: float = 0.0  # operations with a GPU time
    gpu_ns: float = 0.0  # this and the next two: of operations that count for bandwidth
    timed_bytes: float = 0.0
    timed_bus_bytes: float = 0.0  # NaN where nccl-tests define no bus bandwidth
    least_gpu_ns: float = 0.0  # of the other ones: mostly lower bounds
    sampled: float = 0.0  # operations timed by CUDA events
    other_gpu_ns: float = 0.0  # estimated time of all others, where a sample was timed
    all_gpu_error_ns: float = 0.0  # half of the 95 % interval of `all_gpu_ns`

    @property
    def all_gpu_ns(self) -> float:
        """Time of all operations: where a sample was timed, an estimate."""
        return self.gpu_ns + self.least_gpu_ns + self.other_gpu_ns

    def plus(self, other: "CounterSums", sign: int = 1) -> "CounterSums":
        """The sum of both, or with sign -1 their difference."""
        return CounterSums(
            self.calls + sign * other.calls,
            self.bytes + sign * other.bytes,
            self.timed + sign * other.timed,
            self.gpu_ns + sign * other.gpu_ns,
            self.timed_bytes + sign * other.timed_bytes,
            self.timed_bus_bytes + sign * other.timed_bus_bytes,
            self.least_gpu_ns + sign * other.least_gpu_ns,
            self.sampled + sign * other.sampled,
            self.other_gpu_ns + sign * other.other_gpu_ns,
            self.all_gpu_error_ns + other.all_gpu_error_ns,
        )


@dataclass(frozen=True, slots=True)
class EventSums:
    """By record what CUDA events say about its operations; shared launches are left out."""

    count: Floats
    sum_ns: Floats
    exact: Bools  # good enough for bandwidth
    all_ns: Floats  # estimate for all operations
    error_ns: Floats  # half of its 95 % interval


def event_sums(times: Records, excess: EventExcess) -> EventSums:
    """Sums over times by CUDA events, without their excess, and what they say about all."""
    own = times["event_grouped"] * 2 <= times["event_count"]
    count = np.where(own, times["event_count"], 0).astype(np.float64)
    sum_ns = np.where(own, times["event_sum_ns"].astype(np.float64), 0.0)
    sum_ns = np.maximum(sum_ns - count * excess.excess_ns, 0.0)
    mean_ns = sum_ns / np.maximum(count, 1)
    exact = (count > 0) & (excess.excess_ns > 0)
    exact &= excess.error_ns <= EXACT_ERROR_SHARE * mean_ns
    strata = _strata(times, count, sum_ns, excess)
    totals = strata_totals(strata)
    half = np.maximum(totals.below, totals.above) + totals.systematic
    is_estimated = (count > 0) & strata.is_known
    all_ns = np.where(is_estimated, totals.total, 0.0)
    return EventSums(count, sum_ns, exact, all_ns, np.where(is_estimated, half, 0.0))


def _strata(times: Records, count: Floats, sum_ns: Floats, excess: EventExcess) -> Strata:
    """A stratum for each record: its first calls, and the rest."""
    firsts = np.minimum(count, times["event_first_buckets"].shape[1])
    firsts_ns = times["event_first_sum_ns"].astype(np.float64) - firsts * excess.excess_ns
    firsts_ns = np.minimum(np.maximum(firsts_ns, 0.0), sum_ns)
    sampled = count - firsts
    shows = times["event_histogram"] * (count > 0)[:, None].astype(np.float64)
    for place in range(times["event_first_buckets"].shape[1]):
        own = np.flatnonzero(firsts > place)
        shows[own, times["event_first_buckets"][own, place]] -= 1
    shows = np.maximum(shows, 0.0)
    values = shows.sum(axis=1)
    mean_ns = (sum_ns - firsts_ns) / np.maximum(sampled, 1)
    apart = np.maximum(_MIDDLES_NS - excess.excess_ns, 0.0) - mean_ns[:, None]
    unseen = times["untimed"][:, _UNSEEN].sum(axis=1)
    rows = np.arange(len(times))
    return Strata(
        key=rows,
        pool=np.zeros(len(times), np.int64),
        population=(count + unseen).astype(np.int64),
        firsts=firsts.astype(np.int64),
        firsts_ns=firsts_ns,
        sampled=sampled.astype(np.int64),
        values=values.astype(np.int64),
        mean_ns=mean_ns,
        squares=(shows * apart**2).sum(axis=1),
        cubes=(shows * apart**3).sum(axis=1),
        error_ns=np.full(len(times), float(excess.error_ns)),
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """A process's counters at one moment."""

    sums: dict[OperationClass, CounterSums]
    histograms: dict[tuple[str, str], Histogram]  # by function and size class
    untimed: dict[str, int]  # by reason
    rejected: dict[str, int]
    calls: dict[int, int]  # calls by record, of the level at which users call
    records: Records | None = None  # the records of the file
    excess: EventExcess = NO_EXCESS  # of the process's CUDA events


@dataclass(slots=True)
class CounterReader:
    """Reads one process's counters again and again."""

    path: Path
    classes: list[OperationClass] = field(default_factory=list)
    class_of: dict[int, int] = field(default_factory=dict)  # place in `classes`, by record

    def read(
        self,
        communicators: dict[int, Communicator],
        strings: dict[int, str],
        excess: EventExcess = NO_EXCESS,
    ) -> Reading:
        """Sums of everything that the process has counted. `excess`: of its CUDA events."""
        records = read_call_counts(self.path)
        counts, times = records["tally"], records["times"]
        classes = self._classes_of(counts, communicators, ProcessStrings(strings))
        return Reading(
            self._sums(classes, counts, times, excess),
            self._histograms(classes, times, excess),
            _by_reason(times, range(len(layout.UNTIMED))) | _timing_off(counts, times),
            _by_reason(times, _REJECTED),
            _calls(counts),
            records,
            excess,
        )

    def _classes_of(
        self, counts: Records, communicators: dict[int, Communicator], strings: ProcessStrings
    ) -> Ints:
        """By record its place in `classes`."""
        places = {op_class: place for place, op_class in enumerate(self.classes)}
        classes = []
        for number, row in zip(counts["check"].tolist(), counts, strict=True):
            place = self.class_of.get(number)
            if place is None:
                op_class = _operation_class(row, operation_key(row, communicators, strings))
                place = places.setdefault(op_class, len(self.classes))
                if place == len(self.classes):
                    self.classes.append(op_class)
                # Names and communicators may reach the disk after the counts.
                if op_class.function != UNKNOWN and op_class.scope != UNKNOWN:
                    self.class_of[number] = place
            classes.append(place)
        return np.array(classes, np.int64)

    def _sums(
        self, classes: Ints, counts: Records, times: Records, excess: EventExcess
    ) -> dict[OperationClass, CounterSums]:
        def by_record(values: Iterable[float | None]) -> npt.NDArray[np.float64]:
            return np.array([*values], np.float64)[classes] if len(classes) else np.zeros(0)

        calls, timed = counts["calls"].astype(float), times["gpu_count"].astype(float)
        gpu_ns = times["gpu_sum_ns"].astype(float)
        counted = by_record(op_class.for_bandwidth for op_class in self.classes)
        events = event_sums(times, excess)
        sized = by_record(op_class.bytes_per_count is not None for op_class in self.classes)
        by_events = (events.exact & (timed == 0) & (sized > 0)).astype(float)
        counted = np.where(events.count > 0, by_events, counted)
        other_ns = np.where(events.count > 0, events.all_ns - events.sum_ns * by_events, 0.0)
        timed, gpu_ns = timed + events.count, gpu_ns + events.sum_ns
        size = counts["count_sum"].astype(float)
        size *= by_record(op_class.bytes_per_count or 0.0 for op_class in self.classes)
        share = np.divide(timed, calls, out=np.zeros_like(calls), where=calls > 0)
        timed_bytes = size * share * counted
        bus_factors = by_record(op_class.bus_factor for op_class in self.classes)  # None is NaN
        bus_bytes = np.where(timed_bytes > 0, timed_bytes * bus_factors, 0)
        columns = [
            calls,
            size,
            timed,
            gpu_ns * counted,
            timed_bytes,
            bus_bytes,
            gpu_ns * (1 - counted) * (events.count == 0),
            events.count,
            other_ns,
            events.error_ns,
        ]
        sums = [np.bincount(classes, column, len(self.classes)) for column in columns]
        rows = np.stack(sums, axis=1).tolist()
        return {
            op_class: CounterSums(*row) for op_class, row in zip(self.classes, rows, strict=True)
        }

    def _histograms(
        self, classes: Ints, times: Records, excess: EventExcess
    ) -> dict[tuple[str, str], Histogram]:
        keys = list(dict.fromkeys((op_class.function, op_class.size) for op_class in self.classes))
        place = {key: number for number, key in enumerate(keys)}
        of_class = np.array(
            [place[op_class.function, op_class.size] for op_class in self.classes], np.int64
        )
        of_record = of_class[classes] if len(classes) else classes
        histograms = {}
        for number, key in enumerate(keys):  # a dozen
            rows = times[of_record == number]
            sums = event_sums(rows, excess)
            events = rows["event_histogram"][sums.count > 0].sum(axis=0, dtype=np.int64)
            running = np.cumsum(rows["gpu_histogram"].sum(axis=0, dtype=np.int64) + events)
            sum_ns = float(rows["gpu_sum_ns"].sum(dtype=np.float64)) + float(sums.sum_ns.sum())
            total = int(running[-1])
            if total:
                up_to = tuple(int(running[below - 1]) for below in _BUCKETS_BELOW)
                histograms[key] = Histogram(up_to, total, sum_ns / 1e9)
        return histograms


def _by_reason(times: Records, places: Iterable[int]) -> dict[str, int]:
    sums = times["untimed"].sum(axis=0) if len(times) else np.zeros(8)
    return {layout.UNTIMED[place]: int(sums[place]) for place in places}


def _timing_off(counts: Records, times: Records) -> dict[str, int]:
    """NCCL's works while sampling was switched off; nothing where it never was."""
    works = counts["level"] == layout.LEVEL_WORK
    count = int(times["timing_off"][works].sum())
    return {TIMING_OFF: count} if count else {}


def _calls(counts: Records) -> dict[int, int]:
    """Calls by record: the user's where NCCL reports them, else NCCL's work."""
    has_calls = (counts["level"] == layout.LEVEL_CALL).any()
    level = layout.LEVEL_CALL if has_calls else layout.LEVEL_WORK
    rows = counts[counts["level"] == level]
    return dict(zip(rows["check"].tolist(), rows["calls"].tolist(), strict=True))
