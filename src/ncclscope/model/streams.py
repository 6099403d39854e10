"""Which operations of different ranks belong together, without a sort over all of them.

Operations form streams (not CUDA's, nor the recorder's): the collective calls of a communicator,
the replays of one function on it, those inferred to be one function, the sends from one rank to
another. Within a stream all ranks number their operations alike, so the row of an instance is the
stream's first row plus that number. Processes are looked at one by one.

Example: communicator 0 has ranks 0 and 1, both call AllReduce three times, and rank 0 sends to
rank 1 twice. Two streams are found:

    stream              numbers   length   first row
    calls of 0          0 to 2         3           0
    sends 0 -> 1 of 0   0 to 1         2           3

Rank 1's second AllReduce has number 1: its instance is row 0 + 1. Rank 0's second Send and rank 1's
second Recv both have number 1 in the second stream: their instance is row 3 + 1. A rank that lost
its first AllReduce would count its second one as number 0 and match it with the wrong calls. So
where calls were lost, collectives are numbered by NCCL's own count of each function instead
(BY_SEQUENCE), and sends and receives, which NCCL does not count, have no instance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SEND, SOURCES
from ncclscope.nccl.algorithms import WITH_EXACT_STOP
from ncclscope.nccl.functions import NOBODY, waits_for

Columns = Mapping[str, npt.NDArray[np.generic]]

CALLS, REPLAYS, PAIRS, INFERRED, SEQUENCED = range(5)
# In place of a call's number: some rank lost calls, so NCCL's own number counts.
BY_SEQUENCE = -2
# Columns that give an operation's stream and its number in it.
NEEDED = ("communicator", "call_order", "form", "replay", "inferred", "function", "sequence",
          "rank", "peer")  # fmt: skip
# Columns that say who waits for whom in an operation.
MEETS_NEEDED = ("source", "symmetric", "form", "algorithm", "start_ns", "end_ns", "function")
_STAMPS = [SOURCES.index(name) for name in ("gpu", "gpu-repaired")]
_EVENT = SOURCES.index("gpu-event")
# Starts by CUDA events are as exact in short operations, whose durations they do not show.
ROUGH = SOURCES.index("gpu-event-rough")
_STARTED_SOURCES = [
    *_STAMPS, _EVENT, SOURCES.index("gpu-early"), ROUGH,
]  # fmt: skip
# A stream's code: kind << 60 | communicator << 40 | function or source rank << 20 | destination.
_BITS = 20
_MASK = (1 << _BITS) - 1
# Damaged numbers could ask for any number of rows: a stream gets at most four times as many as it
# has operations, and a share of these.
_SPARE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operation's function and algorithm promise, by the codes of their names."""

    meets: npt.NDArray[np.int8]  # by function; the last place stands for NONE
    sound: Bools  # by algorithm whether its stop stamps are exact; likewise
    send: int  # code of "Send", NONE where no function has that name


def rules_of(functions: Sequence[str], algorithms: Sequence[str]) -> Rules:
    """The rules for names; a name's place in its list is its code."""
    meets = np.array([*(waits_for(name) for name in functions), NOBODY], np.int8)
    sound = np.array([*(name in WITH_EXACT_STOP for name in algorithms), False])
    send = functions.index("Send") if "Send" in functions else NONE
    return Rules(meets, sound, send)


def meets_of(columns: Columns, rules: Rules, rough: bool = False) -> npt.NDArray[np.int8]:
    """By operation who waits for whom in it; NOBODY where its times do not show that. `rough`: also
    of operations that are too short for CUDA events: the rank that comes last has the shortest.

    The second event is behind the whole kernel, so it is exact with every algorithm.
    """
    source = columns["source"]
    sound = np.isin(source, _STAMPS) & (columns["symmetric"] != 1)
    sound &= rules.sound[columns["algorithm"]]
    sound |= np.isin(source, [_EVENT, ROUGH] if rough else [_EVENT])
    sound &= (
        (columns["form"] == COLLECTIVE)
        & (columns["start_ns"] != NONE)
        & (columns["end_ns"] != NONE)
    )
    return np.where(sound, rules.meets[columns["function"]], NOBODY).astype(np.int8)


def started_of(columns: Columns) -> Bools:
    """Whether each operation's start is exact."""
    started: Bools = np.isin(columns["source"], _STARTED_SOURCES) & (columns["start_ns"] != NONE)
    return started


def streams_and_orders(columns: Columns) -> tuple[Ints, Ints]:
    """The code of each operation's stream and its number in it; NONE for both without a number."""
    communicator, order = (columns[n].astype(np.int64) for n in ("communicator", "call_order"))
    stream = communicator << 2 * _BITS
    fits = (communicator >= 0) & (communicator <= _MASK)
    pair = (columns["form"] == SEND) | (columns["form"] == RECV)
    replay = (columns["replay"] == 1) & ~pair
    if replay.any():
        at = np.flatnonzero(replay)
        function = columns["function"][at].astype(np.int64)
        stream[at] |= REPLAYS << 3 * _BITS | np.maximum(function, 0) << _BITS
        order[at] = columns["sequence"][at]
        fits[at] &= function >= 0
    by_sequence = order == BY_SEQUENCE
    if by_sequence.any():
        at = np.flatnonzero(by_sequence)
        function = columns["function"][at].astype(np.int64)
        stream[at] |= SEQUENCED << 3 * _BITS | np.maximum(function, 0) << _BITS
        order[at] = columns["sequence"][at]
        fits[at] &= function >= 0
    inferred = (columns["inferred"] == 1) & ~pair
    if inferred.any():  # numbered by function
        at = np.flatnonzero(inferred)
        function = columns["function"][at].astype(np.int64)
        stream[at] |= INFERRED << 3 * _BITS | np.maximum(function, 0) << _BITS
        fits[at] &= function >= 0
    if pair.any():
        at = np.flatnonzero(pair)
        own, peer = (columns[name][at].astype(np.int64) for name in ("rank", "peer"))
        sends = columns["form"][at] == SEND
        source, destination = np.where(sends, own, peer), np.where(sends, peer, own)
        stream[at] |= PAIRS << 3 * _BITS | (source & _MASK) << _BITS | destination & _MASK
        fits[at] &= (own >= 0) & (own <= _MASK) & (peer >= 0) & (peer <= _MASK)
    fits &= order >= 0
    if fits.all():
        return stream, order
    return np.where(fits, stream, NONE), np.where(fits, order, NONE)


def number_by_sequence(operations: dict[str, npt.NDArray[np.generic]], incomplete: Ints) -> None:
    """Replaces the numbers of calls on communicators of which some rank lost calls, in place.

    NCCL numbers collectives by function, alike on all ranks. Sends, receives and what is inferred
    from them have no such number, and get no instance.
    """
    order = operations["call_order"]
    affected = np.isin(operations["communicator"], incomplete) & (operations["replay"] == 0)
    numbered = affected & (operations["form"] == COLLECTIVE) & (operations["inferred"] == 0)
    order[affected] = NONE
    order[numbered & (operations["sequence"] != NONE)] = BY_SEQUENCE


def distinct(values: Ints) -> Ints:
    """The distinct values in order; quick where neighbours are mostly equal."""
    if not len(values):
        return values
    return np.unique(values[np.concatenate([[True], values[1:] != values[:-1]])])


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams in the order of their codes, and the rows of their instances."""

    code: Ints
    first_order: Ints
    length: Ints
    first_row: Ints

    @property
    def rows(self) -> int:
        """Rows of all streams together."""
        return int(self.length.sum())

    @property
    def kind(self) -> Ints:
        """CALLS, REPLAYS, PAIRS, INFERRED or SEQUENCED."""
        return self.code >> 3 * _BITS

    @property
    def communicator(self) -> Ints:
        """Row of the communicator."""
        return self.code >> 2 * _BITS & _MASK

    @property
    def source_rank(self) -> Ints:
        """Of pairs, else NONE."""
        return np.where(self.kind == PAIRS, self.code >> _BITS & _MASK, NONE)

    @property
    def destination_rank(self) -> Ints:
        """Of pairs, else NONE."""
        return np.where(self.kind == PAIRS, self.code & _MASK, NONE)

    def find(self, columns: Columns) -> tuple[Ints, Ints]:
        """By operation the place of its stream and the row of its instance; NONE for both where
        it has none.
        """
        stream, order = streams_and_orders(columns)
        if not len(self.code):
            return np.full(len(stream), NONE, np.int64), np.full(len(stream), NONE, np.int64)
        place = np.minimum(np.searchsorted(self.code, stream), len(self.code) - 1)
        number = order - self.first_order[place]
        is_there = (self.code[place] == stream) & (number >= 0) & (number < self.length[place])
        return (
            np.where(is_there, place, NONE),
            np.where(is_there, self.first_row[place] + number, NONE),
        )

    def part(self, places: slice) -> "Streams":
        """Some of the streams, their rows counted from 0."""
        first = self.first_row[places]
        return Streams(
            self.code[places],
            self.first_order[places],
            self.length[places],
            first - first[0] if len(first) else first,
        )

    def by_communicator(self) -> list[slice]:
        """The streams of each kind and communicator, which follow each other."""
        first = np.flatnonzero(np.diff(self.code >> 2 * _BITS, prepend=-1)).tolist()
        return [slice(a, b) for a, b in zip(first, [*first[1:], len(self.code)], strict=True)]

    def by_row(self, rows: slice) -> tuple[Ints, Ints]:
        """By row the place of its stream and its number in it."""
        row = np.arange(rows.start, rows.stop)
        place = np.searchsorted(self.first_row, row, side="right") - 1
        return place, row - (self.first_row - self.first_order)[place]


@dataclass(frozen=True, slots=True)
class StreamRanges:
    """The streams of one process, with the range of their numbers."""

    code: Ints
    lowest: Ints  # number
    highest: Ints
    count: Ints
    places: Ints  # communicator << 32 | node of its operations


def stream_ranges(columns: Columns) -> StreamRanges:
    """The streams of one process's operations."""
    parts = [
        _ranges_of({name: columns[name][rows] for name in (*NEEDED, "node")})
        for rows in row_chunks(len(columns["node"]))
    ]
    return parts[0] if len(parts) == 1 else _merged(parts)


def _merged(parts: list[StreamRanges]) -> StreamRanges:
    """Several ranges as one."""
    none = [np.empty(0, np.int64)]
    codes, lowest, highest, counts, places = (
        np.concatenate(none + [getattr(part, name) for part in parts])
        for name in StreamRanges.__slots__
    )
    code, group = np.unique(codes, return_inverse=True)
    first = np.full(len(code), np.iinfo(np.int64).max)
    last = np.full(len(code), NONE, np.int64)
    count = np.zeros(len(code), np.int64)
    np.minimum.at(first, group, lowest)
    np.maximum.at(last, group, highest)
    np.add.at(count, group, counts)
    return StreamRanges(code, first, last, count, np.unique(places))


def _ranges_of(columns: Columns) -> StreamRanges:
    stream, order = streams_and_orders(columns)
    known = stream != NONE
    code = distinct(stream[known])
    group = np.searchsorted(code, stream[known])
    count = np.bincount(group, minlength=len(code))
    lowest = np.full(len(code), np.iinfo(np.int64).max)
    highest = np.full(len(code), NONE, np.int64)
    np.minimum.at(lowest, group, order[known])
    np.maximum.at(highest, group, order[known])
    place = columns["communicator"].astype(np.int64) << 32 | columns["node"].astype(np.int64)
    places = distinct(place[known & (columns["node"] != NONE)])
    return StreamRanges(code, lowest, highest, count.astype(np.int64), places)


class StreamCounter:
    """Joins the streams of one process after the other."""

    def __init__(self) -> None:
        self._parts: list[StreamRanges] = []

    def add(self, columns: Columns) -> None:
        """Adds one process's operations."""
        self.join(stream_ranges(columns))

    def join(self, ranges: StreamRanges) -> None:
        """Adds the streams of one process."""
        self._parts.append(ranges)

    def streams(self) -> Streams:
        """The streams of all processes so far."""
        all_ = _merged(self._parts)
        spare = _SPARE_ROWS // max(len(all_.code), 1) + 64
        length = np.minimum(all_.highest - all_.lowest + 1, 4 * all_.count + spare)
        return Streams(all_.code, all_.lowest, length, np.cumsum(length) - length)

    def nodes(self) -> dict[int, Ints]:
        """By communicator the nodes of its ranks, in order."""
        places = _merged(self._parts).places
        communicator, node = places >> 32, places & 0xFFFFFFFF
        split = np.flatnonzero(np.diff(communicator)) + 1
        groups = zip(np.split(communicator, split), np.split(node, split), strict=True)
        return {int(comm[0]): members for comm, members in groups if len(comm)}
