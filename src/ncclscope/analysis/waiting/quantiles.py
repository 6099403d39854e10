"""Quantiles by group, of many groups at once."""

import numpy as np

from ncclscope.arrays.types import Floats, Ints

_VALUE_BITS = 34  # 17 s; longer values count as that
_MOST_VALUE = (1 << _VALUE_BITS) - 1
_MOST_KEY = 1 << 29


def _first_and_count(keys: Ints) -> tuple[Ints, Ints]:
    """Where runs of equal keys begin, and how long they are."""
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return first, np.diff(np.append(first, len(keys)))


def quantiles_of_usual_member(
    group: Ints, groups: int, member: Ints, members: int, values: Ints, quantiles: tuple[float, ...]
) -> tuple[list[Floats], Ints]:
    """For each quantile by group: that quantile of each member's values, and of these the lower
    median over members; NaN for groups without values. Also the number of values by group.

    The lower median makes one slow member of two, or two of four, stand out.
    """
    if groups * members >= _MOST_KEY:
        member, members = np.zeros(len(group), np.int64), 1
    key = group.astype(np.int64) * members + member
    packed = np.sort(key << _VALUE_BITS | np.clip(values, 0, _MOST_VALUE))
    first, count = _first_and_count(packed >> _VALUE_BITS)
    results = []
    for quantile in quantiles:
        own = packed[first + ((count - 1) * quantile).astype(np.int64)]
        of_group = (own >> _VALUE_BITS) // members
        ordered = np.sort(of_group << _VALUE_BITS | own & _MOST_VALUE)
        at, own_members = _first_and_count(ordered >> _VALUE_BITS)
        usual = ordered[at + (own_members - 1) // 2]
        result = np.full(groups, np.nan)
        result[usual >> _VALUE_BITS] = usual & _MOST_VALUE
        results.append(result)
    size = np.bincount((packed[first] >> _VALUE_BITS) // members, count, minlength=groups)
    return results, size.astype(np.int64)


def quantile_by_group(group: Ints, groups: int, values: Ints, quantile: float) -> Floats:
    """By group a quantile of its values; NaN for groups without values."""
    zeros = np.zeros(len(group), np.int64)
    return quantiles_of_usual_member(group, groups, zeros, 1, values, (quantile,))[0][0]
