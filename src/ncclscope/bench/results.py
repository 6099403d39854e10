"""What was measured: the times of all calls on all ranks, and what they come to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.bench.datatypes import DATATYPES
from ncclscope.bench.operations import moved_bytes, shape_of
from ncclscope.bench.plan import Case
from ncclscope.nccl.bandwidth import bandwidth_gbs, bus_bytes

Times = npt.NDArray[np.int64]
_HOST_BOUND = 0.9  # of a loop's time went by until its last call had returned


@dataclass(frozen=True, slots=True)
class Loop:
    """One batch of calls on one rank, as a whole."""

    run: int
    calls: int
    gpu_ns: int
    call_ns: int
    host_ns: int


@dataclass(frozen=True, slots=True)
class RankTimes:
    """One rank's calls of a case, in order."""

    rank: int
    gpu_ns: Times
    call_ns: Times
    host_ns: Times  # -1: its end was not awaited
    loops: tuple[Loop, ...]
    wrong: int | None


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in a few numbers; percentiles are values that occurred."""

    count: int
    mean_ns: float
    median_ns: float
    p95_ns: float
    p99_ns: float
    min_ns: float
    max_ns: float
    deviation_ns: float

    def as_json(self) -> dict[str, float | int]:
        """Whole nanoseconds."""
        return {
            "count": self.count,
            **{name: round(getattr(self, name)) for name in self.__slots__ if name != "count"},
        }


def spread_of(times: npt.NDArray[Any]) -> Spread:
    """The numbers of a distribution that is not empty."""
    median, p95, p99 = np.percentile(times, [50, 95, 99], method="inverted_cdf")
    return Spread(
        len(times),
        float(times.mean()),
        float(median),
        float(p95),
        float(p99),
        float(times.min()),
        float(times.max()),
        float(times.std()),
    )


@dataclass(frozen=True, slots=True)
class Result:
    """One case on all its ranks."""

    case: Case
    size_bytes: int  # as nccl-tests count them: what algbw divides by time
    count: int
    grouped: int
    ranks: tuple[RankTimes, ...]

    @property
    def slowest_ns(self) -> npt.NDArray[np.float64]:
        """A call takes as long as on its slowest rank; calls of a group share its time."""
        stacked = np.stack([times.gpu_ns for times in self.ranks])
        return np.asarray(stacked.max(axis=0) / self.grouped, np.float64)

    @property
    def time_ns(self) -> float:
        """nccl-tests' time: of whole loops, by the number of calls, mean of ranks.

        Where each call was awaited, barriers lie in between: there it is the calls' own mean.
        """
        if self.blocking:
            return float(np.mean([times.gpu_ns.mean() for times in self.ranks])) / self.grouped
        means = [
            sum(loop.gpu_ns for loop in times.loops) / sum(loop.calls for loop in times.loops)
            for times in self.ranks
        ]
        return float(np.mean(means)) / self.grouped

    @property
    def blocking(self) -> bool:
        """Whether each call's end was awaited."""
        return bool((self.ranks[0].host_ns >= 0).all())

    @property
    def calls(self) -> int:
        """On each rank, warm-up and checks apart."""
        return len(self.ranks[0].gpu_ns)

    @property
    def wrong(self) -> int | None:
        """Elements that were not what they must be, on all ranks; None: nobody looked."""
        said = [times.wrong for times in self.ranks if times.wrong is not None]
        return sum(said) if said else None

    @property
    def algbw_gbs(self) -> float | None:
        """Bytes by time."""
        return bandwidth_gbs(self.size_bytes, self.time_ns)

    @property
    def busbw_gbs(self) -> float | None:
        """Comparable between operations and numbers of ranks."""
        moved = bus_bytes(self.case.what.function, self.case.ranks, self.size_bytes)
        return None if moved is None else bandwidth_gbs(moved, self.time_ns)

    @property
    def gap_share(self) -> float:
        """How much of the loops' time lies between one call's events and the next one's."""
        whole = sum(loop.gpu_ns for times in self.ranks for loop in times.loops)
        own = sum(int(times.gpu_ns.sum()) for times in self.ranks)
        return 1 - own / whole if whole > 0 else 0.0

    @property
    def host_bound(self) -> bool:
        """Whether the GPUs waited for calls: the host was busy making them nearly all the time."""
        if self.blocking:
            return False
        loops = [loop for times in self.ranks for loop in times.loops]
        calling = sum(loop.call_ns for loop in loops)
        whole = sum(loop.host_ns for loop in loops)
        return whole > 0 and calling / whole > _HOST_BOUND and self.calls > 1

    @property
    def runs(self) -> list[npt.NDArray[np.float64]]:
        """The calls of each run."""
        found: dict[int, list[npt.NDArray[np.float64]]] = {}
        done, slowest = 0, self.slowest_ns
        for loop in self.ranks[0].loops:
            found.setdefault(loop.run, []).append(slowest[done : done + loop.calls])
            done += loop.calls
        return [np.concatenate(parts) for parts in found.values()]


def result_of(
    case: Case, grouped: int, said: Sequence[dict[str, Any]], data: Sequence[bytes]
) -> Result:
    """What all ranks of a case handed in; those beyond its number sat out."""
    datatype = DATATYPES[case.datatype]
    shape = shape_of(case.what, case.size_bytes, datatype.size_bytes, case.ranks)
    assert shape is not None
    times = []
    for rank in range(case.ranks):
        gpu_ns, call_ns, host_ns = np.frombuffer(data[rank], np.int64).reshape(3, -1)
        loops = tuple(Loop(*map(int, row)) for row in said[rank]["batches"])
        times.append(RankTimes(rank, gpu_ns, call_ns, host_ns, loops, said[rank]["wrong"]))
    moved = moved_bytes(case.what, shape, datatype.size_bytes, case.ranks)
    return Result(case, moved, shape.count, grouped, tuple(times))


@dataclass(frozen=True, slots=True)
class Device:
    """Where a rank ran."""

    rank: int
    host: str
    pid: int
    device: int
    name: str
    bus_id: str
    reference: str  # kernel; memset where the driver gives none
    beyond_ns: int  # what events show around it beyond its own time
    launch_ns: int  # host: until its launch returned


@dataclass(frozen=True, slots=True)
class Session:
    """Who took part."""

    devices: tuple[Device, ...]
    nccl: int
    cuda: int
    simulation: str  # what a simulated NCCL says of itself; empty: a real one
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """How many."""
        return len(self.devices)
