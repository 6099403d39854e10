"""How much two sets of runs differ, with an interval that covers what equal runs differ by.

Each run is one number, or the logarithm of one. With two runs more than sides, the interval is
Student's, of the runs' own spread. With fewer, that spread is not known: then an allowance stands
for it, which equal jobs do not exceed.

    a: 1.00, 1.02, 0.98   b: 1.20, 1.22   ->  0.21 ± 0.12, because equal runs differ by 0.02
    a: 1.00               b: 1.05         ->  0.05 ± the allowance
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ncclscope.arrays.types import Floats, Ints

# Student's t, 99 %, two-sided, by degrees of freedom from 2 on.
_STUDENT = (9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169)
_LEAST_SPREAD = 0.01  # of equal runs: two that agree better do so by chance
_RESAMPLES, _BLOCK = 400, 8
_INTERVAL = (0.5, 99.5)  # percent


@dataclass(frozen=True, slots=True)
class Difference:
    """How much the second side is more than the first, and its 99 % interval."""

    value: float
    low: float
    high: float


def _student(freedom: int) -> float:
    place = freedom - 2
    return _STUDENT[place] if place < len(_STUDENT) else 2.576 + 6 / freedom


def knows_spread(a: int, b: int) -> bool:
    """Whether `a` and `b` runs are enough to show how much equal runs differ."""
    return a + b - 2 >= 2


def difference(
    a: Sequence[float], b: Sequence[float], within: float, allowance: float
) -> Difference:
    """The difference of two sets of runs. `within`: the half-width of what one run on each side
    leaves open; `allowance`: what equal runs differ by, where these do not show it.
    """
    value = float(np.mean(b) - np.mean(a))
    freedom = len(a) + len(b) - 2
    squares = float(np.var(a) * len(a) + np.var(b) * len(b))
    if knows_spread(len(a), len(b)):
        spread = max((squares / freedom) ** 0.5, _LEAST_SPREAD)
        half = _student(freedom) * spread * (1 / len(a) + 1 / len(b)) ** 0.5
    else:
        half = max(allowance, 2 * squares**0.5)
        half = float(np.hypot(half, within))
    return Difference(value, value - half, value + half)


def half_width(values: Floats) -> float:
    """Half of the 99 % interval of the median, from resampled blocks of neighbours, because
    neighbours resemble each other. At least one value.
    """
    resampled = values[_resamples(len(values))]
    resampled.sort(axis=1)  # of short rows this takes a third of what np.median does
    middle, odd = divmod(resampled.shape[1], 2)
    medians = resampled[:, middle]
    if not odd:
        medians = (resampled[:, middle - 1] + medians) / 2
    low, high = np.percentile(medians, _INTERVAL)
    return float(high - low) / 2


def half_width_of_ratio(a: Floats, b: Floats, are_pairs: bool) -> float:
    """Half of the 99 % interval of how much longer all parts of b take together than those of a, as
    a logarithm, from resampled blocks of neighbours. `are_pairs`: parts at one place have the same
    work. Then they are drawn together: what makes one part of a run longer than another, as a
    phase with larger batches, leaves nothing open. At least one part each.
    """
    if are_pairs:
        return _half_of_sums(a, b)
    return float(np.hypot(_half_of_sums(np.ones(len(a)), a), _half_of_sums(np.ones(len(b)), b)))


def _half_of_sums(a: Floats, b: Floats) -> float:
    places = _resamples(len(a))
    sums = [np.maximum(parts[places].sum(axis=1), 1.0) for parts in (a, b)]
    low, high = np.percentile(np.log(sums[1] / sums[0]), _INTERVAL)
    return float(high - low) / 2


@lru_cache(maxsize=4)  # thousands of kinds of calls have as many values as each other
def _resamples(count: int) -> Ints:
    """Places among `count` values, a row for each resample."""
    size = min(count, 1000)
    block = max(min(_BLOCK, size // 4), 1)
    generator = np.random.default_rng(0)  # the same for both sides: a and b may change places
    starts = generator.integers(0, count - block + 1, (_RESAMPLES, -(-size // block)))
    return (starts[:, :, None] + np.arange(block)).reshape(_RESAMPLES, -1)
