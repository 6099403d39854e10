"""Excess of many groups of edges at once, against one group at a time."""

from itertools import pairwise

import numpy as np
import pytest

from ncclscope.analysis.waiting.origin_groups import group_excess, sums_once
from ncclscope.arrays.types import Bools, Floats, Ints


def _typical(excess: Floats, weight: Floats) -> tuple[float, Bools]:
    """The typical excess of one group, and which edges have at least half of it."""
    weights = weight**0.75
    order = np.argsort(excess)
    middle = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2))
    typical = float(excess[order[min(middle, len(order) - 1)]])
    return typical, np.asarray(excess >= typical / 2)


def _sum_once(excess: Floats, length: Ints, end: Ints) -> float:
    order = np.argsort(end, kind="stable")
    excess, length, end = excess[order], length[order], end[order]
    before = np.concatenate([end[:1] - length[:1], end[:-1]])
    covered = np.clip(before - (end - length), 0, length)
    return float((excess * (1 - covered / np.maximum(length, 1))).sum())


@pytest.mark.parametrize("seed", range(4))
def test_groups_are_as_each_alone_to_the_last_bit(seed: int) -> None:
    """Sizes as of small and of large jobs, with values that occur often: medians lie on ties."""
    rng = np.random.default_rng(seed)
    sizes = np.concatenate([rng.integers(1, 9, 300), rng.integers(1, 700, 40), [1, 129, 8193]])
    first = np.concatenate([[0], np.cumsum(sizes)])
    excess = rng.integers(0, 12, first[-1]) * rng.choice([1.0, 0.1, 1e7 / 3], first[-1])
    weight = rng.integers(1, 5, first[-1]) * rng.choice([1.0, 1e6], first[-1])
    length, end = rng.integers(0, 90, first[-1]), rng.integers(0, 1000, first[-1])
    found = group_excess(first, excess, weight, end)
    sums = sums_once(first, excess, length, end)
    for group, (low, high) in enumerate(pairwise(first.tolist())):
        own = slice(low, high)
        typical, counted = _typical(excess[own], weight[own])
        assert found.typical_ns[group] == typical
        assert found.times[group] == counted.sum()
        assert found.first_ns[group] == end[own][counted].min()
        assert found.last_ns[group] == end[own][counted].max()
        assert (found.notable[own] == (excess[own] >= typical * 0.25)).all()
        assert sums[group] == _sum_once(excess[own], length[own], end[own])


def test_a_group_may_be_empty() -> None:
    """Edges that are notably longer than usual may be none."""
    none = np.empty(0, np.int64)
    assert sums_once(np.array([0, 0, 0]), np.empty(0), none, none).tolist() == [0.0, 0.0]
    one = sums_once(np.array([0, 0, 1]), np.array([5.0]), np.array([9]), np.array([20]))
    assert one.tolist() == [0.0, 5.0]
