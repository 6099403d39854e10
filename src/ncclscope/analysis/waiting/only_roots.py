"""What the only root of a communicator does in its role, and how much of the run that is."""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.arrivals import END
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.standing_out import LEAST_ON_PATH


@dataclass(frozen=True, slots=True)
class OnlyRoot:
    """A root that all others wait for, between what it receives from all and what it sends."""

    rank: int  # global
    communicator: int  # row
    functions: tuple[int, int]  # codes: what it receives in, and sends in
    times: int  # on the critical path
    typical_ns: int
    on_path_ns: int


def only_root(waiting: Waiting) -> OnlyRoot | None:
    """The only root whose role takes most of the critical path; None where that is little."""
    kernels, path = waiting.kernels, waiting.path
    chosen = kernels.serves[path.events // 3] & (path.events % 3 != END)
    kernel = path.events[chosen] // 3
    if not len(kernel):
        return None
    # A role may be a call and a start: both count.
    on_path = np.bincount(kernel, path.length_ns[chosen], minlength=len(kernels))
    by_communicator = np.bincount(kernels.communicator[kernel], path.length_ns[chosen])
    row = int(np.argmax(by_communicator))
    if by_communicator[row] < LEAST_ON_PATH * waiting.judged_ns:
        return None
    own = np.unique(kernel[kernels.communicator[kernel] == row])
    return OnlyRoot(
        rank=int(kernels.ranks[kernels.rank[own[0]]]),
        communicator=row,
        functions=(int(kernels.function[own[0] - 1]), int(kernels.function[own[0]])),
        times=len(own),
        typical_ns=int(np.median(on_path[own])),
        on_path_ns=int(by_communicator[row]),
    )
