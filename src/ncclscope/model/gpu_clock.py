"""A GPU's clock against its host's: bounds from what cannot be otherwise.

A stamp was written before the host read it, and a kernel starts after its launch began. So the
offset (GPU minus host) is at least stop stamp - time it was seen, and at most start stamp - launch.
A stamp that belongs to an earlier work is too old and cannot raise the lower bound. Over some
seconds the clocks drift apart along a straight line, which passes above the lower points: it passes
above their hull too, and below that of the upper ones.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
WINDOW_NS = 5_000_000_000
_BIN_NS = 10_000_000  # of one bin the best point counts
_DRIFT = 100e-6  # clocks do not drift faster: a good point counts for its neighbours too
_NOWHERE = float(1 << 62)


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on an offset, as one hull for each window of host time."""

    first_ns: int
    base_ns: int  # hulls are relative to it, so that doubles are exact enough
    hulls: tuple[tuple[Floats, Floats] | None, ...]

    def at(self, host_ns: Ints) -> Ints:
        """The bound at those times, rounded to whole ns upwards."""
        time = (host_ns - self.first_ns).astype(np.float64)
        window = np.clip((time // WINDOW_NS).astype(np.int64), 0, len(self.hulls) - 1)
        out = np.full(len(time), -_NOWHERE)
        for number in np.unique(window).tolist():
            mine = window == number
            out[mine] = self._in_window(number, time[mine])
        return np.ceil(np.maximum(out, -_NOWHERE)).astype(np.int64) + self.base_ns

    def _in_window(self, number: int, time: Floats) -> Floats:
        known = [k for k, hull in enumerate(self.hulls) if hull is not None]
        if not known:
            return np.full(len(time), -_NOWHERE)
        nearest = min(known, key=lambda k: abs(k - number))
        hull = self.hulls[nearest]
        assert hull is not None
        knots, values = hull
        outside = np.maximum(knots[0] - time, 0) + np.maximum(time - knots[-1], 0)
        return np.asarray(np.interp(time, knots, values) - outside * _DRIFT)

    @property
    def is_known(self) -> bool:
        """Whether any point bounds it."""
        return any(hull is not None for hull in self.hulls)


def _best_of_bins(time: Ints, value: Floats) -> tuple[Floats, Floats]:
    """The highest point of each run of points in one bin, or what better neighbours leave of it."""
    bins = time // _BIN_NS
    first = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
    best = np.maximum.reduceat(value, first)
    run = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(bins))))
    at = np.flatnonzero(value == best[run])
    _, one = np.unique(run[at], return_index=True)
    chosen = at[one]
    order = np.argsort(time[chosen], kind="stable")
    best_time, best_value = time[chosen][order].astype(np.float64), value[chosen][order]
    slope = best_time * _DRIFT
    forward = np.maximum.accumulate(best_value + slope) - slope
    backward = np.maximum.accumulate((best_value - slope)[::-1])[::-1] + slope
    return best_time, np.maximum(forward, backward)


def _hull(time: Floats, value: Floats) -> tuple[Floats, Floats]:
    """The lowest concave line over all points."""
    kept: list[tuple[float, float]] = []
    for t, v in zip(time.tolist(), value.tolist(), strict=True):
        while kept and kept[-1][0] == t and kept[-1][1] <= v:
            kept.pop()
        if kept and kept[-1][0] == t:
            continue
        while len(kept) > 1:
            (t1, v1), (t0, v0) = kept[-1], kept[-2]
            if (v1 - v0) * (t - t0) > (v - v0) * (t1 - t0):
                break
            kept.pop()
        kept.append((t, v))
    return np.array([t for t, _ in kept]), np.array([v for _, v in kept])


def bound(host_ns: Ints, offset_ns: Ints, first_ns: int, last_ns: int) -> Bound:
    """The lower bound that points (time, offset at least) give, by windows of a stretch of time."""
    windows = max(int((last_ns - first_ns) // WINDOW_NS) + 1, 1)
    if not len(host_ns):
        return Bound(first_ns, 0, (None,) * windows)
    base = int(offset_ns.max())
    time, value = _best_of_bins(host_ns - first_ns, (offset_ns - base).astype(np.float64))
    hulls: list[tuple[Floats, Floats] | None] = []
    for number in range(windows):
        # Half a window more on both sides, so that a hull is tight at its ends.
        low, high = (number - 0.5) * WINDOW_NS, (number + 1.5) * WINDOW_NS
        mine = slice(*np.searchsorted(time, [low, high]).tolist())
        hulls.append(_hull(time[mine], value[mine]) if mine.stop > mine.start else None)
    return Bound(first_ns, base, tuple(hulls))


def lower_bound(seen_ns: Ints, stop_stamp: Ints) -> Bound:
    """The offset is at least this."""
    return bound(seen_ns, stop_stamp - seen_ns, int(seen_ns.min()), int(seen_ns.max()))


def upper_bound(launch_ns: Ints, start_stamp: Ints, like: Bound) -> Bound:
    """Minus the offset is at least this: an upper bound, by the same windows."""
    last_ns = like.first_ns + len(like.hulls) * WINDOW_NS - 1
    order = np.argsort(launch_ns, kind="stable")
    launch_ns, start_stamp = launch_ns[order], start_stamp[order]
    return bound(launch_ns, launch_ns - start_stamp, like.first_ns, last_ns)


@dataclass(frozen=True, slots=True)
class GpuClock:
    """The offset in the middle of its bounds."""

    lower: Bound
    minus_upper: Bound

    def to_host(self, stamps: Ints) -> Ints:
        """Host times of stamps."""
        rough = stamps - self.lower.base_ns
        low = self.lower.at(rough)
        if not self.minus_upper.is_known:
            return stamps - low
        high = -self.minus_upper.at(rough)
        return stamps - (low + np.maximum(high - low, 0) // 2)

    def width_ns(self) -> int:
        """Half the distance of the bounds, its median over windows; 0 where there is one only."""
        if not self.minus_upper.is_known:
            return 0
        spans = [(hull[0][0] + hull[0][-1]) / 2 for hull in self.lower.hulls if hull is not None]
        at = self.lower.first_ns + np.array(spans).astype(np.int64)
        wide = -self.minus_upper.at(at) - self.lower.at(at)
        return int(np.median(np.maximum(wide, 0))) // 2
