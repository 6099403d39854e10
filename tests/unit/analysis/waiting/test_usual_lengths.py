"""What is usual where a rank alone shows an edge."""

import numpy as np

from ncclscope.analysis.waiting import usual_lengths

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
