"""Statistics that some outliers do not move: by medians and by ranks."""

import numpy as np

from ncclscope.arrays.types import Bools, Floats, Ints

_NEIGHBOURS = 8  # gaps that are looked at together
_FEW_GAPS = 3
_IRREGULAR = 1.5  # upper by lower quartile; of exponential gaps, 4.8
DEVIATIONS = 2.0  # standard ones: less is chance, of counts and of sums
_TIMES_NEXT = 3.0  # as much as the next one, or more, for all that stand out
_TIMES_MEDIAN = 4.0  # as much as the median of the others
_FLOOR = 0.02  # of the largest: smaller ones are alike


def median(values: Floats) -> float:
    """The median of at least one number, as np.median has it, which takes a tenth of a millisecond
    for any array: there may be thousands.

    >>> median(np.array([4.0, 1.0, 3.0, 2.0]))
    2.5
    """
    middle, odd = divmod(len(values), 2)
    if odd:
        return float(np.partition(values, middle)[middle])
    ordered = np.partition(values, (middle - 1, middle))
    return (float(ordered[middle - 1]) + float(ordered[middle])) / 2


def robust_spread(values: Floats) -> float:
    """The median absolute deviation, scaled to the standard deviation of normal values."""
    if not len(values):
        return 0.0
    return 1.4826 * median(np.abs(values - median(values)))


def median_lower_bound(count: Ints) -> Ints:
    """Place, among `count` sorted values, of a lower bound of the true median.

    How many of n values lie below the median is binomial: n / 2 with a standard deviation of
    sqrt(n) / 2. Three of these below the middle hold in 99.9 % of samples, however values are
    distributed.
    """
    deviations = np.ceil(1.5 * np.sqrt(count)).astype(np.int64)
    return np.asarray(np.maximum((count - 1) // 2 - deviations, 0))


def _ranks(values: Floats) -> Floats:
    """The rank of each value, from 1."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(1, len(values) + 1)
    return ranks


def change_point(values: Floats) -> tuple[int, float]:
    """Where a series changes most, and how likely chance alone makes such a change (Pettitt's
    test): the first place after the change, and a probability.
    """
    n = len(values)
    u = 2 * np.cumsum(_ranks(values))[:-1] - np.arange(1, n) * (n + 1)
    at = int(np.argmax(np.abs(u)))
    k = abs(float(u[at]))
    return at + 1, float(2 * np.exp(-6 * k * k / (n**3 + n**2)))


def refine_change_point(values: Floats, at: int) -> int:
    """The split near `at` with the smallest absolute deviations from the medians on both sides:
    ranks alone put it too near to the middle.
    """
    before, after = np.median(values[:at]), np.median(values[at:])
    gain = np.abs(values - after) - np.abs(values - before)
    return int(np.argmax(np.cumsum(gain)[:-1])) + 1


def certainly_larger(values: Floats, others: Floats) -> bool:
    """Whether values are larger than others (Mann and Whitney's test, one in a thousand)."""
    ranks = _ranks(np.concatenate([values, others]))
    n, m = len(values), len(others)
    u = ranks[:n].sum() - n * (n + 1) / 2
    return bool(u - n * m / 2 > 3.1 * np.sqrt(n * m * (n + m + 1) / 12))


def is_no_chance(count: float, expected: float) -> bool:
    """Whether events are more than expected, where what is expected was counted, too: by more than
    DEVIATIONS of the difference of two such counts.
    """
    return bool(count > expected + DEVIATIONS * np.sqrt(count + expected))


def vary_as_requests(gaps: Floats | Ints) -> bool:
    """Whether lengths, in the order of time, vary as the gaps between requests do, which come by
    chance. Those that change once and for all do not vary.

    >>> [vary_as_requests(np.array(gaps)) for gaps in ([10.0, 11.0, 10.5], [2.0, 30.0, 9.0])]
    [False, True]
    >>> vary_as_requests(np.repeat([4.0, 12.0], 20))
    False
    """
    if len(gaps) < _FEW_GAPS:
        return False
    around = gaps[: len(gaps) // _NEIGHBOURS * _NEIGHBOURS].reshape(-1, _NEIGHBOURS)
    blocks = around if len(around) > 1 else gaps[None]
    low, high = np.quantile(blocks, (0.25, 0.75), axis=1)
    return bool((high > _IRREGULAR * low).mean() > 0.5)


def standing_out(values: Floats) -> Bools:
    """Which values are far above all others: at most half of them, where the next largest is
    several times smaller.

    >>> standing_out(np.array([9.0, 1.0, 8.0, 1.2, 0.9]))
    array([ True, False,  True, False, False])
    """
    chosen = np.zeros(len(values), bool)
    most = int(values.argmax()) if len(values) else 0
    if len(values) < 2 or values[most] <= 0:
        return chosen
    order = np.argsort(-values)
    ordered = np.maximum(values[order], _FLOOR * values[most])
    half = max(len(values) // 2, 1)
    ratio = ordered[:half] / ordered[1 : half + 1]
    count = int(np.argmax(ratio)) + 1
    rest = values[order[count:]]
    enough = ratio[count - 1] >= _TIMES_NEXT
    if enough and ordered[count - 1] >= _TIMES_MEDIAN * float(np.median(rest)):
        chosen[order[:count]] = True
    return chosen
