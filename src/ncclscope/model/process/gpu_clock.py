"""A GPU's clock against its host's: bounds that no measurement can break.

A stamp was written before the host read it, and a kernel starts after its launch began. So the
offset (GPU minus host) is at least stop stamp - time it was seen, and at most start stamp - launch.
A stamp that belongs to an earlier work is too old and cannot raise the lower bound. Over some
seconds the clocks drift apart along a straight line, which passes above the lower points: it passes
above their hull too, and below that of the upper ones.

A host that is far ahead of its GPU never launches a kernel that starts at once, and the upper bound
is as far off as the host is ahead. But hosts notice some stops at once: then the offset is close to
its lower bound.
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from ncclscope.arrays import _abi
from ncclscope.arrays.library import Lines, address, length_arg, library, pointer
from ncclscope.arrays.types import Bools, Floats, Ints

WINDOW_NS = 5_000_000_000
_BIN_NS = 40_000_000  # of one bin the best point counts
_DRIFT = 100e-6  # of most clocks, at most: a good point counts for its neighbours too
_MOST_DRIFT = 600e-6  # Linux slews a clock by 500 ppm at most, on top of that
_LEAST_SHOWN_NS = 250_000_000  # of points that show a drift: notices vary by tens of µs
# How long the quickest notice took at most. In jobs with NCCL 2.27 to 2.32 on an H200 (40 to 760
# stops each) it was below 5 µs, and the median 1 to 680 µs longer. A host that looks now and then
# notices the typical stop as late as it varies.
_QUICKEST_NOTICE_NS = 100_000
_QUICKEST_BY_TYPICAL = 4
_LEAST_NOTICES = 32


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on an offset: straight lines between knots of host time."""

    first_ns: int
    base_ns: int  # values are relative to it, so that doubles are exact enough
    knots: Floats  # ns since first_ns; without any, nothing is known
    values: Floats
    drift: float = _DRIFT  # of the clocks, at most

    def at(self, host_ns: Ints) -> Ints:
        """The bound at those times, rounded up to whole ns. It must be known."""
        host_ns = np.ascontiguousarray(host_ns)
        out: Ints = np.empty(len(host_ns), np.int64)
        library().ncclscope_bound_at(
            ctypes.byref(self.for_c()), pointer(host_ns), length_arg(host_ns), pointer(out)
        )
        return out

    def for_c(self) -> _abi.Bound:
        """For the compiled loops; it must not outlive the bound."""
        line = Lines(len(self.knots), address(self.knots), address(self.values))
        return _abi.Bound(self.first_ns, self.base_ns, self.drift, line)

    @property
    def is_known(self) -> bool:
        """Whether any point bounds it."""
        return len(self.knots) > 0


NOTHING = Bound(0, 0, np.empty(0), np.empty(0))  # is known


def _best_of_bins(
    host_ns: Ints, value_ns: Ints, minus_ns: Ints, chosen: Bools | None
) -> tuple[Ints, int, int]:
    """Places of the highest point of each run of points in one bin, in the order of time; the first
    time; and the highest value.
    """
    best = np.empty(len(host_ns), np.int64)
    first_ns, highest = ctypes.c_int64(), ctypes.c_int64()
    arrays = (host_ns, value_ns, minus_ns, chosen)
    count = library().ncclscope_best_of_bins(
        ctypes.byref(_abi.Points(len(host_ns), *map(address, arrays))),
        ctypes.c_int64(_BIN_NS),
        pointer(best),
        ctypes.byref(first_ns),
        ctypes.byref(highest),
    )
    places: Ints = best[:count].copy()
    in_order: Ints = places[np.argsort(host_ns[places], kind="stable")]
    return in_order, first_ns.value, highest.value


def _most_drift(time: Floats, value: Floats) -> float:
    """How fast the clocks drift at most. Points of clocks that drift faster than usual lie along a
    line that shows it: hosts notice stops at once now and then. Both halves of the line must, or a
    host that was busy at the beginning or at the end would look like a drift.
    """
    lasted = float(time[-1] - time[0])
    if lasted < _LEAST_SHOWN_NS:
        return _DRIFT
    ends = np.interp(time[0] + lasted * np.array([0.1, 0.5, 0.9]), *_hull(time, value))
    halves = np.diff(ends) / (0.4 * lasted)
    if (halves > _DRIFT).all() or (halves < -_DRIFT).all():
        return min(float(np.abs(halves).max()) + _DRIFT, _MOST_DRIFT)
    return _DRIFT


def _with_neighbours(time: Floats, value: Floats, drift: float) -> Floats:
    """The points' values, raised to what better neighbours imply."""
    slope = time * drift
    forward = np.maximum.accumulate(value + slope) - slope
    backward = np.maximum.accumulate((value - slope)[::-1])[::-1] + slope
    return np.maximum(forward, backward)


def _hull(time: Floats, value: Floats) -> tuple[Floats, Floats]:
    """The lowest concave line over all points."""
    knots, values = np.empty(len(time)), np.empty(len(time))
    kept = library().ncclscope_hull(
        pointer(time), pointer(value), length_arg(time), pointer(knots), pointer(values)
    )
    return knots[:kept], values[:kept]


def _cut(hull: tuple[Floats, Floats], low: float, high: float) -> tuple[Floats, Floats]:
    """The part of a hull between two times; both are knots where the hull reaches them."""
    knots, values = hull
    inside = (knots > low) & (knots < high)
    ends = np.clip([low, high], knots[0], knots[-1])
    time = np.concatenate([ends[:1], knots[inside], ends[1:]])
    return time, np.interp(time, knots, values)


def bound(
    host_ns: Ints, value_ns: Ints, minus_ns: Ints | None = None, chosen: Bools | None = None,
    drift: float | None = None,
) -> Bound:  # fmt: skip
    """The lower bound by points: at each time the offset is at least value - minus. `chosen`: which
    points count, None: all. `drift`: of the clocks at most, None: what the points show.
    """
    host_ns, value_ns = np.ascontiguousarray(host_ns), np.ascontiguousarray(value_ns)
    minus_ns = np.zeros_like(value_ns) if minus_ns is None else np.ascontiguousarray(minus_ns)
    best, first_ns, base_ns = _best_of_bins(host_ns, value_ns, minus_ns, chosen)
    if not len(best):
        return NOTHING
    time = (host_ns[best] - first_ns).astype(np.float64)
    value = (value_ns[best] - minus_ns[best] - base_ns).astype(np.float64)
    drift = _most_drift(time, value) if drift is None else drift
    value = _with_neighbours(time, value, drift)
    parts = []
    for number in range(int(time[-1] // WINDOW_NS) + 1):
        low, high = number * WINDOW_NS, (number + 1) * WINDOW_NS
        # Half a window more on both sides, so that a hull is tight at its ends.
        around = [low - WINDOW_NS / 2, high + WINDOW_NS / 2]
        points = slice(*np.searchsorted(time, around).tolist())
        if points.stop > points.start:
            parts.append(_cut(_hull(time[points], value[points]), low, high))
    knots = np.concatenate([part[0] for part in parts])
    values = np.concatenate([part[1] for part in parts])
    return Bound(first_ns, base_ns, knots, values, drift)


def lower_bound(seen_ns: Ints, stop_stamp: Ints, chosen: Bools | None = None) -> Bound:
    """The offset is at least this."""
    return bound(seen_ns, stop_stamp, seen_ns, chosen)


def upper_bound(
    launch_ns: Ints, start_stamp: Ints, drift: float, chosen: Bools | None = None
) -> Bound:
    """Minus the offset is at least this, which is an upper bound. `drift`: as the lower bound shows
    it. Kernels start at once too seldom to show it.
    """
    return bound(launch_ns, launch_ns, start_stamp, chosen, drift)


def with_quick_notices(
    lower: Bound, minus_upper: Bound, typical_notice_ns: int, notices: int
) -> Bound:
    """The upper bound, no farther above the lower one than the quickest of many notices took."""
    if not minus_upper.is_known or notices < _LEAST_NOTICES:
        return minus_upper
    most_ns = max(_QUICKEST_NOTICE_NS, _QUICKEST_BY_TYPICAL * typical_notice_ns)
    times = [own.first_ns + own.knots.astype(np.int64) for own in (lower, minus_upper)]
    host_ns = np.unique(np.concatenate(times))
    closer = np.maximum(minus_upper.at(host_ns), -lower.at(host_ns) - most_ns)
    first_ns, base_ns = int(host_ns[0]), int(closer.max())
    knots = (host_ns - first_ns).astype(np.float64)
    values = (closer - base_ns).astype(np.float64)
    return Bound(first_ns, base_ns, knots, values, minus_upper.drift)


@dataclass(frozen=True, slots=True)
class GpuClock:
    """Bounds of the offset, which is taken to lie in their middle."""

    lower: Bound
    minus_upper: Bound
    notice_ns: int  # how long it typically takes until the host notices a stop

    def width_ns(self) -> int:
        """Half the distance of the bounds, as a median over time. Without an upper bound, how long
        a notice typically takes.
        """
        if not self.minus_upper.is_known:
            return self.notice_ns
        last_ns = self.lower.first_ns + int(self.lower.knots[-1])
        at = np.linspace(self.lower.first_ns, last_ns, 64).astype(np.int64)
        wide = -self.minus_upper.at(at) - self.lower.at(at)
        return int(np.median(np.maximum(wide, 0))) // 2
