"""Questions to what is on the page: search, the slowest, the largest skew, a span's statistics,
bandwidth over time, the whole at a glance.
"""

import re
from typing import Any

import numpy as np

from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, STATES
from ncclscope.nccl.bandwidth import bus_factor
from ncclscope.web.bar_details import Lookup, position
from ncclscope.web.bars import Bars
from ncclscope.web.counters import amounts
from ncclscope.web.operation_rows import Filter, spans_of
from ncclscope.web.scene import OPERATION, PART, Scene
from ncclscope.web.tiles import runs_of

_MOST_FOUND = 50
_TERM = re.compile(
    r"(rank|seq|comm|order|state|source|peer)[:=](\S+)|([<>])(\d+(?:\.\d+)?)(\S*)|(\S+)"
)
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30}
_SIZES |= {"gb": 1 << 30, "ns": -1, "us": -1_000, "µs": -1_000, "ms": -1_000_000, "s": -(10**9)}
_NUMBERED = {"rank": "global_rank", "seq": "sequence", "order": "call_order", "peer": "peer"}
_NAMED = ("function", "datatype", "state", "source", "algorithm", "protocol")
_CAPTURED = STATES.index("captured")


def where(lookup: Lookup, model: Model, operation: int) -> dict[str, Any] | None:
    """Where an operation is drawn, and what it is called."""
    operations = model.tables["operations"]
    rows = np.array([operation])
    start, _, _ = spans_of(operations, rows, 0)
    process = int(operations["process"][operation])
    at = lookup.place_of(process, (OPERATION, PART), operation, int(start[0]))
    if at is None:
        return None
    code = int(operations["function"][operation])
    return {
        **position(lookup.scene, *at),
        "function": model.words["function"][code] if code >= 0 else "?",
        "rank": int(operations["global_rank"][operation]),
        "communicator": model.communicator_names[int(operations["communicator"][operation])],
        "size_bytes": int(operations["size_bytes"][operation]),
        "duration_ns": int(operations["duration_ns"][operation]),
        "wait_ns": int(operations["wait_ns"][operation]),
    }


def _mask_of_term(model: Model, match: re.Match[str]) -> Any:
    """Operations that fit one word of a search."""
    operations = model.tables["operations"]
    name, value, sign, amount, unit, text = match.groups()
    if sign:
        return _mask_of_amount(model, sign, float(amount), unit.casefold())
    if name in _NUMBERED:
        wanted = int(value) if value.isdecimal() and len(value) < 18 else -2
        return np.asarray(operations[_NUMBERED[name]]) == wanted
    found = np.zeros(len(operations["process"]), bool)
    word = str(value or text).casefold()
    if name in (None, "comm"):
        names = enumerate(model.communicator_names)
        comms = [row for row, title in names if word in title.casefold()]
        found |= np.isin(operations["communicator"], comms)
    sorts = () if name == "comm" else (name,) if name else _NAMED
    for sort in sorts:
        codes = [code for code, title in enumerate(model.words[sort]) if word in title.casefold()]
        found |= np.isin(operations[sort], codes)
    return found


def _mask_of_amount(model: Model, sign: str, amount: float, unit: str) -> Any:
    """Operations larger or longer than an amount, or smaller."""
    operations = model.tables["operations"]
    if unit not in _SIZES:
        return np.zeros(len(operations["process"]), bool)
    column = operations["size_bytes" if _SIZES[unit] > 0 else "duration_ns"]
    limit = amount * abs(_SIZES[unit])
    return (column != NONE) & ((column > limit) if sign == ">" else (column < limit))


def find(lookup: Lookup, text: str) -> dict[str, Any]:
    """Operations that fit all words of a search: names, rank:3, seq:12, >1MB, >20ms …"""
    model = lookup.scene.model
    terms = list(_TERM.finditer(text))
    if model is None or not terms:
        return {"count": 0, "found": []}
    mask = np.asarray(model.tables["operations"]["state"]) != _CAPTURED
    for term in terms:
        mask &= _mask_of_term(model, term)
    rows = np.flatnonzero(mask)
    return {"count": len(rows), "found": _sorted_by_time(lookup, model, rows)}


def _sorted_by_time(lookup: Lookup, model: Model, rows: Any) -> list[dict[str, Any]]:
    start, _, _ = spans_of(model.tables["operations"], rows, 0)
    first = rows[np.argsort(start, kind="stable")[:_MOST_FOUND]]
    places = (where(lookup, model, row) for row in first.tolist())
    return [place for place in places if place]


def highlights(lookup: Lookup) -> dict[str, Any]:
    """The slowest operations and the instances with the largest skew."""
    model = lookup.scene.model
    if model is None:
        return {"slowest": [], "skewed": [], "in_flight": []}
    operations, instances = model.tables["operations"], model.tables["instances"]
    duration = np.asarray(operations["duration_ns"])
    slowest = _largest(np.where(np.asarray(operations["part_of"]) == NONE, duration, NONE))
    skew = np.asarray(instances["skew_ns"])
    certain = skew > np.asarray(instances["error_ns"])
    skewed = []
    for number in _largest(np.where(certain, skew, NONE)):
        last = int(instances["last_rank"][number])
        members = np.flatnonzero(np.asarray(operations["instance"]) == number)
        of_last = members[np.asarray(operations["rank"][members]) == last]
        chosen = of_last if len(of_last) else members
        place = where(lookup, model, int(chosen[0])) if len(chosen) else None
        if place:
            skewed.append(place | {"skew_ns": int(skew[number]), "last_rank": last})
    stuck = np.flatnonzero(np.asarray(operations["state"]) == STATES.index("in flight"))
    places = [where(lookup, model, row) for row in slowest]
    return {
        "slowest": [place for place in places if place],
        "skewed": skewed,
        "in_flight": _sorted_by_time(lookup, model, stuck),
    }


def _largest(values: Any) -> list[int]:
    """Places of the ten largest values, the largest first; unknown ones are left out."""
    if not len(values):
        return []
    some = np.argpartition(values, -min(10, len(values)))[-10:]
    some = some[np.argsort(values[some], kind="stable")[::-1]]
    return [int(place) for place in some if values[place] > 0]


def span(scene: Scene, rows: list[int], first_ns: int, last_ns: int, chosen: Filter) -> Any:
    """Statistics of the operations of some rows that begin in a span, by communicator and
    function.
    """
    model = scene.model
    if model is None:
        return {"groups": []}
    operations = model.tables["operations"]
    refs = []
    for number in rows:
        bars = scene.rows[number].bars
        if scene.rows[number].kind == OPERATION:
            low, high = np.searchsorted(bars.start_ns, (first_ns, last_ns))
            columns = {
                "code": bars.code[low:high],
                "source": np.asarray(operations["source"][bars.ref[low:high]]),
                "size_bytes": np.asarray(operations["size_bytes"][bars.ref[low:high]]),
            }
            refs.append(bars.ref[low:high][chosen.of(columns)])
    ref = np.concatenate([np.empty(0, np.int64), *refs])
    comm, function = (np.asarray(operations[name][ref]) for name in ("communicator", "function"))
    groups = []
    for pair in np.unique(comm.astype(np.int64) << 8 | function.view(np.uint8)).tolist():
        mine = ref[(comm == pair >> 8) & (function == _signed(pair & 0xFF))]
        groups.append(_group(model, mine, pair >> 8, _signed(pair & 0xFF)))
    groups.sort(key=lambda group: -group["time_ns"])
    return {"groups": groups, "operations": len(ref), "span_ns": last_ns - first_ns}


def _signed(byte: int) -> int:
    """A code of a name; they are signed bytes."""
    return byte - 256 if byte > 127 else byte


def _group(model: Model, rows: Any, communicator: int, function: int) -> dict[str, Any]:
    operations = model.tables["operations"]
    name = model.words["function"][function] if function >= 0 else "?"
    duration = np.asarray(operations["duration_ns"][rows])
    size = np.maximum(np.asarray(operations["size_bytes"][rows]), 0)
    wait = np.asarray(operations["wait_ns"][rows])
    timed, waited = duration != NONE, wait != NONE
    time_ns = int(duration[timed].sum())
    ranks = int(model.tables["communicators"]["ranks"][communicator])
    factor = bus_factor(name, ranks)
    p50 = p99 = None
    if timed.any():  # values that occurred, as in reports
        p50, p99 = np.percentile(duration[timed], (50, 99), method="inverted_cdf").tolist()
    bus = None if factor is None or not time_ns else float(size[timed].sum()) * factor / time_ns
    waiting = (
        int(wait[waited].sum()) / max(int(duration[waited].sum()), 1) if waited.any() else None
    )
    return {
        "communicator": model.communicator_names[communicator],
        "function": name,
        "operations": len(rows),
        "timed": int(timed.sum()),
        "bytes": int(size.sum()),
        "time_ns": time_ns,
        "median_ns": p50,
        "p99_ns": p99,
        "busbw_gbs": bus,
        "wait_share": waiting,
    }


def bus_bytes(scene: Scene, number: int) -> Any:
    """What each operation of a row has on the bus; 0 where its time is not known."""
    assert scene.model is not None
    model, bars = scene.model, scene.rows[number].bars
    operations = model.tables["operations"]
    ranks = np.asarray(model.tables["communicators"]["ranks"])
    comm = np.asarray(operations["communicator"][bars.ref])
    function = np.asarray(operations["function"][bars.ref])
    size = np.maximum(np.asarray(operations["size_bytes"][bars.ref]), 0).astype(np.float64)
    for pair in np.unique(comm.astype(np.int64) << 8 | function.view(np.uint8)).tolist():
        code = _signed(pair & 0xFF)
        name = model.words["function"][code] if code >= 0 else ""
        mine = (comm == pair >> 8) & (function == code)
        size[mine] *= bus_factor(name, int(ranks[pair >> 8])) or 0.0
    timed = np.asarray(operations["duration_ns"][bars.ref]) != NONE
    return np.where(timed, size, 0.0)


class Slope:
    """What a line shows: bandwidth of operations, or a counter. Amounts up to a moment, along a row
    of bars; the line is their slope. Without bars no bytes were moved, but a counter is unknown.
    """

    def __init__(self, scene: Scene, number: int) -> None:
        row = scene.rows[number]
        self._bars: Bars = row.bars
        each = amounts(row.drawn, row.bars) if row.drawn else bus_bytes(scene, number)
        self._sums = np.concatenate([[0.0], np.cumsum(each)])
        lengths = row.bars.end_ns - row.bars.start_ns
        self._known = np.concatenate([[0], np.cumsum(lengths)]) if row.drawn else None

    def between(self, edges_ns: Any) -> Any:
        """Amount a ns between neighbouring moments; of bytes, GB/s. NaN: not known."""
        moved = np.diff(self._up_to(self._sums, edges_ns))
        if self._known is None:
            return moved / np.maximum(np.diff(edges_ns), 1)
        known = np.diff(self._up_to(self._known, edges_ns))
        return np.where(known > 0, moved / np.where(known > 0, known, 1), np.nan)

    def _up_to(self, sums: Any, edges_ns: Any) -> Any:
        """What bars add up to until each moment."""
        bars = self._bars
        at = np.searchsorted(bars.start_ns, edges_ns, "right")
        before = np.maximum(at - 1, 0)
        length = np.maximum(bars.end_ns[before] - bars.start_ns[before], 1)
        share = np.clip((edges_ns - bars.start_ns[before]) / length, 0, 1)
        last = sums[at] - sums[before]
        return sums[before] + np.where(at > 0, share * last, 0.0)


def overview(scene: Scene, width: int) -> dict[str, Any]:
    """The whole capture in so many pixels: how busy, and how much of that was waiting."""
    busy, wait = np.zeros(width), np.zeros(width)
    rows = [row for row in scene.rows if row.kind in (OPERATION, "coarse")]
    for row in rows:
        runs = runs_of(row.bars, *row.window(scene.first_ns, scene.last_ns), width)
        share = runs.fill / 255.0
        for target, weight in ((busy, share), (wait, share * runs.wait / 255.0)):
            _spread(target, runs.x0, runs.x1, weight)
    count = max(len(rows), 1)
    return {"busy": (busy / count).round(4).tolist(), "wait": (wait / count).round(4).tolist()}


def _spread(target: Any, x0: Any, x1: Any, weight: Any) -> None:
    """Adds weights to the pixels from x0 to x1, by the share of each that they cover."""
    width = len(target)
    x0, x1 = np.clip(x0, 0, width), np.clip(x1, 0, width)
    change = np.zeros(width + 2)
    for x, sign in ((x0, 1.0), (x1, -1.0)):
        whole = np.floor(x).astype(np.int64)
        part = (x - whole).astype(np.float64)
        np.add.at(change, whole, sign * weight * (1 - part))
        np.add.at(change, whole + 1, sign * weight * part)
    target += np.cumsum(change)[:width]
