"""Combinations of values of several columns, and the rows that have them."""

from collections.abc import Sequence

import numpy as np

from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Ints


def distinct_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The combinations of values that occur in some columns, in order, a row each; and by row of
    the columns the place of its combination.

    This is what `np.unique` does along an axis, which sorts whole rows and is ten times slower.

    >>> distinct_rows([np.array([7, 5, 7]), np.array([2, 9, 2])])
    (array([[5, 9],
           [7, 2]]), array([1, 0, 1]))
    """
    place, first = np.zeros(len(columns[0]), np.int64), np.empty(0, np.int64)
    for column in columns:  # places are small numbers: two of them always fit into one
        value, firsts = _places(np.asarray(column, np.int64))
        place, first = _places(place * max(len(firsts), 1) + value)
    rows = np.stack([column[first] for column in columns], axis=1)
    return np.asarray(rows, np.int64), place


def distinct_numbers(values: Ints) -> Ints:
    """The numbers that occur, none of them negative, in order: what `np.unique` returns, which
    takes several times as long where most of them occur often.
    """
    number, count = factorize(values)
    numbers = np.empty(count, np.int64)
    numbers[number] = values
    return np.sort(numbers)


def _places(values: Ints) -> tuple[Ints, Ints]:
    """By value its place among the distinct ones in order, and by place the first that has it.
    Distinct values are few, and only they are sorted.
    """
    least = int(values.min(initial=0))
    number, count = factorize(values - least)  # which keeps NONE for itself
    first = np.empty(count, np.int64)
    first[number[::-1]] = np.arange(len(values) - 1, -1, -1)  # the last one assigned stays
    order = np.argsort(values[first])
    place_of = np.empty(count, np.int64)
    place_of[order] = np.arange(count)
    return place_of[number], first[order]


def rows_by_place(place: Ints, count: int) -> list[Ints]:
    """By place, of `count` places, the rows that have it, in order. One sort serves all places: a
    search for each takes places x rows.

    >>> rows_by_place(np.array([2, 0, 2]), 3)
    [array([1]), array([], dtype=int64), array([0, 2])]
    """
    order = np.argsort(place, kind="stable")
    return np.split(order, np.searchsorted(place[order], np.arange(1, count)))[:count]
