"""The clocks of CUDA events on one node, against each other.

A process maps its events to its host's clock by when they were recorded and when they were seen to
be over (process/gpu_clock.py). Events are seen at a later launch, maybe milliseconds after the
kernel's end, so that the mapping is off by up to that: more than most ranks are late. But in a
collective that waits for all ranks no rank's end is before any rank's start, which ties the clocks
of one node's ranks as host_clocks.py ties nodes: within about the shortest such operation.

Example: two ranks of one host; all of rank 1's events seem 1500 µs late. In an AllReduce of 40 µs
rank 0 runs from 1000 to 1040 µs, rank 1 from 2500 to 2540. Rank 0's end is not before rank 1's
start, so at least 2500 - 1040 = 1460 µs have to be taken off rank 1's times; and rank 1's end is
not before rank 0's start: at most 2540 - 1000 = 1540. 1500 ± 40 µs remain of ± 2000.

Nothing between ranks shows what all of them are off together. They are moved to where the mapping
of every one of them allows it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.align.bounds import Bounds, join_bounds
from ncclscope.model.align.host_clocks import HostClocks, solve
from ncclscope.model.align.pair_points import MOST_NODES
from ncclscope.model.node_clock import NodeClock

_KNOTS = 64  # times at which clocks are compared; between them they drift along straight lines


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Operations of one rank that were timed by CUDA events, in which all ranks wait for all."""

    process: int
    rank: int  # global; NONE where nobody tells
    node: int
    width_ns: int  # how far the times may be off on the host's clock
    row: Ints  # of the instances, each once
    start_ns: Ints  # the first event, which is not after the kernel's start
    end_ns: Ints


@dataclass(frozen=True, slots=True)
class RankClock:
    """One rank's times by CUDA events on its host's clock, and how far they may be off."""

    process: int
    rank: int
    clock: NodeClock
    among_ns: int  # against times of the node's other ranks
    on_host_ns: int  # against the host's own times


@dataclass(frozen=True, slots=True)
class NodeRanks:
    """Ranks of one node, and whether all of its processes have times by CUDA events."""

    times: tuple[EventTimes, ...]
    everybody: bool


def ranks_by_node(times: Iterable[EventTimes], nodes: Sequence[int]) -> list[NodeRanks]:
    """Ranks of nodes that can be aligned. `nodes`: of all processes. Nodes with more ranks than
    machines have GPUs are left out.
    """
    by_node: dict[int, list[EventTimes]] = {}
    for own in times:
        by_node.setdefault(own.node, []).append(own)
    processes = Counter(nodes)
    return [
        NodeRanks(tuple(ranks), len({own.process for own in ranks}) == processes[node])
        for node, ranks in by_node.items()
        if 1 < len(ranks) <= MOST_NODES
    ]


def align_event_clocks(node: NodeRanks) -> list[RankClock]:
    """The clocks of those ranks whose times the other ranks make better."""
    ranks, bounds = node.times, _bounds_of(node.times)
    aligned: list[RankClock] = []
    if len(bounds):
        clocks = solve([0] * len(ranks), bounds)
        for number in range(len(clocks.clusters)):
            members = [place for place, own in enumerate(clocks.nodes) if own.cluster == number]
            if len(members) > 1:
                alone = node.everybody and len(members) == len(ranks)
                aligned += _place_on_host(ranks, members, clocks, alone)
    return aligned


def _bounds_of(ranks: Sequence[EventTimes]) -> Bounds:
    """Ends of one rank that are not before starts of another, with the ranks' places as nodes."""
    parts = []
    for a, ends in enumerate(ranks):
        for b, starts in enumerate(ranks):
            if a != b:
                _, of_a, of_b = np.intersect1d(
                    ends.row, starts.row, assume_unique=True, return_indices=True
                )
                node_a, node_b = np.full(len(of_a), a), np.full(len(of_a), b)
                parts.append(Bounds(node_a, node_b, ends.end_ns[of_a], starts.start_ns[of_b]))
    return join_bounds(parts)


def _place_on_host(
    ranks: Sequence[EventTimes], members: list[int], clocks: HostClocks, alone: bool
) -> Iterator[RankClock]:
    """The clocks of ranks that are tied to each other, in the middle of what their mappings allow;
    none where these are closer than operations show. `alone`: no other rank of the node is there,
    which could be compared by the host's clock only.
    """
    began = min(int(ranks[place].start_ns.min()) for place in members)
    ended = max(int(ranks[place].end_ns.max()) for place in members)
    at = np.linspace(began, ended, _KNOTS).astype(np.int64)
    apart = clocks.error_among(np.array(members), at)
    relative_ns = int(np.ceil(apart.max())) // 2 + 1
    mapped_ns = max(ranks[place].width_ns for place in members)
    if not np.isfinite(apart).all() or relative_ns >= mapped_ns:
        return
    moved = np.array([clocks.nodes[place].to_reference(at) - at for place in members])
    width = np.array([[ranks[place].width_ns] for place in members]) + relative_ns
    together, host_ns = _common_shift(moved - width, moved + width)
    for row, place in enumerate(members):
        shift = np.rint(moved[row] - together).astype(np.int64)
        clock = NodeClock(at, shift, np.zeros(len(at)), 0)
        own_ns = ranks[place].width_ns + int(np.abs(shift).max())
        on_host_ns = min(host_ns + relative_ns, own_ns)
        among_ns = relative_ns if alone else on_host_ns
        yield RankClock(ranks[place].process, ranks[place].rank, clock, among_ns, on_host_ns)


def _common_shift(low: Ints, high: Ints) -> tuple[Floats, int]:
    """By time the middle of what all ranks allow, and how far that may be off. Widths are medians
    over time: where no value is allowed by all ranks, the middle is off by the gap at most.
    """
    least, most = low.max(axis=0), high.min(axis=0)
    return (least + most) / 2, int(np.ceil(np.abs(most - least).max() / 2))
