"""Transfers of a communicator without peers, compared with its own past."""

import numpy as np

from ncclscope.analysis.waiting.own_past import own_past

COUNT = 80


def past_of(length: np.ndarray, member: np.ndarray | None = None) -> tuple[float, float]:
    """Median and high quantile that count as usual for transfers of one kind, in time order."""
    kind, time = np.zeros(len(length), np.int64), np.arange(len(length)) * 1_000_000
    members = np.zeros(len(length), np.int64) if member is None else member
    median, high = own_past(kind, members, length, time, np.arange(len(length)))[:, 0].tolist()
    return median, high


def test_a_link_that_becomes_slow_is_compared_with_its_fast_times() -> None:
    length = np.where(np.arange(COUNT) < COUNT // 3, 1_000, 9_000)
    assert past_of(length) == (1_000, 1_000)


def test_a_link_that_is_slow_in_the_second_half_is_found_though_the_median_is_fast() -> None:
    length = np.where(np.arange(COUNT) < COUNT * 0.6, 1_000, 9_000)
    assert past_of(length) == (1_000, 1_000)


def test_transfers_that_are_always_alike_have_no_past_to_compare_with() -> None:
    length = np.random.default_rng(1).normal(5_000, 300, COUNT).astype(np.int64)
    assert np.isnan(past_of(length)).all()


def test_members_of_a_kind_are_compared_with_each_other_instead() -> None:
    length = np.where(np.arange(COUNT) < COUNT // 3, 1_000, 9_000)
    assert np.isnan(past_of(length, np.arange(COUNT) % 2)).all()


def test_few_transfers_show_no_past() -> None:
    length = np.where(np.arange(12) < 4, 1_000, 9_000)
    assert np.isnan(past_of(length)).all()
