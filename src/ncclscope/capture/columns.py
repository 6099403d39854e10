"""Slots as columns, by the compiled loops of native/arrays: each slot is read once, whatever is
wanted of it.

A Field says which field of a slot becomes a column, and what its numbers mean.
"""

import ctypes
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays import _abi
from ncclscope.arrays.joins import NONE, positions_of
from ncclscope.arrays.library import address, empty_array, length_arg, library, pointer
from ncclscope.arrays.types import Ints
from ncclscope.capture import dtypes, layout
from ncclscope.capture.segment import INDEX_LIMIT, KEY_SHIFT
from ncclscope.capture.slot_log import SlotLog
from ncclscope.capture.tick_clock import FARTHEST_NS, TickClock

Addresses = npt.NDArray[np.uint64]
Columns = dict[str, npt.NDArray[Any]]
EXTENSIONS = {"Coll": "CollExt", "P2p": "P2pExt", "CeColl": "CeExt", "Range": "RangeText"}
_NAME_FIELDS = ("func", "dtype", "algo", "proto", "variant")  # fields that are numbers of strings
_SOURCES = {
    "|u1": _abi.FROM_U8, "<u2": _abi.FROM_U16, "<u4": _abi.FROM_U32, "<i4": _abi.FROM_I32,
    "<u8": _abi.FROM_U64, "<i8": _abi.FROM_U64,
}  # fmt: skip
_SINKS = {
    "i1": _abi.TO_I8, "i2": _abi.TO_I16, "i4": _abi.TO_I32, "i8": _abi.TO_I64, "?": _abi.TO_I8,
}  # fmt: skip


class TickConverter:
    """What turns a process's ticks into times and its handles into keys."""

    def __init__(self, clock: TickClock, nonce: int) -> None:
        self._x, self._y = clock.knots()
        line = _abi.Lines(len(self._x), address(self._x), address(self._y))
        origin, base = int(clock.ticks[0]), int(clock.monotonic_ns[0])
        self.for_c = _abi.TickConverter(origin, base, clock.ns_per_tick, FARTHEST_NS, nonce, line)


@dataclass(frozen=True, slots=True)
class HeadFilter:
    """Bits that a slot's head must have, and bits that it must not have."""

    states: int = 0
    flags: int = 0
    not_states: int = 0
    not_flags: int = 0

    def words(self) -> tuple[int, int]:
        """Mask of the head's first four bytes, and what they must be under it.

        Example: HeadFilter(states=0x80, not_flags=0x40) is (0x40008000, 0x00008000): kind and
        channel do not matter, the state bit 0x80 must be set and the flag 0x40 must not.
        """
        want = self.states << _STATES_SHIFT | self.flags << _FLAGS_SHIFT
        return want | self.not_states << _STATES_SHIFT | self.not_flags << _FLAGS_SHIFT, want


_HEAD = layout.slot_places("Pad")
_STATES_SHIFT, _FLAGS_SHIFT = 8 * _HEAD["states"].offset, 8 * _HEAD["flags"].offset
ANY = HeadFilter()


@dataclass(frozen=True, slots=True)
class Field:
    """One column: a field of the slot and its meaning. Where the head is not as `when` says, the
    column is that of `otherwise`, and NONE without one. The `when` of `otherwise` must hold only
    where this one does not: it is read last and wins.
    """

    name: str
    dtype: str = "i8"
    element: int = 0  # of a field that is an array
    meaning: int = _abi.AS_NUMBER
    when: HeadFilter = ANY
    otherwise: "Field | None" = None


Fields = Mapping[str, Field]  # by name of the column


def number(name: str, dtype: str = "i8", when: HeadFilter = ANY, element: int = 0) -> Field:
    """The field as it is."""
    return Field(name, dtype, element, when=when)


def time(name: str, when: HeadFilter = ANY, otherwise: Field | None = None) -> Field:
    """Ticks as ns of the host's CLOCK_MONOTONIC."""
    return Field(name, meaning=_abi.AS_TIME, when=when, otherwise=otherwise)


def elapsed_column(name: str, element: int, when: HeadFilter = ANY) -> Field:
    """Ticks since the event began, as a time in ns of the host's CLOCK_MONOTONIC."""
    return Field(name, element=element, meaning=_abi.AS_ELAPSED, when=when)


def key(name: str) -> Field:
    """A handle as the key of one of this process's events, NONE for anything else."""
    return Field(name, meaning=_abi.AS_KEY)


def string(name: str) -> Field:
    """The number of a string, below 256; from there on one of interface v1's numbers."""
    return Field(name, "i2", meaning=_abi.AS_NAME)


def flag_column(when: HeadFilter) -> Field:
    """Whether the head is as `when` says."""
    return Field("kind", "?", meaning=_abi.AS_FLAG, when=when)


STOPPED = HeadFilter(states=layout.STATE_STOPPED)
START_NS, STOP_NS = time("t0"), time("t1", STOPPED)


def _requests(kind: str, wanted: Fields, out: Columns) -> "ctypes.Array[_abi.Column]":
    """What to read, for the compiled loops. `out` must outlive it."""
    places = dict(dtypes.OURS.dtypes[kind].fields or {})
    requests: list[_abi.Column] = []
    for name, column in wanted.items():
        choice: Field | None = column
        keep = 0  # what an earlier choice has stored
        while choice is not None:
            dtype, offset = places[choice.name][:2]
            offset += choice.element * dtype.base.itemsize
            mask, want = choice.when.words()
            request = _abi.Column(address(out[name]), mask, want, offset)
            request.source, request.sink = _SOURCES[dtype.base.str], _SINKS[choice.dtype]
            request.meaning, request.keep = choice.meaning, keep
            requests.append(request)
            choice, keep = choice.otherwise, 1
    return (_abi.Column * len(requests))(*requests)


def _list_of(requests: "ctypes.Array[_abi.Column]") -> _abi.ColumnList:
    return _abi.ColumnList(len(requests), requests)


def _empty_columns(rows: int, wanted: Fields) -> Columns:
    return {name: empty_array(rows, column.dtype) for name, column in wanted.items()}


def read(slots: Addresses, converter: TickConverter, kind: str, wanted: Fields) -> Columns:
    """Columns of the slots at those addresses; address 0 stands for a slot of zeros."""
    out = _empty_columns(len(slots), wanted)
    library().ncclscope_fields(
        pointer(slots),
        length_arg(slots),
        ctypes.byref(converter.for_c),
        ctypes.byref(_list_of(_requests(kind, wanted, out))),
    )
    return out


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Columns that will be read of the events of a kind, and of the slots behind them."""

    own: Fields = field(default_factory=dict)
    behind: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ReadColumns:
    """Columns of a plan that have been read."""

    plan: ReadPlan
    own: Columns
    behind: Columns

    def at(self, places: Ints | slice) -> "_ReadColumns":
        """Those of some of the events."""
        own, behind = (
            {name: values[places] for name, values in columns.items()}
            for columns in (self.own, self.behind)
        )
        return _ReadColumns(self.plan, own, behind)


_NOTHING_READ = _ReadColumns(ReadPlan(), {}, {})
_NO_KEYS, _NO_SLOTS = np.empty(0, np.int64), np.empty(0, np.uint64)
_NO_THREADS = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class Events:
    """All events of one kind, in the order of their keys. `slots` are addresses of the log's."""

    kind: str
    keys: Ints
    slots: Addresses
    thread: npt.NDArray[np.int32]
    extended: Addresses  # of the slot behind each, 0 where it is no extension; empty for others
    seen: dict[str, npt.NDArray[np.bool_]]  # by field of a name which strings occur in the log
    converter: TickConverter = field(repr=False)
    log: SlotLog = field(repr=False)  # keeps the slots where they are
    planned: _ReadColumns = field(repr=False, default=_NOTHING_READ)

    def __len__(self) -> int:
        return len(self.slots)

    def read(self, **wanted: Field) -> Columns:
        """Columns by name."""
        if wanted == self.planned.plan.own:
            return dict(self.planned.own)
        if not len(self.slots):
            return _empty_columns(0, wanted)
        return read(self.slots, self.converter, self.kind, wanted)

    def read_extensions(self, **wanted: Field) -> Columns:
        """Columns of the slots behind the events; zeros without one."""
        if wanted == self.planned.plan.behind:
            return dict(self.planned.behind)
        return read(self.extended, self.converter, EXTENSIONS[self.kind], wanted)

    def one(self, wanted: Field) -> npt.NDArray[Any]:
        """A single column."""
        return self.read(column=wanted)["column"]

    def find(self, keys: Ints) -> Ints:
        """Place of each key among these events, NONE where it is not there."""
        return positions_of(self.keys, keys)

    def slot(self, place: int) -> np.void:
        """One event's whole slot."""
        content = ctypes.string_at(int(self.slots[place]), layout.SLOT_BYTES)
        whole: np.void = np.frombuffer(content, dtypes.OURS.dtypes[self.kind])[0]
        return whole

    def at(self, places: Ints | slice) -> "Events":
        """Some of them."""
        return Events(
            self.kind,
            self.keys[places],
            self.slots[places],
            self.thread[places],
            self.extended[places] if len(self.extended) else self.extended,
            self.seen,
            self.converter,
            self.log,
            self.planned.at(places),
        )

    def names(self, *fields: str) -> npt.NDArray[np.bool_]:
        """By field which strings occur in it, in any event of the kind: 256 of them, then 256 of
        interface v1's numbers.
        """
        return np.stack([self.seen[name] for name in fields])


def log_for_c(log: SlotLog, clock: TickClock) -> tuple[_abi.SlotLog, Ints]:
    """The log for the compiled loops, and the array that must outlive it."""
    blocks, segments = log.blocks, len(log.segments)
    stream, place = blocks.key >> KEY_SHIFT, blocks.key & (INDEX_LIMIT - 1)
    first_rows = [0, *itertools.accumulate(map(len, log.segments))]
    # One array, because to ask where one is takes longer than to copy some thousand numbers.
    kept = np.concatenate(
        [
            np.array([*map(address, log.segments), *first_rows], np.int64),
            stream << layout.INDEX_BITS | place,
            blocks.count,
            blocks.row,
            blocks.tid,
        ]
    )
    count, base = len(blocks.key), int(kept.ctypes.data)
    columns = [base + 8 * (2 * segments + 1 + column * count) for column in range(4)]
    low, high = clock.tick_range()
    for_c = _abi.SlotLog(segments, base, base + 8 * segments, count, *columns, low, high)
    return for_c, kept


def _list_for_c(events: Events, seen: npt.NDArray[np.bool_]) -> tuple[_abi.EventList, list[Any]]:
    """An empty list of events of a kind for the compiled loops, and what must outlive it."""
    kind, planned = events.kind, events.planned
    made = _abi.EventList(
        slot=address(events.slots),
        key=address(events.keys),
        thread=address(events.thread),
        extended=address(events.extended),
        room=len(events),
        extension=layout.KINDS[EXTENSIONS[kind]] if len(events.extended) else 0,
        names=len(events.seen),
        seen=address(seen),
    )
    fields = dict(dtypes.OURS.dtypes[kind].fields or {})
    made.offset[: len(events.seen)] = [fields[name][1] for name in events.seen]
    own = _requests(kind, planned.plan.own, planned.own)
    behind = _requests(EXTENSIONS.get(kind, kind), planned.plan.behind, planned.behind)
    made.own, made.behind = _list_of(own), _list_of(behind)
    return made, [own, behind, seen]


def _name_arrays(kind: str) -> tuple[dict[str, npt.NDArray[np.bool_]], npt.NDArray[np.bool_]]:
    """Which strings occur in each field of a kind: none yet, by field and together."""
    names = [name for name in _NAME_FIELDS if name in (dtypes.OURS.dtypes[kind].names or ())]
    seen = np.zeros((len(names), 512), np.bool_)
    return dict(zip(names, seen, strict=True)), seen


def _empty_events(
    kind: str, most: int, converter: TickConverter, log: SlotLog, plan: ReadPlan
) -> tuple[Events, npt.NDArray[np.bool_]]:
    """Arrays for at most `most` events of a kind, and for the strings that occur in them."""
    behind = most if kind in EXTENSIONS else 0
    by_name, seen = _name_arrays(kind)
    events = Events(
        kind,
        keys=empty_array(most, np.int64),
        slots=empty_array(most, np.uint64),
        thread=empty_array(most, np.int32),
        extended=empty_array(behind, np.uint64),
        seen=by_name,
        converter=converter,
        log=log,
        planned=_ReadColumns(
            plan, _empty_columns(most, plan.own), _empty_columns(behind, plan.behind)
        ),
    )
    return events, seen


@cache
def _empty_seen(kind: str) -> dict[str, npt.NDArray[np.bool_]]:
    return _name_arrays(kind)[0]


def _no_events(kind: str, converter: TickConverter, log: SlotLog) -> Events:
    """What `_empty_events` returns for a kind of which there are none."""
    return Events(
        kind, _NO_KEYS, _NO_SLOTS, _NO_THREADS, _NO_SLOTS, _empty_seen(kind), converter, log
    )


def index_events(
    log: SlotLog,
    clock: TickClock,
    nonce: int,
    kinds: tuple[str, ...],
    plans: Mapping[str, ReadPlan] = MappingProxyType({}),
) -> tuple[dict[str, Events], dict[str, int]]:
    """Events by kind, and by kind how many were left out because their times are impossible.

    Columns of `plans` (by kind) are read in the same pass, while slots are in the caches, unless
    there are states that change slots afterwards.
    """
    for_c, kept_arrays = log_for_c(log, clock)
    counts = log.kinds
    if counts is None:
        counts = np.empty(256, np.int64)
        library().ncclscope_count_kinds(ctypes.byref(for_c), pointer(counts))
    if counts[layout.KINDS["State"]]:
        plans = {}  # `apply_states` changes slots
    list_of = np.full(256, NONE, np.int8)
    converter, kept = TickConverter(clock, nonce), list[Any]([kept_arrays])
    occurring = [kind for kind in kinds if counts[layout.KINDS[kind]]]
    lists = (_abi.EventList * len(occurring))()
    events: dict[str, Events] = {
        kind: _no_events(kind, converter, log) for kind in kinds if not counts[layout.KINDS[kind]]
    }
    for place, kind in enumerate(occurring):
        list_of[layout.KINDS[kind]] = place
        most = int(counts[layout.KINDS[kind]])
        events[kind], seen = _empty_events(kind, most, converter, log, plans.get(kind, ReadPlan()))
        lists[place], more = _list_for_c(events[kind], seen)
        kept.append(more)
    library().ncclscope_index(
        ctypes.byref(for_c),
        pointer(list_of),
        lists,
        length_arg(lists),
        ctypes.byref(converter.for_c),
    )
    del kept
    impossible = dict.fromkeys(kinds, 0)
    for kind, made in zip(occurring, lists, strict=True):
        impossible[kind] = made.impossible
        if made.count < made.room:
            events[kind] = events[kind].at(slice(made.count))
    return {kind: events[kind] for kind in kinds}, impossible


def apply_states(states: Events, events: Events) -> None:
    """Stores stops and kernel stops that came from another thread in the slots of their events, in
    this process's memory only.
    """
    if not all(segment.flags.writeable for segment in events.log.segments):
        raise ValueError("slots that cannot be written")
    place = events.find(states.one(key("parent")))
    library().ncclscope_apply_states(
        pointer(states.slots),
        pointer(place),
        length_arg(states),
        pointer(events.slots),
        length_arg(events),
    )
