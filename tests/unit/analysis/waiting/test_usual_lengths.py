"""What is usual where a rank alone shows an edge."""

import numpy as np

from ncclscope.analysis.waiting import usual_lengths
from ncclscope.analysis.waiting.done_meanwhile import done_while_waiting

PLACE = 128  # codes of one position
LAUNCH, GPU = 1, 2  # kinds of edges


def test_what_nobody_shows_stays_unknown() -> None:
    """An infinite length would be taken for a number later on."""
    usual = np.array([[np.nan, 50.0, 80.0, 20.0, 20.0]] * 2)
    position = np.array([0, 1, 2, 2, 2])
    edge = np.array([LAUNCH] * 3 + [GPU] * 2, np.int8)
    group, rank = np.array([0, 1, 2, 3, 3]), np.array([0, 0, 0, 1, 2])
    own = edge == LAUNCH
    usual_lengths._compare_with(GPU, usual, position * PLACE, group, rank, edge, own)
    expected = np.array([[np.nan, 50.0, 20.0, 20.0, 20.0]] * 2)
    np.testing.assert_array_equal(usual, expected)


def test_faults_of_a_stage_of_one_rank_are_none_of_its_noise() -> None:
    """It is late in every third step, and the 90th percentile of its own calls is that. Others
    vary less before the same kind of kernels.
    """
    own = [10, 900, 11, 10, 900, 12, 10, 900, 11, 10]
    length = np.array([*own, *[10, 11, 10, 12, 10, 11, 10, 12, 10, 11]])
    member, every = np.repeat([0, 1], 10), 1
    fine, coarse = np.repeat([0, 1], 10), np.zeros(20, np.int64)
    usual = usual_lengths._usual((fine, coarse), member, length, np.arange(20), every)
    assert usual[0].tolist() == [11] * 10 + [10] * 10
    assert usual[1].max() <= 13


def test_work_that_is_done_while_waiting_is_no_more_than_there_is() -> None:
    """Gaps shrink with waiting until nothing is left to do."""
    wait = np.tile([0, 100_000, 300_000, 500_000, 2_500_000, 4_000_000], 6)
    length = 2_300_000 - np.minimum(wait, 1_500_000)
    group, rank = np.zeros(36, np.int64), np.repeat([0, 1], 18)
    done = done_while_waiting(group, rank, length, wait, np.arange(36))
    assert (length + done).tolist() == [2_300_000] * 36
    constant = np.full(36, 2_300_000) + np.tile([0, 9_000, 4_000, 1_000], 9)
    assert done_while_waiting(group, rank, constant, wait, np.arange(36)).max() == 0


def test_work_beside_a_kernel_that_only_the_last_rank_shows() -> None:
    """Others waited longer for it than the work takes, and call at once behind the kernel."""
    rank, group = np.repeat([0, 1, 2], 6), np.zeros(18, np.int64)
    wait = np.where(rank == 0, 0, 4_000_000) + np.tile([0, 90_000, 40_000], 6)
    length = np.where(rank == 0, 1_300_000, 75_000) + np.tile([1_000, 0, 2_000], 6)
    done = done_while_waiting(group, rank, length, wait, np.arange(18))
    assert done[rank == 0].max() < 100_000
    assert (np.abs(length + done - 1_300_000)[rank > 0] < 100_000).all()
    # Waits that are shorter than its gap leave a part of such work: the rank is late by itself.
    wait = np.minimum(wait, 800_000)
    assert done_while_waiting(group, rank, length, wait, np.arange(18))[rank > 0].max() == 0
