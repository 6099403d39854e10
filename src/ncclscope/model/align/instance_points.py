"""Bounds of many nodes, instance by instance: one moment lies after its starts, before its ends.

"No end is before any start" of an instance is nodes x nodes bounds. It is the same to say that some
moment is not before any start and not after any end. With that moment as a vertex next to the
nodes, shortest paths take instances x nodes steps, and no bound has to be left out.

Example, times in µs, all on their own clocks; x is what to add to a node's times, x of node 0 is 0:

    node   start   end
    0        100   190
    1        470   502
    2        930   990

Pair by pair: x1 is at most 190 - 470, by node 0's end and node 1's start, and so on, six bounds. By
the moment t of the instance: t <= 190 + x0, so t <= 190; 470 + x1 <= t gives x1 <= -280. The same
answer, by one bound for each start and one for each end.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.align.stretch import WINDOWS, Bands, Slopes, Stretch

# Paths may be as long as there are nodes, but loops of many bounds that contradict each other a
# little are not followed for long: they are taken to contradict each other.
_FEWEST_TURNS, _MOST_STEPS = 64, 1 << 28
_LEAST_GAIN = 1e-3  # ns


@dataclass(frozen=True, slots=True)
class InstanceTimes:
    """Starts or ends, in the order of `instance`."""

    instance: Ints
    node: Ints
    time: Floats

    def between(self, first: int, last: int) -> "InstanceTimes":
        """Those of the instances from first to last - 1, which are numbered from 0 again."""
        low, high = np.searchsorted(self.instance, (first, last))
        part = slice(int(low), int(high))
        return InstanceTimes(self.instance[part] - first, self.node[part], self.time[part])


@dataclass(frozen=True, slots=True)
class _Side:
    """One side's bounds as edges between `place` (window x nodes + node) and `instance`."""

    instance: Ints
    place: Ints
    length: Floats


@dataclass(frozen=True, slots=True)
class InstanceLimits:
    """Edges of the graph of nodes and instances."""

    ends: _Side  # from a node to an instance
    starts: _Side  # from an instance to a node
    instances: int
    nodes: int

    def bands(self) -> Bands | None:
        """Lowest and highest value of each node by window, the first node's being 0; None where
        bounds contradict each other.
        """
        high = _shortest(self.ends, self.starts, self.instances, self.nodes)
        low = _shortest(self.starts, self.ends, self.instances, self.nodes)
        if high is None or low is None or (high + low < 0).any():
            return None
        return -low, high

    def between(self, residual: Floats) -> npt.NDArray[np.float32] | None:
        """None: there are too many pairs."""
        return None


@dataclass(frozen=True, slots=True)
class InstancePoints:
    """Instances in the order of `time`, which is that of their earliest end."""

    time: Floats
    starts: InstanceTimes
    ends: InstanceTimes
    without_drift: bool = True

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last time."""
        return float(self.time[0]), float(self.time[-1])

    def __len__(self) -> int:
        return len(self.ends.node)

    def between(self, first: float, last: float) -> "InstancePoints":
        """The instances in [first, last)."""
        low, high = map(int, np.searchsorted(self.time, (first, last)))
        return replace(
            self,
            time=self.time[low:high],
            starts=self.starts.between(low, high),
            ends=self.ends.between(low, high),
        )

    def with_drift(self) -> "InstancePoints":
        """The same bounds, of which nothing is said about drift."""
        return replace(self, without_drift=False)

    def limits(self, stretch: Stretch, slopes: Slopes) -> InstanceLimits:
        """The edges by window, longer by what slopes may still be."""
        window, nodes = stretch.window(self.time), len(slopes.slope)

        def side(times: InstanceTimes, sign: float) -> _Side:
            own_window = window[times.instance]
            length = times.time + slopes.slope[times.node] * (times.time - stretch.middle)
            length *= sign
            away = np.abs(times.time - stretch.centre[own_window])
            length += slopes.error[times.node] * away + slopes.widening / 2
            return _Side(times.instance, own_window * nodes + times.node, length)

        return InstanceLimits(side(self.ends, 1.0), side(self.starts, -1.0), len(window), nodes)


def points_of(starts: InstanceTimes, ends: InstanceTimes) -> InstancePoints:
    """The points of starts and ends; instances without either are left out, and the others are put
    in the order of their earliest ends.
    """
    count = max(int(side.instance.max(initial=-1)) + 1 for side in (starts, ends))
    time = np.full(count, np.inf)
    np.minimum.at(time, ends.instance, ends.time)
    has_start = np.zeros(count, bool)
    has_start[starts.instance] = True
    time[~has_start] = np.inf
    order = np.argsort(time, kind="stable")
    order = order[: int(np.isfinite(time).sum())]
    number = np.full(count, -1, np.int64)
    number[order] = np.arange(len(order))
    return InstancePoints(time[order], _renumbered(starts, number), _renumbered(ends, number))


def _renumbered(times: InstanceTimes, number: Ints) -> InstanceTimes:
    instance = number[times.instance]
    order = np.argsort(instance, kind="stable")
    order = order[int((instance < 0).sum()) :]
    return InstanceTimes(instance[order], times.node[order], times.time[order])


def _shortest(out: _Side, back: _Side, instances: int, nodes: int) -> Floats | None:
    """Length of the shortest path from the first node by window, where edges of `out` lead from
    nodes to instances and those of `back` from there to nodes; None where a loop is negative.
    """
    lengths = np.full(WINDOWS * nodes, np.inf)
    lengths[::nodes] = 0.0
    first = np.flatnonzero(np.diff(out.instance, prepend=-1))
    which = out.instance[first]
    moment = np.full(instances, np.inf)
    turns = max(_MOST_STEPS // max(len(out.length), 1), _FEWEST_TURNS)
    for _ in range(min(nodes, turns) + 1):
        if len(first):
            moment[which] = np.minimum.reduceat(lengths[out.place] + out.length, first)
        shorter = lengths.copy()
        np.minimum.at(shorter, back.place, moment[back.instance] + back.length)
        if (shorter[::nodes] < -_LEAST_GAIN).any():
            return None
        if not (shorter < lengths - _LEAST_GAIN).any():
            return lengths.reshape(WINDOWS, nodes)
        lengths = shorter
    return None
