"""Combinations of values of several columns, against numpy's own."""

import numpy as np
import pytest

from ncclscope.analysis.distinct import distinct_rows, rows_by_place


@pytest.mark.parametrize("rows", [0, 1, 5_000])
def test_combinations_are_those_of_numpy(rows: int) -> None:
    draw = np.random.default_rng(rows)
    columns = [draw.integers(-1, most, rows) for most in (4, 16, 1 << 40)]
    columns.append(1 << draw.integers(0, 62, rows))
    expected, place = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    found = distinct_rows(columns)
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], place.reshape(-1))


@pytest.mark.parametrize(("rows", "count"), [(0, 0), (0, 3), (1, 1), (2_000, 40)])
def test_rows_by_place_are_those_that_a_search_finds(rows: int, count: int) -> None:
    place = np.random.default_rng(rows).integers(0, max(count - 1, 1), rows)
    parts = rows_by_place(place, count)
    assert len(parts) == count
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(part, np.flatnonzero(place == number))
