"""What one bar says: every field with its unit and source, its parent, its instance."""

from collections import OrderedDict
from typing import Any

import numpy as np

from ncclscope.capture import layout
from ncclscope.capture.dump_events import Event, EventReader
from ncclscope.capture.process import open_process
from ncclscope.errors import FormatError
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, OPERATIONS
from ncclscope.web import bars as looks
from ncclscope.web.scene import CHANNEL, COARSE, COUNTER, DROP, OPERATION, PART, Row, Scene

_MOST_OPEN = 8  # processes whose events are kept at hand
_MOST_MEMBERS = 4096  # of an instance
_UNITS = {"_ns": "ns", "_bytes": "bytes"}
_ROWS = ("process", "communicator", "node", "instance", "part_of", "event", "group_call")
# Where a field of an operation comes from, if not from what NCCL told in its callbacks.
_HOST = ("call_ns", "call_end_ns", "launch_ns", "launch_end_ns", "enqueue_ns", "thread")
_DERIVED = ("wait_ns", "wire_ns", "relative_wait_ns", "instance", "call_order", "size_bytes",
            "global_rank", "state", "reason", "inferred", "part_of", "source")  # fmt: skip
_TIMED = ("start_ns", "end_ns", "duration_ns")
# Why a bar looks as it does.
LOOKS = {
    looks.OPEN: "not ended when the capture ended",
    looks.UNTIMED: "no time of the GPU's",
    looks.REPAIRED: "stamps repaired: NCCL had given them to another operation",
    looks.INFERRED: "function inferred from a group of sends and receives",
    looks.REPLAY: "replay of a captured call",
    looks.LOWER_BOUND: "at least so long: stamps are partial or early",
    looks.CUT: "drawn shorter: too many overlap here",
    looks.MISMATCH: "ranks disagree on function, bytes or datatype",
}
Field = dict[str, Any]


class Lookup:
    """Finds events of a capture's processes; keeps the last few processes open."""

    def __init__(self, scene: Scene, path: Any) -> None:
        self.scene, self._path = scene, path
        self._open: OrderedDict[int, EventReader | None] = OrderedDict()
        self._rows: dict[tuple[int, str], list[int]] = {}
        for number, row in enumerate(scene.rows):
            self._rows.setdefault((row.process, row.kind), []).append(number)

    def reader(self, process: int) -> EventReader | None:
        """A process's events; None where they are gone."""
        if process not in self._open:
            try:
                folder = self._path / self.scene.known[process].folder
                self._open[process] = EventReader(open_process(folder))
            except (FormatError, OSError):
                self._open[process] = None
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(process)
        return self._open[process]

    def events(self, process: int, keys: Any) -> list[Event]:
        """Events by the keys that rows refer to."""
        reader = self.reader(process)
        if reader is None:
            return []
        keys = np.asarray(keys, np.int64)
        stream, index = keys >> layout.INDEX_BITS, keys & layout.INDEX_MASK
        return reader.at(stream << 48 | index)

    def place_of(self, process: int, kinds: tuple[str, ...], ref: int, own_ns: int) -> Any:
        """Row and place of the bar that stands for something; None: it is not drawn."""
        for kind in kinds:
            for number in self._rows.get((process, kind), ()):
                bars = self.scene.rows[number].bars
                first = int(np.searchsorted(bars.start_ns, own_ns, "left"))
                for place in range(max(first - 1, 0), min(first + 3, len(bars))):
                    if int(bars.ref[place]) == ref:
                        return number, place
        return None

    def rows_of_kind(self, process: int, kind: str) -> list[int]:
        """Numbers of a process's rows of one kind."""
        return self._rows.get((process, kind), [])


def key_of(reference: str) -> int:
    """The key behind `stream.index`."""
    stream, index = reference.split(".")
    return int(stream) << layout.INDEX_BITS | int(index)


def item(lookup: Lookup, number: int, place: int, with_instance: bool = True) -> dict[str, Any]:
    """All about one bar; the places of its instance only if they are asked for."""
    scene = lookup.scene
    row = scene.rows[number]
    bars = row.bars
    start, end = (row.moment(int(values[place])) for values in (bars.start_ns, bars.end_ns))
    look = int(bars.look[place])
    found: dict[str, Any] = {
        "row": number,
        "item": place,
        "kind": row.kind,
        "code": int(bars.code[place]),
        "start_ns": start - scene.first_ns,
        "end_ns": end - scene.first_ns,
        "looks": [text for bit, text in LOOKS.items() if look & bit],
        "error_ns": _error_ns(scene, row, start),
        "title": row.kind,
        "fields": [],
        "states": [],
        "parent": None,
        "instance": [],
    }
    if row.kind in (OPERATION, PART, CHANNEL) and scene.model is not None:
        _add_operation(found, lookup, scene.model, row, int(bars.ref[place]), with_instance)
    elif row.kind == "Comm":
        _add_communicator(found, scene, row, place)
    elif row.drawn is not None:
        value = round(int(bars.ref[place]) * row.drawn.factor, 3)
        told = {"name": row.drawn.title, "value": value, "unit": row.drawn.unit, "source": "host"}
        found |= {"title": row.drawn.title, "fields": [told]}
    elif row.kind not in (COARSE, DROP):
        _add_event(found, lookup, row, int(bars.ref[place]))
    elif row.kind == DROP:
        found["title"] = "events dropped: the arena was full"
    else:
        found["title"] = "sampled: the index is being made"
    return found


def _error_ns(scene: Scene, row: Row, scene_ns: int) -> int | None:
    """How far a time may be off on the one clock."""
    if scene.model is None or row.kind == COUNTER:
        return None
    process = scene.model.processes[row.process]
    if process.node >= len(scene.model.clocks):
        return None
    clock = scene.model.clocks[process.node]
    local = scene.known[row.process].shift.to_local(scene_ns)
    error = float(clock.error_at(np.array([local], np.int64))[0])
    if not np.isfinite(error):
        return None
    gpu = process.gpu_clock_error_ns if row.kind in (OPERATION, PART, CHANNEL) else 0
    return int(error) + gpu


def _add_operation(
    found: dict[str, Any],
    lookup: Lookup,
    model: Model,
    row: Row,
    number: int,
    with_instance: bool,
) -> None:
    operations, scene = model.tables["operations"], lookup.scene
    values = {column.name: int(operations[column.name][number]) for column in OPERATIONS}
    function = model.words["function"][values["function"]] if values["function"] >= 0 else "?"
    found["title"] = function if row.kind != CHANNEL else f"{function}, one channel"
    found["communicator"] = model.communicator_names[values["communicator"]]
    source = model.words["source"][values["source"]]
    found["fields"] = [
        *_names(model, values),
        *(
            _field(model, column, values[column.name], source, scene.first_ns)
            for column in OPERATIONS
            if values[column.name] != NONE and column.name not in _ROWS
        ),
    ]
    if row.kind == CHANNEL:
        start = values["start_ns"]
        at = lookup.place_of(row.process, (OPERATION, PART), number, start)
        found["parent"] = at and position(scene, *at)
    else:
        found["parent"] = call_of(lookup, row.process, values["event"])
        if with_instance:
            found["instance"] = members(lookup, model, values["instance"])
        found["instance_number"] = values["instance"]


def _names(model: Model, values: dict[str, int]) -> list[Field]:
    comm, instance = values["communicator"], values["instance"]
    name = model.communicator_names[comm]
    fields: list[Field] = [{"name": "communicator", "value": name, "source": "nccl"}]
    instances = model.tables["instances"]
    if instance != NONE:
        for name in ("skew_ns", "last_rank", "ranks_seen", "ranks_expected", "error_ns"):
            value = int(instances[name][instance])
            if value != NONE:
                shown = f"instance {name}"
                unit = "ns" if name.endswith("_ns") else ""
                fields.append({"name": shown, "value": value, "unit": unit, "source": "derived"})
    return fields


def _field(model: Model, column: Any, value: int, source: str, first_ns: int) -> Field:
    name = column.name
    shown: Any = model.words[name][value] if column.words else value
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")
    told = "nccl"
    if name in _TIMED:
        told = source
    elif name in _HOST:
        told = "host"
    elif name in _DERIVED:
        told = "derived"
    field: Field = {"name": name, "value": shown, "unit": unit, "source": told}
    if name == "stream":
        field["value"] = f"{value & 0xFFFFFFFFFFFFFFFF:#x}"
    elif unit == "ns" and name not in ("duration_ns", "wait_ns", "wire_ns", "relative_wait_ns"):
        field |= {"value": value - first_ns, "unit": "moment"}
    return field


def _add_communicator(found: dict[str, Any], scene: Scene, row: Row, place: int) -> None:
    comm = scene.known[row.process].communicators.get(int(row.bars.ref[place]))
    found["title"] = "init" if place == 0 else "finalize"
    if comm is not None:
        pairs = {"communicator": comm.name, "rank": comm.rank, "ranks": comm.ranks}
        found["fields"] = [
            {"name": name, "value": value, "source": "nccl"} for name, value in pairs.items()
        ]


def _add_event(found: dict[str, Any], lookup: Lookup, row: Row, key: int) -> None:
    events = lookup.events(row.process, [key])
    if not events:
        found["looks"].append("its event is not on record any more")
        return
    event, first = events[0], lookup.scene.first_ns
    func = event["fields"].get("func")
    found["title"] = f"{event['event']} {func}" if isinstance(func, str) else event["event"]
    fields = [
        {"name": "event", "value": event["id"], "source": "ncclscope"},
        {"name": "thread", "value": event["thread"], "source": "host"},
    ]
    fields += [
        {"name": name, "value": value, "source": "gpu" if name == "pTimer" else "nccl"}
        for name, value in event["fields"].items()
        if value is not None
    ]
    found["fields"] = fields
    found["states"] = [_state(state, row, first) for state in event["states"]]
    found["parent"] = parent_of(lookup, row.process, event)


def _state(state: dict[str, Any], row: Row, first_ns: int) -> dict[str, Any]:
    shown = {k: v for k, v in state.items() if k not in ("t_ns", "last_t_ns", "name", "state")}
    name = state["name"] or f"state {state['state']}"
    return {"name": name, "at_ns": row.moment(state["t_ns"]) - first_ns, "more": shown}


def parent_of(lookup: Lookup, process: int, event: Event) -> dict[str, Any] | None:
    """Where the event's parent is drawn."""
    reference = event["parent"]
    if reference is None or "/" in reference or ":" in reference:
        return None
    return call_of(lookup, process, key_of(reference))


def call_of(lookup: Lookup, process: int, key: int) -> dict[str, Any] | None:
    """Where the event with a key is drawn."""
    if key == NONE:
        return None
    found = lookup.events(process, [key])
    if not found:
        return None
    at = lookup.place_of(process, (found[0]["event"],), key, found[0]["start_ns"])
    return at and position(lookup.scene, *at)


def position(scene: Scene, number: int, place: int) -> dict[str, Any]:
    """Where a bar is, for lines that lead to it."""
    row = scene.rows[number]
    return {
        "row": number,
        "item": place,
        "start_ns": row.moment(int(row.bars.start_ns[place])) - scene.first_ns,
        "end_ns": row.moment(int(row.bars.end_ns[place])) - scene.first_ns,
    }


def members(lookup: Lookup, model: Model, instance: int) -> list[dict[str, Any]]:
    """Where the operations of an instance are drawn."""
    if instance == NONE:
        return []
    operations = model.tables["operations"]
    rows = np.flatnonzero(np.asarray(operations["instance"]) == instance)[:_MOST_MEMBERS]
    out = []
    for row in rows.tolist():
        process = int(operations["process"][row])
        start = next(
            int(operations[name][row])
            for name in ("start_ns", "launch_ns", "call_ns", "enqueue_ns")
            if operations[name][row] != NONE or name == "enqueue_ns"
        )
        at = lookup.place_of(process, (OPERATION, PART), row, start)
        if at:
            out.append(position(lookup.scene, *at))
    return out
