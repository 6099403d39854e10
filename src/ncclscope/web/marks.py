"""Lines and marks over the bars in a window: to parents, across instances, at states."""

from typing import Any

import numpy as np

from ncclscope.capture import layout
from ncclscope.web.bar_details import (
    Json,
    position,
    position_of_event,
    position_of_parent,
    state_name,
)
from ncclscope.web.kinds import CALLBACK_KINDS, OPERATION, PART
from ncclscope.web.lookup import Lookup

MOST_BARS = 700  # with more, no line could be followed
WITH_STATES = ("ProxyOp", "ProxyStep", "NetPlugin", "GroupApi", "ProxyCtrl")


def marks_json(lookup: Lookup, rows: list[int], first_ns: int, last_ns: int) -> Json:
    """Parents, instances and states of the bars of these rows in a window, and the number of bars.

    Of too many bars there is only the number.
    """
    scene = lookup.scene
    places: dict[int, Any] = {}
    for number in rows:
        row = scene.rows[number]
        first, last = row.window(first_ns, last_ns)
        low = int(np.searchsorted(row.bars.end_ns, first, "left"))
        high = int(np.searchsorted(row.bars.start_ns, last, "left"))
        places[number] = range(low, max(high, low))
    total = sum(map(len, places.values()))
    marks: Json = {"bars": total, "parents": [], "instances": [], "states": []}
    if total > MOST_BARS:
        return marks
    for number, some in places.items():
        row = scene.rows[number]
        if row.kind in (OPERATION, PART):
            _add_operations(marks, lookup, number, some)
        elif row.kind in CALLBACK_KINDS and len(some):
            _add_events(marks, lookup, number, some)
    return marks


def _add_operations(marks: Json, lookup: Lookup, number: int, places: range) -> None:
    scene, row = lookup.scene, lookup.scene.rows[number]
    if scene.model is None:
        return
    operations = scene.model.tables["operations"]
    for place in places:
        ref = int(row.bars.ref[place])
        instance = int(operations["instance"][ref])
        at = position(lookup, number, place)
        if instance >= 0:
            marks["instances"].append({"instance": instance, **at})
        parent = position_of_event(lookup, row.process, int(operations["event"][ref]))
        if parent is not None:
            marks["parents"].append({"child": at, "parent": parent})


def _add_events(marks: Json, lookup: Lookup, number: int, places: range) -> None:
    scene, row = lookup.scene, lookup.scene.rows[number]
    keys = row.bars.ref[places.start : places.stop]
    events = {event["id"]: event for event in lookup.events(row.process, keys)}
    for place, key in zip(places, keys.tolist(), strict=True):
        event = events.get(f"{key >> layout.INDEX_BITS}.{key & layout.INDEX_MASK}")
        if event is None:
            continue
        at = position(lookup, number, place)
        parent = position_of_parent(lookup, row.process, event)
        if parent is not None:
            marks["parents"].append({"child": at, "parent": parent})
        if row.kind in WITH_STATES:
            for state in event["states"]:
                at_ns = lookup.to_scene(row, state["t_ns"]) - scene.first_ns
                length = at["end_ns"] - at["start_ns"]
                mark = {"row": number, "at_ns": at_ns, "name": state_name(state)}
                marks["states"].append(mark | {"length_ns": length})
