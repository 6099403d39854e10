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


def slopes_from_next(group: Ints, groups: int, member: Ints, length: Ints, by: Ints) -> Floats:
    """By group how much `length` grows where `by` grows by 1, from each value of a member to its
    next one: half of all changes of `by`, by their sizes, come with less. A time in which a member
    is slow changes both, and counts twice only, when it begins and when it ends. NaN: no changes.

    >>> by = np.array([5, 6, 5, 6, 1, 2, 1, 2])
    >>> length = np.array([3, 3, 3, 3, 7, 7, 7, 7])  # slow, so that it waits less
    >>> zero = np.zeros(8, np.int64)
    >>> slopes_from_next(zero, 1, zero, length, by)
    array([0.])
    """
    order = np.lexsort((member, group))
    group, member, length, by = group[order], member[order], length[order], by[order]
    run = np.diff(by)
    rows = np.flatnonzero((np.diff(group) == 0) & (np.diff(member) == 0) & (run != 0))
    of, rise, weight = group[rows], np.diff(length)[rows] / run[rows], np.abs(run[rows])
    order = np.lexsort((rise, of))
    of, rise, weight = of[order], rise[order], weight[order].astype(np.float64)
    total = np.bincount(of, weight, minlength=groups)
    before = np.cumsum(total) - total  # of the groups before
    behind = np.cumsum(weight) - before[of] >= total[of] / 2
    slope = np.full(groups, np.nan)
    slope[of[behind][::-1]] = rise[behind][::-1]  # the first one of each group stays
    return slope
