"""Combinations of values of several columns, and the rows that have them."""

from collections.abc import Sequence

import numpy as np

from ncclscope.arrays.types import Ints


def distinct_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The combinations of values that occur in some columns, in order, a row each; and by row of
    the columns the place of its combination.

    This is what `np.unique` does along an axis, which sorts whole rows and is ten times slower.

    >>> distinct_rows([np.array([7, 5, 7]), np.array([2, 9, 2])])
    (array([[5, 9],
           [7, 2]]), array([1, 0, 1]))
    """
    place = np.zeros(len(columns[0]), np.int64)
    for column in columns:  # places are small numbers: two of them always fit into one
        values, value = np.unique(column, return_inverse=True)
        key = place * max(len(values), 1) + value.reshape(-1)
        keys, place = np.unique(key, return_inverse=True)
    first = np.full(len(keys), len(place), np.int64)
    np.minimum.at(first, place, np.arange(len(place)))
    rows = np.stack([column[first] for column in columns], axis=1)
    return np.asarray(rows, np.int64), np.asarray(place, np.int64)


def rows_by_place(place: Ints, count: int) -> list[Ints]:
    """By place, of `count` places, the rows that have it, in order. One sort serves all places: a
    search for each takes places x rows.

    >>> rows_by_place(np.array([2, 0, 2]), 3)
    [array([1]), array([], dtype=int64), array([0, 2])]
    """
    order = np.argsort(place, kind="stable")
    return np.split(order, np.searchsorted(place[order], np.arange(1, count)))[:count]
