"""The requests of the page and their responses. Nothing else is served."""

import json
import threading
from collections import OrderedDict
from importlib.resources import files
from typing import Any

import numpy as np

from ncclscope.analysis.counted_completeness import completeness_with_counts
from ncclscope.http.server import Query, RequestError, Response
from ncclscope.model.model import windows_by_process
from ncclscope.web.bar_details import Json, bar_json
from ncclscope.web.bars import Bars, select_bars
from ncclscope.web.kinds import COUNTER, OPERATION, PART, WITH_FUNCTION
from ncclscope.web.lookup import Lookup
from ncclscope.web.marks import marks_json
from ncclscope.web.operation_rows import Filter, filter_operations
from ncclscope.web.queries import highlights, overview
from ncclscope.web.scene import Scene
from ncclscope.web.search import LONGEST, search
from ncclscope.web.session import Timeline
from ncclscope.web.statistics import RateLine, span_statistics
from ncclscope.web.tiles import LARGEST_ZOOM, WIDTH, encode_tile, make_tile

_STATIC = {
    "": ("index.html", "text/html; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "app.css": ("app.css", "text/css; charset=utf-8"),
}
_MOST_ROWS = 2048  # of one request
_MOST_FILTERED = 4096  # rows in the cache


class Routes:
    """Responses for one timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._lock = threading.Lock()
        self._current: tuple[int, Scene, Lookup] | None = None  # with its generation
        self._filtered: OrderedDict[tuple[int, Filter], Bars] = OrderedDict()
        self._lines: dict[int, RateLine] = {}

    def __call__(self, path: str, query: Query) -> Response:
        """The response to a path and a query."""
        if path in _STATIC:
            name, kind = _STATIC[path]
            return Response(files("ncclscope.web").joinpath(f"static/{name}").read_bytes(), kind)
        if path == "api/state":
            return _json(self._state())
        handler = _HANDLERS.get(path)
        if handler is None:
            raise RequestError(404, "there is nothing of that name")
        with self._lock:
            scene, lookup = self._scene_of(query)
            answer = handler(self, scene, lookup, query)
        return answer if isinstance(answer, Response) else _json(answer)

    def _scene_of(self, query: Query) -> tuple[Scene, Lookup]:
        """The current scene; RequestError where the page asks about an older one."""
        generation, scene = self._timeline.generation, self._timeline.scene
        if self._current is None or self._current[1] is not scene:
            self._current = (generation, scene, Lookup(scene, self._timeline.capture))
            self._filtered.clear()
            self._lines.clear()
        if "g" in query and _number(query, "g") != self._current[0]:
            raise RequestError(409, "the picture has changed: ask for the scene again")
        return scene, self._current[2]

    def _state(self) -> Json:
        return {
            "generation": self._timeline.generation,
            "progress": self._timeline.progress,
            "trouble": self._timeline.trouble,
        }

    # ---- requests ----
    def scene(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Lanes, and the extent of time."""
        assert self._current is not None
        generation = {"generation": self._current[0]}
        return self._state() | generation | scene_json(scene, self._timeline)

    def tile(self, scene: Scene, lookup: Lookup, query: Query) -> Response:
        """Runs of pixels of some rows."""
        zoom, place = _number(query, "z", 0, LARGEST_ZOOM), _number(query, "i")
        first = scene.first_ns + place * (WIDTH << zoom)
        operation_filter, rows = _filter(query), _rows(query, scene)
        bars = [self._bars(scene, number, operation_filter) for number in rows]
        windows = [scene.rows[number].window(first, first + (WIDTH << zoom)) for number in rows]
        counts, runs = make_tile([(row, *at) for row, at in zip(bars, windows, strict=True)])
        ends = np.cumsum(counts)
        for place, number in enumerate(rows):
            if scene.rows[number].kind in (OPERATION, PART) and scene.model is not None:
                own = slice(int(ends[place] - counts[place]), int(ends[place]))
                single = runs.count[own] == 1
                sizes = scene.model.tables["operations"]["size_bytes"]
                runs.value[own][single] = sizes[bars[place].ref[runs.item[own][single]]]
        return Response(encode_tile(counts, runs), "application/octet-stream")

    def _bars(self, scene: Scene, number: int, operation_filter: Filter) -> Bars:
        """The bars of a row that a filter shows."""
        row, functions = scene.rows[number], operation_filter.functions
        if operation_filter == Filter() or row.kind not in WITH_FUNCTION or scene.model is None:
            return row.bars
        key = (number, operation_filter)
        if key not in self._filtered:
            if row.kind in (OPERATION, PART):
                filtered = filter_operations(row.bars, scene.model, operation_filter)
            elif functions is not None:
                filtered = select_bars(row.bars, np.isin(row.bars.code, functions))
            else:
                return row.bars
            self._filtered[key] = filtered
            while len(self._filtered) > _MOST_FILTERED:
                self._filtered.popitem(last=False)
        return self._filtered[key]

    def line(self, scene: Scene, lookup: Lookup, query: Query) -> Response:
        """By pixel: the bandwidth of some rows of operations together, or a counter."""
        zoom, place = _number(query, "z", 0, LARGEST_ZOOM), _number(query, "i")
        first = scene.first_ns + place * (WIDTH << zoom)
        edges = first + np.arange(WIDTH + 1, dtype=np.int64) * (1 << zoom)
        total = np.zeros(WIDTH)
        for number in _rows(query, scene):
            if scene.rows[number].kind in (OPERATION, COUNTER) and scene.model is not None:
                if number not in self._lines:
                    self._lines[number] = RateLine(scene, number)
                total += self._lines[number].between(edges)
        return Response(total.astype(np.float32).tobytes(), "application/octet-stream")

    def item(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Everything about one bar. With a filter, places count the bars that it shows."""
        number = _number(query, "row", 0, len(scene.rows) - 1)
        bars, place = self._bars(scene, number, _filter(query)), _number(query, "item", 0)
        if place >= len(bars):
            raise RequestError(404, "there is no such bar")
        return bar_json(lookup, number, _place_among_all(scene.rows[number].bars, bars, place))

    def marks(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Lines and states of the bars in a window."""
        first, last = (scene.first_ns + _number(query, name) for name in ("t0", "t1"))
        return marks_json(lookup, _rows(query, scene), first, last)

    def span(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Statistics of a span."""
        first, last = (scene.first_ns + _number(query, name) for name in ("t0", "t1"))
        return span_statistics(scene, _rows(query, scene), first, last, _filter(query))

    def find(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Operations that match a search."""
        text = query.get("q", "")
        if len(text) > LONGEST:
            raise RequestError(400, "the search is too long")
        return search(lookup, text)

    def highlights(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Findings and operations that are worth a look."""
        return highlights(lookup) | {"findings": self._timeline.findings}

    def overview(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """The whole capture in a few pixels."""
        return overview(scene, _number(query, "w", 16, 4096))


def _place_among_all(every: Bars, shown: Bars, place: int) -> int:
    """The place of a bar in its row, from its place among the bars that a filter shows."""
    if shown is every:
        return place
    at = int(np.searchsorted(every.start_ns, shown.start_ns[place]))
    while int(every.ref[at]) != int(shown.ref[place]):
        at += 1
    return at


def scene_json(scene: Scene, timeline: Timeline) -> Json:
    """A scene without its bars."""
    model = scene.model
    root = scene.root.as_json()
    return {
        "capture": str(timeline.capture),
        "first_ns": str(scene.first_ns),  # too large for a double
        "wall_ns": str(scene.first_ns + model.realtime_offset_ns) if model else None,
        "span_ns": max(scene.last_ns - scene.first_ns, 1),
        "lanes": root["children"],
        "completeness": completeness_with_counts(model).line() if model else "",
        "notes": model.completeness.notes if model else [],
        "has_model": model is not None,
        "errors_ns": _clock_errors(scene),
        "ends": _ends(scene),
        "pauses": _pauses(scene),
    }


def _clock_errors(scene: Scene) -> dict[str, int | None]:
    """By key of a host's lane how far its clock can be off: the median over the run."""
    errors: dict[str, int | None] = {}
    for process in scene.processes:
        clock = process.clock.clock
        error = float(np.median(clock.error_ns)) if clock is not None and clock.tied else np.inf
        errors[process.node] = int(error) if np.isfinite(error) else None
    return errors


def _ends(scene: Scene) -> list[int | None]:
    """By process its last known time; None where it ended by itself."""
    return [
        process.clock.to_scene(process.last_ns) - scene.first_ns if process.fate else None
        for process in scene.processes
    ]


def _pauses(scene: Scene) -> list[list[tuple[int, int]]]:
    """By process the times in which it only counted."""
    if scene.model is None:
        return []
    pauses = []
    for process, windows in zip(scene.processes, windows_by_process(scene.model), strict=True):
        last = max(process.clock.to_scene(process.last_ns), scene.first_ns)
        edges = [scene.first_ns, *(edge for window in windows or () for edge in window), last]
        between = zip(edges[::2], edges[1::2], strict=True) if windows is not None else ()
        pauses.append([(a - scene.first_ns, b - scene.first_ns) for a, b in between if b - a > 0])
    return pauses


_HANDLERS: dict[str, Any] = {
    "api/scene": Routes.scene,
    "api/tile": Routes.tile,
    "api/line": Routes.line,
    "api/item": Routes.item,
    "api/marks": Routes.marks,
    "api/span": Routes.span,
    "api/find": Routes.find,
    "api/highlights": Routes.highlights,
    "api/overview": Routes.overview,
}


def _json(value: Any) -> Response:
    return Response(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())


def _number(query: Query, name: str, least: int = -(1 << 62), most: int = 1 << 62) -> int:
    """A whole number of a query within bounds, else RequestError."""
    text = query.get(name, "")
    try:
        value = int(text) if len(text) <= 20 else most + 1
    except ValueError:
        raise RequestError(400, f"{name} must be a whole number") from None
    if not least <= value <= most:
        raise RequestError(400, f"{name} is out of range")
    return value


def _rows(query: Query, scene: Scene) -> list[int]:
    """Row numbers from `1,2,5-9`."""
    rows: list[int] = []
    for piece in query.get("rows", "").split(","):
        first, dash, last = piece.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(piece) > 24:
            raise RequestError(400, "rows are numbers and ranges")
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < len(scene.rows) or len(rows) + high - low >= _MOST_ROWS:
            raise RequestError(400, "rows are out of range, or too many")
        rows += range(low, high + 1)
    return rows


def _filter(query: Query) -> Filter:
    """The filter of operations in a query."""

    def numbers(name: str) -> tuple[int, ...] | None:
        text = query.get(name)
        if text is None:
            return None
        pieces = text.split(",")[:64]
        if not all(piece.isdecimal() and len(piece) < 4 for piece in pieces):
            raise RequestError(400, f"{name} must be numbers")
        return tuple(int(piece) for piece in pieces)

    return Filter(
        numbers("functions"),
        numbers("sources"),
        _number(query, "least") if "least" in query else None,
        _number(query, "most") if "most" in query else None,
    )
