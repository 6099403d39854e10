"""How one length changes with another, on the same rank."""

import numpy as np

from ncclscope.analysis.distinct import distinct_numbers
from ncclscope.arrays.types import Floats, Ints

_MOST_ERROR = 0.25  # of a slope that tells 1 from 0
_LEAST_FREE = 8  # values beside the first one of each member, for a slope


def slopes(group: Ints, groups: int, member: Ints, length: Ints, by: Ints) -> Floats:
    """By group how much `length` grows where `by` grows by 1, within the members of the group. NaN
    where noise hides it, or where members were there too seldom: one value shows no change.

    >>> by = np.arange(12) * 10
    >>> slopes(np.zeros(12, np.int64), 1, np.zeros(12, np.int64), 5 + by, by)
    array([1.])
    """
    members = int(member.max(initial=0)) + 1
    key = group * members + member

    def centred(values: Ints) -> Floats:
        count = np.maximum(np.bincount(key), 1)
        return np.asarray(values - (np.bincount(key, values) / count)[key])

    y, x = centred(length), centred(by)
    squares = np.maximum(np.bincount(group, x * x, minlength=groups), 1.0)
    slope = np.bincount(group, y * x, minlength=groups) / squares
    rest = y - slope[group] * x
    # Each member's own mean is taken off, so that many values beside its first one tell.
    free = np.bincount(group, minlength=groups)
    free -= np.bincount(distinct_numbers(key) // members, minlength=groups)
    error = np.sqrt(np.bincount(group, rest * rest, minlength=groups) / squares)
    error /= np.sqrt(np.maximum(free - 1, 1))
    return np.where((error < _MOST_ERROR) & (free >= _LEAST_FREE), slope, np.nan)
