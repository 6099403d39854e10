"""A GPU's clock against its host's: bounds from what cannot be otherwise.

A stamp was written before the host read it, and a kernel starts after its launch began. So the
offset (GPU minus host) lies between max(stop stamp - time it was seen) and min(start stamp -
launch). A stamp that belongs to an earlier work is too old and cannot raise the lower bound.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
WINDOW_NS = 5_000_000_000
DRIFT_PPM = 20  # more than a GPU's clock was ever seen to drift (1.5)
_STEP_NS = WINDOW_NS * DRIFT_PPM // 1_000_000
_FAR = 1 << 62
_UNKNOWN = 3 << 60  # beyond any offset: GPU clocks count ns since 1970


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on the offset by window of host time."""

    first_ns: int
    offset_ns: Ints

    def at(self, host_ns: Ints) -> Ints:
        """The bound at those times."""
        window = np.clip((host_ns - self.first_ns) // WINDOW_NS, 0, len(self.offset_ns) - 1)
        return self.offset_ns[window]


def _spread(best: Ints) -> Ints:
    """A bound known in one window holds in its neighbours but for the drift."""
    place = np.arange(len(best)) * _STEP_NS
    forward = np.maximum.accumulate(best + place) - place
    backward = np.maximum.accumulate((best - place)[::-1])[::-1] + place
    return np.maximum(forward, backward)


def lower_bound(seen_ns: Ints, stop_stamp: Ints) -> Bound:
    """The offset is at least this."""
    first = int(seen_ns.min())
    window = (seen_ns - first) // WINDOW_NS
    best = np.full(int(window.max()) + 1, -_FAR, np.int64)
    np.maximum.at(best, window, stop_stamp - seen_ns)
    return Bound(first, _spread(best))


def upper_bound(launch_ns: Ints, start_stamp: Ints, like: Bound) -> Bound:
    """The offset is at most this, by the same windows; far away where nothing is known."""
    best = np.full(len(like.offset_ns), -_FAR, np.int64)
    window = np.clip((launch_ns - like.first_ns) // WINDOW_NS, 0, len(best) - 1)
    np.maximum.at(best, window, launch_ns - start_stamp)
    return Bound(like.first_ns, -_spread(best))


@dataclass(frozen=True, slots=True)
class GpuClock:
    """The offset in the middle of its bounds."""

    lower: Bound
    upper: Bound

    def to_host(self, stamps: Ints) -> Ints:
        """Host times of stamps, so that nothing starts before its launch or ends after it was
        seen.
        """
        rough = stamps - int(self.lower.offset_ns[0])
        low, high = self.lower.at(rough), self.upper.at(rough)
        bounded = high < _UNKNOWN
        middle = np.where(bounded, (low + np.maximum(high, low)) // 2, low)
        return stamps - middle

    def width_ns(self) -> int:
        """Half the distance of the bounds where it is largest, 0 where there is one bound only."""
        known = self.upper.offset_ns < _UNKNOWN
        wide = (self.upper.offset_ns - self.lower.offset_ns)[known]
        return int(np.abs(wide).max()) // 2 if len(wide) else 0
