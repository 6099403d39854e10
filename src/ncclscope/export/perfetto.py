"""A Perfetto trace (protobuf): what the Perfetto UI and its trace processor load.

Begins and ends of slices are sequences of their own. Each is in the order of time, so that times
are differences of a few bytes; and of equal times ends come first, so that they close the slice
that was open.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.selection import Selection
from ncclscope.export.atomic_files import writing
from ncclscope.export.parallel_ranks import write_ranks
from ncclscope.export.protobuf import (
    LENGTH,
    VARINT,
    Piece,
    Rows,
    constant,
    fixed64,
    in_one,
    joined,
    message,
    number,
    tag,
    taken,
    text,
    varints,
)
from ncclscope.export.trace_layers import chosen_rows, layers_of
from ncclscope.export.trace_model import (
    Argument,
    Ends,
    Layer,
    Rank,
    Slices,
    Track,
    Tracks,
    alike,
    pieces,
    ranks_of,
)
from ncclscope.export.written import Written
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import NONE
from ncclscope.model.sql_views import rows_of_table

Ints = npt.NDArray[np.int64]

# Fields of perfetto.protos, by message.
PACKET = 1  # Trace
TIMESTAMP, SEQUENCE, FLAGS, CLOCK_SNAPSHOT = 8, 10, 13, 6  # TracePacket
TRACK_EVENT, INTERNED, DEFAULTS, DESCRIPTOR = 11, 12, 59, 60
CLOCKS, CLOCK_ID, CLOCK_TIME, CLOCK_INCREMENTAL = 1, 1, 2, 3  # ClockSnapshot
DEFAULT_CLOCK, DEFAULT_EVENT, DEFAULT_COUNTERS = 58, 11, 31  # TracePacketDefaults
CATEGORY, ANNOTATION, TYPE, NAME, TRACK = 3, 4, 9, 10, 11  # TrackEvent
COUNTER_VALUES, FLOW = 12, 47
ANNOTATION_NAME, ANNOTATION_NUMBER, ANNOTATION_WORD = 1, 4, 17  # DebugAnnotation
IN_CATEGORIES, IN_NAMES, IN_ANNOTATIONS, IN_WORDS = 1, 2, 3, 29  # InternedData
IID, IID_TEXT = 1, 2
UUID, TRACK_NAME, PROCESS, PARENT, COUNTER = 1, 2, 3, 5, 8  # TrackDescriptor
ORDERING, ORDER_RANK = 11, 12
PID, PROCESS_NAME, PROCESS_LABEL = 1, 6, 8  # ProcessDescriptor
UNIT, UNIT_MULTIPLIER, UNIT_NAME = 3, 4, 6  # CounterDescriptor

BEGIN, END, INSTANT = 1, 2, 3
STATE_CLEARED, STATE_NEEDED = 1, 2
BOOTTIME, REALTIME, OWN_CLOCK = 6, 1, 64
EXPLICIT_ORDER, SIZE_BYTES = 3, 3


def write_perfetto(
    model: Model,
    chosen: Selection,
    path: Path,
    operations_only: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Writes the chosen operations, and unless `operations_only` what they consist of."""
    ranks = ranks_of(model)

    def write_rank(rank: Rank, out: BinaryIO) -> Written:
        rows = chosen_rows(model, chosen, rank)
        if not len(rows.whole) and not len(rows.parts):
            return Written(0, rows.timeless)
        trace = _Trace(out, rank, len(ranks))
        trace.describe()
        for layer in layers_of(model, rank, rows, chosen, operations_only):
            trace.write_layer(layer)
        parts = 0 if operations_only else len(rows.parts)
        return Written(len(rows.whole) + parts, rows.timeless)

    with writing(path) as (out, scratch):
        out.write(_clock(model))
        amount = rows_of_table(model, "operations")
        return write_ranks(ranks, amount, write_rank, scratch, out, progress)


def _clock(model: Model) -> bytes:
    """What the trace's clock is: CLOCK_MONOTONIC of the first node, and when that was."""
    first = min((p.started_ns for p in model.processes), default=0)
    now = max(first - model.realtime_offset_ns, 0)
    clocks = b""
    for clock, time in ((BOOTTIME, now), (REALTIME, now + model.realtime_offset_ns)):
        clocks += text(CLOCKS, number(CLOCK_ID, clock) + number(CLOCK_TIME, max(time, 0)))
    return text(PACKET, text(CLOCK_SNAPSHOT, clocks) + number(SEQUENCE, 1))


class _Interned:
    """Texts that a sequence has named by number, by field of InternedData."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._next: dict[int, int] = {}
        self.fresh = b""

    def number(self, field: int, name: str) -> int:
        """The number of a text; a new one is added to `fresh`."""
        key = (field, name)
        if key not in self._numbers:
            known = self._next[field] = self._next.get(field, 0) + 1
            self._numbers[key] = known
            self.fresh += text(field, number(IID, known) + text(IID_TEXT, name))
        return self._numbers[key]

    def numbers(self, field: int, words: Sequence[str], places: Ints) -> Ints:
        """The numbers of words at some places; NONE stays NONE."""
        table = np.full(len(words) + 1, NONE, np.int64)  # the last one is NONE's
        for place in np.flatnonzero(np.bincount(places[places >= 0])).tolist():
            table[place] = self.number(field, words[place])
        return table[places]


class _Sequence:
    """Packets in the order of time, whose times are differences to the packet before."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.interned = _Interned()
        self.time_ns = -1  # of the last packet; -1: not begun

    def opening(self, first_ns: int, counters: Sequence[int]) -> bytes:
        """Its clock, which starts at `first_ns`, and what holds for all its packets."""
        self.time_ns = first_ns
        own = number(CLOCK_ID, OWN_CLOCK) + number(CLOCK_TIME, first_ns)
        own += number(CLOCK_INCREMENTAL, 1)
        trace = number(CLOCK_ID, BOOTTIME) + number(CLOCK_TIME, first_ns)
        defaults = number(DEFAULT_CLOCK, OWN_CLOCK)
        if counters:
            ids = b"".join(number(DEFAULT_COUNTERS, uuid) for uuid in counters)
            defaults += text(DEFAULT_EVENT, ids)
        packet = text(CLOCK_SNAPSHOT, text(CLOCKS, own) + text(CLOCKS, trace))
        packet += number(SEQUENCE, self.serial) + number(FLAGS, STATE_CLEARED)
        return text(PACKET, packet + text(DEFAULTS, defaults))

    def texts(self) -> bytes:
        """A packet with the texts that are new."""
        fresh, self.interned.fresh = self.interned.fresh, b""
        if not fresh:
            return b""
        packet = number(SEQUENCE, self.serial) + number(FLAGS, STATE_NEEDED)
        return text(PACKET, packet + text(INTERNED, fresh))

    def packets(self, time_ns: Ints, event: Rows) -> bytes:
        """One packet for each event."""
        before = np.concatenate([[self.time_ns], time_ns[:-1]])
        self.time_ns = int(time_ns[-1])
        same = number(SEQUENCE, self.serial) + number(FLAGS, STATE_NEEDED)
        body = [
            varints(time_ns - before, tag(TIMESTAMP, VARINT)),
            constant(same, len(time_ns)),
            *message(TRACK_EVENT, event),
        ]
        return joined(message(PACKET, body))


class _Trace:
    """A rank's part of a trace while it is written."""

    def __init__(self, out: BinaryIO, rank: Rank, ranks: int) -> None:
        self._out, self._rank, self._ranks = out, rank, ranks
        # The rank itself and its counters come before its tracks.
        self._uuid, *self._counters = (place * (ranks + 1) + rank.number for place in range(3))
        self._tracks = Tracks(rank, ranks, 3)
        self._sequences = 0

    def _sequence(self) -> _Sequence:
        self._sequences += 1
        return _Sequence(1 + self._sequences * self._ranks + self._rank.number)

    def describe(self) -> None:
        """The rank as a process, and its counters."""
        rank = self._rank
        process = number(PID, rank.number) + text(PROCESS_NAME, rank.name)
        process += b"".join(text(PROCESS_LABEL, label) for label in rank.labels)
        own = number(UUID, self._uuid) + text(PROCESS, process)
        self._descriptor(own + number(ORDERING, EXPLICIT_ORDER) + number(ORDER_RANK, rank.number))
        in_flight = number(UNIT, SIZE_BYTES)
        bandwidth = text(UNIT_NAME, "B/s") + number(UNIT_MULTIPLIER, 1000)
        for place, (name, unit) in enumerate(
            (("bytes in flight", in_flight), ("bus bandwidth", bandwidth))
        ):
            counter = number(UUID, self._counters[place]) + text(TRACK_NAME, name)
            counter += number(PARENT, self._uuid) + text(COUNTER, unit)
            self._descriptor(counter + number(ORDER_RANK, place))

    def _descriptor(self, content: bytes) -> None:
        self._out.write(text(PACKET, number(SEQUENCE, 1) + text(DESCRIPTOR, content)))

    def write_layer(self, layer: Layer) -> None:
        """All slices of a layer, ends before begins: see above."""
        begins, ends = self._sequence(), self._sequence()
        counters = self._counters if layer.size_bytes is not None else []
        for slices in pieces(layer, self._tracks):
            for track in self._tracks.fresh:
                self._descriptor(_track(track, self._uuid))
            self._tracks.fresh.clear()
            if len(slices.ends.time_ns):
                if ends.time_ns < 0:
                    self._out.write(ends.opening(int(slices.ends.time_ns[0]), counters))
                self._out.write(ends.packets(slices.ends.time_ns, _ends(slices.ends)))
            if begins.time_ns < 0:
                self._out.write(begins.opening(int(slices.start_ns[0]), counters))
            event = _begins(slices, begins.interned)
            self._out.write(begins.texts())
            self._out.write(begins.packets(slices.start_ns, event))


def _track(track: Track, rank: int) -> bytes:
    # Lanes of one track have one name, by which viewers draw them as one.
    described = number(UUID, track.number) + number(PARENT, track.parent or rank)
    described += text(TRACK_NAME, track.name)
    return described + number(ORDERING, EXPLICIT_ORDER) + number(ORDER_RANK, track.number)


def _counters(bytes_in_flight: Ints | None, bandwidth_kbs: Ints | None) -> Rows:
    return [
        varints(values, tag(COUNTER_VALUES, VARINT))
        for values in (bytes_in_flight, bandwidth_kbs)
        if values is not None
    ]


def _ends(ends: Ends) -> Rows:
    kind = constant(number(TYPE, END) + tag(TRACK, VARINT), len(ends.time_ns))
    return [kind, varints(ends.track), *_counters(ends.bytes_in_flight, ends.bandwidth_kbs)]


def _begins(slices: Slices, interned: _Interned) -> Rows:
    details, rows, names = slices.details, len(slices.start_ns), slices.layer.names
    category = number(CATEGORY, interned.number(IN_CATEGORIES, slices.layer.category))
    kind = np.where(slices.end_ns == slices.start_ns, INSTANT, BEGIN)
    event: Rows = [
        constant(category, rows),
        varints(kind, tag(TYPE, VARINT)),
        varints(interned.numbers(IN_NAMES, names, details.name % len(names)), tag(NAME, VARINT)),
        varints(slices.track, tag(TRACK, VARINT)),
        *_counters(slices.bytes_in_flight, slices.bandwidth_kbs),
    ]
    for flow in details.flows:
        event.append(fixed64(flow, tag(FLOW, 1), flow != NONE))
    if details.child_flow is not None and details.child_flows is not None:
        for place in range(int(details.child_flows.max(initial=0))):
            has = details.child_flows > place
            event.append(fixed64(details.child_flow + place, tag(FLOW, 1), has))
    return event + _arguments(details.arguments, interned)


def _arguments(arguments: Sequence[Argument], interned: _Interned) -> Rows:
    """All arguments; those that many slices have in common are made once for all of them."""
    shared = [argument for argument in arguments if not argument.varies]
    first, place = alike([argument.values for argument in shared])
    common = _annotations([replace(one, values=one.values[first]) for one in shared], interned)
    own = _annotations([argument for argument in arguments if argument.varies], interned)
    return [taken(in_one(common), place), *own] if common else own


def _annotations(arguments: Sequence[Argument], interned: _Interned) -> Rows:
    found = (_annotation(argument, interned) for argument in arguments)
    return [piece for piece in found if piece is not None]


def _annotation(argument: Argument, interned: _Interned) -> Piece | None:
    """An argument of each slice that has it."""
    present = argument.values >= 0
    if not present.any():
        return None
    name = number(ANNOTATION_NAME, interned.number(IN_ANNOTATIONS, argument.name))
    if argument.words is None:
        values, what = argument.values, tag(ANNOTATION_NUMBER, VARINT)
    else:
        values = interned.numbers(IN_WORDS, argument.words, argument.values)
        what = tag(ANNOTATION_WORD, VARINT)
    value = varints(values, name + what, None if present.all() else present)
    return _behind_length(value, tag(ANNOTATION, LENGTH))


def _behind_length(piece: Piece, before: bytes) -> Piece:
    """A short message in one piece, behind its tag and length."""
    lead = len(before) + 1
    data = np.empty((len(piece.length), lead + piece.data.shape[1]), np.uint8)
    data[:, : lead - 1] = np.frombuffer(before, np.uint8)
    data[:, lead - 1] = piece.length  # below 128
    data[:, lead:] = piece.data
    return Piece(data, np.where(piece.length > 0, piece.length + lead, 0))
