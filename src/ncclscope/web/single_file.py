"""A capture's timeline as one HTML file that needs no server: bars, their details, the page."""

import base64
import gzip
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.model.model import Progress
from ncclscope.output_files import write_text
from ncclscope.web.bar_details import Json, bar_json
from ncclscope.web.bars import Bars, select_bars
from ncclscope.web.counters import amounts
from ncclscope.web.kinds import LEFT_OUT_FIRST, OPERATION, PART
from ncclscope.web.limits import MOST_BARS
from ncclscope.web.lookup import Lookup
from ncclscope.web.queries import highlights
from ncclscope.web.routes import scene_json
from ncclscope.web.scene import Row, Scene
from ncclscope.web.scene_selection import renumber_lane, select_scene
from ncclscope.web.session import Timeline
from ncclscope.web.statistics import bandwidth_bytes

EVERYTHING = Selection()
_READ_AHEAD = 4096  # bars: their events take some MB


def thin_scene(scene: Scene, most: int) -> tuple[Scene, str]:
    """The scene with at most `most` bars, and a text of what was left out, "" for nothing."""
    counts: dict[str, int] = {}
    for row in scene.rows:
        counts[row.kind] = counts.get(row.kind, 0) + len(row.bars)
    left_out = []
    for kind in LEFT_OUT_FIRST:
        if sum(counts.values()) > most and kind in counts:
            left_out.append(f"{counts.pop(kind):,} {kind}")
    rows = [row for row in scene.rows if row.kind in counts]
    if sum(counts.values()) > most:
        rows = _longest(rows, most)
        all_bars = sum(counts.values())
        left_out.append(
            f"all but the longest {most:,} of {all_bars:,} operations: gaps are not idle time"
        )
    if not left_out:
        return scene, ""
    numbers = {row.key: number for number, row in enumerate(rows)}
    renumbered = {n: numbers[row.key] for n, row in enumerate(scene.rows) if row.key in numbers}
    root = renumber_lane(scene.root, renumbered)
    smaller = Scene(rows, root, scene.first_ns, scene.last_ns, scene.model, scene.processes)
    return smaller, f"thinned to {most:,} bars: without {', '.join(left_out)}"


def _longest(rows: list[Row], most: int) -> list[Row]:
    """The rows with the longest `most` bars of all."""
    lengths = np.concatenate([row.bars.end_ns - row.bars.start_ns for row in rows])
    shortest = int(np.partition(lengths, -most)[-most])
    thinned = []
    for row in rows:
        bars: Bars = select_bars(row.bars, row.bars.end_ns - row.bars.start_ns >= shortest)
        if len(bars):
            thinned.append(Row(row.kind, bars, row.process, row.clock, row.key))
    return thinned


def _array(values: Any, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


class _Schemas:
    """Numbers for combinations of field names, units and sources: few bars have a new one."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[tuple[str, str, str], ...], int] = {}

    def number(self, fields: list[Json]) -> int:
        """The number of the combination that these fields have."""
        key = tuple((field["name"], field.get("unit", ""), field["source"]) for field in fields)
        return self.numbers.setdefault(key, len(self.numbers))


def _details(lookup: Lookup, row: int, place: int, schemas: _Schemas) -> list[Any]:
    """Everything about a bar in few bytes; `BarDetails` in web/src/embedded.ts reads it."""
    bar = bar_json(lookup, row, place, with_instance=False)
    parent = bar["parent"]
    return [
        bar["title"],
        schemas.number(bar["fields"]),
        [field["value"] for field in bar["fields"]],
        [[state["name"], state["at_ns"], state["more"]] for state in bar["states"]],
        parent and [parent["row"], parent["item"]],
        bar["looks"],
        bar["error_ns"],
        bar.get("instance_number", -1),
    ]


def _row(lookup: Lookup, number: int, schemas: _Schemas) -> Json:
    """A row's bars as arrays; unknown numbers of operations are -1."""
    scene, row = lookup.scene, lookup.scene.rows[number]
    bars, first = row.bars, scene.first_ns
    data: Json = {
        "kind": row.kind,
        "start": _array(row.times_on_scene(bars.start_ns) - first, "<f8"),
        "end": _array(row.times_on_scene(bars.end_ns) - first, "<f8"),
        "code": _array(bars.code, "u1"),
        "look": _array(bars.look, "u1"),
        "details": [],
    }
    if row.line_style:
        return data | {"amount": _array(amounts(row.line_style, bars), "<f8")}
    for begin in range(0, len(bars), _READ_AHEAD):
        places = range(begin, min(begin + _READ_AHEAD, len(bars)))
        lookup.read_ahead(number, places)
        data["details"] += [_details(lookup, number, place, schemas) for place in places]
    if row.kind in (OPERATION, PART) and scene.model is not None:
        operations = scene.model.tables["operations"]
        data["operation"] = _array(bars.ref, "<f8")
        for name, column in (
            ("size", "size_bytes"),
            ("duration", "duration_ns"),
            ("wait", "wait_ns"),
        ):
            data[name] = _array(operations[column][bars.ref], "<f8")
        data["source"] = _array(operations["source"][bars.ref], "u1")
        data["amount"] = _array(np.nan_to_num(bandwidth_bytes(scene, number), nan=-1.0), "<f8")
    return data


def page_data(
    timeline: Timeline,
    most: int = MOST_BARS,
    selection: Selection = EVERYTHING,
    progress: Progress | None = None,
    diagnosed: bool = False,
) -> Json:
    """What the page shows, for the page itself; `EmbeddedData` in web/src/embedded.ts reads it.

    With `diagnosed`, findings are looked for now, with their places in what is shown.
    """
    scene, left_out = thin_scene(select_scene(timeline.scene, selection), most)
    lookup, schemas = Lookup(scene, timeline.capture), _Schemas()
    rows = []
    for number in range(len(scene.rows)):
        rows.append(_row(lookup, number, schemas))
        if progress:
            progress(number + 1, len(scene.rows))
    findings = timeline.findings_in(scene) if diagnosed else timeline.findings
    state = {"generation": 1, "progress": "", "trouble": ""}
    own = {"left_out": left_out, "capture": timeline.capture.name}
    return {
        "scene": scene_json(scene, timeline) | state | own,
        "rows": rows,
        "schemas": list(schemas.numbers),
        "highlights": highlights(lookup) | {"findings": findings},
    }


def _page_html(data: Json) -> str:
    """The page with its style, its script and its data inside."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    compressed = base64.b64encode(gzip.compress(text.encode(), 6)).decode()
    static = files("ncclscope.web").joinpath("static")
    html = static.joinpath("index.html").read_text()
    style, script = (static.joinpath(name).read_text() for name in ("app.css", "app.js"))
    script = script.replace("</script", "<\\/script")
    html = html.replace('<link rel="stylesheet" href="app.css">', f"<style>{style}</style>")
    embedded = f'<script type="application/gzip" id="data">{compressed}</script>'
    return html.replace('<script src="app.js"></script>', f"{embedded}\n<script>{script}</script>")


def write_html(
    timeline: Timeline,
    path: Path,
    most: int = MOST_BARS,
    selection: Selection = EVERYTHING,
    progress: Progress | None = None,
) -> str:
    """Writes the file; a text of what was left out, "" for nothing."""
    data = page_data(timeline, most, selection, progress, diagnosed=True)
    write_text(path, _page_html(data))
    left_out: str = data["scene"]["left_out"]
    return left_out
