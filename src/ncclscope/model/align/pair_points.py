"""Bounds of a few nodes, pair by pair: an end on one node is not before a start on another."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.align.stretch import WINDOWS, Bands, Slopes, Stretch

# More nodes have too many pairs: instance_points.py. Both give the same clocks, but of 128 nodes
# pairs take 32 s and 2 GB, instances 9 s and 0.2 GB (docs/measurements/scale.md).
MOST_NODES = 16
_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class PairLimits:
    """The tightest limit on x_b - x_a by window, a and b."""

    limits: Floats

    def bands(self) -> Bands | None:
        """Lowest and highest value of each node by window, the first node's being 0; None where
        limits contradict each other.
        """
        high = _shortest(self.limits)
        low = _shortest(self.limits.transpose(0, 2, 1))
        if high is None or low is None or (high + low < 0).any():
            return None
        return -low, high

    def between(self, residual: Floats) -> npt.NDArray[np.float32]:
        """At each knot how far the difference of two nodes may be off."""
        nodes = self.limits.shape[1]
        closed = self.limits.copy()
        for via in range(nodes):  # Floyd and Warshall's algorithm, all windows at once
            np.minimum(closed, closed[:, :, via, None] + closed[:, None, via, :], out=closed)
        middle = residual[2:-2]
        difference = middle[:, None, :] - middle[:, :, None]
        error = np.maximum(closed - difference, closed.transpose(0, 2, 1) + difference)
        out = np.full((len(residual), nodes, nodes), np.inf, np.float32)
        out[2:-2] = error
        return out


@dataclass(frozen=True, slots=True)
class PairPoints:
    """Bounds in the order of `end`, nodes numbered from 0: `end` on a is not before `start` on
    b.
    """

    a: Ints
    b: Ints
    end: Floats
    start: Floats
    without_drift: bool = False  # the tightest ones were chosen after drift was taken out

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last end."""
        return float(self.end[0]), float(self.end[-1])

    def __len__(self) -> int:
        return len(self.end)

    def between(self, first: float, last: float) -> "PairPoints":
        """The bounds that end in [first, last)."""
        low, high = np.searchsorted(self.end, (first, last))
        part = slice(int(low), int(high))
        return replace(
            self, a=self.a[part], b=self.b[part], end=self.end[part], start=self.start[part]
        )

    def with_drift(self) -> "PairPoints":
        """The same bounds, of which nothing is said about drift."""
        return replace(self, without_drift=False)

    def limits(self, stretch: Stretch, slopes: Slopes) -> PairLimits:
        """The tightest limit of each window and pair."""
        window, middle = stretch.window(self.end), stretch.middle
        centre = stretch.centre[window]
        limit = self.end - self.start + slopes.widening
        drift = slopes.slope[self.a] * (self.end - middle)
        limit += drift - slopes.slope[self.b] * (self.start - middle)
        limit += slopes.error[self.a] * np.abs(self.end - centre)
        limit += slopes.error[self.b] * np.abs(self.start - centre)
        nodes = len(slopes.slope)
        limits = np.full((WINDOWS, nodes, nodes), np.inf)
        limits[:, np.arange(nodes), np.arange(nodes)] = 0.0
        np.minimum.at(limits.reshape(-1), (window * nodes + self.a) * nodes + self.b, limit)
        return PairLimits(limits)


def _shortest(limits: Floats) -> Floats | None:
    """Length of the shortest path from the first node by window; None where a loop is negative."""
    windows, nodes, _ = limits.shape
    lengths = np.array(limits[:, 0, :])
    step = max(_AT_ONCE // (nodes * nodes), 1)
    for at in range(0, windows, step):
        part = slice(at, at + step)
        for _ in range(nodes + 1):
            shorter = (lengths[part][:, :, None] + limits[part]).min(axis=1)
            if not (shorter < lengths[part] - 1e-3).any():
                break
            lengths[part] = shorter
        else:
            return None
    return None if (lengths[:, 0] < 0).any() else lengths
