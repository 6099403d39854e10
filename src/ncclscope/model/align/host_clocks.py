"""One clock over all nodes: what to add to a node's time, and how far that may be off.

Node 0's clock is the reference. Nodes that no bounds tie to it in both directions, directly or
through others, are placed by their wall clocks, and their error is infinite.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.align.bounds import Bounds, CollectiveBounds, Rough, join_bounds, tightest
from ncclscope.model.align.far_clocks import (
    LocalBounds,
    LocalTimes,
    join_local_bounds,
    rough_offsets,
    tied_clusters,
)
from ncclscope.model.align.instance_points import InstancePoints, InstanceTimes, points_of
from ncclscope.model.align.offsets import ClockOffsets, clock_offsets_of
from ncclscope.model.align.pair_points import MOST_NODES, PairPoints
from ncclscope.model.align.stretch import Points
from ncclscope.model.node_clock import NodeClock, line_at

_NEVER = np.iinfo(np.int64).max
_FAR = 1 << 61  # damaged times stay within this instead of wrapping around
_FAR_FLOAT = float(1 << 62)
_STEP_BINS = 64  # of proxy steps that are kept, for many nodes
Solution = tuple[Ints, ClockOffsets]  # by node where its time begins; offsets since then


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes that bounds tie to each other, and the offsets of their clocks."""

    nodes: Ints
    first_ns: int  # on the reference's clock: where the offsets' time begins
    offsets: ClockOffsets

    def error_among(self, nodes: Ints, time_ns: Ints) -> Floats:
        """How far the difference of any two of the nodes may be off, at each time."""
        place = np.searchsorted(self.nodes, nodes)
        single = self.offsets.error[:, place]
        worst: Floats
        if self.offsets.between is None:
            worst = np.sort(single, axis=1)[:, -2:].sum(axis=1)
        else:
            paired = self.offsets.between[:, place[:, None], place]
            both = np.minimum(single[:, :, None] + single[:, None, :], paired)
            both[:, np.arange(len(place)), np.arange(len(place))] = 0.0
            worst = both.max(axis=(1, 2))
        since = (time_ns - self.first_ns).astype(np.float64)
        return np.maximum(line_at(since, self.offsets.knots, worst), 0.0)


@dataclass(frozen=True, slots=True)
class HostClocks:
    """The clocks of all nodes."""

    nodes: tuple[NodeClock, ...]
    clusters: tuple[Cluster, ...]

    def to_reference(self, node: int, local_ns: Ints) -> Ints:
        """Times of a node on the one clock."""
        return self.nodes[node].to_reference(local_ns)

    def error_at(self, node: int, local_ns: Ints) -> Floats:
        """How far times of a node may be off on the one clock."""
        return self.nodes[node].error_at(local_ns)

    def error_among(self, nodes: Ints, time_ns: Ints) -> Floats:
        """How far times of any two of these nodes may be off against each other, at times of the
        one clock. Infinite where nothing ties them.
        """
        nodes = np.unique(nodes)
        if len(nodes) < 2:
            return np.zeros(len(time_ns))
        clusters: set[int] = {self.nodes[node].cluster for node in nodes.tolist()}
        if len(clusters) > 1:
            return np.full(len(time_ns), np.inf)
        return self.clusters[clusters.pop()].error_among(nodes, time_ns)


def solve(
    wall_ns: Sequence[int],
    bounds: Bounds | None = None,
    collectives: CollectiveBounds | None = None,
) -> HostClocks:
    """The clocks of all nodes. `wall_ns`: by node CLOCK_REALTIME minus CLOCK_MONOTONIC; `bounds`:
    from proxy steps.
    """
    empty = np.empty(0, np.int64)
    steps = bounds if bounds is not None else Bounds(empty, empty, empty, empty)
    by = _solve_by_pairs if len(wall_ns) <= MOST_NODES else _solve_by_instances
    clocks: dict[int, NodeClock] = {}
    clusters: list[Cluster] = []
    for nodes, solution in by(len(wall_ns), steps, collectives):
        shift = int(wall_ns[nodes[0]]) - int(wall_ns[0])
        if solution is None:
            clusters.append(_lone(nodes, shift))
            offset = np.array([shift], np.int64)
            clocks[int(nodes[0])] = NodeClock(offset * 0, offset, np.zeros(1), len(clusters) - 1)
            continue
        local_first, offsets = solution
        first_ns = int(local_first[0]) + shift
        clusters.append(Cluster(nodes, first_ns, offsets))
        knots = np.rint(offsets.knots).astype(np.int64)
        for place, node in enumerate(nodes.tolist()):
            offset = first_ns - local_first[place] + np.rint(offsets.offset[:, place])
            clocks[node] = NodeClock(
                local_first[place] + knots,
                offset.astype(np.int64),
                offsets.error[:, place],
                len(clusters) - 1,
            )
    return HostClocks(tuple(clocks[node] for node in range(len(wall_ns))), tuple(clusters))


def _solve_by_pairs(
    count: int, steps: Bounds, collectives: CollectiveBounds | None
) -> Iterator[tuple[Ints, Solution | None]]:
    """The clusters and their offsets, None for a single node; for few nodes."""
    sample = join_bounds([steps, collectives.sample()]) if collectives else steps
    limit = np.full((count, count), _NEVER, np.int64)
    np.minimum.at(limit, (sample.node_a, sample.node_b), sample.end_ns - sample.start_ns)
    for nodes in _clusters(limit < _NEVER):
        if len(nodes) == 1:
            yield nodes, None
        else:
            yield nodes, _pairs_of_cluster(nodes, limit, sample, steps, collectives)


def _solve_by_instances(
    count: int, steps: Bounds, collectives: CollectiveBounds | None
) -> Iterator[tuple[Ints, Solution | None]]:
    """The same in steps that are linear in nodes, of bounds by instance; for many nodes."""
    local = collectives.local_bounds() if collectives else join_local_bounds([])
    bounds = join_local_bounds([_local_bounds(steps), local])
    for nodes in tied_clusters(bounds, count):
        if len(nodes) == 1:
            yield nodes, None
            continue
        inside = np.zeros(count, bool)
        inside[nodes] = True
        place = np.where(inside, np.cumsum(inside) - 1, -1)
        own = local.within(inside)
        offset = rough_offsets(bounds, nodes, count)
        ends = bounds.within(inside).ends
        local_first = int((ends.time_ns + offset[ends.node]).min()) - offset
        gather = partial(_instance_points, own, _within(steps, place), place, local_first)
        if len(steps):
            yield nodes, _solve_cluster(local_first[nodes], place, gather)
        else:  # nothing is chosen by rough times
            points = gather(lambda _, local_ns: local_ns.astype(np.float64), without_drift=True)
            yield nodes, (local_first[nodes], clock_offsets_of(points, len(nodes)))


def _instance_points(
    local: LocalBounds,
    steps: Bounds,
    place: Ints,
    local_first: Ints,
    rough: Rough,
    without_drift: bool,
) -> InstancePoints:
    """Starts and ends as times since the beginning, with the tightest of the proxy steps."""
    bounds = join_local_bounds([_local_bounds(tightest(steps, rough, _STEP_BINS)), local])

    def since(times: LocalTimes) -> InstanceTimes:
        time = (times.time_ns - local_first[times.node]).astype(np.float64)
        return InstanceTimes(times.instance, place[times.node], time)

    points = points_of(since(bounds.starts), since(bounds.ends))
    return points if without_drift else points.with_drift()


def _local_bounds(bounds: Bounds) -> LocalBounds:
    """Bounds between two nodes, each as an instance of its own."""
    number = np.arange(len(bounds))
    return LocalBounds(
        len(bounds),
        LocalTimes(number, bounds.node_b, bounds.start_ns),
        LocalTimes(number, bounds.node_a, bounds.end_ns),
    )


def _lone(nodes: Ints, shift: int) -> Cluster:
    nothing = np.zeros((1, 1))
    return Cluster(nodes, shift, ClockOffsets(np.zeros(1), nothing, nothing, None, 1.0))


def _clusters(tied: npt.NDArray[np.bool_]) -> list[Ints]:
    """Nodes that reach each other both ways, the first node's cluster first."""
    reach = tied | np.eye(len(tied), dtype=bool)
    while True:
        further = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
        if (further == reach).all():
            break
        reach = further
    first = (reach & reach.T).argmax(axis=1)
    return [np.flatnonzero(first == node) for node in np.unique(first)]


def _far_offsets(limit: Ints) -> Ints:
    """Rough offsets of far clocks: what to add to each node's times to be near the first one's.
    Node by node, the best known one next.
    """
    known = limit < _NEVER
    upper = np.where(known, limit, 0).astype(np.float64)
    upper[~known] = _FAR_FLOAT
    width = np.abs(upper + upper.T)  # drift can make it negative
    offset = np.zeros(len(limit), np.int64)
    done = np.zeros(len(limit), bool)
    best, via = np.full(len(limit), np.inf), np.zeros(len(limit), np.int64)
    node = 0
    while True:
        done[node] = True
        closer = ~done & (known[node] | known[:, node]) & (width[node] < best)
        best[closer], via[closer] = width[node][closer], node
        if done.all() or not np.isfinite(best[~done]).any():
            return offset
        node = int(np.where(done, np.inf, best).argmin())
        a = int(via[node])
        most = int(limit[a, node]) if known[a, node] else -int(limit[node, a])
        least = -int(limit[node, a]) if known[node, a] else most
        offset[node] = np.clip(int(offset[a]) + (most + least) // 2, -_FAR, _FAR)


def _pairs_of_cluster(
    nodes: Ints, limit: Ints, sample: Bounds, steps: Bounds, collectives: CollectiveBounds | None
) -> Solution:
    """The offsets of a cluster by the bounds between pairs of its nodes."""
    place = np.full(len(limit), -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    offset = _far_offsets(limit[np.ix_(nodes, nodes)])
    inside = place[sample.node_a] >= 0
    begin = sample.end_ns[inside] + offset[place[sample.node_a[inside]]]
    local_first = int(begin.min()) - offset

    def since(node: Ints, local_ns: Ints) -> Floats:
        return (local_ns - local_first[place[node]]).astype(np.float64)

    def gather(rough: Rough, without_drift: bool) -> PairPoints:
        """The tightest bounds within the cluster, as times since its beginning."""
        bounds = tightest(_within(steps, place), rough)
        if collectives is not None:
            bounds = join_bounds([bounds, _within(collectives.tightest(rough), place)])
        end, start = since(bounds.node_a, bounds.end_ns), since(bounds.node_b, bounds.start_ns)
        order = np.argsort(end, kind="stable")
        a, b = place[bounds.node_a[order]], place[bounds.node_b[order]]
        return PairPoints(a, b, end[order], start[order], without_drift)

    return _solve_cluster(local_first, place, gather)


def _solve_cluster(
    local_first: Ints, place: Ints, gather: Callable[[Rough, bool], Points]
) -> Solution:
    """The offsets of a cluster. `local_first`: by node of it the local time at which the offsets'
    time begins; `place`: by node of all its number in the cluster; `gather`: the bounds, of which
    the tightest are chosen by rough times, and whether these are without drift.
    """

    def since(node: Ints, local_ns: Ints) -> Floats:
        return (local_ns - local_first[place[node]]).astype(np.float64)

    first_try = clock_offsets_of(gather(since, False), len(local_first))

    def straightened(node: Ints, local_ns: Ints) -> Floats:
        """Times less the drift: without it, the tightest bounds of a stretch are found surely."""
        time = since(node, local_ns)
        knots, column = first_try.knots, np.maximum(place[node], 0)
        at = np.clip(np.searchsorted(knots, time) - 1, 0, len(knots) - 2)
        share = (time - knots[at]) / (knots[at + 1] - knots[at])
        low, high = first_try.offset[at, column], first_try.offset[at + 1, column]
        return time + low + share * (high - low)

    return local_first, clock_offsets_of(gather(straightened, True), len(local_first))


def _within(bounds: Bounds, place: Ints) -> Bounds:
    return bounds.where((place[bounds.node_a] >= 0) & (place[bounds.node_b] >= 0))
