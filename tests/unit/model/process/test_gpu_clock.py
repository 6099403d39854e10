"""Bounds of a GPU's clock, which must hold for every clock that Linux allows."""

import numpy as np
import pytest

from ncclscope.arrays.types import Ints
from ncclscope.model.process.gpu_clock import (
    GpuClock,
    lower_bound,
    upper_bound,
    with_quick_notices,
)

SECOND = 1_000_000_000


@pytest.mark.parametrize("ppm", [0, 20, -90, 150, -150, 400])
@pytest.mark.parametrize("seconds", [0.9, 3.0])
def test_bounds_hold_however_fast_clocks_drift(ppm: int, seconds: float) -> None:
    """Bounds of clocks that drift by 150 ppm were wrong by more than kernels wait for, and their
    stamps were taken for those of other operations.
    """
    rng = np.random.default_rng(1)
    host_ns = np.sort(rng.integers(0, int(seconds * SECOND), 400))
    offset_ns = 7 * SECOND + np.rint(host_ns * ppm * 1e-6).astype(np.int64)
    noticed_ns = host_ns + 2_000 + rng.exponential(60_000, 400).astype(np.int64)
    lower = lower_bound(noticed_ns, host_ns + offset_ns)
    launch_ns = host_ns - 3_000 - rng.exponential(2_000_000, 400).astype(np.int64)
    minus_upper = upper_bound(launch_ns, host_ns + offset_ns, lower.drift)
    slack = 1_000  # the offset is that of the notice and the launch, not of the stamp
    assert (lower.at(host_ns) <= offset_ns + slack).all()
    assert (-minus_upper.at(host_ns) >= offset_ns - slack).all()


def test_usual_clocks_are_known_as_well_as_before() -> None:
    host_ns = np.arange(100) * 30_000_000
    lower = lower_bound(host_ns + 5_000, host_ns + np.rint(host_ns * 60e-6).astype(np.int64))
    assert lower.drift == pytest.approx(100e-6)


@pytest.mark.parametrize("busy", [slice(0, 30), slice(70, 100)], ids=["first", "last"])
def test_a_host_that_is_busy_for_a_part_of_the_time_is_no_drift(busy: slice) -> None:
    """It notices stops a millisecond late, which looks like 400 ppm of these 3 s."""
    host_ns = np.arange(100) * 30_000_000
    late_ns = np.full(100, 5_000)
    late_ns[busy] = 1_000_000
    assert lower_bound(host_ns + late_ns, host_ns).drift == pytest.approx(100e-6)


def clock_of_a_host_ahead(
    rng: np.random.Generator, stops: int, looks_every_ns: int
) -> tuple[GpuClock, Ints]:
    """A host that is 100 ms ahead of its GPU from the second launch on, and looks now and then;
    and the times of its stops. The true offset is 7 s.
    """
    host_ns = np.arange(stops) * 30_000_000
    notice_ns = 2_000 + rng.integers(0, looks_every_ns, stops)
    lower = lower_bound(host_ns + notice_ns, host_ns + 7 * SECOND)
    ahead_ns = np.where(host_ns < 5 * SECOND, 3_000, 100_000_000)
    minus_upper = upper_bound(host_ns - ahead_ns, host_ns + 7 * SECOND, lower.drift)
    typical_ns = int(np.median(notice_ns)) - int(notice_ns.min())
    closer = with_quick_notices(lower, minus_upper, typical_ns, stops)
    return GpuClock(lower, closer, typical_ns), host_ns


@pytest.mark.parametrize("looks_every_ns", [4_000, 400_000])
def test_quick_notices_bound_the_clock_of_a_host_that_is_far_ahead(looks_every_ns: int) -> None:
    """The middle of the bounds was 50 ms off, and a run of 5 s seemed that much shorter."""
    clock, host_ns = clock_of_a_host_ahead(np.random.default_rng(2), 600, looks_every_ns)
    lower, upper = clock.lower.at(host_ns), -clock.minus_upper.at(host_ns)
    slack = 1_000
    assert (lower <= 7 * SECOND + slack).all()
    assert (upper >= 7 * SECOND - slack).all()
    assert (upper - lower).max() <= 110_000 + 3 * looks_every_ns
    assert np.median((upper - lower)[host_ns < 3 * SECOND]) < 60_000, "launches tell more there"


def test_few_notices_may_all_have_been_late() -> None:
    clock, _ = clock_of_a_host_ahead(np.random.default_rng(2), 20, 4_000)
    unchanged = with_quick_notices(clock.lower, clock.minus_upper, 4_000, 20)
    assert unchanged is clock.minus_upper
