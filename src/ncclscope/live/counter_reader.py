"""One process's tally file as sums by what metrics are told apart by.

A record keeps its place in the file and its key for ever, so what a record counts is worked out
once; each reading after that is a few sums over arrays.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import layout
from ncclscope.capture.call_counts import bucket_bounds_ns, read_call_counts
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.live.metrics import DURATION_BOUNDS_NS, size_class
from ncclscope.live.series import Histogram
from ncclscope.nccl.algorithms import ALGORITHMS, WITH_EXACT_STOP
from ncclscope.nccl.bandwidth import bus_factor
from ncclscope.nccl.functions import ALL_WAIT
from ncclscope.nccl.operation_bytes import bits_per_count

Floats = npt.NDArray[np.float64]
INTRA, INTER, UNKNOWN = "intra", "inter", "unknown"
# Bounds are edges of the recorder's buckets: how many of those lie below each.
_BUCKETS_BELOW = np.searchsorted(bucket_bounds_ns(), DURATION_BOUNDS_NS)
# Reasons of `untimed` for stamps that cannot be the operation's.
_REJECTED = tuple(layout.UNTIMED.index(name) for name in ("stale stamp", "suspect stamp"))


@dataclass(frozen=True, slots=True)
class Work:
    """What a record counts."""

    level: int
    communicator: int  # number in the process
    function: str
    scope: str
    size: str  # class
    bytes_per_count: float  # 0 where the datatype is not known
    bus_factor: float
    sound: bool = True  # the GPU's stop stamp comes last; else times are lower bounds

    @property
    def all_wait(self) -> bool:
        """Whether all ranks wait for the last: only then what a rank is in it longer than another,
        it waited longer. Roots, senders and receivers take their own time.
        """
        return self.sound and self.function in ALL_WAIT


@dataclass(frozen=True, slots=True)
class CounterSums:
    """Everything counted so far for one kind of work."""

    calls: float = 0.0
    bytes: float = 0.0
    timed: float = 0.0
    gpu_ns: float = 0.0  # this and bytes: of sound times, which bandwidth can be told from
    timed_bytes: float = 0.0
    timed_bus_bytes: float = 0.0
    early_ns: float = 0.0  # of the others: lower bounds

    def plus(self, other: "CounterSums", sign: int = 1) -> "CounterSums":
        """Both together, or the difference."""
        return CounterSums(
            self.calls + sign * other.calls,
            self.bytes + sign * other.bytes,
            self.timed + sign * other.timed,
            self.gpu_ns + sign * other.gpu_ns,
            self.timed_bytes + sign * other.timed_bytes,
            self.timed_bus_bytes + sign * other.timed_bus_bytes,
            self.early_ns + sign * other.early_ns,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """A process's tally at one moment."""

    works: dict[Work, CounterSums]
    histograms: dict[tuple[str, str], Histogram]  # by function and size class
    untimed: dict[str, int]  # by reason
    rejected: dict[str, int]
    called: dict[int, int]  # calls by record, of the level that users call
    records: npt.NDArray[np.void] | None = None  # the tally itself


@dataclass(slots=True)
class CounterReader:
    """Reads one process's tally again and again."""

    path: Path
    works: list[Work] = field(default_factory=list)  # of all kinds
    kind_of: dict[int, int] = field(default_factory=dict)  # place in `works` by record number

    def read(self, communicators: dict[int, Communicator], strings: dict[int, str]) -> Reading:
        """Sums of everything that the process has counted."""
        records = read_call_counts(self.path)
        tally, times = records["tally"], records["times"]
        kinds = self._kinds(tally, communicators, ProcessStrings(strings))
        return Reading(
            self._sums(kinds, tally, times),
            self._histograms(kinds, times),
            _by_reason(times, range(len(layout.UNTIMED))),
            _by_reason(times, _REJECTED),
            _called(tally),
            records,
        )

    def _kinds(
        self,
        tally: npt.NDArray[np.void],
        communicators: dict[int, Communicator],
        texts: ProcessStrings,
    ) -> npt.NDArray[np.int64]:
        found = {work: place for place, work in enumerate(self.works)}
        kinds = []
        for number, row in zip(tally["check"].tolist(), tally, strict=True):
            kind = self.kind_of.get(number)
            if kind is None:
                work = _work(row, communicators, texts)
                kind = found.setdefault(work, len(self.works))
                if kind == len(self.works):
                    self.works.append(work)
                # Names and communicators may reach the disk after the counts.
                if work.function != UNKNOWN and work.scope != UNKNOWN:
                    self.kind_of[number] = kind
            kinds.append(kind)
        return np.array(kinds, np.int64)

    def _sums(
        self, kinds: npt.NDArray[np.int64], tally: npt.NDArray[np.void], times: npt.NDArray[np.void]
    ) -> dict[Work, CounterSums]:
        element = np.array([work.bytes_per_count for work in self.works])
        factor = np.array([work.bus_factor for work in self.works])
        calls = tally["calls"].astype(float)
        size = tally["count_sum"].astype(float) * element[kinds] if len(kinds) else calls
        timed, gpu_ns = times["gpu_count"].astype(float), times["gpu_sum_ns"].astype(float)
        sound = np.array([work.sound for work in self.works], float)
        sound = sound[kinds] if len(kinds) else calls
        share = np.divide(timed, calls, out=np.zeros_like(calls), where=calls > 0)
        timed_bytes = size * share * sound
        columns = [
            calls,
            size,
            timed,
            gpu_ns * sound,
            timed_bytes,
            timed_bytes * factor[kinds] if len(kinds) else calls,
            gpu_ns * (1 - sound),
        ]
        added = [np.bincount(kinds, column, len(self.works)) for column in columns]
        rows = np.stack(added, axis=1).tolist()
        return {work: CounterSums(*row) for work, row in zip(self.works, rows, strict=True)}

    def _histograms(
        self, kinds: npt.NDArray[np.int64], times: npt.NDArray[np.void]
    ) -> dict[tuple[str, str], Histogram]:
        classes = list(dict.fromkeys((work.function, work.size) for work in self.works))
        place = {key: number for number, key in enumerate(classes)}
        of_work = np.array([place[work.function, work.size] for work in self.works], np.int64)
        added = np.zeros((len(classes), layout.TIME_BUCKETS), np.int64)
        sums_ns = np.zeros(len(classes))
        of_record = of_work[kinds] if len(kinds) else kinds
        for number in range(len(classes)):  # a dozen
            mine = times[of_record == number]
            added[number] = mine["gpu_histogram"].sum(axis=0, dtype=np.int64)
            sums_ns[number] = mine["gpu_sum_ns"].sum(dtype=np.float64)
        running = np.cumsum(added, axis=1)
        found = {}
        for number, key in enumerate(classes):
            up_to = tuple(int(running[number, below - 1]) for below in _BUCKETS_BELOW)
            total = int(running[number, -1])
            if total:
                found[key] = Histogram(up_to, total, float(sums_ns[number]) / 1e9)
        return found


def _by_reason(times: npt.NDArray[np.void], places: Iterable[int]) -> dict[str, int]:
    sums = times["untimed"].sum(axis=0) if len(times) else np.zeros(8)
    return {layout.UNTIMED[place]: int(sums[place]) for place in places}


def _called(tally: npt.NDArray[np.void]) -> dict[int, int]:
    level = layout.LEVEL_CALL if (tally["level"] == layout.LEVEL_CALL).any() else layout.LEVEL_WORK
    mine = tally[tally["level"] == level]
    return dict(zip(mine["check"].tolist(), mine["calls"].tolist(), strict=True))


def _work(row: np.void, communicators: dict[int, Communicator], texts: ProcessStrings) -> Work:
    """What one record counts, by its key."""
    level, v1 = int(row["level"]), bool(row["bits"] & layout.TALLY_NUMBERS)
    function, datatype = texts.function(int(row["func"]), v1), texts.datatype(int(row["dtype"]), v1)
    communicator = communicators.get(int(row["comm"]))
    ranks = communicator.ranks if communicator else 0
    bits = bits_per_count(function, datatype, ranks, in_coll=level == layout.LEVEL_WORK)
    return Work(
        level,
        int(row["comm"]),
        function or UNKNOWN,
        _scope(communicator),
        UNKNOWN if bits is None else size_class(-(-int(row["count"]) * bits // 8)),
        (bits or 0) / 8,
        bus_factor(function, ranks) or 0.0,
        _algorithm(int(row["algo"]), v1, texts) in WITH_EXACT_STOP,
    )


def _algorithm(number: int, v1: bool, texts: ProcessStrings) -> str:
    if not v1:
        return texts.plain(number)
    return ALGORITHMS[number] if number < len(ALGORITHMS) else ""


def _scope(communicator: Communicator | None) -> str:
    if communicator is None or communicator.nodes < 1:
        return UNKNOWN
    return INTRA if communicator.nodes == 1 else INTER
