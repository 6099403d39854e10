"""How a simulated job is recorded: clocks, and what the record lacks."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tests.support.laboratory.engine import Job
from tests.support.writer.truth import Clocks

Ints = npt.NDArray[np.int64]

_GPU_STEP_NS = 32


@dataclass(frozen=True, slots=True)
class Recording:
    """How a job is recorded: clocks, and what the record lacks."""

    channels: int = 2
    version: int = 5  # of the profiler interface: 5, 6 or 7
    ranks_per_process: int = 1
    timed_every: int = 1  # above 1: CUDA events around every n-th collective, no kernel events
    clock_offset_ms: float = 1e6  # of hosts' clocks, at most
    clock_drift_ppm: float = 20.0  # likewise
    gpu_drift_ppm: float = 1.5
    realtime_error_ms: float = 1.0
    dropped: tuple[tuple[int, int, int], ...] = ()  # rank, first and last step that were lost
    missing: tuple[int, ...] = ()  # ranks whose files are not there
    trees: tuple[str, ...] = ()  # communicators that use the algorithm TREE
    names: bool = True  # communicators have names


@dataclass(frozen=True, slots=True)
class RecordedProcess:
    """One process: its ranks, and which of its operations are on record."""

    job: Job
    recording: Recording
    ranks: tuple[int, ...]
    attempt: int
    begin_ns: int  # true time of the job's zero
    killed: bool
    clocks: Clocks
    gpus: Clocks
    realtime_error_ns: Ints
    comm_ids: dict[str, int] = field(default_factory=dict)

    @property
    def node(self) -> int:
        return self.job.host_of(self.ranks[0])

    def host_ns(self, ns: npt.ArrayLike) -> Ints:
        true_ns = np.rint(np.asarray(ns)).astype(np.int64) + self.begin_ns
        return self.clocks.at(self.node, true_ns)

    def gpu_ns(self, rank: int, ns: npt.ArrayLike) -> Ints:
        true_ns = np.rint(np.asarray(ns)).astype(np.int64) + self.begin_ns
        return self.gpus.at(rank, true_ns) // _GPU_STEP_NS * _GPU_STEP_NS
