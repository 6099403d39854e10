"""What a stretch of time gives to the bounds in it: windows, and slopes so far."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Floats, Ints

Bands = tuple[Floats, Floats]  # lowest and highest value, window x node

WINDOWS = 32


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time, cut into windows of equal length."""

    first: float
    last: float

    @property
    def width(self) -> float:
        """Length of a window."""
        return (self.last - self.first) / WINDOWS

    @property
    def middle(self) -> float:
        """Where slopes do not matter."""
        return (self.first + self.last) / 2

    @property
    def centre(self) -> Floats:
        """The centres of the windows."""
        return np.linspace(self.first + self.width / 2, self.last - self.width / 2, WINDOWS)

    def window(self, time: Floats) -> Ints:
        """The number of the window of each time."""
        return np.clip((time - self.first) / self.width, 0, WINDOWS - 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Slopes:
    """What is known of the slopes of lines, by node; `widening`: what to add to every bound."""

    slope: Floats
    error: Floats
    widening: float


class OffsetLimits(Protocol):
    """What bounds say about the offsets of a stretch once slopes are taken out."""

    def bands(self) -> Bands | None:
        """Lowest and highest value of each node by window, the first node's being 0; None where
        bounds contradict each other.
        """

    def between(self, residual: Floats) -> npt.NDArray[np.float32] | None:
        """By knot how far the difference of two nodes may be off; None for too many nodes."""


class Points(Protocol):
    """Bounds in the order of time, nodes numbered from 0."""

    @property
    def without_drift(self) -> bool:
        """Whether the bounds were chosen after drift was taken out, or not chosen at all."""

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last time."""

    def __len__(self) -> int: ...

    def between(self, first: float, last: float) -> "Points":
        """The bounds in [first, last)."""

    def with_drift(self) -> "Points":
        """The same bounds, of which nothing is said about drift."""

    def limits(self, stretch: Stretch, slopes: Slopes) -> OffsetLimits:
        """The limits of each window."""
