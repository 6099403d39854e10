"""Lines and marks of what can be told apart in a window: parents, instances, states."""

from typing import Any

import numpy as np

from ncclscope.web.bar_details import Lookup, call_of, parent_of, position
from ncclscope.web.scene import CHANNEL, COARSE, COUNTER, DROP, OPERATION, PART

MOST = 700  # bars; of more, no line could be followed
_WITH_STATES = ("ProxyOp", "ProxyStep", "NetPlugin", "GroupApi", "ProxyCtrl")


def marks(lookup: Lookup, rows: list[int], first_ns: int, last_ns: int) -> dict[str, Any]:
    """Of the bars of these rows in a window: parents, instances and states; or their number, if
    there are too many.
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
    found: dict[str, Any] = {"bars": total, "parents": [], "instances": [], "states": []}
    if total > MOST:
        return found
    for number, some in places.items():
        row = scene.rows[number]
        if row.kind in (OPERATION, PART):
            _add_operations(found, lookup, number, some)
        elif row.kind not in (COARSE, COUNTER, DROP, "Comm", CHANNEL) and len(some):
            _add_events(found, lookup, number, some)
    return found


def _add_operations(found: dict[str, Any], lookup: Lookup, number: int, places: range) -> None:
    scene, row = lookup.scene, lookup.scene.rows[number]
    if scene.model is None:
        return
    operations = scene.model.tables["operations"]
    for place in places:
        ref = int(row.bars.ref[place])
        instance = int(operations["instance"][ref])
        at = position(scene, number, place)
        if instance >= 0:
            found["instances"].append({"instance": instance, **at})
        parent = call_of(lookup, row.process, int(operations["event"][ref]))
        if parent is not None:
            found["parents"].append({"child": at, "parent": parent})


def _add_events(found: dict[str, Any], lookup: Lookup, number: int, places: range) -> None:
    scene, row = lookup.scene, lookup.scene.rows[number]
    keys = row.bars.ref[places.start : places.stop]
    events = {event["id"]: event for event in lookup.events(row.process, keys)}
    for place, key in zip(places, keys.tolist(), strict=True):
        event = events.get(f"{key >> 37}.{key & ((1 << 37) - 1)}")
        if event is None:
            continue
        at = position(scene, number, place)
        parent = parent_of(lookup, row.process, event)
        if parent is not None:
            found["parents"].append({"child": at, "parent": parent})
        if row.kind in _WITH_STATES:
            for state in event["states"]:
                moment = row.moment(state["t_ns"]) - scene.first_ns
                name = state["name"] or f"state {state['state']}"
                length = at["end_ns"] - at["start_ns"]
                mark = {"row": number, "at_ns": moment, "name": name, "length_ns": length}
                found["states"].append(mark)
