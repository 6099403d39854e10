"""Slices that overlap are never on one lane, however they come."""

import numpy as np
import pytest

from ncclscope.export.lanes import Lanes


@pytest.mark.parametrize("seed", range(12))
def test_nothing_overlaps_on_a_lane(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = 400
    start = np.sort(draw.integers(0, 3000, count)) * 10
    end = start + draw.choice([0, 10, 10, 30, 400], count)
    if seed % 3 == 0:  # fused launches: several with the same times
        start, end = np.repeat(start[::4], 4), np.repeat(end[::4], 4)
    track = draw.integers(0, 1 + seed % 4, count)
    lanes, found = Lanes(), []
    for first in range(0, count, 23):
        some = slice(first, first + 23)
        found.append(lanes.place(track[some], start[some], end[some]))
    lane = np.concatenate(found)
    for key in {*zip(track.tolist(), lane.tolist(), strict=True)}:
        own = (track == key[0]) & (lane == key[1]) & (end > start)
        assert (start[own][1:] >= np.maximum.accumulate(end[own])[:-1]).all()
    for one in np.unique(track):
        own = (track == one) & (end > start)
        most = max(((start[own] <= time) & (end[own] > time)).sum() for time in start[own])
        assert lane[own].max() + 1 == most  # and no more lanes than are needed


def test_one_after_the_other_is_one_lane() -> None:
    start = np.arange(0, 1000, 10)
    assert not Lanes().place(np.zeros(100, np.int64), start, start + 10).any()


def test_what_never_ends_keeps_its_lane() -> None:
    lanes, track = Lanes(), np.zeros(2, np.int64)
    assert lanes.place(track, np.array([5, 6]), np.array([1 << 62, 8])).tolist() == [0, 1]
    assert lanes.place(track, np.array([9, 20]), np.array([11, 30])).tolist() == [1, 1]
