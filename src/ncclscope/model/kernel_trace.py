"""What a CUDA profiler saw of one process: all kernels and copies of a short time."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Bools, Ints

COMPUTE, NCCL, COPY = 0, 1, 2  # kinds; a copy keeps the GPU busy, but computes nothing


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """Kernels by their start. Times are ns by the wall clock of the process's host."""

    name: str  # of the file
    host: str  # "" where the file does not say
    pid: int  # NONE likewise
    global_rank: int  # NONE likewise
    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints  # the host launched it; NONE where it is not known
    kind: npt.NDArray[np.int8]
    function: tuple[str, ...]  # of NCCL's kernels; "" for others and where the name does not say
    folder: str = ""  # of the process, where the trace is part of a capture
    step_ends_ns: tuple[int, ...] = ()  # that the job noted: its begin, then ends of training steps

    def __len__(self) -> int:
        return len(self.start_ns)

    def of_kind(self, kind: int) -> Bools:
        """Which kernels are of a kind."""
        of_kind: Bools = self.kind == kind
        return of_kind
