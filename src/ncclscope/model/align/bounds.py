"""Bounds between two nodes' clocks: an end on one node is not before a start on the other.

They come from collectives in which ranks wait for each other, and from proxy steps: data cannot
arrive before it was sent. Only the tightest of a stretch of time are kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.library import full_array
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.align.far_clocks import LocalBounds, LocalTimes, join_local_bounds
from ncclscope.model.align.pair_points import MOST_NODES
from ncclscope.model.process.proxy_step_times import StepTimes
from ncclscope.model.schema import NONE
from ncclscope.model.streams import (
    PAIRS,
    Columns,
    Rules,
    Streams,
    distinct,
    meets_of,
)
from ncclscope.nccl.functions import EVERYBODY, NOBODY, ROOT_FIRST, ROOT_LAST

# Times of nodes' own clocks -> times that can roughly be compared: (nodes, local ns) -> ns.
Rough = Callable[[Ints, Ints], Floats]

_NEVER = np.iinfo(np.int64).max
_MOST_BOUNDS = 1 << 21
_MOST_BINS, _FEWEST_BINS = 2048, 16
_MOST_BLOCKS = 1 << 14  # bins of all streams
_MOST_AT_ONCE = 1 << 21
_MOST_COMPARED = 1 << 28  # of one stream
# Starts and ends that are kept: 2,000 instances of a stream align clocks as well as 60,000 do, 100
# nearly so (docs/measurements/scale.md).
_MOST_CELLS = 1 << 21
_MOST_INSTANCES, _FEWEST_INSTANCES = 2048, 32


@dataclass(frozen=True, slots=True)
class Bounds:
    """`end_ns` on node a's clock is not before `start_ns` on node b's."""

    node_a: Ints
    node_b: Ints
    end_ns: Ints
    start_ns: Ints

    def __len__(self) -> int:
        return len(self.node_a)

    def where(self, chosen: npt.NDArray[np.generic] | slice) -> "Bounds":
        """Some of them, by a mask, places or a slice."""
        return Bounds(
            self.node_a[chosen], self.node_b[chosen], self.end_ns[chosen], self.start_ns[chosen]
        )


def join_bounds(parts: Sequence[Bounds]) -> Bounds:
    """Several bounds as one."""
    empty = np.empty(0, np.int64)
    return Bounds(
        np.concatenate([empty, *(part.node_a for part in parts)]),
        np.concatenate([empty, *(part.node_b for part in parts)]),
        np.concatenate([empty, *(part.end_ns for part in parts)]),
        np.concatenate([empty, *(part.start_ns for part in parts)]),
    )


def tightest(bounds: Bounds, rough: Rough, bins: int = _MOST_BINS) -> Bounds:
    """The tightest bound of each pair of nodes in each of `bins` stretches of time."""
    if not len(bounds):
        return bounds
    end, start = rough(bounds.node_a, bounds.end_ns), rough(bounds.node_b, bounds.start_ns)
    first, last = end.min(), end.max()
    place = np.minimum((end - first) * (bins / max(last - first, 1.0)), bins - 1).astype(np.int64)
    nodes = int(max(bounds.node_a.max(), bounds.node_b.max())) + 1
    key = (place * nodes + bounds.node_a) * nodes + bounds.node_b
    order = np.lexsort((end - start, key))
    key = key[order]
    return bounds.where(order[np.concatenate([[True], key[1:] != key[:-1]])])


# ---- proxy steps ----
@dataclass(frozen=True, slots=True)
class ProxyStepTimes:
    """One side's proxy steps. `time_ns`, host's clock: of senders state 9, of receivers 11."""

    communicator: Ints
    sender: Ints
    receiver: Ints
    channel: Ints
    order: Ints  # of the proxy op among those of the same communicator, ranks and channel
    step: Ints
    node: Ints
    time_ns: Ints


def steps_on_node(times: StepTimes, comm_rows: Ints, node: int) -> ProxyStepTimes:
    """A process's steps with rows of the capture's communicators, on its node."""
    times = times.of(times.communicator < len(comm_rows) - 1)  # the last stands for none
    return ProxyStepTimes(
        communicator=comm_rows[times.communicator],
        sender=times.sender,
        receiver=times.receiver,
        channel=times.channel,
        order=times.order,
        step=times.step,
        node=np.full(len(times.step), node, np.int64),
        time_ns=times.time_ns,
    )


def join_steps(parts: Sequence[ProxyStepTimes]) -> ProxyStepTimes:
    """Several processes' steps as one."""
    empty = np.empty(0, np.int64)
    return ProxyStepTimes(
        *(
            np.concatenate([empty, *(getattr(part, name) for part in parts)])
            for name in ProxyStepTimes.__slots__
        )
    )


def bounds_of_steps(sends: ProxyStepTimes, receives: ProxyStepTimes) -> Bounds:
    """Bounds from steps: a receive is not before its send. Steps that do not occur exactly once on
    both sides are left out.
    """
    names = ("communicator", "sender", "receiver", "channel", "order", "step")
    keys = [np.concatenate([getattr(sends, name), getattr(receives, name)]) for name in names]
    side = np.repeat([0, 1], [len(sends.step), len(receives.step)])
    order = np.lexsort((side, *reversed(keys)))
    same = np.ones(max(len(order) - 1, 0), bool)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    alone = np.ones(len(same), bool)  # the step before and the one after the two are others
    alone[1:] &= ~same[:-1]
    alone[:-1] &= ~same[1:]
    at = np.flatnonzero(same & alone & (side[order[:-1]] == 0) & (side[order[1:]] == 1))
    send, receive = order[at], order[at + 1] - len(sends.step)
    bounds = Bounds(
        receives.node[receive], sends.node[send], receives.time_ns[receive], sends.time_ns[send]
    )
    is_usable = (
        (bounds.node_a != bounds.node_b) & (bounds.end_ns != NONE) & (bounds.start_ns != NONE)
    )
    return bounds.where(is_usable)


# ---- operations ----
class CollectiveBounds:
    """By instance and node the latest start and the earliest end: no rank ends before the last one
    of those that it waits for has started.
    """

    def __init__(self, streams: Streams, nodes: Mapping[int, Ints], rules: Rules) -> None:
        self._streams, self._rules = streams, rules
        self._nodes = [
            nodes.get(communicator, np.empty(0, np.int64))
            for communicator in streams.communicator.tolist()
        ]
        self._width = np.array([len(members) for members in self._nodes], np.int64)
        self._width[(streams.kind == PAIRS) | (self._width < 2)] = 0
        self._step = self._sampling_step(
            int(max((own.max(initial=-1) for own in nodes.values()), default=-1)) + 1
        )
        self._kept = -(-streams.length // self._step)  # instances
        cells = self._width * self._kept
        self._first_cell = np.cumsum(cells) - cells
        self._latest_start = full_array(int(cells.sum()), np.int64, -_NEVER)
        self._earliest_end = full_array(int(cells.sum()), np.int64, _NEVER)

    def _sampling_step(self, nodes: int) -> Ints:
        """By stream of how many instances one is used. With few nodes that is all of them, unless
        there are so many that memory would grow with the length of the job: then streams keep at
        least 2,048.
        """
        length, width = self._streams.length, self._width
        if nodes <= MOST_NODES:
            step = -(-int((width * length).sum()) // _MOST_CELLS)
            return np.maximum(np.minimum(length // _MOST_INSTANCES, step), 1)
        most = _MOST_CELLS // max(int(width.sum()), 1)
        most = min(max(most, _FEWEST_INSTANCES), _MOST_INSTANCES)
        return np.maximum(-(-length // most), 1)

    def add(self, columns: Columns, width_ns: int = 0) -> None:
        """Adds operations of one process, with times on its node's own clock. `width_ns`: how far
        its times may be off (half the width of the GPU's mapping).
        """
        stream, row = self._streams.find(columns)
        meets = meets_of(columns, self._rules)
        use = np.flatnonzero((row != NONE) & (meets != NOBODY))
        use = use[self._width[stream[use]] > 0]
        number = row[use] - self._streams.first_row[stream[use]]
        sampled = number % self._step[stream[use]] == 0
        use, number = use[sampled], number[sampled]
        stream, meets = stream[use], meets[use]
        node = columns["node"][use].astype(np.int64)
        column = np.empty(len(use), np.int64)
        for place in distinct(stream).tolist():
            own = stream == place
            column[own] = np.searchsorted(self._nodes[place], node[own])
        number //= self._step[stream]
        cell = self._first_cell[stream] + number * self._width[stream] + column
        root = columns["root"][use] == columns["rank"][use]
        starts = (meets == EVERYBODY) | (meets == ROOT_LAST) | ((meets == ROOT_FIRST) & root)
        ends = (meets == EVERYBODY) | (meets == ROOT_FIRST) | ((meets == ROOT_LAST) & root)
        start_ns = columns["start_ns"][use].astype(np.int64) - width_ns
        end_ns = columns["end_ns"][use].astype(np.int64) + width_ns
        np.maximum.at(self._latest_start, cell[starts], start_ns[starts])
        np.minimum.at(self._earliest_end, cell[ends], end_ns[ends])

    def cells(self) -> tuple[Ints, Ints, Ints]:
        """What processes have set: cells, their latest starts and their earliest ends."""
        used = np.flatnonzero((self._latest_start > -_NEVER) | (self._earliest_end < _NEVER))
        return used, self._latest_start[used], self._earliest_end[used]

    def join(self, cells: Ints, latest_start: Ints, earliest_end: Ints) -> None:
        """Adds the cells of other processes."""
        self._latest_start[cells] = np.maximum(self._latest_start[cells], latest_start)
        self._earliest_end[cells] = np.minimum(self._earliest_end[cells], earliest_end)

    def _blocks(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Nodes, latest starts and earliest ends (instance x node) of each stream."""
        for place in np.flatnonzero(self._width * self._kept).tolist():
            shape = int(self._kept[place]), int(self._width[place])
            cells = slice(self._first_cell[place], self._first_cell[place] + shape[0] * shape[1])
            start = self._latest_start[cells].reshape(shape)
            end = self._earliest_end[cells].reshape(shape)
            used = (start > -_NEVER).any(axis=1) & (end < _NEVER).any(axis=1)
            if used.all():
                yield self._nodes[place], start, end
            elif used.any():
                yield self._nodes[place], start[used], end[used]

    def local_bounds(self) -> LocalBounds:
        """All starts and ends by instance. Instances in which a node ends before it starts, which
        only damage can do, are left out.
        """
        parts = []
        for nodes, start, end in self._blocks():
            sound = (end >= start).all(axis=1)
            start, end = start[sound], end[sound]
            sides = []
            for times, has_time in ((start, start > -_NEVER), (end, end < _NEVER)):
                row, column = np.nonzero(has_time)
                sides.append(LocalTimes(row, nodes[column], times[row, column]))
            parts.append(LocalBounds(len(start), *sides))
        return join_local_bounds(parts)

    def sample(self, most: int = 64) -> Bounds:
        """Bounds of a few instances of each stream: enough to bring far clocks together."""
        parts = []
        for nodes, start, end in self._blocks():
            most_here = max(2, min(most, _MOST_AT_ONCE // len(nodes) ** 2))
            some = np.unique(np.linspace(0, len(start) - 1, most_here).astype(np.int64))
            row, a, b = np.nonzero(
                (end[some] < _NEVER)[:, :, None] & (start[some] > -_NEVER)[:, None]
            )
            parts.append(Bounds(nodes[a], nodes[b], end[some][row, a], start[some][row, b]))
        bounds = join_bounds(parts)
        return bounds.where(bounds.node_a != bounds.node_b)

    def tightest(self, rough: Rough) -> Bounds:
        """The tightest bound of each pair of nodes and stretch of time, stream by stream."""
        streams = max(int((self._width > 0).sum()), 1)
        parts = []
        for nodes, start, end in self._blocks():
            most = min(_MOST_BLOCKS // streams, _MOST_BOUNDS // len(nodes) ** 2, _MOST_BINS)
            parts += _tightest_by_bin(nodes, start, end, rough, max(most, _FEWEST_BINS))
        bounds = join_bounds(parts)
        return bounds.where(bounds.node_a != bounds.node_b)


def _tightest_by_bin(nodes: Ints, start: Ints, end: Ints, rough: Rough, bins: int) -> list[Bounds]:
    width = len(nodes)
    column = np.broadcast_to(nodes, start.shape)
    started, ended = start > -_NEVER, end < _NEVER
    rough_start = np.where(started, rough(column, np.where(started, start, 0)), -np.inf)
    rough_end = np.where(ended, rough(column, np.where(ended, end, 0)), np.inf)
    time = rough_end.min(axis=1)
    first, last = time.min(), time.max()
    edge = np.linspace(first, last, bins + 1)[1:-1]
    order = np.argsort(time, kind="stable")
    first_row = np.concatenate(([0], np.searchsorted(time[order], edge), [len(order)]))
    first_row = np.unique(first_row)  # bins without rows have none
    most = max(_MOST_COMPARED // (bins * width * width), 4)
    if int(np.diff(first_row).max()) > most:
        rows = [_some_of(part, most) for part in np.split(order, first_row[1:-1])]
        first_row = np.concatenate(([0], np.cumsum([len(part) for part in rows])))
        order = np.concatenate(rows)
    # As many bins together as fit into memory; of one that does not fit, a part after the other.
    parts, at, step = [], 0, max(_MOST_AT_ONCE // (width * width), 1)
    while at < len(first_row) - 1:
        until = int(np.searchsorted(first_row, first_row[at] + step, side="right")) - 1
        until = max(until, at + 1)
        rows_of = order[first_row[at] : first_row[until]]
        firsts = first_row[at:until] - first_row[at]
        if len(rows_of) > step:
            bin_parts = np.split(rows_of, np.arange(step, len(rows_of), step))
            parts.append(_tightest_of_bin(nodes, start, end, rough_start, rough_end, bin_parts))
        else:
            parts.append(_tightest_of(nodes, start, end, rough_start, rough_end, rows_of, firsts))
        at = until
    return parts


def _some_of(rows: Ints, most: int) -> Ints:
    """At most so many of the rows, evenly spread."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def _tightest_of(
    nodes: Ints,
    start: Ints,
    end: Ints,
    rough_start: Floats,
    rough_end: Floats,
    rows: Ints,
    firsts: Ints,
) -> Bounds:
    """The tightest bound of each ordered pair of nodes in the instances `rows` of each bin; bins
    begin at `firsts`. Of equal ones the first.
    """
    limit = rough_end[rows][:, :, None] - rough_start[rows][:, None, :]
    least = np.minimum.reduceat(limit, firsts, axis=0)
    bin_of = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(rows))))
    places = np.where(limit == least[bin_of], np.arange(len(rows))[:, None, None], len(rows))
    first_place = np.minimum.reduceat(places, firsts, axis=0)
    which, a, b = np.nonzero(np.isfinite(least))
    row = rows[first_place[which, a, b]]
    return Bounds(nodes[a], nodes[b], end[row, a], start[row, b])


def _tightest_of_bin(
    nodes: Ints, start: Ints, end: Ints, rough_start: Floats, rough_end: Floats, parts: list[Ints]
) -> Bounds:
    """The same of one bin, whose instances come in parts."""
    width = len(nodes)
    least = np.full((width, width), np.inf)
    best = np.zeros((width, width), np.int64)
    for rows in parts:
        limit = rough_end[rows][:, :, None] - rough_start[rows][:, None, :]
        which = limit.argmin(axis=0)
        tightest_here = np.take_along_axis(limit, which[None], axis=0)[0]
        best = np.where(tightest_here < least, rows[which], best)
        least = np.minimum(tightest_here, least)
    a, b = np.nonzero(np.isfinite(least))
    row = best[a, b]
    return Bounds(nodes[a], nodes[b], end[row, a], start[row, b])
