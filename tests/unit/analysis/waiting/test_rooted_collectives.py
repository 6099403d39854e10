"""Broadcasts and Reduces that all of their ranks wait for."""

import numpy as np

from ncclscope.analysis.waiting.rooted_collectives import wait_for_all
from ncclscope.arrays.types import Bools

MS = 1_000_000
CALLS, RANKS, ROOT, LATE_RANK = 20, 4, 0, 2


def waits(ended_early: bool, late_rank: int = LATE_RANK, calls: int = CALLS) -> Bools:
    """Of Broadcasts of 2 ms to which one rank comes 5 ms late."""
    instance = np.repeat(np.arange(calls), RANKS)
    rank = np.tile(np.arange(RANKS), calls)
    start = instance * 20 * MS + (rank == late_rank) * 5 * MS
    last = instance * 20 * MS + 5 * MS
    end = np.where(ended_early & (rank != late_rank), start, last) + 2 * MS
    group, size = np.zeros(len(rank), np.int64), np.full(len(rank), 60_000_000)
    return wait_for_all(group, size, instance, start, end, rank == ROOT)


def test_nobody_ends_before_the_late_rank_came() -> None:
    assert waits(ended_early=False).all()


def test_ranks_that_end_without_the_late_one_did_not_wait() -> None:
    assert not waits(ended_early=True).any()


def test_a_late_root_says_nothing_about_the_others() -> None:
    assert not waits(ended_early=False, late_rank=ROOT).any()


def test_a_few_calls_say_nothing() -> None:
    assert not waits(ended_early=False, calls=3).any()
