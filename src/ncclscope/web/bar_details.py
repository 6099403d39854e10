"""Everything about one bar: all fields with unit and source, its parent, its instance."""

from functools import partial
from typing import Any

import numpy as np

from ncclscope.analysis.measures import began_ns
from ncclscope.capture.dump_events import Event
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, OPERATIONS
from ncclscope.web.bars import LOOKS
from ncclscope.web.kinds import (
    CHANNEL,
    COMMUNICATOR,
    DROP,
    OPERATION,
    PART,
    PATH,
    PREVIEW,
    TRAINING_KINDS,
)
from ncclscope.web.lookup import Lookup, own_parent
from ncclscope.web.path_rows import bar_of_path
from ncclscope.web.scene import Row, Scene
from ncclscope.web.training_rows import bar_of_training

_LARGEST_DOUBLE = 2**53  # whole numbers up to this one are exact
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


def bar_json(lookup: Lookup, number: int, place: int, with_instance: bool = True) -> Json:
    """Everything about one bar; `with_instance`: with the places of its instance."""
    scene = lookup.scene
    row = scene.rows[number]
    bars = row.bars
    start, end = (lookup.to_scene(row, int(ns[place])) for ns in (bars.start_ns, bars.end_ns))
    look = int(bars.look[place])
    bar: Json = {
        "row": number,
        "item": place,
        "kind": row.kind,
        "code": int(bars.code[place]),
        "start_ns": start - scene.first_ns,
        "end_ns": end - scene.first_ns,
        "looks": [text for bit, text in LOOKS.items() if look & bit],
        "error_ns": lookup.error_ns(row, start),
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
        bar["parent"] = at and position(lookup, *at)
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
    event = events[0]
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
    bar["states"] = [_state(state, lookup, row) for state in event["states"]]
    bar["parent"] = position_of_parent(lookup, row.process, event)


def _exact(value: Any) -> Any:
    """The value; a number that JavaScript would round becomes a text."""
    return str(value) if type(value) is int and abs(value) > _LARGEST_DOUBLE else value


def _state(state: Json, lookup: Lookup, row: Row) -> Json:
    own = ("t_ns", "last_t_ns", "name", "state")
    arguments = {name: _exact(value) for name, value in state.items() if name not in own}
    at_ns = lookup.to_scene(row, state["t_ns"]) - lookup.scene.first_ns
    return {"name": state_name(state), "at_ns": at_ns, "more": arguments}


def state_name(state: Json) -> str:
    """NCCL's name of a state, else its number."""
    return state["name"] or f"state {state['state']}"


def position_of_parent(lookup: Lookup, process: int, event: Event) -> Json | None:
    """Where an event's parent is drawn; None: nowhere."""
    return position_of_event(lookup, process, own_parent(event))


def position_of_event(lookup: Lookup, process: int, key: int) -> Json | None:
    """Where the event with this key is drawn; None: nowhere."""
    if key == NONE:
        return None
    events = lookup.events(process, [key])
    if not events:
        return None
    at = lookup.place_of(process, (events[0]["event"],), key, events[0]["start_ns"])
    return at and position(lookup, *at)


def position(lookup: Lookup, number: int, place: int) -> Json:
    """Where a bar is: its row, its place in it, its times since the scene's first."""
    row, first_ns = lookup.scene.rows[number], lookup.scene.first_ns
    return {
        "row": number,
        "item": place,
        "start_ns": lookup.to_scene(row, int(row.bars.start_ns[place])) - first_ns,
        "end_ns": lookup.to_scene(row, int(row.bars.end_ns[place])) - first_ns,
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
            positions.append(position(lookup, *at))
    return positions
