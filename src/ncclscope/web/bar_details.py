"""Everything about one bar: all fields with unit and source, its parent, its instance."""

from collections import OrderedDict
from functools import partial
from typing import Any

import numpy as np

from ncclscope.analysis.measures import began_ns
from ncclscope.capture import layout
from ncclscope.capture.dump_events import Event, EventReader
from ncclscope.capture.process import open_process
from ncclscope.errors import FormatError
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, OPERATIONS
from ncclscope.web.bars import LOOKS
from ncclscope.web.kinds import (
    CHANNEL,
    COMMUNICATOR,
    COUNTER,
    DROP,
    OPERATION,
    PART,
    PATH,
    PREVIEW,
    TRAINING_KINDS,
)
from ncclscope.web.path_rows import bar_of_path
from ncclscope.web.scene import Row, Scene
from ncclscope.web.training_rows import RangeTexts, bar_of_training, range_texts

_LARGEST_DOUBLE = 2**53  # whole numbers up to this one are exact
_MOST_OPEN = 8  # processes whose events stay open
_MOST_MEMBERS = 4096  # of an instance
_UNITS = {"_ns": "ns", "_bytes": "bytes"}
# Columns that are row numbers or keys: they say nothing to the user.
_INTERNAL = ("process", "communicator", "node", "instance", "part_of", "event", "group_call")
# Where a field of an operation comes from, if not from NCCL's callbacks.
_HOST = ("call_ns", "call_end_ns", "launch_ns", "launch_end_ns", "enqueue_ns", "thread")
_DERIVED = ("wait_ns", "wire_ns", "relative_wait_ns", "instance", "call_order", "size_bytes",
            "global_rank", "step", "phase", "module", "prefetch", "context", "state", "reason",
            "inferred", "part_of", "source")  # fmt: skip
_TIMED = ("start_ns", "end_ns", "duration_ns")
Json = dict[str, Any]
Field = dict[str, Any]


class Lookup:
    """Finds events and bars of a scene. It keeps the last few processes open."""

    def __init__(self, scene: Scene, path: Any) -> None:
        self.scene, self._path = scene, path
        self._open: OrderedDict[int, EventReader | None] = OrderedDict()
        self._range_texts: dict[int, RangeTexts] = {}
        self._rows: dict[tuple[int, str], list[int]] = {}
        for number, row in enumerate(scene.rows):
            self._rows.setdefault((row.process, row.kind), []).append(number)

    def reader(self, process: int) -> EventReader | None:
        """A process's events; None where its files are gone."""
        if process not in self._open:
            try:
                folder = self._path / self.scene.processes[process].folder
                self._open[process] = EventReader(open_process(folder))
            except (FormatError, OSError):
                self._open[process] = None
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(process)
        return self._open[process]

    def range_texts(self, process: int) -> RangeTexts:
        """Texts of a process's ranges by event; those of the last process are kept."""
        if process not in self._range_texts and self.scene.model is not None:
            self._range_texts = {process: range_texts(self.scene.model, process)}
        return self._range_texts.get(process, {})

    def events(self, process: int, keys: Any) -> list[Event]:
        """Events by their keys."""
        reader = self.reader(process)
        if reader is None:
            return []
        keys = np.asarray(keys, np.int64)
        stream, index = keys >> layout.INDEX_BITS, keys & layout.INDEX_MASK
        return reader.at(stream << 48 | index)

    def place_of(self, process: int, kinds: tuple[str, ...], ref: int, own_ns: int) -> Any:
        """Row and place of the bar with this `ref`, which begins at `own_ns`; None: not drawn."""
        for kind in kinds:
            for number in self._rows.get((process, kind), ()):
                bars = self.scene.rows[number].bars
                first = int(np.searchsorted(bars.start_ns, own_ns, "left"))
                for place in range(max(first - 1, 0), min(first + 3, len(bars))):
                    if int(bars.ref[place]) == ref:
                        return number, place
        return None


def key_of(reference: str) -> int:
    """The key of the event `stream.index`."""
    stream, index = reference.split(".")
    return int(stream) << layout.INDEX_BITS | int(index)


def bar_json(lookup: Lookup, number: int, place: int, with_instance: bool = True) -> Json:
    """Everything about one bar; `with_instance`: with the places of its instance."""
    scene = lookup.scene
    row = scene.rows[number]
    bars = row.bars
    start, end = (row.to_scene(int(values[place])) for values in (bars.start_ns, bars.end_ns))
    look = int(bars.look[place])
    bar: Json = {
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
        _add_operation(bar, lookup, scene.model, row, int(bars.ref[place]), with_instance)
    elif row.kind == PATH and scene.model is not None:
        bar |= bar_of_path(scene.model, int(bars.ref[place]), int(bars.code[place]))
    elif row.kind in TRAINING_KINDS and scene.model is not None:
        texts = partial(lookup.range_texts, row.process)
        bar |= bar_of_training(scene.model, row.kind, int(bars.ref[place]), texts)
    elif row.kind == COMMUNICATOR:
        _add_communicator(bar, scene, row, place)
    elif row.line_style is not None:
        style, value = row.line_style, round(int(bars.ref[place]) * row.line_style.factor, 3)
        field = {"name": style.title, "value": value, "unit": style.unit, "source": "host"}
        bar |= {"title": style.title, "fields": [field]}
    elif row.kind == DROP:
        bar["title"] = "events dropped: the arena was full"
    elif row.kind == PREVIEW:
        bar["title"] = "sampled: the index is being made"
    else:
        _add_event(bar, lookup, row, int(bars.ref[place]))
    return bar


def _error_ns(scene: Scene, row: Row, scene_ns: int) -> int | None:
    """How far a time on the scene's clock can be off; None where that is not known."""
    if scene.model is None or row.kind in (COUNTER, PATH):
        return None
    process = scene.model.processes[row.process]
    if process.node >= len(scene.model.clocks):
        return None
    clock = scene.model.clocks[process.node]
    local = scene.processes[row.process].clock.to_local(scene_ns)
    error = float(clock.error_at(np.array([local], np.int64))[0])
    if not np.isfinite(error):
        return None
    gpu = process.gpu_clock_error_ns if row.kind in (OPERATION, PART, CHANNEL) else 0
    return int(error) + gpu


def _add_operation(
    bar: Json, lookup: Lookup, model: Model, row: Row, number: int, with_instance: bool
) -> None:
    operations, scene = model.tables["operations"], lookup.scene
    values = {column.name: int(operations[column.name][number]) for column in OPERATIONS}
    function = model.words["function"][values["function"]] if values["function"] >= 0 else "?"
    bar["title"] = function if row.kind != CHANNEL else f"{function}, one channel"
    bar["communicator"] = model.communicator_name(values["communicator"])
    source = model.words["source"][values["source"]]
    bar["fields"] = [
        *_communicator_and_instance(model, values),
        *(
            _field(model, column, values[column.name], source, scene.first_ns)
            for column in OPERATIONS
            if values[column.name] != NONE and column.name not in _INTERNAL
        ),
    ]
    if row.kind == CHANNEL:
        start = values["start_ns"]
        at = lookup.place_of(row.process, (OPERATION, PART), number, start)
        bar["parent"] = at and position(scene, *at)
    else:
        bar["parent"] = position_of_event(lookup, row.process, values["event"])
        if with_instance:
            bar["instance"] = positions_of_instance(lookup, model, values["instance"])
        bar["instance_number"] = values["instance"]


def _communicator_and_instance(model: Model, values: dict[str, int]) -> list[Field]:
    comm, instance = values["communicator"], values["instance"]
    name = model.communicator_name(comm)
    fields: list[Field] = [{"name": "communicator", "value": name, "source": "nccl"}]
    instances = model.tables["instances"]
    if instance != NONE:
        for name in (
            "skew_ns", "last_communicator_rank", "ranks_seen", "ranks_expected", "error_ns",
        ):  # fmt: skip
            value = int(instances[name][instance])
            if value != NONE:
                label, unit = f"instance {name}", "ns" if name.endswith("_ns") else ""
                fields.append({"name": label, "value": value, "unit": unit, "source": "derived"})
    return fields


def _field(model: Model, column: Any, value: int, source: str, first_ns: int) -> Field:
    name = column.name
    shown_value: Any = model.words[name][value] if column.words else _exact(value)
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")
    origin = "nccl"
    if name in _TIMED:
        origin = source
    elif name in _HOST:
        origin = "host"
    elif name in _DERIVED:
        origin = "derived"
    field: Field = {"name": name, "value": shown_value, "unit": unit, "source": origin}
    if name == "module":
        field["value"] = model.module_names[value]
    elif name == "stream":
        field["value"] = f"{value & 0xFFFFFFFFFFFFFFFF:#x}"
    elif unit == "ns" and name not in ("duration_ns", "wait_ns", "wire_ns", "relative_wait_ns"):
        field |= {"value": value - first_ns, "unit": "moment"}
    return field


def _add_communicator(bar: Json, scene: Scene, row: Row, place: int) -> None:
    comm = scene.processes[row.process].communicators.get(int(row.bars.ref[place]))
    bar["title"] = "init" if place == 0 else "finalize"
    if comm is not None:
        pairs = {"communicator": comm.name, "rank": comm.rank, "ranks": comm.ranks}
        bar["fields"] = [
            {"name": name, "value": value, "source": "nccl"} for name, value in pairs.items()
        ]


def _add_event(bar: Json, lookup: Lookup, row: Row, key: int) -> None:
    events = lookup.events(row.process, [key])
    if not events:
        bar["looks"].append("its event is not on record any more")
        return
    event, first = events[0], lookup.scene.first_ns
    func = event["fields"].get("func")
    bar["title"] = f"{event['event']} {func}" if isinstance(func, str) else event["event"]
    fields = [
        {"name": "event", "value": event["id"], "source": "ncclscope"},
        {"name": "thread", "value": event["thread"], "source": "host"},
    ]
    fields += [
        {"name": name, "value": _exact(value), "source": "gpu" if name == "pTimer" else "nccl"}
        for name, value in event["fields"].items()
        if value is not None
    ]
    bar["fields"] = fields
    bar["states"] = [_state(state, row, first) for state in event["states"]]
    bar["parent"] = position_of_parent(lookup, row.process, event)


def _exact(value: Any) -> Any:
    """The value; a number that JavaScript would round becomes a text."""
    return str(value) if type(value) is int and abs(value) > _LARGEST_DOUBLE else value


def _state(state: Json, row: Row, first_ns: int) -> Json:
    own = ("t_ns", "last_t_ns", "name", "state")
    arguments = {name: _exact(value) for name, value in state.items() if name not in own}
    at_ns = row.to_scene(state["t_ns"]) - first_ns
    return {"name": state_name(state), "at_ns": at_ns, "more": arguments}


def state_name(state: Json) -> str:
    """NCCL's name of a state, else its number."""
    return state["name"] or f"state {state['state']}"


def position_of_parent(lookup: Lookup, process: int, event: Event) -> Json | None:
    """Where an event's parent is drawn; None: nowhere."""
    reference = event["parent"]
    if reference is None or "/" in reference or ":" in reference:
        return None
    return position_of_event(lookup, process, key_of(reference))


def position_of_event(lookup: Lookup, process: int, key: int) -> Json | None:
    """Where the event with this key is drawn; None: nowhere."""
    if key == NONE:
        return None
    events = lookup.events(process, [key])
    if not events:
        return None
    at = lookup.place_of(process, (events[0]["event"],), key, events[0]["start_ns"])
    return at and position(lookup.scene, *at)


def position(scene: Scene, number: int, place: int) -> Json:
    """Where a bar is: its row, its place in it, its times since the scene's first."""
    row = scene.rows[number]
    return {
        "row": number,
        "item": place,
        "start_ns": row.to_scene(int(row.bars.start_ns[place])) - scene.first_ns,
        "end_ns": row.to_scene(int(row.bars.end_ns[place])) - scene.first_ns,
    }


def positions_of_instance(lookup: Lookup, model: Model, instance: int) -> list[Json]:
    """Where the operations of an instance are drawn."""
    if instance == NONE:
        return []
    operations = model.tables["operations"]
    rows = np.flatnonzero(np.asarray(operations["instance"]) == instance)[:_MOST_MEMBERS]
    positions = []
    for row, start in zip(rows.tolist(), began_ns(operations, rows).tolist(), strict=True):
        at = lookup.place_of(int(operations["process"][row]), (OPERATION, PART), row, start)
        if at:
            positions.append(position(lookup.scene, *at))
    return positions
