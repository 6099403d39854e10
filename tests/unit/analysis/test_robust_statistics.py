"""Statistics by medians and ranks, on values made by chance."""

import numpy as np
import pytest

from ncclscope.analysis.robust_statistics import (
    certainly_larger,
    change_point,
    median_lower_bound,
    refine_change_point,
    robust_spread,
)


def test_change_points_are_found_where_they_are() -> None:
    rng = np.random.default_rng(5)
    series = np.concatenate([rng.normal(0, 1, 300), rng.normal(2, 1, 200)])
    at, chance = change_point(series)
    assert abs(at - 300) < 15
    assert chance < 1e-9
    steady = [change_point(rng.standard_t(2, 500))[1] for _ in range(200)]
    assert np.mean(np.array(steady) < 0.01) <= 0.03


def test_a_refined_change_point_is_not_drawn_to_the_middle() -> None:
    rng = np.random.default_rng(1)
    by_ranks, refined = [], []
    for _ in range(50):
        series = np.concatenate([rng.normal(0, 1, 30), rng.normal(2, 1, 170)])
        at, _ = change_point(series)
        by_ranks.append(at)
        refined.append(refine_change_point(series, at))
    assert np.mean(refined) == pytest.approx(30, abs=1)
    assert np.mean(by_ranks) > np.mean(refined)


def test_outliers_do_not_move_the_spread() -> None:
    values = np.random.default_rng(2).normal(0, 3, 10_000)
    values[::20] = 1e6
    assert robust_spread(values) == pytest.approx(3, rel=0.1)
    assert robust_spread(np.empty(0)) == 0


def test_the_median_is_hardly_ever_below_its_lower_bound() -> None:
    rng = np.random.default_rng(3)
    for count in (10, 40, 400):
        samples = np.sort(rng.exponential(1, (2000, count)), axis=1)
        bound = samples[:, int(median_lower_bound(np.array(count)))]
        assert np.mean(bound > np.log(2)) < 0.005


def test_larger_values_are_told_from_chance() -> None:
    rng = np.random.default_rng(4)
    assert certainly_larger(rng.normal(1, 1, 60), rng.normal(0, 1, 60))
    equal = [certainly_larger(rng.normal(0, 1, 30), rng.normal(0, 1, 30)) for _ in range(1000)]
    assert np.mean(equal) < 0.01
