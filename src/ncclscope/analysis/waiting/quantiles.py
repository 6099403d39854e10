"""Quantiles of usual lengths by group, of many groups at once."""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.robust_statistics import median_lower_bound
from ncclscope.arrays.types import Floats, Ints

_VALUE_BITS = 34  # 17 s; longer values count as that
_MOST_VALUE = (1 << _VALUE_BITS) - 1
_MOST_KEY = 1 << 29


@dataclass(frozen=True, slots=True)
class MemberQuantiles:
    """Quantiles of the values of each member of each group; a row each, by group."""

    group: Ints
    member: Ints
    count: Ints
    quantiles: tuple[Ints, ...]
    median_at_least: Ints  # a lower bound of the true median

    def of_usual_member(self, place: int, groups: int) -> Floats:
        """By group the lower median over members of a quantile; NaN for groups without values.

        The lower median makes one slow member of two, or two of four, stand out.
        """
        packed = np.sort(self.group << _VALUE_BITS | self.quantiles[place])
        first, members = _first_and_count(packed >> _VALUE_BITS)
        usual = packed[first + (members - 1) // 2]
        result = np.full(groups, np.nan)
        result[usual >> _VALUE_BITS] = usual & _MOST_VALUE
        return result

    def count_by_group(self, groups: int) -> Ints:
        """By group how many values it has."""
        return np.bincount(self.group, self.count, minlength=groups).astype(np.int64)


def _first_and_count(keys: Ints) -> tuple[Ints, Ints]:
    """Where runs of equal keys begin, and how long they are."""
    begins = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    first = np.flatnonzero(begins)
    count = np.empty_like(first)
    np.subtract(first[1:], first[:-1], out=count[:-1])
    count[-1:] = len(keys) - first[-1:]
    return first, count


def member_quantiles(
    group: Ints, groups: int, member: Ints, values: Ints, quantiles: tuple[float, ...]
) -> MemberQuantiles:
    """Quantiles by group and member. Groups without end are compared without their members."""
    members = int(member.max(initial=0)) + 1
    if groups * members >= _MOST_KEY:
        member, members = np.zeros(len(group), np.int64), 1
    # In place: each of these is as long as the run, and there are three dozen calls.
    packed = group.astype(np.int64)
    packed *= members
    packed += member
    packed <<= _VALUE_BITS
    packed |= np.clip(values, 0, _MOST_VALUE)
    packed.sort()
    first, count = _first_and_count(packed >> _VALUE_BITS)
    key = packed[first] >> _VALUE_BITS
    places = [((count - 1) * quantile).astype(np.int64) for quantile in quantiles]
    of_quantiles = [packed[first + place] & _MOST_VALUE for place in places]
    least = packed[first + median_lower_bound(count)] & _MOST_VALUE
    return MemberQuantiles(key // members, key % members, count, tuple(of_quantiles), least)


def quantile_by_group(group: Ints, groups: int, values: Ints, quantile: float) -> Floats:
    """By group a quantile of its values; NaN for groups without values."""
    zeros = np.zeros(len(group), np.int64)
    return member_quantiles(group, groups, zeros, values, (quantile,)).of_usual_member(0, groups)
