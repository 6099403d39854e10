"""The callbacks of one process as rows of bars, at times of its host."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import positions_of
from ncclscope.arrays.types import Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS, Events, HeadFilter, flag_column, key, number, time
from ncclscope.capture.process import Process
from ncclscope.model.process.events import ProcessEvents, events_of
from ncclscope.model.schema import NONE
from ncclscope.web import palette
from ncclscope.web.bars import OPEN, Bars, make_bars, split_rows
from ncclscope.web.kinds import (
    CALLBACK_KINDS,
    CALLBACKS_WITH_FUNCTION,
    CHANNEL_KINDS,
    COMMUNICATOR,
    DROP,
    THREAD_KINDS,
)


@dataclass(frozen=True, slots=True)
class LaneKey:
    """What decides on the lane of a row. A value that does not apply is NONE."""

    kind: str
    communicator: int = NONE  # of callbacks its number in the process, else a row of the model
    thread: int = NONE
    channel: int = NONE
    sends: int = NONE  # of network work: 1 sends, 0 receives
    rank: int = NONE  # in the communicator, of operations
    depth: int = 0  # 1, 2 … for further rows of one lane, where bars overlap


Rows = list[tuple[LaneKey, Bars]]


@dataclass(frozen=True, slots=True)
class _Keys:
    """The values of LaneKey for each event."""

    communicator: Ints
    thread: Ints
    channel: Ints
    sends: Ints


def callback_rows(process: Process) -> tuple[Rows, int]:
    """All callbacks of a process by lane, and the last known time of the process."""
    decoded = events_of(process, (*CALLBACK_KINDS, DROP))
    stops = {kind: decoded.stop_ns(kind) for kind in CALLBACK_KINDS if len(decoded[kind])}
    last_ns = int(process.clock.monotonic_ns[-1])
    for kind, stop in stops.items():
        last_ns = max(last_ns, int(stop.max()), int(decoded[kind].one(START_NS).max()))
    rows = [*_communicator_rows(process), *_drop_rows(decoded)]
    for kind, stop in stops.items():
        rows += _rows_of_kind(decoded, kind, stop, last_ns)
    return rows, last_ns


def _rows_of_kind(decoded: ProcessEvents, kind: str, stop: Ints, last_ns: int) -> Rows:
    events = decoded[kind]
    is_open = stop == NONE
    columns = {
        "start_ns": events.one(START_NS),
        "end_ns": np.where(is_open, last_ns, stop),
        "wait_ns": np.empty(0, np.int64),
        "ref": events.keys,
        "code": _codes(decoded, kind),
        "look": np.where(is_open, OPEN, 0).astype(np.uint8),
    }
    keys = _keys(decoded, kind)
    rows = []
    for lane, places in _by_lane(keys):
        own = {name: values[places] if len(values) else values for name, values in columns.items()}
        for depth, row in enumerate(split_rows(own)):
            rows.append((LaneKey(kind, *lane, depth=depth), make_bars(row)))
    return rows


def _by_lane(keys: _Keys) -> list[tuple[tuple[int, int, int, int], Any]]:
    """Each lane as (communicator, thread, channel, sends), and the places of its events."""
    columns = (keys.communicator, keys.thread, keys.channel, keys.sends)
    if all((column == column[0]).all() for column in columns):
        return [(tuple(int(column[0]) for column in columns), slice(None))]  # type: ignore[list-item]
    joined = np.zeros(len(keys.thread), np.int64)
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        joined = joined * len(values) + codes
    _, first, codes = np.unique(joined, return_index=True, return_inverse=True)
    return [
        (
            tuple(int(column[at]) for column in columns),  # type: ignore[misc]
            np.flatnonzero(codes == number),
        )
        for number, at in enumerate(first.tolist())
    ]


def _keys(decoded: ProcessEvents, kind: str) -> _Keys:
    """Which lane each event of a kind belongs to."""
    events = decoded[kind]
    none = np.full(len(events), NONE, np.int64)
    thread = events.thread.astype(np.int64)
    if kind in THREAD_KINDS:
        return _Keys(_communicators(decoded, events), thread, none, none)
    if kind in CHANNEL_KINDS:
        channel = events.one(number("chan"))
        return _Keys(_communicators(decoded, events), none, channel, none)
    if kind == "ProxyOp":
        return _proxy_op_keys(decoded, np.arange(len(events)), thread)
    parents = events.one(key("parent"))
    if kind == "NetPlugin":  # its parent is a step, whose parent is a proxy op
        steps = decoded["ProxyStep"]
        step = positions_of(steps.keys, parents)
        of_step = steps.one(key("parent"))
        parents = np.where(step != NONE, of_step[step] if len(steps) else NONE, NONE)
    keys = _proxy_op_keys(decoded, decoded["ProxyOp"].find(parents), thread)
    if kind == "ProxyStep":
        unknown = keys.sends == NONE
        sends = events.one(flag_column(HeadFilter(not_states=layout.STATE_RECV)))
        keys.sends[unknown] = sends[unknown]
    return keys


def _proxy_op_keys(decoded: ProcessEvents, op: Ints, thread: Ints) -> _Keys:
    """The keys of network work, by the place of its proxy op."""
    ops = decoded["ProxyOp"]
    known = op != NONE
    if not len(ops):
        none = np.full(len(op), NONE, np.int64)
        return _Keys(none, thread, none, none.copy())
    at = np.where(known, op, 0)
    columns = ops.read(
        nonce=number("ctx_nonce"),
        comm=number("comm"),
        channel=number("chan"),
        sends=flag_column(HeadFilter(flags=layout.FLAG_SEND)),
    )
    is_own = columns["nonce"][at] == decoded.process.header.nonce  # else it works for a peer
    return _Keys(
        np.where(known & is_own, columns["comm"][at], NONE),
        thread,
        np.where(known, columns["channel"][at], NONE),
        np.where(known, columns["sends"][at].astype(np.int64), NONE),
    )


def _communicators(decoded: ProcessEvents, events: Events) -> Ints:
    known = np.array([comm.number for comm in decoded.process.communicators] or [NONE], np.int64)
    numbers = events.one(number("comm"))
    return np.where(np.isin(numbers, known), numbers, NONE)


def _codes(decoded: ProcessEvents, kind: str) -> npt.NDArray[np.uint8]:
    """Colour codes: by function where an event has one, else by kind."""
    events = decoded[kind]
    if kind in CALLBACKS_WITH_FUNCTION:
        table = np.full(256, palette.OTHER, np.uint8)
        for place, text in decoded.process.strings.items():
            if place < 256:
                table[place] = palette.function_code(text)
        columns = events.read(
            func=number("func"), by_number=flag_column(HeadFilter(flags=layout.FLAG_NUMBERS))
        )
        code = table[columns["func"]]
        return np.where(columns["by_number"], palette.OTHER, code).astype(np.uint8)
    if kind in ("ProxyOp", "ProxyStep"):
        sends = _keys(decoded, kind).sends
        return np.where(sends == 1, palette.SEND, palette.RECV).astype(np.uint8)
    if kind == "ProxyCtrl":
        table = np.array(palette.control_codes(), np.uint8)
        columns = events.read(
            first=number("first"), known=flag_column(HeadFilter(states=layout.STATE_FIRST))
        )
        code = table[columns["first"]]
        return np.where(columns["known"], code, palette.event_code(kind)).astype(np.uint8)
    return np.full(len(events), palette.event_code(kind), np.uint8)


def _communicator_rows(process: Process) -> Rows:
    """Init and finalize of each communicator, as bars without length."""
    rows = []
    for comm in process.communicators:
        ends = [comm.t_open] if comm.t_close is None else [comm.t_open, comm.t_close]
        times = process.clock.to_ns(np.array(ends, np.uint64))
        columns = {
            "start_ns": times,
            "end_ns": times,
            "wait_ns": np.empty(0, np.int64),
            "ref": np.full(len(times), comm.number),
            "code": np.array([palette.INIT, palette.FINALIZE][: len(times)]),
            "look": np.zeros(len(times)),
        }
        rows.append((LaneKey(COMMUNICATOR, comm.number, comm.tid), make_bars(columns)))
    return rows


def _drop_rows(decoded: ProcessEvents) -> Rows:
    """Times in which events were dropped."""
    events = decoded[DROP]
    if not len(events):
        return []
    columns = {
        "start_ns": events.one(START_NS),
        "end_ns": np.maximum(events.one(time("t1")), events.one(START_NS)),
        "wait_ns": np.empty(0, np.int64),
        "ref": events.keys,
        "code": np.full(len(events), palette.DROPPED),
        "look": np.zeros(len(events)),
    }
    return [(LaneKey(DROP, depth=n), make_bars(row)) for n, row in enumerate(split_rows(columns))]
