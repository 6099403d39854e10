"""The callbacks of one process as rows of bars, at the times of its host."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import positions_of
from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS, Events, HeadFilter, flag_column, key, number, time
from ncclscope.capture.process import Process
from ncclscope.model.process.events import ProcessEvents, events_of
from ncclscope.model.schema import NONE
from ncclscope.web import palette
from ncclscope.web.bars import OPEN, Bars, Ints, bars_of, packed_bars

# Levels of a thread from the user's call down; the order in which the page shows them.
_CALLS = ("GroupApi", "CollApi", "P2pApi", "KernelLaunch", "Group", "Coll", "P2p")
THREAD_KINDS = (*_CALLS, "CeColl", "CeSync", "CeBatch", "ProxyCtrl")
CHANNEL_KINDS = ("KernelCh", "KernelPhase")
PROXY_KINDS = ("ProxyOp", "ProxyStep", "NetPlugin")
KINDS = (*THREAD_KINDS, *CHANNEL_KINDS, *PROXY_KINDS)
_WITH_FUNCTION = ("CollApi", "P2pApi", "Coll", "P2p", "CeColl")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row of callbacks belongs. Communicators are the process's numbers."""

    kind: str
    communicator: int = NONE
    thread: int = NONE
    channel: int = NONE
    sends: int = NONE  # of network work: 1 sends, 0 receives
    depth: int = 0  # of several rows, because bars overlap


@dataclass(frozen=True, slots=True)
class _Keys:
    """By event what decides on its lane."""

    communicator: Ints
    thread: Ints
    channel: Ints
    sends: Ints


def event_rows(process: Process) -> tuple[list[tuple[Place, Bars]], int]:
    """All callbacks of a process, by lane, and the last time that is known of it."""
    decoded = events_of(process, (*KINDS, "Drop"))
    stops = {kind: decoded.stop_ns(kind) for kind in KINDS if len(decoded[kind])}
    last_ns = int(process.clock.monotonic_ns[-1])
    for kind, stop in stops.items():
        last_ns = max(last_ns, int(stop.max()), int(decoded[kind].one(START_NS).max()))
    rows = [*_marks(process), *_dropped(decoded)]
    for kind, stop in stops.items():
        rows += _rows_of_kind(decoded, kind, stop, last_ns)
    return rows, last_ns


def _rows_of_kind(
    decoded: ProcessEvents, kind: str, stop: Ints, last_ns: int
) -> list[tuple[Place, Bars]]:
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
    out = []
    for lane, mine in _by_lane(keys):
        some = {name: values[mine] if len(values) else values for name, values in columns.items()}
        for depth, packed in enumerate(packed_bars(some)):
            out.append((Place(kind, *lane, depth=depth), bars_of(packed)))
    return out


def _by_lane(keys: _Keys) -> list[tuple[tuple[int, int, int, int], Any]]:
    """Events by lane: (communicator, thread, channel, sends) and which they are."""
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
    nothing = np.full(len(events), NONE, np.int64)
    thread = events.thread.astype(np.int64)
    if kind in THREAD_KINDS:
        return _Keys(_communicators(decoded, events), thread, nothing, nothing)
    if kind in CHANNEL_KINDS:
        channel = events.one(number("chan"))
        return _Keys(_communicators(decoded, events), nothing, channel, nothing)
    if kind == "ProxyOp":
        return _of_proxy_ops(decoded, np.arange(len(events)), thread)
    parents = events.one(key("parent"))
    if kind == "NetPlugin":  # hangs below a step, which hangs below an op
        steps = decoded["ProxyStep"]
        step = positions_of(steps.keys, parents)
        of_step = steps.one(key("parent"))
        parents = np.where(step != NONE, of_step[step] if len(steps) else NONE, NONE)
    keys = _of_proxy_ops(decoded, decoded["ProxyOp"].find(parents), thread)
    if kind == "ProxyStep":
        lost = keys.sends == NONE
        sends = events.one(flag_column(HeadFilter(not_states=layout.STATE_RECV)))
        keys.sends[lost] = sends[lost]
    return keys


def _of_proxy_ops(decoded: ProcessEvents, op: Ints, thread: Ints) -> _Keys:
    """Lanes of network work by the places of its proxy ops."""
    ops = decoded["ProxyOp"]
    known = op != NONE
    if not len(ops):
        nothing = np.full(len(op), NONE, np.int64)
        return _Keys(nothing, thread, nothing, nothing.copy())
    at = np.where(known, op, 0)
    told = ops.read(
        nonce=number("ctx_nonce"),
        comm=number("comm"),
        channel=number("chan"),
        sends=flag_column(HeadFilter(flags=layout.FLAG_SEND)),
    )
    ours = told["nonce"][at] == decoded.process.header.nonce
    return _Keys(
        np.where(known & ours, told["comm"][at], NONE),
        thread,
        np.where(known, told["channel"][at], NONE),
        np.where(known, told["sends"][at].astype(np.int64), NONE),
    )


def _communicators(decoded: ProcessEvents, events: Events) -> Ints:
    known = np.array([comm.number for comm in decoded.process.communicators] or [NONE], np.int64)
    numbers = events.one(number("comm"))
    return np.where(np.isin(numbers, known), numbers, NONE)


def _codes(decoded: ProcessEvents, kind: str) -> npt.NDArray[np.uint8]:
    """Colours: by function where an event has one, else by what it is."""
    events = decoded[kind]
    if kind in _WITH_FUNCTION:
        table = np.full(256, palette.OTHER, np.uint8)
        for place, text in decoded.process.strings.items():
            if place < 256:
                table[place] = palette.function_code(text)
        told = events.read(
            func=number("func"), by_number=flag_column(HeadFilter(flags=layout.FLAG_NUMBERS))
        )
        colour = table[told["func"]]
        return np.where(told["by_number"], palette.OTHER, colour).astype(np.uint8)
    if kind in ("ProxyOp", "ProxyStep"):
        sends = _keys(decoded, kind).sends
        return np.where(sends == 1, palette.SEND, palette.RECV).astype(np.uint8)
    if kind == "ProxyCtrl":
        table = np.array(palette.control_codes(), np.uint8)
        told = events.read(
            first=number("first"), known=flag_column(HeadFilter(states=layout.STATE_FIRST))
        )
        colour = table[told["first"]]
        return np.where(told["known"], colour, palette.kind_code(kind)).astype(np.uint8)
    return np.full(len(events), palette.kind_code(kind), np.uint8)


def _marks(process: Process) -> list[tuple[Place, Bars]]:
    """Init and finalize of each communicator, as moments."""
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
        rows.append((Place("Comm", comm.number, comm.tid), bars_of(columns)))
    return rows


def _dropped(decoded: ProcessEvents) -> list[tuple[Place, Bars]]:
    """Stretches of time in which events were dropped."""
    events = decoded["Drop"]
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
    return [(Place("Drop", depth=n), bars_of(row)) for n, row in enumerate(packed_bars(columns))]
