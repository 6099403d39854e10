"""Whether a rank is late because of what it receives."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.unequal_data import slower_with_as_much

CALLS = 4
MS = 1e6


def slower(times: list[float], excess_ms: list[float], late: set[int]) -> set[int]:
    """Of late ranks those that are slow themselves. By rank: how many times as much as usual it
    receives in each exchange, and how much longer than usual it takes in all.
    """
    ranks = len(times)
    rank = np.repeat(np.arange(ranks), CALLS)
    kernels = SimpleNamespace(
        ranks=np.arange(ranks) + 8, rank=rank, pair=np.ones(len(rank), bool)
    )  # fmt: skip
    waiting = SimpleNamespace(
        kernels=kernels, start_up=np.zeros(len(rank), bool),
        own_excess_ns=np.repeat(np.array(excess_ms) * MS / CALLS, CALLS),
    )  # fmt: skip
    return slower_with_as_much(cast(Waiting, waiting), np.repeat(times, CALLS), late)


@pytest.mark.parametrize(
    ("times", "excess_ms", "late", "found"),
    [
        ([1, 1, 1.6, 1], [1, 0, 30, 1], {10}, set()),  # no other receives as much
        ([1, 1.6, 1.6, 1.6], [1, 2, 30, 1], {10}, {10}),  # two others do, and are in time
        ([1, 1.6, 1.6, 1], [1, 28, 30, 1], {10}, set()),  # one does, and takes as long
        ([1, 1.6, 1.6, 1], [1, 28, 30, 1], {9, 10}, set()),
    ],
)
def test_a_rank_is_slow_where_others_with_as_much_data_are_not(
    times: list[float], excess_ms: list[float], late: set[int], found: set[int]
) -> None:
    assert slower(times, excess_ms, late) == found
