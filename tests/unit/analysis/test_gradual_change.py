"""Networks that become slower and slower."""

import numpy as np
import pytest

from ncclscope.analysis.gradual_change import Rise, rise_of

COUNT = 200
MS = 1_000_000


def rise(times: np.ndarray, later: int, noise: float = 0.03) -> Rise | None:
    """Of collectives that take so many times as long; `later`: where a change was found."""
    wire = np.random.default_rng(1).lognormal(0.0, noise, COUNT) * MS * times
    end = np.arange(COUNT) * 10 * MS
    return rise_of(np.log(wire / np.median(wire)), wire, end, later)


@pytest.mark.parametrize("most", [2.0, 4.0])
def test_a_steady_rise_is_compared_with_its_beginning(most: float) -> None:
    """Before and after the middle it is 1.75 and 3.25 times, and a third of it was said."""
    times = np.linspace(1.0, most, COUNT)
    found = rise(times, COUNT // 2)
    assert found is not None
    assert found.from_the_first
    assert found.factor == pytest.approx(most, rel=0.12)
    assert found.lost_ns == pytest.approx(MS * (times - 1).sum(), rel=0.1)
    factors = [stretch.factor for stretch in found.stretches]
    assert factors == sorted(factors)


def test_a_rise_in_the_second_half_has_a_past() -> None:
    times = np.maximum(np.linspace(-2.0, 4.0, COUNT), 1.0)
    found = rise(times, 130)
    assert found is not None
    assert not found.from_the_first
    assert found.stretches[0].began_ns == pytest.approx(1000 * MS, abs=250 * MS)
    assert found.lost_ns == pytest.approx(MS * (times - 1).sum(), rel=0.1)


@pytest.mark.parametrize("noise", [0.03, 0.3])
@pytest.mark.parametrize("at", [40, 100, 160])
def test_a_change_at_once_is_no_rise(at: int, noise: float) -> None:
    assert rise(np.where(np.arange(COUNT) < at, 1.0, 2.0), at, noise) is None


def test_few_instances_show_no_rise() -> None:
    wire = np.linspace(1.0, 2.0, 20) * MS
    assert rise_of(np.log(wire), wire, np.arange(20) * 10 * MS, 10) is None
