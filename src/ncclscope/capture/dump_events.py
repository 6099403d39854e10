"""Events of a process as plain dictionaries, one per event: what `dump` prints.

Slots that belong together are joined; no further meaning is given. Times are the host's
CLOCK_MONOTONIC in ns.
"""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.capture import columns, dtypes, layout
from ncclscope.capture.descriptors import (
    IN_GROUP,
    ProcessNames,
    appended_arguments,
    fields_of,
    hexadecimal,
    states_in_place,
)
from ncclscope.capture.process import Process
from ncclscope.capture.segment import KEY_SHIFT, Slots, expand
from ncclscope.nccl.events import FIRST_WITH_STAMPS, STATE, STATE_NAMES

Event = dict[str, Any]
_KINDS, _DTYPES = layout.KINDS, dtypes.OURS.dtypes
_KIND_NAMES = dtypes.OURS.names
# What an event can be called: NCCL's names, and Comm for a communicator's life.
EVENT_NAMES = ("Comm", *(name for name, number in _KINDS.items() if number <= layout.EVENT_KINDS))
_EXTENSIONS = {_KINDS[kind]: extension for kind, extension in columns.EXTENSIONS.items()}
_SEND_PEER_WAIT = STATE["ProxyStepSendPeerWait"]
_BATCH = 1 << 14  # events decoded at a time


def handle_keys(handles: npt.NDArray[np.uint64], nonce: int) -> npt.NDArray[np.int64]:
    """Slot keys of this process's handles, -1 for anything else."""
    ours = (handles >> np.uint64(layout.HANDLE_BITS)) == nonce
    stream = (handles >> np.uint64(layout.INDEX_BITS)) & np.uint64(layout.CONTEXT_STREAM)
    index = handles & np.uint64(layout.INDEX_MASK)
    keys = (stream << np.uint64(KEY_SHIFT) | index).astype(np.int64)
    return np.where(ours, keys, -1)


def _handle(key: int, nonce: int) -> int:
    """The handle that NCCL was given for an event of this process."""
    stream, index = key >> KEY_SHIFT, key & layout.INDEX_MASK
    return (nonce & 0xFFFF) << layout.HANDLE_BITS | stream << layout.INDEX_BITS | index


class _Appended:
    """State slots, found by the event they belong to."""

    def __init__(self, process: Process) -> None:
        kind = _KINDS["State"]
        parts = [segment[segment["kind"] == kind] for segment in process.slots.segments]
        states = np.concatenate(parts) if parts else np.empty(0, dtypes.ANY_SLOT)
        parents = handle_keys(states["parent"], process.header.nonce)
        order = np.lexsort((states["t0"], parents))
        self._slots, self._parents = states[order].view(_DTYPES["State"]), parents[order]

    def of(self, key: int) -> npt.NDArray[np.void]:
        """The State slots of one event, in the order of their times."""
        first, last = np.searchsorted(self._parents, [key, key + 1])
        return self._slots[first:last]


def _thread(process: Process, key: int) -> int:
    blocks = process.slots.blocks
    return int(blocks.tid[int(np.searchsorted(blocks.key, key, side="right")) - 1])


_LARGEST_TICK = (1 << 64) - 1


class _Ticks(list[int]):
    """Counter values that are converted together; events hold places in this list until then."""

    def place(self, ticks: int) -> int:
        """The place of a value; one beyond 64 bits, of a damaged slot, begins again at 0."""
        self.append(ticks & _LARGEST_TICK)
        return len(self) - 1


def _states(
    kind: str, slot: Any, appended: npt.NDArray[np.void], early: bool, ticks: _Ticks
) -> tuple[list[Event], int | None]:
    """An event's states, and the place of its stop where it has one."""
    states = [
        {"state": state, "name": STATE_NAMES.get(state), "t_ns": ticks.place(t), **arguments}
        for state, t, arguments in states_in_place(kind, slot, early)
    ]
    stopped = bool(slot["states"] & layout.STATE_STOPPED)
    stop = ticks.place(int(slot["t1"])) if stopped else None
    for extra in appended:
        state = int(extra["state"])
        first = next((earlier for earlier in states if earlier["state"] == state), None)
        if state == layout.STATE_IS_STOP:
            stop = ticks.place(int(extra["t0"])) if stop is None else stop
        elif state == _SEND_PEER_WAIT and first is not None:
            first["last_t_ns"] = ticks.place(int(extra["t1"]))
            first["count"] = first.get("count", 1) + int(extra["repeats"])
        else:
            states.append(
                {
                    "state": state,
                    "name": STATE_NAMES.get(state),
                    "t_ns": ticks.place(int(extra["t0"])),
                    **appended_arguments(state, extra),
                }
            )
    return states, stop


def _set_times(process: Process, events: list[Event], ticks: _Ticks) -> None:
    """Replaces places by times, for many events in one conversion."""
    ns = process.clock.to_ns(np.array(ticks, np.uint64)).tolist()
    for event in events:
        event["start_ns"] = ns[event["start_ns"]]
        if event["stop_ns"] is not None:
            event["stop_ns"] = ns[event["stop_ns"]]
        for state in event["states"]:
            state["t_ns"] = ns[state["t_ns"]]
            if "last_t_ns" in state:
                state["last_t_ns"] = ns[state["last_t_ns"]]
        event["states"].sort(key=lambda state: state["t_ns"])


def _communicator_events(process: Process) -> Iterator[Event]:
    for comm in process.communicators:
        ends = [comm.t_open, comm.t_open if comm.t_close is None else comm.t_close]
        opened, closed = process.clock.to_ns(np.array(ends, np.uint64)).tolist()
        yield {
            "event": "Comm",
            "process": process.folder,
            "rank": process.rank,
            "thread": comm.tid,
            "id": f"comm.{comm.number}",
            "parent": None,
            "comm": f"comm.{comm.number}",
            "start_ns": opened,
            "stop_ns": closed if comm.t_close is not None else None,
            "states": [],
            "fields": {
                "commId": hexadecimal(comm.id),
                "commName": comm.name,
                "nNodes": comm.nodes,
                "nRanks": comm.ranks,
                "rank": comm.rank if comm.rank >= 0 else None,
                "interface": comm.version,
                "mask": comm.mask,
                "gpuUuid": comm.gpu_uuid,
                "gpuBusId": comm.gpu_bus_id,
            },
        }


def _event_rows(
    process: Process, names: Collection[str] | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and keys of the slots of these events, in the order of their starts."""
    log = process.slots
    rows = expand(log.blocks.row, log.blocks.count)
    keys = expand(log.blocks.key, log.blocks.count)
    kinds = np.empty(len(rows), np.uint8)
    starts = np.empty(len(rows), np.uint64)
    for first in range(0, len(rows), 1 << 20):
        part = log.take(rows[first : first + (1 << 20)])
        kinds[first : first + len(part)] = part["kind"]
        starts[first : first + len(part)] = part["t0"]
    chosen = (kinds >= 1) & (kinds <= layout.EVENT_KINDS)
    if names is not None:
        chosen &= np.isin(kinds, [_KINDS[name] for name in names])
    order = np.argsort(starts[chosen], kind="stable")
    return rows[chosen][order], keys[chosen][order]


def keys_by_start(process: Process) -> npt.NDArray[np.int64]:
    """Keys (stream << 48 | index) of all events, in the order in which `events_of` gives them."""
    return _event_rows(process)[1]


def _extensions(process: Process, slots: Slots, keys: npt.NDArray[np.int64]) -> dict[int, Any]:
    """The extension of each slot that has one."""
    extended = np.flatnonzero(slots["flags"] & layout.FLAG_EXT)
    rows = process.slots.rows_of(keys[extended] + 1)
    recorded = rows >= 0
    out: dict[int, Any] = {}
    behind = process.slots.take(rows[recorded])
    for number, place in enumerate(extended[recorded].tolist()):
        name = _EXTENSIONS.get(int(slots["kind"][place]))
        slot = behind[number : number + 1]
        if name is not None and int(slot["kind"][0]) == _KINDS[name]:
            out[place] = slot.view(_DTYPES[name])[0]
    return out | _kept_in_groups(process, slots, keys)


def _kept_in_groups(process: Process, slots: Slots, keys: npt.NDArray[np.int64]) -> dict[int, Any]:
    """Extensions of collectives for which the Group before them serves as one; without buffers
    where that Group is not on record, or an older version of it is.
    """
    in_group = (slots["kind"] == _KINDS["Coll"]) & (slots["flags"] & layout.FLAG_IN_GROUP != 0)
    out: dict[int, Any] = {}
    for place in np.flatnonzero(in_group).tolist():
        before = int(keys[place]) - 1
        out[place] = IN_GROUP | {"parent_group": _handle(before, process.header.nonce)}
    places = np.array(list(out), np.int64)
    rows = process.slots.rows_of(keys[places] - 1)
    groups = process.slots.take(rows[rows >= 0]).view(_DTYPES["Group"])
    for place, group in zip(places[rows >= 0].tolist(), groups, strict=True):
        if group["kind"] == _KINDS["Group"] and group["states"] & layout.STATE_FIRST:
            out[place] |= {name: int(group[name]) for name in ("send_buff", "recv_buff")}
    return out


class EventReader:
    """Events of a process by their keys (stream << 48 | index)."""

    def __init__(self, process: Process, nonces: dict[int, str] | None = None) -> None:
        self._process = process
        self._names, self._appended = ProcessNames(process, nonces or {}), _Appended(process)

    def at(self, keys: npt.NDArray[np.int64]) -> list[Event]:
        """The events with these keys; those that are not on record are left out."""
        rows = self._process.slots.rows_of(keys)
        rows, keys = rows[rows >= 0], keys[rows >= 0]
        kinds = self._process.slots.take(rows)["kind"]
        is_event = (kinds >= 1) & (kinds <= layout.EVENT_KINDS)
        return self.in_rows(rows[is_event], keys[is_event])

    def in_rows(self, rows: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]) -> list[Event]:
        """Events by the rows of their slots."""
        process, names = self._process, self._names
        slots = process.slots.take(rows)
        extensions = _extensions(process, slots, keys)
        events, ticks = [], _Ticks()
        for number, key in enumerate(keys.tolist()):
            kind = _KIND_NAMES[int(slots["kind"][number])]
            slot = slots[number : number + 1].view(_DTYPES[kind])[0]
            comm = names.communicator(slot)
            early = (comm.version if comm else names.oldest_version) < FIRST_WITH_STAMPS
            start = ticks.place(int(slot["t0"]))
            states, stop = _states(kind, slot, self._appended.of(key), early, ticks)
            events.append(
                {
                    "event": kind,
                    "process": process.folder,
                    "rank": process.rank,
                    "thread": _thread(process, key),
                    "id": f"{key >> KEY_SHIFT}.{key & layout.INDEX_MASK}",
                    "parent": names.reference(int(slot["parent"])),
                    "comm": f"comm.{comm.number}" if comm else None,
                    "start_ns": start,
                    "stop_ns": stop,
                    "states": states,
                    "fields": fields_of(names, kind, slot, extensions.get(number)),
                }
            )
        _set_times(process, events, ticks)
        return events


def events_of(
    process: Process,
    nonces: dict[int, str] | None = None,
    names: Collection[str] | None = None,
) -> Iterator[Event]:
    """Events of a process in the order of their starts, communicators first: all, or these of
    EVENT_NAMES.

    `nonces` names the capture's processes, so that parents in another process (PXN) get names.
    """
    reader = EventReader(process, nonces)
    if names is None or "Comm" in names:
        yield from _communicator_events(process)
    rows, keys = _event_rows(process, names)
    for first in range(0, len(rows), _BATCH):
        yield from reader.in_rows(rows[first : first + _BATCH], keys[first : first + _BATCH])
