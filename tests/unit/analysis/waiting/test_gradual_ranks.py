"""Ranks that differ gradually, and ranks that are apart."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from ncclscope.analysis.waiting.gradual_ranks import ranks_apart
from ncclscope.analysis.waiting.origins import Waiting


def waiting(ranks: int, per_host: int) -> Waiting:
    everybody = np.arange(ranks)
    made: Any = SimpleNamespace(
        run=SimpleNamespace(node_of=everybody // per_host),
        kernels=SimpleNamespace(ranks=everybody),
    )
    return cast(Waiting, made)


def test_two_ranks_far_above_the_others_are_apart() -> None:
    excess = np.array([70.0, 60.0, 4.0, 3.0, 3.0, 2.0])
    assert ranks_apart(waiting(6, 6), (1, 0), excess) == (1, 0)


def test_ranks_that_differ_gradually_are_nobody() -> None:
    excess = np.array([70.0, 60.0, 46.0, 36.0, 26.0, 26.0])
    assert ranks_apart(waiting(6, 6), (0, 1, 2), excess) == ()


def test_what_is_next_to_the_others_is_left_out() -> None:
    excess = np.array([170.0, 160.0, 46.0, 36.0, 26.0, 26.0])
    assert ranks_apart(waiting(6, 6), (0, 1, 2), excess) == (0, 1)


def test_ranks_that_are_left_out_do_not_make_the_others_many() -> None:
    excess = np.array([1309.0, 643.0, 284.0, 261.0, 252.0, 249.0, 240.0, 235.0])
    assert ranks_apart(waiting(8, 8), (0, 1, 4, 5, 6), excess) == (0, 1)


def test_all_ranks_of_a_host_are_no_chance() -> None:
    excess = np.array([20.0, 21.0, 22.0, 31.0, 32.0, 33.0])
    assert ranks_apart(waiting(6, 3), (3, 4, 5), excess) == (3, 4, 5)
    assert ranks_apart(waiting(6, 6), (3, 4, 5), excess) == ()
