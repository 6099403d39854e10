"""Slots as columns, through the compiled loops in native/columns: each slot is read once, whatever
is wanted of it.

A request says which field of a kind becomes a column, and what its numbers mean.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import NONE, positions_of
from ncclscope.arrays.library import Lines, address, empty_array, length_arg, library, pointer
from ncclscope.capture import dtypes, layout
from ncclscope.capture.segment import INDEX_LIMIT, KEY_SHIFT
from ncclscope.capture.slot_log import SlotLog
from ncclscope.capture.tick_clock import FARTHEST_NS, TickClock

Ints = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]
Columns = dict[str, npt.NDArray[Any]]
EXTENSIONS = {"Coll": "CollExt", "P2p": "P2pExt", "CeColl": "CeExt"}
# Fields that are numbers of strings.
_NAMES = ("func", "dtype", "algo", "proto", "variant")
_SOURCES = {"|u1": 0, "<u2": 1, "<u4": 2, "<i4": 3, "<u8": 4, "<i8": 4}
_SINKS = {"i1": 0, "i2": 1, "i4": 2, "i8": 3, "?": 0}
_NUMBER, _TIME, _KEY, _NAME, _CHOICE, _LATER = range(6)


class _SlotLog(ctypes.Structure):
    _fields_ = (
        ("segments", ctypes.c_int64),
        ("base", ctypes.c_void_p),
        ("first_row", ctypes.c_void_p),
        ("blocks", ctypes.c_int64),
        ("key", ctypes.c_void_p),
        ("count", ctypes.c_void_p),
        ("row", ctypes.c_void_p),
        ("tid", ctypes.c_void_p),
        ("low_ticks", ctypes.c_uint64),
        ("high_ticks", ctypes.c_uint64),
    )


class _Wanted(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int64), ("columns", ctypes.c_void_p))


class _EventList(ctypes.Structure):
    _fields_ = (
        ("slot", ctypes.c_void_p),
        ("key", ctypes.c_void_p),
        ("thread", ctypes.c_void_p),
        ("extended", ctypes.c_void_p),
        ("room", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("impossible", ctypes.c_int64),
        ("extension", ctypes.c_uint32),
        ("names", ctypes.c_uint8),
        ("offset", ctypes.c_uint8 * 7),
        ("seen", ctypes.c_void_p),
        ("wanted", _Wanted),
        ("wanted_behind", _Wanted),
        ("read", ctypes.c_int64),
        ("near", ctypes.c_double * 4),
    )


class _Column(ctypes.Structure):
    _fields_ = (
        ("out", ctypes.c_void_p),
        ("mask", ctypes.c_uint32),
        ("want", ctypes.c_uint32),
        ("offset", ctypes.c_uint8),
        ("source", ctypes.c_uint8),
        ("sink", ctypes.c_uint8),
        ("meaning", ctypes.c_uint8),
        ("keep", ctypes.c_uint8),
        ("spare", ctypes.c_uint8 * 7),
    )


class _Reading(ctypes.Structure):
    _fields_ = (
        ("origin_ticks", ctypes.c_int64),
        ("base_ns", ctypes.c_int64),
        ("ns_per_tick", ctypes.c_double),
        ("farthest_ns", ctypes.c_double),
        ("nonce", ctypes.c_uint64),
        ("line", Lines),
    )


class TickConverter:
    """What turns a process's ticks into times and its handles into keys."""

    def __init__(self, clock: TickClock, nonce: int) -> None:
        self._x, self._y = clock.knots()
        line = Lines(len(self._x), address(self._x), address(self._y))
        origin, base = int(clock.ticks[0]), int(clock.monotonic_ns[0])
        self.for_c = _Reading(origin, base, clock.ns_per_tick, FARTHEST_NS, nonce, line)


@dataclass(frozen=True, slots=True)
class HeadFilter:
    """Bits that a slot's head must have, and bits that it must not have."""

    states: int = 0
    flags: int = 0
    not_states: int = 0
    not_flags: int = 0

    def words(self) -> tuple[int, int]:
        """Mask and wanted value of the slot's first four bytes."""
        want = self.states << 8 | self.flags << 24
        return want | self.not_states << 8 | self.not_flags << 24, want


ANY = HeadFilter()


@dataclass(frozen=True, slots=True)
class Field:
    """One column: a field of the slot and its meaning. Where the head is not as `when` says, the
    column is NONE; `otherwise` is looked at then.
    """

    name: str
    dtype: str = "i8"
    element: int = 0  # of a field that is an array
    meaning: int = _NUMBER
    when: HeadFilter = ANY
    otherwise: "Field | None" = None


def number(name: str, dtype: str = "i8", when: HeadFilter = ANY, element: int = 0) -> Field:
    """The field as it is."""
    return Field(name, dtype, element, when=when)


def time(name: str, when: HeadFilter = ANY, otherwise: Field | None = None) -> Field:
    """Ticks as ns of the host's CLOCK_MONOTONIC."""
    return Field(name, meaning=_TIME, when=when, otherwise=otherwise)


def elapsed_column(name: str, element: int, when: HeadFilter = ANY) -> Field:
    """Ticks since the event began, as the time that they led to."""
    return Field(name, element=element, meaning=_LATER, when=when)


def key(name: str) -> Field:
    """A handle as the key of one of this process's events, NONE for anything else."""
    return Field(name, meaning=_KEY)


def string(name: str) -> Field:
    """The number of a string, below 256; from there on one of interface v1's numbers."""
    return Field(name, "i2", meaning=_NAME)


def flag_column(when: HeadFilter) -> Field:
    """Whether the head is so."""
    return Field("kind", "?", meaning=_CHOICE, when=when)


STOPPED = HeadFilter(states=layout.STATE_STOPPED)
START_NS, STOP_NS = time("t0"), time("t1", STOPPED)


Fields = Mapping[str, Field]  # by name of the column


def _requests(kind: str, wanted: Fields, out: Columns) -> "ctypes.Array[_Column]":
    places = dict(dtypes.OURS.dtypes[kind].fields or {})
    requests: list[_Column] = []
    for name, one in wanted.items():
        asked: Field | None = one
        keep = 0
        while asked is not None:
            dtype, offset = places[asked.name][:2]
            offset += asked.element * dtype.base.itemsize
            mask, want = asked.when.words()
            request = _Column(address(out[name]), mask, want, offset)
            request.source, request.sink = _SOURCES[dtype.base.str], _SINKS[asked.dtype]
            request.meaning, request.keep = asked.meaning, keep
            requests.append(request)
            asked, keep = asked.otherwise, 1
    return (_Column * len(requests))(*requests)


def _rooms(rows: int, wanted: Fields) -> Columns:
    return {name: empty_array(rows, one.dtype) for name, one in wanted.items()}


def _wanted(requests: "ctypes.Array[_Column]") -> _Wanted:
    """For the compiled loops. It must not outlive the requests."""
    return _Wanted(len(requests), ctypes.addressof(requests))


def read(slots: Addresses, reading: TickConverter, kind: str, wanted: Fields) -> Columns:
    """Columns of the slots at those addresses; address 0 stands for a slot of zeros."""
    out = _rooms(len(slots), wanted)
    requests = _requests(kind, wanted, out)
    library().ncclscope_fields(
        pointer(slots),
        length_arg(slots),
        ctypes.byref(reading.for_c),
        ctypes.byref(_wanted(requests)),
    )
    return out


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What will be read of the events of a kind, and of the slots behind them."""

    own: Fields = field(default_factory=dict)
    behind: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ReadColumns:
    """What has been read."""

    plan: ReadPlan
    own: Columns
    behind: Columns

    def at(self, places: Ints | slice) -> "_ReadColumns":
        """Of some of the events."""
        own, behind = (
            {name: values[places] for name, values in columns.items()}
            for columns in (self.own, self.behind)
        )
        return _ReadColumns(self.plan, own, behind)


_NOTHING_READ = _ReadColumns(ReadPlan(), {}, {})


@dataclass(frozen=True, slots=True)
class Events:
    """All events of one kind, in the order of their keys. `slots` are addresses of the log's."""

    kind: str
    keys: Ints
    slots: Addresses
    thread: npt.NDArray[np.int32]
    extended: Addresses  # of the slot behind each, 0 where it is no extension; empty for others
    seen: dict[str, npt.NDArray[np.bool_]]  # by field of a name which strings occur in the log
    reading: TickConverter = field(repr=False)
    log: SlotLog = field(repr=False)  # keeps the slots where they are
    known: _ReadColumns = field(repr=False, default=_NOTHING_READ)

    def __len__(self) -> int:
        return len(self.slots)

    def read(self, **wanted: Field) -> Columns:
        """Columns by name."""
        if wanted == self.known.plan.own:
            return dict(self.known.own)
        return read(self.slots, self.reading, self.kind, wanted)

    def read_extensions(self, **wanted: Field) -> Columns:
        """Columns of the slots behind the events; zeros without one."""
        if wanted == self.known.plan.behind:
            return dict(self.known.behind)
        return read(self.extended, self.reading, EXTENSIONS[self.kind], wanted)

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
            self.reading,
            self.log,
            self.known.at(places),
        )

    def names(self, *fields: str) -> npt.NDArray[np.bool_]:
        """By field which strings occur in it, in any event of the kind: 256 of them, then 256 of
        interface v1's numbers.
        """
        return np.stack([self.seen[name] for name in fields])


def _log_for_c(log: SlotLog, clock: TickClock) -> tuple[_SlotLog, list[npt.NDArray[Any]]]:
    """The log as C sees it, and the arrays that must outlive it."""
    blocks = log.blocks
    stream, place = blocks.key >> KEY_SHIFT, blocks.key & (INDEX_LIMIT - 1)
    low, high = clock.tick_range()
    kept: list[npt.NDArray[Any]] = [
        np.array([address(segment) for segment in log.segments], np.uint64),
        np.cumsum([0, *(len(segment) for segment in log.segments)], dtype=np.int64),
        stream << layout.INDEX_BITS | place,
        *(np.ascontiguousarray(values) for values in (blocks.count, blocks.row, blocks.tid)),
    ]
    base, first, *columns = map(address, kept)
    return _SlotLog(len(log.segments), base, first, len(blocks.key), *columns, low, high), kept


def index_events(
    log: SlotLog,
    clock: TickClock,
    nonce: int,
    kinds: tuple[str, ...],
    plans: Mapping[str, ReadPlan] = MappingProxyType({}),
) -> tuple[dict[str, Events], dict[str, int]]:
    """Events by kind, and by kind how many were left out because their times cannot be.

    What `plans` (by kind) say is read in the same pass, while slots are at hand, unless there are
    states that change slots afterwards.
    """
    for_c, kept = _log_for_c(log, clock)
    counts = log.kinds
    if counts is None:
        counts = np.empty(256, np.int64)
        library().ncclscope_count_kinds(ctypes.byref(for_c), pointer(counts))
    if counts[layout.KINDS["State"]]:
        plans = {}  # states change slots, by `apply_states`
    list_of = np.full(256, NONE, np.int8)
    lists = (_EventList * len(kinds))()
    found, reading = {}, TickConverter(clock, nonce)
    kept_requests: list[Any] = []
    for number_of_list, kind in enumerate(kinds):
        list_of[layout.KINDS[kind]] = number_of_list
        most = int(counts[layout.KINDS[kind]])
        behind = most if kind in EXTENSIONS else 0
        slots, keys = empty_array(most, np.uint64), empty_array(most, np.int64)
        thread, extended = empty_array(most, np.int32), empty_array(behind, np.uint64)
        places = dict(dtypes.OURS.dtypes[kind].fields or {})
        names = [name for name in _NAMES if name in places]
        seen = np.zeros((len(names), 512), np.bool_)
        by_name = dict(zip(names, seen, strict=True))
        plan = plans.get(kind, ReadPlan())
        known = _ReadColumns(plan, _rooms(most, plan.own), _rooms(behind, plan.behind))
        found[kind] = Events(kind, keys, slots, thread, extended, by_name, reading, log, known)
        arrays = (slots, keys, thread, extended)
        extension = layout.KINDS[EXTENSIONS[kind]] if behind else 0
        lists[number_of_list] = _EventList(*map(address, arrays), most, 0, 0, extension, len(names))
        lists[number_of_list].offset[: len(names)] = [places[name][1] for name in names]
        lists[number_of_list].seen = address(seen)
        requests = _requests(kind, plan.own, known.own)
        requests_behind = _requests(EXTENSIONS.get(kind, kind), plan.behind, known.behind)
        lists[number_of_list].wanted = _wanted(requests)
        lists[number_of_list].wanted_behind = _wanted(requests_behind)
        kept_requests += [requests, requests_behind]
    library().ncclscope_index(
        ctypes.byref(for_c), pointer(list_of), lists, length_arg(lists), ctypes.byref(reading.for_c)
    )
    for kind, made in zip(kinds, lists, strict=True):
        if made.count < made.room:
            found[kind] = found[kind].at(slice(made.count))
    del kept, kept_requests
    return found, {kind: made.impossible for kind, made in zip(kinds, lists, strict=True)}


def apply_states(states: Events, events: Events) -> None:
    """Stops and kernel stops that came from another thread, as if they stood in their events. The
    log's slots are changed, in this process's memory.
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
