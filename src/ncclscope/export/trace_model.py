"""The parts of a trace: ranks, tracks with lanes, slices in the order of time.

The Perfetto and the Chrome format write the same parts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Ints
from ncclscope.export.lanes import Lanes
from ncclscope.humanize import printable
from ncclscope.model.model import Model, process_rows
from ncclscope.model.schema import NONE

OPEN = 1 << 62  # end of a slice that has not ended
ROWS = 1 << 13  # slices of a batch: what fits a core's cache


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of one process. A trace shows it as a process; its number there is never zero."""

    number: int
    process: int
    global_rank: int
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Track:
    """One line of slices."""

    number: int
    rank: Rank
    parent: int  # number of a track; 0: the rank itself
    name: str
    lane: int = 0
    group: str = ""  # the parent's name


@dataclass(frozen=True, slots=True)
class Argument:
    """A value of each slice; NONE: it has none. With `words`, values are places in them."""

    name: str
    values: Ints
    words: Sequence[str] | None = None
    varies: bool = False  # from slice to slice; the others are encoded once for equal slices


@dataclass(frozen=True, slots=True)
class Details:
    """Names, arguments and flows of some slices."""

    name: Ints  # places in the layer's names
    arguments: list[Argument]
    flows: list[Ints] = field(default_factory=list)  # ids of flows through each slice, or NONE
    row: Ints | None = None  # row of `operations`, where slices are operations
    parent: Ints | None = None  # row of the operation above each slice, or NONE
    # Slice i has child_flow_count[i] flows to children; their ids begin at first_child_flow[i].
    first_child_flow: Ints | None = None
    child_flow_count: Ints | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """Slices of one kind on one rank."""

    rank: Rank
    category: str
    tracks: list[tuple[str, str]]  # (group, name); a group is a track above others
    names: Sequence[str]
    track: Ints  # place in `tracks`
    start_ns: Ints
    end_ns: Ints  # equal to the start: a moment; OPEN: not ended
    details: Callable[[Ints], Details]  # of slices by their places
    size_bytes: Ints | None = None  # for the counters: of each slice while it lasts
    bandwidth_kbs: Ints | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends of slices in the order of time, with the counters' values after each."""

    time_ns: Ints
    track: Ints
    bytes_in_flight: Ints | None
    bandwidth_kbs: Ints | None


@dataclass(frozen=True, slots=True)
class Slices:
    """A batch of a layer's slices in the order of starts, and all ends up to the next batch."""

    layer: Layer
    track: Ints  # numbers of tracks
    start_ns: Ints
    end_ns: Ints
    details: Details
    bytes_in_flight: Ints | None
    bandwidth_kbs: Ints | None
    ends: Ends


class Tracks:
    """Numbers of a rank's tracks. No two ranks use the same number: with 4 ranks, rank 1 has 6, 11,
    16 and so on.
    """

    def __init__(self, rank: Rank, ranks: int, first: int) -> None:
        self._rank, self._step = rank, ranks + 1
        self._next = first * self._step + rank.number
        self._numbers: dict[tuple[str, str, int], int] = {}
        self.undescribed: list[Track] = []  # new ones; the writer describes and removes them

    def number(self, group: str, name: str, lane: int) -> int:
        """The number of a track; a new track gets the next number."""
        key = (group, name, lane)
        if key not in self._numbers:
            parent = self.number("", group, 0) if group else 0
            self._numbers[key] = self._next
            self.undescribed.append(Track(self._next, self._rank, parent, name, lane, group))
            self._next += self._step
        return self._numbers[key]


def ranks_of(model: Model) -> list[Rank]:
    """All ranks in their order. A process can have several."""
    ops = model.tables["operations"]
    pairs: set[tuple[int, int]] = {(p.global_rank, n) for n, p in enumerate(model.processes)}
    for number in range(len(model.processes)):
        first, last = process_rows(ops, number)
        pairs |= {(int(rank), number) for rank in np.unique(ops["global_rank"][first:last])}
    ranked = {process for rank, process in pairs if rank != NONE}
    listed = sorted(pair for pair in pairs if pair[0] != NONE or pair[1] not in ranked)
    return [_rank(model, place + 1, process, rank) for place, (rank, process) in enumerate(listed)]


def _rank(model: Model, number: int, process: int, global_rank: int) -> Rank:
    row = model.processes[process]
    name = f"rank {global_rank}" if global_rank != NONE else f"process {process}"
    labels = [row.host, f"pid {row.pid}", *([row.gpu] if row.gpu else [])]
    if row.attempt > 0:
        labels.append(f"attempt {row.attempt}")
    if model.completeness.is_simulation:
        labels.append("SIMULATION")
    return Rank(number, process, global_rank, name, tuple(printable(label) for label in labels))


def distinct_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """One row of each set of equal rows, and for each row which of these it equals.

    Of the columns 7 7 8 and 1 1 1: rows 0 and 2, in some order; the first row equals the first of
    them, and so on.
    """
    rows = len(columns[0]) if columns else 0
    mixed = np.zeros(rows, np.uint64)
    for values in columns:
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + values.view(np.uint64)
    _, first, place = np.unique(mixed, return_index=True, return_inverse=True)
    if all((values == values[first][place]).all() for values in columns):
        return first, place
    return np.arange(rows), np.arange(rows)  # two different rows have the same hash


def slice_batches(layer: Layer, tracks: Tracks) -> Iterator[Slices]:
    """The layer's slices in batches, each slice on a track where it overlaps no other."""
    order = np.argsort(layer.start_ns, kind="stable")
    lanes, pending = Lanes(), _PendingEnds(layer)
    for first in range(0, len(order), ROWS):
        places = order[first : first + ROWS]
        start, end = layer.start_ns[places], layer.end_ns[places]
        lane = lanes.place(layer.track[places], start, end)
        track = _track_numbers(layer, tracks, layer.track[places], lane)
        is_last = first + ROWS >= len(order)
        until = OPEN - 1 if is_last else int(layer.start_ns[order[first + ROWS]])
        counters, ends = pending.next(places, track, until)
        yield Slices(layer, track, start, end, layer.details(places), *counters, ends)


def _track_numbers(layer: Layer, tracks: Tracks, track: Ints, lane: Ints) -> Ints:
    """The number of each slice's track, by place in `layer.tracks` and lane."""
    most = int(lane.max(initial=0)) + 1
    keys, inverse = np.unique(track * most + lane, return_inverse=True)
    numbers = []
    for key in keys.tolist():
        group, name = layer.tracks[key // most]
        numbers.append(tracks.number(group, name, key % most))
    return np.array(numbers, np.int64)[inverse]


class _PendingEnds:
    """Ends of slices whose starts are written, and the counters' values so far."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._places = np.empty(0, np.int64)
        self._tracks = np.empty(0, np.int64)
        self._values = [0, 0]

    def next(
        self, places: Ints, track: Ints, until_ns: int
    ) -> tuple[tuple[Ints | None, Ints | None], Ends]:
        """The counters at the starts of these slices, and all ends up to `until_ns`."""
        layer = self._layer
        lasting = layer.end_ns[places] > layer.start_ns[places]
        waiting = np.concatenate([self._places, places[lasting]])
        tracks = np.concatenate([self._tracks, track[lasting]])
        due = layer.end_ns[waiting] <= until_ns
        self._places, self._tracks = waiting[~due], tracks[~due]
        ending, tracks = waiting[due], tracks[due]
        order = np.argsort(layer.end_ns[ending], kind="stable")
        ending, tracks = ending[order], tracks[order]
        starts: list[Ints | None] = []
        ends: list[Ints | None] = []
        for number, weights in enumerate((layer.size_bytes, layer.bandwidth_kbs)):
            at_start, at_end = self._count(number, weights, places, lasting, ending)
            starts.append(at_start)
            ends.append(at_end)
        return (starts[0], starts[1]), Ends(layer.end_ns[ending], tracks, ends[0], ends[1])

    def _count(
        self,
        number: int,
        weights: Ints | None,
        places: Ints,
        lasting: npt.NDArray[np.bool_],
        ending: Ints,
    ) -> tuple[Ints | None, Ints | None]:
        """A counter's values at starts and at ends. At equal times ends come first."""
        if weights is None:
            return None, None
        layer = self._layer
        when = np.concatenate([layer.end_ns[ending], layer.start_ns[places]])
        change = np.concatenate([-weights[ending], np.where(lasting, weights[places], 0)])
        order = np.argsort(when, kind="stable")
        values = np.empty(len(order), np.int64)
        values[order] = self._values[number] + np.cumsum(change[order])
        if len(order):
            self._values[number] = int(values[order[-1]])
        return values[len(ending) :], values[: len(ending)]
