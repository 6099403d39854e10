"""Stamps that are not an operation's own, planted into simulated captures: never a wrong time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ncclscope.capture import dtypes, layout
from ncclscope.capture.header import parse_header
from ncclscope.model.build import open_model
from ncclscope.model.schema import GPU_SOURCES, SOURCES
from tests.support.writer import SyntheticSpec, synthetic

RING = 64  # works of a channel that NCCL remembers
OPERATIONS = 400
KERNEL = layout.KINDS["KernelCh"]
GPU_CODES = [SOURCES.index(name) for name in GPU_SOURCES]
Slots = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]


def plant(capture: Path, change: Callable[[Slots], None]) -> None:
    """Changes the kernel events of a process, which are in the order of its operations."""
    log = next(capture.glob("*/log.000000"))
    data = bytearray(log.read_bytes())
    slots = np.frombuffer(data, dtypes.ANY_SLOT, offset=parse_header(bytes(data), log).header_bytes)
    at = np.flatnonzero(slots["kind"] == KERNEL)
    kernels = slots[at].view(dtypes.OURS.dtypes["KernelCh"])
    assert len(kernels) == OPERATIONS
    change(kernels)
    slots[at] = kernels.view(dtypes.ANY_SLOT)
    log.write_bytes(data)


def overrun(kernels: Slots, some: Ints) -> None:
    """A slow host reads what a newer work has written into the ring by then."""
    for name in ("t0", "t_stop", "t1", "gpu_start", "gpu_stop"):
        kernels[name][some] = kernels[name][some + RING]


def overrun_between(kernels: Slots, some: Ints) -> None:
    """The same, after it had read the start."""
    for name in ("t_stop", "t1", "gpu_stop"):
        kernels[name][some] = kernels[name][some + RING]


def stop_of_the_work_before(kernels: Slots, some: Ints) -> None:
    kernels["gpu_stop"][some] = kernels["gpu_stop"][some - 1]


def stamps_of_an_earlier_work(kernels: Slots, some: Ints) -> None:
    kernels["gpu_start"][some] = kernels["gpu_start"][some - 3]
    kernels["gpu_stop"][some] = kernels["gpu_stop"][some - 3]


@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        (overrun, 2),  # the newer work's stamps cannot be told from a copy
        (overrun_between, 2),  # and the next one, which it overlaps
        (stop_of_the_work_before, 1),
        (stamps_of_an_earlier_work, OPERATIONS),  # it never catches up again: then who has which?
    ],
)
@pytest.mark.parametrize("some", [(70,), (100, 101, 180), (30, 150, 230, 231, 232)])
def test_no_time_is_wrong(
    fault: Callable[[Slots, Ints], None], lost: int, some: tuple[int, ...], tmp_path: Path
) -> None:
    spec = SyntheticSpec(processes=1, operations=OPERATIONS, channels=1, ranks_per_node=1)
    truth = synthetic(tmp_path / "c", spec)
    plant(tmp_path / "c", lambda kernels: fault(kernels, np.array(some)))
    model = open_model(tmp_path / "c")
    operations = model.tables["operations"]
    order = np.argsort(operations["call_order"])
    timed = np.isin(operations["source"][order], GPU_CODES)
    duration = truth.end_ns[0] - truth.start_ns[0]
    assert np.abs(operations["duration_ns"][order] - duration)[timed].max() < 100
    start = truth.host_ns(0, truth.start_ns[0])
    assert np.abs(operations["start_ns"][order] - start)[timed].max() < 20_000
    assert timed.sum() >= OPERATIONS - lost * len(some)
    complete = model.completeness
    assert complete.gpu_timed == timed.sum()
    assert sum(complete.untimed.values()) == OPERATIONS - timed.sum()
    assert complete.operations == OPERATIONS
