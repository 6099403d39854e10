"""Sums and percentiles of operations of which a sample was timed, with 95 % intervals.

The recorder times the first calls of every key (communicator, function, size, datatype), then one
of each block of calls, at a place by chance. A stratum is one key on one process:

    first calls   timed one by one without a gap: they are counted as they are, because they
                  connect ranks and are often far longer than all later ones
    the rest      its timed operations stand for all of it

Worked example: of 200 operations the first 8 took 120 ms together, and 3 of the other 192 were
timed, at 20, 22 and 24 µs. Their mean is 22 µs, so the rest takes 192 x 22 µs = 4.22 ms and all 200
take 124.22 ms. The spread of the three is 2 µs, the standard error of their mean 2 / √3 x √(1 - 3 /
192) = 1.15 µs, and Student's t for three values 4.30: the rest takes 4.22 ± 0.95 ms. All 200 take
123.3 to 125.2 ms.

Three values say little about a rare long operation. So a stratum's spread is mixed with that of all
strata of its function, relative to their means, as if `_BORROWED` more values had shown that. The
upper end is moved by the skewness (Johnson 1978): times have long tails upwards. With fewer than
`FEWEST_VALUES` values behind the first calls, the later half of those stands in for them. A key
whose operations become slower within a few dozen calls is seen too late for that.

The same operations are timed on all ranks, so errors of a key's strata are added up; those of
different keys are independent. What may be off in every time alike (`error_ns`, from the
calibration of CUDA events) is added on top.

In simulated jobs of 30 keys of 8 to 28,000 operations each, normal, skewed, with rare outliers and
periods, the true total was inside in at least 95 of 100 keys (tests/unit/analysis). Of times that
double within a run, 80 of 100 short keys only.
"""

import math
from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import NOT_SAMPLED, TIMING_OFF

LEVEL = 0.95
_NORMAL = 1.959964  # of LEVEL
_BORROWED = 4.0  # values that the spread of other keys counts for; by simulation, 4 to 10 are alike
FEWEST_VALUES = 3  # behind the first calls
_MOST_SKEW = 2.0  # half widths by which skewness moves the upper end, at most


def is_sampled(model: Model) -> bool:
    """Whether operations were left untimed because others were chosen for the sample, or because
    sampling was switched off.
    """
    return not {NOT_SAMPLED, TIMING_OFF}.isdisjoint(model.words.get("reason", ()))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number from a sample, and its 95 % interval. None: this end is not known."""

    value: float
    low: float | None
    high: float | None

    def scaled(self, factor: float) -> "Estimate":
        """All three times a factor above 0."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, low, high)

    def plus(self, exact: float) -> "Estimate":
        """The sum of it and a number that is known."""
        low, high = (None if end is None else end + exact for end in (self.low, self.high))
        return Estimate(self.value + exact, low, high)

    def rate(self, amount: float) -> "Estimate | None":
        """`amount` divided by it: a longer time is a lower rate."""
        if self.value <= 0:
            return None
        low = None if self.high is None else amount / self.high
        high = None if not self.low or self.low <= 0 else amount / self.low
        return Estimate(amount / self.value, low, high)

    def as_json(self, digits: int = 4) -> dict[str, float | None]:
        """The value and its interval."""
        ends = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if end is None else round(end, digits) for name, end in ends.items()}


def student_t(degrees: Floats) -> Floats:
    """The factor of a 95 % interval by degrees of freedom, within 0.3 %."""
    z, df = _NORMAL, np.maximum(degrees, 1.0)
    series = z + (
        (z**3 + z) / 4 / df
        + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / df**2
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / df**3
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160 / df**4
    )
    return np.where(df < 2, 12.706, np.where(df < 3, 4.303, series))


@dataclass(frozen=True, slots=True)
class GroupSample:
    """What the timed operations of a group say about all of them."""

    timed: int
    operations: int
    total_ns: Estimate
    median_ns: Estimate | None
    p99_ns: Estimate | None
    algbw_gbs: Estimate | None
    busbw_gbs: Estimate | None
    busbw_wire_gbs: Estimate | None = None
    wait_share: Estimate | None = None
    relative_wait_share: Estimate | None = None
    run_share: Estimate | None = None

    @property
    def mean_ns(self) -> Estimate:
        """The time of one operation."""
        return self.total_ns.scaled(1 / self.operations)


@dataclass(frozen=True, slots=True)
class Strata:
    """What is known of each stratum; times in ns."""

    key: Ints  # number of its key: the same on all processes
    pool: Ints  # number of its function: strata that borrow each other's spread
    population: Ints  # operations
    firsts: Ints  # of these, first calls that are all timed
    firsts_ns: Floats  # their time together
    sampled: Ints  # of the rest, timed ones
    # Of the values that show how long one of the rest takes: how many, and their moments.
    values: Ints
    mean_ns: Floats
    squares: Floats  # sum of squared differences from the mean
    cubes: Floats
    error_ns: Floats  # that all times of it may be off alike

    @property
    def rest(self) -> Ints:
        """Operations that are no first calls."""
        return self.population - self.firsts

    @property
    def is_known(self) -> Bools:
        """Whether there is anything to go by."""
        return np.asarray((self.rest == 0) | (self.values > 0))


@dataclass(frozen=True, slots=True)
class StrataTotals:
    """Each stratum's total time and how sure it is, in ns."""

    total: Floats
    below: Floats  # from the total down to the end of its interval
    above: Floats
    systematic: Floats  # may be off alike in all of them


def strata_totals(strata: Strata) -> StrataTotals:
    """The total of every stratum with what its interval is made of."""
    rest = strata.rest.astype(np.float64)
    mean = np.where(strata.values > 0, strata.mean_ns, 0.0)
    square, cube = _relative_spread(strata, mean)
    values = np.maximum(strata.values, 1).astype(np.float64)
    unseen = np.maximum(1 - strata.sampled / np.maximum(rest, 1), 0.0)
    t = student_t(values - 1.0)
    half = t * np.sqrt(unseen * square / values)
    skew = np.divide(cube, 6 * square * values, out=np.zeros_like(cube), where=square > 0)
    skew = np.clip(skew * (1 + 2 * t * t), 0.0, _MOST_SKEW * half)
    whole = rest * mean
    return StrataTotals(
        total=strata.firsts_ns + whole,
        below=np.minimum(whole * half, whole),
        above=whole * (half + skew),
        systematic=strata.population * strata.error_ns,
    )


def _relative_spread(strata: Strata, mean: Floats) -> tuple[Floats, Floats]:
    """By stratum its values' variance and third moment, relative to their mean, mixed with those
    of all strata of its pool.
    """
    scale = np.where(mean > 0, mean, np.inf)
    square, cube = strata.squares / scale**2, strata.cubes / scale**3
    degrees = np.maximum(strata.values - 1, 0).astype(np.float64)
    pools = int(strata.pool.max(initial=-1)) + 1
    of_pool = np.maximum(np.bincount(strata.pool, degrees, pools), 1.0)
    weight = degrees + _BORROWED
    mixed = []
    for own in (square, cube):
        pooled = (np.bincount(strata.pool, own, pools) / of_pool)[strata.pool]
        mixed.append((own + _BORROWED * pooled) / weight)
    return mixed[0], mixed[1]


def total_of(strata: Strata, totals: StrataTotals, rows: Ints) -> Estimate:
    """The total of some strata together."""
    ends = []
    for half in (totals.below, totals.above):
        by_key = np.bincount(np.unique(strata.key[rows], return_inverse=True)[1], half[rows])
        ends.append(math.sqrt(float((by_key**2).sum())))
    value, systematic = float(totals.total[rows].sum()), float(totals.systematic[rows].sum())
    return Estimate(value, max(value - ends[0] - systematic, 0.0), value + ends[1] + systematic)


@dataclass(frozen=True, slots=True)
class WeightedTimes:
    """Timed operations and what each stands for; of a histogram, a row for each bucket, within
    which times are somewhere.
    """

    stratum: Ints
    low_ns: Floats  # ends of the bucket; the time itself where it is known
    high_ns: Floats
    weight: Floats  # operations that one of them stands for, itself included
    count: Floats  # how many of them the row holds

    def of_strata(self, rows: Ints) -> "WeightedTimes":
        """Those of some strata."""
        own = np.isin(self.stratum, rows)
        return WeightedTimes(*(getattr(self, name)[own] for name in WeightedTimes.__slots__))

    def percentile(self, percent: float, error_ns: float = 0.0) -> Estimate | None:
        """The smallest time that `percent` of the operations do not exceed; None without any. Its
        interval are the times between which it lies by the binomial distribution (Woodruff 1952),
        widened by `error_ns`, and by their buckets: from the beginning of the one to the end of
        the other. An end that the sample does not reach is None.

        Of 100 operations that stand for 64 each, the 99th percentile lies between the 96th time
        and a longer one than any that was seen.

        Of buckets the value is where it were if the times of each lay evenly in it. Of three times
        in a bucket from 100 to 112 µs and one from 112 to 128 the median is 2/3 into the first:
        108 µs, and it lies between 100 and 112 µs if these are all.
        """
        if not len(self.low_ns):
            return None
        mass = self.weight * self.count
        share, spread = percent / 100, 0.0
        if not np.allclose(self.weight, 1.0):
            # Unequal weights say less than as many equal ones.
            size = float(mass.sum()) ** 2 / float((self.count * self.weight**2).sum())
            spread = _NORMAL * math.sqrt(share * (1 - share) / size) + 0.5 / size
        low = _quantile(self.low_ns, mass, max(share - spread, 0.0))
        high = None
        if share + spread <= 1:
            high = _quantile(self.high_ns, mass, share + spread) + error_ns
        return Estimate(self._at(mass, share), max(low - error_ns, 0.0), high)

    def _at(self, mass: Floats, share: float) -> float:
        """The time that this share of the mass does not exceed."""
        if (self.low_ns == self.high_ns).all():
            return _quantile(self.low_ns, mass, share)
        edges = np.unique(np.concatenate([self.low_ns, self.high_ns]))
        point = self.low_ns == self.high_ns
        below = _mass_up_to(edges, self.low_ns[point], mass[point])
        width = np.where(point, 1.0, self.high_ns - self.low_ns)
        slope = np.where(point, 0.0, mass / width)
        for ends, sign in ((self.low_ns, 1.0), (self.high_ns, -1.0)):
            steepness = _mass_up_to(edges, ends, slope)
            below += sign * (edges * steepness - _mass_up_to(edges, ends, slope * ends))
        wanted = share * float(mass.sum())
        return float(np.interp(wanted, np.maximum.accumulate(below), edges))


def _quantile(times: Floats, mass: Floats, share: float) -> float:
    """The smallest of these times that a share of the mass does not exceed."""
    order = np.argsort(times, kind="stable")
    running = np.cumsum(mass[order])
    place = int(np.searchsorted(running, share * running[-1] * (1 - 1e-12)))
    return float(times[order[min(place, len(order) - 1)]])


def _mass_up_to(edges: Floats, times: Floats, mass: Floats) -> Floats:
    """By edge the mass of the times that are not beyond it."""
    order = np.argsort(times, kind="stable")
    running = np.concatenate([[0.0], np.cumsum(mass[order])])
    return np.asarray(running[np.searchsorted(times[order], edges, side="right")])


def ratio_of_sums(
    parts: Floats, wholes: Floats, weights: Floats, most: float = math.inf
) -> Estimate | None:
    """Weighted sum of parts relative to that of wholes, its error by linearization."""
    whole = float((weights * wholes).sum())
    if whole <= 0:
        return None
    ratio = float((weights * parts).sum()) / whole
    residual = parts - ratio * wholes
    unseen = np.maximum(weights * (weights - 1), 0.0)
    error = math.sqrt(float((unseen * residual**2).sum())) / whole
    half = float(student_t(np.array([len(parts) - 1.0]))[0]) * error
    return Estimate(ratio, max(ratio - half, 0.0), min(ratio + half, most))
