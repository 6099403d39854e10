"""A capture's timeline as one file that needs no server: bars, what they say, and the page."""

import base64
import gzip
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.web.bar_details import Lookup, item
from ncclscope.web.bars import Bars
from ncclscope.web.counters import amounts
from ncclscope.web.operation_rows import kept
from ncclscope.web.queries import bus_bytes, highlights
from ncclscope.web.routes import scene_json
from ncclscope.web.scene import CHANNEL, COUNTER, OPERATION, PART, Lane, Row, Scene
from ncclscope.web.session import Timeline

MOST_BARS = 100_000
# What is left out first where there is too much.
_DISPENSABLE = (
    COUNTER, "NetPlugin", "ProxyStep", "ProxyCtrl", "KernelPhase", "KernelCh", CHANNEL, "ProxyOp",
    "Group", "KernelLaunch", "GroupApi", PART, "CollApi", "P2pApi", "Coll", "P2p", "CeSync",
    "CeBatch", "CeColl",
)  # fmt: skip


def thinned(scene: Scene, most: int) -> tuple[Scene, str]:
    """The scene with at most so many bars, and what was left out, "" for nothing."""
    counts: dict[str, int] = {}
    for row in scene.rows:
        counts[row.kind] = counts.get(row.kind, 0) + len(row.bars)
    left_out = []
    for kind in _DISPENSABLE:
        if sum(counts.values()) > most and kind in counts:
            left_out.append(f"{counts.pop(kind):,} {kind}")
    rows = [row for row in scene.rows if row.kind in counts]
    if sum(counts.values()) > most:
        rows = _longest(rows, most)
        left_out.append(f"all but the longest {most:,} of {sum(counts.values()):,} operations")
    if not left_out:
        return scene, ""
    numbers = {row.key: number for number, row in enumerate(rows)}
    root = _renumbered(scene.root, scene.rows, numbers)
    smaller = Scene(rows, root, scene.first_ns, scene.last_ns, scene.model, scene.known)
    return smaller, f"thinned to {most:,} bars: without {', '.join(left_out)}"


def _longest(rows: list[Row], most: int) -> list[Row]:
    """The longest bars of all rows."""
    length = np.concatenate([row.bars.end_ns - row.bars.start_ns for row in rows])
    bar = int(np.partition(length, -most)[-most])
    out = []
    for row in rows:
        bars: Bars = kept(row.bars, row.bars.end_ns - row.bars.start_ns >= bar)
        if len(bars):
            out.append(Row(row.kind, bars, row.process, row.shift, row.key))
    return out


def _renumbered(lane: Lane, rows: list[Row], numbers: dict[str, int]) -> Lane:
    """The lane with the rows that are left."""
    made = Lane(lane.key, lane.level, lane.title, lane.note, lane.state, ids=lane.ids)
    for kind, old in lane.tracks.items():
        found = [numbers[rows[n].key] for n in old if rows[n].key in numbers]
        if found:
            made.tracks[kind] = found
            made.drawn = lane.drawn
    for name, child in lane.children.items():
        made.children[name] = _renumbered(child, rows, numbers)
    return made


def _array(values: Any, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


class _Schemas:
    """Names, units and sources of fields, each combination once."""

    def __init__(self) -> None:
        self.known: dict[tuple[tuple[str, str, str], ...], int] = {}

    def number(self, fields: list[dict[str, Any]]) -> int:
        """The number of the combination that these fields have."""
        key = tuple((one["name"], one.get("unit", ""), one["source"]) for one in fields)
        return self.known.setdefault(key, len(self.known))


def _item(lookup: Lookup, row: int, place: int, schemas: _Schemas) -> list[Any]:
    """What a bar says, in few bytes."""
    found = item(lookup, row, place, with_instance=False)
    parent = found["parent"]
    return [
        found["title"],
        schemas.number(found["fields"]),
        [field["value"] for field in found["fields"]],
        [[state["name"], state["at_ns"], state["more"]] for state in found["states"]],
        parent and [parent["row"], parent["item"]],
        found["looks"],
        found["error_ns"],
        found.get("instance_number", -1),
    ]


def _row(lookup: Lookup, number: int, schemas: _Schemas) -> dict[str, Any]:
    scene, row = lookup.scene, lookup.scene.rows[number]
    bars, first = row.bars, scene.first_ns
    move = np.vectorize(row.moment, otypes=[np.int64])
    made: dict[str, Any] = {
        "kind": row.kind,
        "start": _array(move(bars.start_ns) - first, "<f8"),
        "end": _array(move(bars.end_ns) - first, "<f8"),
        "code": _array(bars.code, "u1"),
        "look": _array(bars.look, "u1"),
        "items": [],
    }
    if row.drawn:
        return made | {"bus": _array(amounts(row.drawn, bars), "<f8")}
    made["items"] = [_item(lookup, number, place, schemas) for place in range(len(bars))]
    if row.kind in (OPERATION, PART) and scene.model is not None:
        operations = scene.model.tables["operations"]
        made["wait"] = _array(bars.wait_ns, "<f8")
        made["size"] = _array(operations["size_bytes"][bars.ref], "<f8")
        made["timed"] = _array(operations["duration_ns"][bars.ref] >= 0, "u1")
        made["source"] = _array(operations["source"][bars.ref], "u1")
        made["rank"] = _array(operations["global_rank"][bars.ref], "<f8")
        made["bus"] = _array(bus_bytes(scene, number), "<f8")
    return made


def page(timeline: Timeline, most: int = MOST_BARS) -> tuple[str, str]:
    """The whole file, and what was left out of it."""
    scene, left_out = thinned(timeline.scene, most)
    lookup, schemas = Lookup(scene, timeline.capture), _Schemas()
    rows = [_row(lookup, number, schemas) for number in range(len(scene.rows))]
    told = scene_json(scene, timeline) | {"generation": 1, "progress": "", "trouble": ""}
    told |= {"thinned": left_out, "capture": timeline.capture.name}
    found = highlights(lookup) | {"findings": timeline.findings}
    data = {"scene": told, "rows": rows, "schemas": list(schemas.known), "jumps": found}
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode(), 6)).decode()
    return _filled(packed), left_out


def _filled(packed: str) -> str:
    """The page with its style, its script and its data inside."""
    static = files("ncclscope.web").joinpath("static")
    html = static.joinpath("index.html").read_text()
    style, script = (static.joinpath(name).read_text() for name in ("app.css", "app.js"))
    script = script.replace("</script", "<\\/script")
    html = html.replace('<link rel="stylesheet" href="app.css">', f"<style>{style}</style>")
    data = f'<script type="application/gzip" id="data">{packed}</script>'
    return html.replace('<script src="app.js"></script>', f"{data}\n<script>{script}</script>")


def write_html(timeline: Timeline, path: Path, most: int = MOST_BARS) -> str:
    """Writes the file; what was left out, "" for nothing."""
    text, left_out = page(timeline, most)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    part.rename(path)
    return left_out
