"""Operations that are worth a look, and the whole capture in a few pixels."""

from typing import Any

import numpy as np

from ncclscope.analysis.measures import began_ns
from ncclscope.model.model import Model
from ncclscope.model.schema import COLLECTIVE, IN_FLIGHT, NONE
from ncclscope.web.bar_details import Json, position
from ncclscope.web.kinds import OPERATION, PART, PREVIEW
from ncclscope.web.lookup import Lookup
from ncclscope.web.scene import Scene
from ncclscope.web.tiles import runs_of

MOST_MATCHES = 500  # operations of a search that are listed and marked
_MOST_IN_FLIGHT = 50
_MOST_HIGHLIGHTS = 10


def operation_json(lookup: Lookup, model: Model, row: int) -> Json | None:
    """Where an operation is drawn, and what it is; None: it is not drawn."""
    operations = model.tables["operations"]
    start = int(began_ns(operations, np.array([row]))[0])
    at = lookup.place_of(int(operations["process"][row]), (OPERATION, PART), row, start)
    if at is None:
        return None
    function, comm = (int(operations[name][row]) for name in ("function", "communicator"))
    return {
        **position(lookup, *at),
        "function": model.words["function"][function] if function >= 0 else "?",
        "rank": int(operations["global_rank"][row]),
        "communicator": model.communicator_name(comm),
        "size_bytes": int(operations["size_bytes"][row]),
        "duration_ns": int(operations["duration_ns"][row]),
        "wait_ns": int(operations["wait_ns"][row]),
    }


def first_operations(lookup: Lookup, model: Model, rows: Any, most: int) -> list[Json]:
    """The operations that began first, at most `most`."""
    start = began_ns(model.tables["operations"], rows)
    first = rows[np.argsort(start, kind="stable")[:most]]
    listed = (operation_json(lookup, model, row) for row in first.tolist())
    return [operation for operation in listed if operation]


def highlights(lookup: Lookup) -> Json:
    """The slowest operations, the instances with the largest skew, operations in flight."""
    model = lookup.scene.model
    if model is None:
        return {"slowest": [], "skewed": [], "in_flight": []}
    operations = model.tables["operations"]
    duration = np.asarray(operations["duration_ns"])
    is_whole = np.asarray(operations["part_of"]) == NONE
    slowest = [
        operation_json(lookup, model, row) for row in _largest(np.where(is_whole, duration, NONE))
    ]
    in_flight = np.flatnonzero(np.asarray(operations["state"]) == IN_FLIGHT)
    return {
        "slowest": [operation for operation in slowest if operation],
        "skewed": _skewed(lookup, model),
        "in_flight": first_operations(lookup, model, in_flight, _MOST_IN_FLIGHT),
    }


def _skewed(lookup: Lookup, model: Model) -> list[Json]:
    """The last operation to arrive of each of the collectives with the largest skew. Sends are left
    out: a receiver that waits while its peer computes is how pipelines work.
    """
    operations, instances = model.tables["operations"], model.tables["instances"]
    skew = np.asarray(instances["skew_ns"])
    is_certain = skew > np.asarray(instances["error_ns"])
    is_certain &= np.asarray(instances["form"]) == COLLECTIVE
    listed = []
    for number in _largest(np.where(is_certain, skew, NONE)):
        last_rank = int(instances["last_communicator_rank"][number])
        members = np.flatnonzero(np.asarray(operations["instance"]) == number)
        of_last = members[np.asarray(operations["rank"][members]) == last_rank]
        shown = of_last if len(of_last) else members
        operation = operation_json(lookup, model, int(shown[0])) if len(shown) else None
        if operation:
            listed.append(operation | {"skew_ns": int(skew[number]), "last_rank": last_rank})
    return listed


def _largest(values: Any) -> list[int]:
    """Places of the largest values that are known, the largest first."""
    if not len(values):
        return []
    places = np.argpartition(values, -min(_MOST_HIGHLIGHTS, len(values)))[-_MOST_HIGHLIGHTS:]
    places = places[np.argsort(values[places], kind="stable")[::-1]]
    return [int(place) for place in places if values[place] > 0]


def overview(scene: Scene, width: int) -> Json:
    """The whole capture in `width` pixels: the share of time that ranks were busy, and waited."""
    busy, wait = np.zeros(width), np.zeros(width)
    rows = [row for row in scene.rows if row.kind in (OPERATION, PREVIEW)]
    for row in rows:
        runs = runs_of(row.bars, *row.window(scene.first_ns, scene.last_ns), width)
        share = runs.fill / 255.0
        for target, weight in ((busy, share), (wait, share * runs.wait / 255.0)):
            _spread(target, runs.x0, runs.x1, weight)
    count = max(len(rows), 1)
    return {"busy": (busy / count).round(4).tolist(), "wait": (wait / count).round(4).tolist()}


def _spread(target: Any, x0: Any, x1: Any, weight: Any) -> None:
    """Adds weights to the pixels from x0 to x1, by the share of each pixel that they cover."""
    width = len(target)
    x0, x1 = np.clip(x0, 0, width), np.clip(x1, 0, width)
    change = np.zeros(width + 2)
    for x, sign in ((x0, 1.0), (x1, -1.0)):
        whole = np.floor(x).astype(np.int64)
        part = (x - whole).astype(np.float64)
        np.add.at(change, whole, sign * weight * (1 - part))
        np.add.at(change, whole + 1, sign * weight * part)
    target += np.cumsum(change)[:width]
