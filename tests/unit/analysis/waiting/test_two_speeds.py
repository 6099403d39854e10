"""Ranks of two speeds, and ranks that differ gradually."""

import numpy as np

from ncclscope.analysis.waiting.two_speeds import of_slower_speed


def slower(slowness: list[float]) -> list[int]:
    return np.flatnonzero(of_slower_speed(np.array(slowness))).tolist()


def test_half_of_all_ranks_can_be_slower() -> None:
    assert slower([3.1, 3.0, 4.3, 3.3, 4.5, 3.1, 4.3, 4.4]) == [2, 4, 6, 7]


def test_ranks_that_differ_gradually_are_of_no_speed() -> None:
    assert not slower([2.6, 2.9, 3.0, 3.1, 3.3, 3.5, 3.8, 4.1])


def test_a_small_difference_is_no_speed() -> None:
    assert not slower([1.0, 1.0, 1.0, 1.1, 1.1, 1.1])


def test_few_ranks_are_no_speed() -> None:
    assert not slower([1.0, 1.0, 1.0, 1.0, 2.0])
    assert not slower([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0])


def test_more_than_half_are_not_the_slow_ones() -> None:
    assert not slower([1.0, 1.0, 2.0, 2.0, 2.0, 2.0])


def test_ranks_without_own_time_on_record_say_nothing() -> None:
    assert not slower([1.0, 1.0, np.nan, 2.0, 2.0])
