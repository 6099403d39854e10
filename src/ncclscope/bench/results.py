"""Results: the times of all calls on all ranks, and the numbers computed from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.bench.datatypes import DATATYPES
from ncclscope.bench.plan import Case
from ncclscope.nccl.bandwidth import bandwidth_gbs, bus_bytes
from ncclscope.nccl.operation_bytes import operation_bytes

Times = npt.NDArray[np.int64]
_HOST_BOUND = 0.9  # the share of a loop's time until its last call returned


@dataclass(frozen=True, slots=True)
class Loop:
    """Times of one batch of calls on one rank."""

    run: int
    calls: int
    gpu_ns: int
    call_ns: int
    host_ns: int
    cpu_ns: int = 0  # of all threads of the process


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Times of one rank's calls of a case, in order."""

    rank: int
    gpu_ns: Times
    call_ns: Times
    host_ns: Times  # -1: the call's end was not awaited
    loops: tuple[Loop, ...]
    wrong: int | None


@dataclass(frozen=True, slots=True)
class TimeStatistics:
    """Statistics of a distribution of times; percentiles are values that occurred."""

    count: int
    mean_ns: float
    median_ns: float
    p95_ns: float
    p99_ns: float
    min_ns: float
    max_ns: float
    deviation_ns: float

    def as_json(self) -> dict[str, float | int]:
        """The statistics in whole nanoseconds."""
        return {
            "count": self.count,
            **{name: round(getattr(self, name)) for name in self.__slots__ if name != "count"},
        }


def time_statistics(times: npt.NDArray[Any]) -> TimeStatistics:
    """Statistics of at least one time."""
    # It brings the whole model along, which `bench` needs for nothing else.
    from ncclscope.analysis.measures import percentiles

    median, p95, p99 = percentiles(times, (50, 95, 99))
    return TimeStatistics(
        len(times),
        float(times.mean()),
        median,
        p95,
        p99,
        float(times.min()),
        float(times.max()),
        float(times.std()),
    )


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one case on all its ranks."""

    case: Case
    size_bytes: int  # as nccl-tests count them
    count: int
    grouped: int
    ranks: tuple[RankTimes, ...]

    @property
    def slowest_ns(self) -> npt.NDArray[np.float64]:
        """Each call's time on its slowest rank; calls of a group share the group's time."""
        stacked = np.stack([times.gpu_ns for times in self.ranks])
        return np.asarray(stacked.max(axis=0) / self.grouped, np.float64)

    @property
    def time_ns(self) -> float:
        """nccl-tests' time: time of whole loops / number of calls, the mean of ranks.

        If each call was awaited, loops contain barriers: then it is the mean of the calls.
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
        """Calls on each rank, without warm-up and checks."""
        return len(self.ranks[0].gpu_ns)

    @property
    def wrong(self) -> int | None:
        """Wrong elements on all ranks; None if results were not checked."""
        checked = [times.wrong for times in self.ranks if times.wrong is not None]
        return sum(checked) if checked else None

    @property
    def algbw_gbs(self) -> float | None:
        """Algorithm bandwidth."""
        return bandwidth_gbs(self.size_bytes, self.time_ns)

    @property
    def busbw_gbs(self) -> float | None:
        """Bus bandwidth; None where nccl-tests define none."""
        moved = bus_bytes(self.case.spec.function, self.case.ranks, self.size_bytes)
        return None if moved is None else bandwidth_gbs(moved, self.time_ns)

    @property
    def gap_share(self) -> float:
        """The share of the loops' time between one call's events and those of the next."""
        whole = sum(loop.gpu_ns for times in self.ranks for loop in times.loops)
        own = sum(int(times.gpu_ns.sum()) for times in self.ranks)
        return 1 - own / whole if whole > 0 else 0.0

    @property
    def host_bound(self) -> bool:
        """Whether the GPUs waited for calls: the host made calls nearly all the time."""
        if self.blocking:
            return False
        loops = [loop for times in self.ranks for loop in times.loops]
        calling = sum(loop.call_ns for loop in loops)
        whole = sum(loop.host_ns for loop in loops)
        return whole > 0 and calling / whole > _HOST_BOUND and self.calls > 1

    @property
    def runs(self) -> list[npt.NDArray[np.float64]]:
        """Times of calls on their slowest ranks, run by run."""
        runs: dict[int, list[npt.NDArray[np.float64]]] = {}
        done, slowest = 0, self.slowest_ns
        for loop in self.ranks[0].loops:
            runs.setdefault(loop.run, []).append(slowest[done : done + loop.calls])
            done += loop.calls
        return [np.concatenate(parts) for parts in runs.values()]


def result_of(
    case: Case, grouped: int, fields: Sequence[dict[str, Any]], data: Sequence[bytes]
) -> Result:
    """The result of a case from the messages of all ranks; ranks beyond the case's sat out."""
    times = []
    for rank in range(case.ranks):
        gpu_ns, call_ns, host_ns = np.frombuffer(data[rank], np.int64).reshape(3, -1)
        loops = tuple(Loop(*map(int, row)) for row in fields[rank]["batches"])
        times.append(RankTimes(rank, gpu_ns, call_ns, host_ns, loops, fields[rank]["wrong"]))
    count, datatype = case.shape.count, DATATYPES[case.datatype]
    size = operation_bytes(case.spec.function, datatype.name, count, case.ranks, in_coll=False)
    return Result(case, size or 0, count, grouped, tuple(times))


@dataclass(frozen=True, slots=True)
class BenchDevice:
    """The GPU and process of one rank."""

    rank: int
    host: str
    pid: int
    device: int
    name: str
    bus_id: str
    reference: str  # reference work: kernel, or memset if the driver cannot load one
    beyond_ns: int  # what events around it show beyond its own time
    launch_ns: int  # host: until its launch returned
    posed_host: str = ""  # the host that NCCL is told instead (NCCL_HOSTID); "": its own


@dataclass(frozen=True, slots=True)
class Session:
    """The ranks, GPUs and versions of a benchmark."""

    devices: tuple[BenchDevice, ...]
    nccl: int
    cuda: int
    simulation: str  # description of a simulated NCCL; empty: a real one
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.devices)
