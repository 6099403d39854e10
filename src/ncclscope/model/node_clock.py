"""A node's clock on the one clock of a job: what aligning finds, and a saved model keeps."""

import ctypes
from dataclasses import dataclass

import numpy as np

from ncclscope.arrays import _abi
from ncclscope.arrays.library import Lines, address, length_arg, library, pointer
from ncclscope.arrays.types import Floats, Ints


def line_at(x: Floats, knots: Floats, values: Floats) -> Floats:
    """Values of straight lines between knots; the outermost lines go on beyond them. Infinite next
    to an infinite knot.
    """
    if len(knots) < 2:
        return np.full(len(x), values[0])
    place = np.clip(np.searchsorted(knots, x) - 1, 0, len(knots) - 2)
    share = (x - knots[place]) / (knots[place + 1] - knots[place])
    known = np.isfinite(values)
    low, high = (np.where(known, values, 0.0)[at] for at in (place, place + 1))
    return np.where(known[place] & known[place + 1], low + share * (high - low), np.inf)


@dataclass(frozen=True, slots=True)
class NodeClock:
    """One node's clock against the reference: straight lines between knots."""

    local_ns: Ints
    offset_ns: Ints
    error_ns: Floats  # against its cluster's first node
    cluster: int  # nodes tied to each other; 0 is the reference's

    @property
    def tied(self) -> bool:
        """False: its times are placed by its wall clock only."""
        return self.cluster == 0

    def to_reference(self, local_ns: Ints) -> Ints:
        """Times of this node on the reference's clock."""
        local_ns = np.ascontiguousarray(local_ns, np.int64)
        knots = (self.local_ns - self.local_ns[0]).astype(np.float64)
        change = (self.offset_ns - self.offset_ns[0]).astype(np.float64)
        line = Lines(len(knots), address(knots), address(change))
        clock = _abi.NodeClock(int(self.local_ns[0]), int(self.offset_ns[0]), line)
        out: Ints = np.empty(len(local_ns), np.int64)
        library().ncclscope_to_reference(
            ctypes.byref(clock), pointer(local_ns), length_arg(local_ns), pointer(out)
        )
        return out

    def error_at(self, local_ns: Ints) -> Floats:
        """How far those times may be off; infinite where only the wall clock places them."""
        if not self.tied:
            return np.full(len(local_ns), np.inf)
        away = (local_ns - self.local_ns[0]).astype(np.float64)
        knots = (self.local_ns - self.local_ns[0]).astype(np.float64)
        return np.maximum(line_at(away, knots, self.error_ns), 0.0)
