"""What a timeline is made of: ranks, tracks with lanes, slices in the order of time.

Perfetto and Chrome traces are two ways to write it down.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ncclscope.export.lanes import Lanes
from ncclscope.humanize import printable
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE

Ints = npt.NDArray[np.int64]
OPEN = 1 << 62  # end of a slice that has not ended
ROWS = 1 << 13  # slices of a piece: what fits a core's cache


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of one process: a process of the timeline. Its number is never zero."""

    number: int
    process: int
    global_rank: int
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Track:
    """One line of slices; `parent` is a track, or 0 for the rank itself."""

    number: int
    rank: Rank
    parent: int
    name: str
    lane: int = 0
    group: str = ""  # the parent's name


@dataclass(frozen=True, slots=True)
class Argument:
    """A value of each slice; NONE where it has none. With `words`, values are places in them."""

    name: str
    values: Ints
    words: Sequence[str] | None = None
    varies: bool = False  # from slice to slice, so that few slices have all arguments in common


@dataclass(frozen=True, slots=True)
class Details:
    """What is said about some slices."""

    name: Ints  # places in the layer's names
    arguments: list[Argument]
    flows: list[Ints] = field(default_factory=list)  # ids of flows through each slice, or NONE
    row: Ints | None = None  # row of `operations` of each slice that is one
    parent: Ints | None = None  # row of the operation that each slice hangs below, or NONE
    # Flows to children: those of slice i begin at child_flow[i], and are child_flows[i] many.
    child_flow: Ints | None = None
    child_flows: Ints | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """Slices of one rank that are drawn alike."""

    rank: Rank
    category: str
    tracks: list[tuple[str, str]]  # (group, name); a group is a track that holds others
    names: Sequence[str]
    track: Ints  # place in `tracks`
    start_ns: Ints
    end_ns: Ints  # equal to the start: a moment; OPEN: not ended
    details: Callable[[Ints], Details]  # of slices by their places
    size_bytes: Ints | None = None  # counted while a slice lasts
    bandwidth_kbs: Ints | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends of slices in the order of time, with what the counters are after each."""

    time_ns: Ints
    track: Ints
    bytes_in_flight: Ints | None
    bandwidth_kbs: Ints | None


@dataclass(frozen=True, slots=True)
class Slices:
    """Some slices of a layer in the order of their starts, and all ends up to the next piece."""

    layer: Layer
    track: Ints  # numbers of tracks
    start_ns: Ints
    end_ns: Ints
    details: Details
    bytes_in_flight: Ints | None
    bandwidth_kbs: Ints | None
    ends: Ends


class Tracks:
    """Numbers for a rank's tracks that no other rank's have; new ones are kept until somebody has
    described them.
    """

    def __init__(self, rank: Rank, ranks: int, first: int) -> None:
        self._rank, self._step = rank, ranks + 1
        self._next = first * self._step + rank.number
        self._numbers: dict[tuple[str, str, int], int] = {}
        self.fresh: list[Track] = []

    def number(self, group: str, name: str, lane: int) -> int:
        """The number of a track, made when it is first asked for."""
        key = (group, name, lane)
        if key not in self._numbers:
            parent = self.number("", group, 0) if group else 0
            self._numbers[key] = self._next
            self.fresh.append(Track(self._next, self._rank, parent, name, lane, group))
            self._next += self._step
        return self._numbers[key]


def ranks_of(model: Model) -> list[Rank]:
    """All ranks in their order; a process with several has several."""
    ops = model.tables["operations"]
    pairs: set[tuple[int, int]] = {(p.global_rank, n) for n, p in enumerate(model.processes)}
    for number in range(len(model.processes)):
        first, last = np.searchsorted(ops["process"], (number, number + 1)).tolist()
        pairs |= {(int(rank), number) for rank in np.unique(ops["global_rank"][first:last])}
    known = {process for rank, process in pairs if rank != NONE}
    listed = sorted(pair for pair in pairs if pair[0] != NONE or pair[1] not in known)
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


def alike(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Rows of which each is the first of its kind, and for each row which of them it is like."""
    rows = len(columns[0]) if columns else 0
    mixed = np.zeros(rows, np.uint64)
    for values in columns:
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + values.view(np.uint64)
    _, first, place = np.unique(mixed, return_index=True, return_inverse=True)
    if all((values == values[first][place]).all() for values in columns):
        return first, place
    return np.arange(rows), np.arange(rows)  # two kinds had the same number


def pieces(layer: Layer, tracks: Tracks) -> Iterator[Slices]:
    """The layer's slices piece by piece, every one on a track where it overlaps no other."""
    order = np.argsort(layer.start_ns, kind="stable")
    lanes, open_ends = Lanes(), _OpenEnds(layer)
    for first in range(0, len(order), ROWS):
        places = order[first : first + ROWS]
        start, end = layer.start_ns[places], layer.end_ns[places]
        lane = lanes.place(layer.track[places], start, end)
        track = _numbers(layer, tracks, layer.track[places], lane)
        behind = first + ROWS < len(order)
        until = int(layer.start_ns[order[first + ROWS]]) if behind else OPEN - 1
        counted, ends = open_ends.next(places, track, until)
        yield Slices(layer, track, start, end, layer.details(places), *counted, ends)


def _numbers(layer: Layer, tracks: Tracks, track: Ints, lane: Ints) -> Ints:
    """Numbers of tracks by place and lane."""
    most = int(lane.max(initial=0)) + 1
    keys, inverse = np.unique(track * most + lane, return_inverse=True)
    numbers = []
    for key in keys.tolist():
        group, name = layer.tracks[key // most]
        numbers.append(tracks.number(group, name, key % most))
    return np.array(numbers, np.int64)[inverse]


class _OpenEnds:
    """Ends that are still to come, and the counters' values."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._places = np.empty(0, np.int64)
        self._tracks = np.empty(0, np.int64)
        self._values = [0, 0]

    def next(
        self, places: Ints, track: Ints, until_ns: int
    ) -> tuple[tuple[Ints | None, Ints | None], Ends]:
        """Counters at the starts of those slices, and all ends not after `until_ns`."""
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
        """A counter's values at starts and ends; of equal times ends come first."""
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
