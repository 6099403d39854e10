"""A Perfetto trace (protobuf), for the Perfetto UI and its trace processor.

Begins and ends of slices are two packet sequences. Each is in the order of time, so that times are
differences of a few bytes. At equal times ends come first, so that they close the slice before.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Ints
from ncclscope.export.protobuf import (
    LENGTH,
    VARINT,
    ByteColumn,
    Columns,
    constant,
    encode_rows,
    fixed64,
    merge_columns,
    message,
    number,
    tag,
    take_rows,
    text,
    varints,
)
from ncclscope.export.result import ExportResult
from ncclscope.export.trace_file import write_trace
from ncclscope.export.trace_model import (
    Argument,
    Ends,
    Layer,
    Rank,
    Slices,
    Track,
    Tracks,
    distinct_rows,
    ranks_of,
    slice_batches,
)
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import NONE

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
    selection: Selection,
    path: Path,
    operations_only: bool = False,
    critical_path: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Writes the selected operations, unless `operations_only` the work below them, and with
    `critical_path` the critical path of the selected time.
    """
    ranks = ranks_of(model)
    return write_trace(
        model, selection, path, operations_only, critical_path, progress, ranks=ranks,
        open_rank=partial(_RankTrace, ranks=len(ranks)), head=_clock_packet(model),
    )  # fmt: skip


def _clock_packet(model: Model) -> bytes:
    """The trace's clock: CLOCK_MONOTONIC of the first node, with its wall-clock time."""
    first = min((p.started_ns for p in model.processes), default=0)
    now = max(first - model.realtime_offset_ns, 0)
    clocks = b""
    for clock, time in ((BOOTTIME, now), (REALTIME, now + model.realtime_offset_ns)):
        clocks += text(CLOCKS, number(CLOCK_ID, clock) + number(CLOCK_TIME, max(time, 0)))
    return text(PACKET, text(CLOCK_SNAPSHOT, clocks) + number(SEQUENCE, 1))


class _InternedStrings:
    """Numbers that stand for strings in a sequence, by field of InternedData."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._next: dict[int, int] = {}
        self.unwritten = b""  # new strings, encoded

    def number(self, field: int, name: str) -> int:
        """The number of a string; a new string gets the next one."""
        key = (field, name)
        if key not in self._numbers:
            serial = self._next[field] = self._next.get(field, 0) + 1
            self._numbers[key] = serial
            self.unwritten += text(field, number(IID, serial) + text(IID_TEXT, name))
        return self._numbers[key]

    def numbers(self, field: int, words: Sequence[str], places: Ints) -> Ints:
        """The numbers of the words at some places; NONE stays NONE."""
        table = np.full(len(words) + 1, NONE, np.int64)  # place -1, the last one, stays NONE
        for place in np.flatnonzero(np.bincount(places[places >= 0])).tolist():
            table[place] = self.number(field, words[place])
        return table[places]


class _Sequence:
    """A packet sequence: in the order of time, with times as differences to the packet before."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.interned = _InternedStrings()
        self.time_ns = -1  # of the last packet; -1: not begun

    def first_packet(self, first_ns: int, counters: Sequence[int]) -> bytes:
        """The sequence's clock, which starts at `first_ns`, and the defaults of its packets."""
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

    def string_packet(self) -> bytes:
        """A packet with the strings that are new; empty where none are."""
        strings, self.interned.unwritten = self.interned.unwritten, b""
        if not strings:
            return b""
        packet = number(SEQUENCE, self.serial) + number(FLAGS, STATE_NEEDED)
        return text(PACKET, packet + text(INTERNED, strings))

    def packets(self, time_ns: Ints, event: Columns) -> bytes:
        """One packet for each event."""
        before = np.concatenate([[self.time_ns], time_ns[:-1]])
        self.time_ns = int(time_ns[-1])
        same = number(SEQUENCE, self.serial) + number(FLAGS, STATE_NEEDED)
        body = [
            varints(time_ns - before, tag(TIMESTAMP, VARINT)),
            constant(same, len(time_ns)),
            *message(TRACK_EVENT, event),
        ]
        return encode_rows(message(PACKET, body))


class _RankTrace:
    """A rank's part of a trace while it is written."""

    def __init__(self, out: BinaryIO, rank: Rank, ranks: int) -> None:
        self._out, self._rank, self._ranks = out, rank, ranks
        # Number 0 is the rank itself, 1 and 2 are its counters, its tracks come after them.
        self._uuid, *self._counters = (place * (ranks + 1) + rank.number for place in range(3))
        self._tracks = Tracks(rank, ranks, 3)
        self._sequences = 0

    def _sequence(self) -> _Sequence:
        self._sequences += 1
        return _Sequence(1 + self._sequences * self._ranks + self._rank.number)

    def describe(self) -> None:
        """Writes the rank as a process, and its counters."""
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
        """Writes all slices of a layer, of each batch the ends before the begins."""
        begins, ends = self._sequence(), self._sequence()
        counters = self._counters if layer.size_bytes is not None else []
        for slices in slice_batches(layer, self._tracks):
            for track in self._tracks.undescribed:
                self._descriptor(_track_descriptor(track, self._uuid))
            self._tracks.undescribed.clear()
            if len(slices.ends.time_ns):
                if ends.time_ns < 0:
                    self._out.write(ends.first_packet(int(slices.ends.time_ns[0]), counters))
                self._out.write(ends.packets(slices.ends.time_ns, _end_events(slices.ends)))
            if begins.time_ns < 0:
                self._out.write(begins.first_packet(int(slices.start_ns[0]), counters))
            event = _begin_events(slices, begins.interned)
            self._out.write(begins.string_packet())
            self._out.write(begins.packets(slices.start_ns, event))


def _track_descriptor(track: Track, rank_uuid: int) -> bytes:
    # Lanes of one track have the same name: viewers then draw them as one track.
    descriptor = number(UUID, track.number) + number(PARENT, track.parent or rank_uuid)
    descriptor += text(TRACK_NAME, track.name)
    return descriptor + number(ORDERING, EXPLICIT_ORDER) + number(ORDER_RANK, track.number)


def _counter_values(bytes_in_flight: Ints | None, bandwidth_kbs: Ints | None) -> Columns:
    return [
        varints(values, tag(COUNTER_VALUES, VARINT))
        for values in (bytes_in_flight, bandwidth_kbs)
        if values is not None
    ]


def _end_events(ends: Ends) -> Columns:
    kind = constant(number(TYPE, END) + tag(TRACK, VARINT), len(ends.time_ns))
    return [kind, varints(ends.track), *_counter_values(ends.bytes_in_flight, ends.bandwidth_kbs)]


def _begin_events(slices: Slices, interned: _InternedStrings) -> Columns:
    details, rows, names = slices.details, len(slices.start_ns), slices.layer.names
    category = number(CATEGORY, interned.number(IN_CATEGORIES, slices.layer.category))
    kind = np.where(slices.end_ns == slices.start_ns, INSTANT, BEGIN)
    event: Columns = [
        constant(category, rows),
        varints(kind, tag(TYPE, VARINT)),
        varints(interned.numbers(IN_NAMES, names, details.name % len(names)), tag(NAME, VARINT)),
        varints(slices.track, tag(TRACK, VARINT)),
        *_counter_values(slices.bytes_in_flight, slices.bandwidth_kbs),
    ]
    for flow in details.flows:
        event.append(fixed64(flow, tag(FLOW, 1), flow != NONE))
    if details.first_child_flow is not None and details.child_flow_count is not None:
        for place in range(int(details.child_flow_count.max(initial=0))):
            present = details.child_flow_count > place
            event.append(fixed64(details.first_child_flow + place, tag(FLOW, 1), present))
    return event + _arguments(details.arguments, interned)


def _arguments(arguments: Sequence[Argument], interned: _InternedStrings) -> Columns:
    """All arguments. Those that do not vary are encoded once for all slices with equal values."""
    shared = [argument for argument in arguments if not argument.varies]
    first, place = distinct_rows([argument.values for argument in shared])
    common = _annotations([replace(arg, values=arg.values[first]) for arg in shared], interned)
    own = _annotations([argument for argument in arguments if argument.varies], interned)
    return [take_rows(merge_columns(common), place), *own] if common else own


def _annotations(arguments: Sequence[Argument], interned: _InternedStrings) -> Columns:
    columns = (_annotation(argument, interned) for argument in arguments)
    return [column for column in columns if column is not None]


def _annotation(argument: Argument, interned: _InternedStrings) -> ByteColumn | None:
    """An argument of the slices that have it; None where no slice has it."""
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
    return _short_message(value, tag(ANNOTATION, LENGTH))


def _short_message(content: ByteColumn, field_tag: bytes) -> ByteColumn:
    """Messages of less than 128 bytes as one column: tag, length, content."""
    lead = len(field_tag) + 1
    data = np.empty((len(content.length), lead + content.data.shape[1]), np.uint8)
    data[:, : lead - 1] = np.frombuffer(field_tag, np.uint8)
    data[:, lead - 1] = content.length
    data[:, lead:] = content.data
    return ByteColumn(data, np.where(content.length > 0, content.length + lead, 0))
