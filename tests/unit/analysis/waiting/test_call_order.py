"""Rows of operations by rank and call."""

import numpy as np
import pytest

from ncclscope.analysis.waiting.kernels import call_order
from ncclscope.arrays.types import Ints


def _calls(ranks: list[int], calls_of_each: int, seed: int) -> tuple[Ints, Ints]:
    """Ranks one after the other, each with its calls in order; some calls are at the same time."""
    chance = np.random.default_rng(seed)
    calls = np.sort(chance.integers(0, 40, (len(ranks), calls_of_each)), axis=1)
    return np.repeat(ranks, calls_of_each), calls.reshape(-1)


def _shuffled(rank: Ints, call: Ints) -> tuple[Ints, Ints]:
    rows = np.random.default_rng(5).permutation(len(rank))
    return rank[rows], call[rows]


@pytest.mark.parametrize(
    ("rank", "call"),
    [
        _calls([3, 0, 7, 1], 30, 1),
        _calls([5], 9, 2),
        _calls([2, 0, 2, 1], 30, 3),  # the rows of rank 2 lie apart
        _shuffled(*_calls([3, 0, 7, 1], 30, 4)),
        (np.empty(0, np.int64), np.empty(0, np.int64)),
    ],
    ids=["by process", "one rank", "a rank in two parts", "not in order", "nothing"],
)
def test_the_order_is_that_of_a_stable_sort(rank: Ints, call: Ints) -> None:
    first_call = call - call % 2
    order = call_order(rank, first_call, call)
    assert order.tolist() == np.lexsort((call, first_call, rank)).tolist()
