"""Brings far clocks of many nodes together: which nodes are tied, and roughly how far they are.

The same as host_clocks.py does pair by pair, in steps that are linear in starts and ends.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.model.align.stretch import Ints

Bools = npt.NDArray[np.bool_]
_FAR = 1 << 61  # damaged times stay within this instead of wrapping around


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """Starts or ends of instances on their nodes' own clocks."""

    instance: Ints
    node: Ints
    time_ns: Ints

    def where(self, chosen: Bools) -> "LocalTimes":
        """Some of them."""
        return LocalTimes(self.instance[chosen], self.node[chosen], self.time_ns[chosen])


@dataclass(frozen=True, slots=True)
class LocalBounds:
    """No end of an instance is before any of its starts."""

    instances: int
    starts: LocalTimes
    ends: LocalTimes

    def within(self, inside: Bools) -> "LocalBounds":
        """Those of some nodes, by a mask."""
        return LocalBounds(
            self.instances,
            self.starts.where(inside[self.starts.node]),
            self.ends.where(inside[self.ends.node]),
        )


def join_local_bounds(parts: list[LocalBounds]) -> LocalBounds:
    """Several bounds as one."""
    first = np.cumsum([0, *(part.instances for part in parts)])
    sides = []
    for name in ("starts", "ends"):
        times = [getattr(part, name) for part in parts]
        empty = np.empty(0, np.int64)
        numbers = [own.instance + at for own, at in zip(times, first[:-1].tolist(), strict=True)]
        sides.append(
            LocalTimes(
                np.concatenate([empty, *numbers]),
                np.concatenate([empty, *(own.node for own in times)]),
                np.concatenate([empty, *(own.time_ns for own in times)]),
            )
        )
    return LocalBounds(int(first[-1]), *sides)


def tied_clusters(bounds: LocalBounds, count: int) -> list[Ints]:
    """Nodes that reach each other both ways, the first node's cluster first."""
    left = np.ones(count, bool)
    clusters = []
    for node in range(count):
        if left[node]:
            bounds = bounds.within(left)
            there = _reached(bounds.ends, bounds.starts, bounds.instances, node, count)
            back = _reached(bounds.starts, bounds.ends, bounds.instances, node, count)
            nodes = np.flatnonzero(there & back)
            clusters.append(nodes)
            left[nodes] = False
    return clusters


def _reached(out: LocalTimes, back: LocalTimes, instances: int, first: int, count: int) -> Bools:
    """Nodes to which paths lead from the first one, from nodes to instances and back."""
    reached = np.zeros(count, bool)
    reached[first] = True
    while True:
        seen = np.zeros(instances, bool)
        seen[out.instance[reached[out.node]]] = True
        further = reached.copy()
        further[back.node[seen[back.instance]]] = True
        if (further == reached).all():
            return reached
        reached = further


def rough_offsets(bounds: LocalBounds, nodes: Ints, count: int) -> Ints:
    """By node what to add to its times to be near those of the first of `nodes`; 0 for others.

    The nodes that share instances with those that are placed follow next. Drift can make a node's
    lower limit larger than its upper one: half-way between them is near enough.
    """
    inside = np.zeros(count, bool)
    inside[nodes] = True
    bounds = bounds.within(inside)
    offset = np.zeros(count, np.int64)
    placed = ~inside
    placed[nodes[0]] = True
    while not placed.all():
        low, high = _limits(bounds, offset, placed)
        has_low, has_high = low > -_FAR * 2, high < _FAR * 2
        both = ~placed & has_low & has_high
        chosen = both if both.any() else ~placed & (has_low | has_high)
        if not chosen.any():
            return offset
        low, high = np.where(has_low, low, high), np.where(has_high, high, low)
        offset[chosen] = np.clip(low[chosen] // 2 + high[chosen] // 2, -_FAR, _FAR)
        placed |= chosen
    return offset


def _limits(bounds: LocalBounds, offset: Ints, placed: Bools) -> tuple[Ints, Ints]:
    """By node between which its offset lies, by the instances that it shares with placed nodes."""
    starts, ends = bounds.starts, bounds.ends
    start_ns, end_ns = (np.clip(side.time_ns, -_FAR, _FAR) for side in (starts, ends))
    begun = np.full(bounds.instances, -_FAR * 2, np.int64)
    own = placed[starts.node]
    np.maximum.at(begun, starts.instance[own], start_ns[own] + offset[starts.node[own]])
    over = np.full(bounds.instances, _FAR * 2, np.int64)
    own = placed[ends.node]
    np.minimum.at(over, ends.instance[own], end_ns[own] + offset[ends.node[own]])
    high = np.full(len(offset), _FAR * 2, np.int64)
    own = over[starts.instance] < _FAR * 2
    np.minimum.at(high, starts.node[own], over[starts.instance[own]] - start_ns[own])
    low = np.full(len(offset), -_FAR * 2, np.int64)
    own = begun[ends.instance] > -_FAR * 2
    np.maximum.at(low, ends.node[own], begun[ends.instance[own]] - end_ns[own])
    return low, high
