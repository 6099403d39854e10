"""When kernels ended, and whom they waited for, where clocks agree badly."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from ncclscope.analysis.waiting.arrivals import END, arrivals_of
from ncclscope.analysis.waiting.kernels import Kernels


@dataclass(frozen=True, slots=True)
class MadeKernels:
    """What arrivals need of kernels."""

    events_ns: np.ndarray
    meeting: np.ndarray
    stream: np.ndarray
    partner: np.ndarray
    partner_first: np.ndarray
    partner_sends: np.ndarray

    def __len__(self) -> int:
        return len(self.events_ns)


def ends_of(events: list[list[int]], meeting: list[int], stream: list[int]) -> list[int]:
    nobody = np.zeros(0, np.int32)
    kernels = MadeKernels(
        np.array(events), np.array(meeting, np.int32), np.array(stream),
        nobody, np.zeros(len(events) + 1, np.int64), nobody.astype(bool),
    )  # fmt: skip
    return arrivals_of(cast(Kernels, kernels)).events_ns[:, END].tolist()


def test_a_kernel_ends_before_the_next_one_on_its_stream_starts() -> None:
    """By the clock of the last rank it waited for longer: starts behind it followed nothing then."""
    late = [0, 1_030, 1_100]
    meeting, stream = [0, -1, 0], [0, 0, 1]
    assert ends_of([[0, 0, 1_000], [0, 1_002, 2_000], late], meeting, stream)[0] == 1_002
    # Its stop stamp came early where nothing is against it.
    assert ends_of([[0, 0, 1_000], [0, 1_500, 2_000], late], meeting, stream)[0] == 1_030
    assert ends_of([[0, 0, 1_000], [0, 1_002, 2_000], late], meeting, [0, 2, 1])[0] == 1_030
