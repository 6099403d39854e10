"""What the page asks for, and the answers. Nothing else is served."""

import json
import threading
from collections import OrderedDict
from importlib.resources import files
from typing import Any

import numpy as np

from ncclscope.http.server import Query, RequestError, Response
from ncclscope.model.model import windows_by_process
from ncclscope.model.schema import SOURCES
from ncclscope.web import palette, queries
from ncclscope.web.bar_details import Lookup, item
from ncclscope.web.bars import Bars
from ncclscope.web.marks import marks
from ncclscope.web.operation_rows import Filter, filtered, kept
from ncclscope.web.scene import COUNTER, OPERATION, PART, Scene
from ncclscope.web.session import Timeline
from ncclscope.web.tiles import LARGEST_ZOOM, WIDTH, encode, tile_of

_STATIC = {
    "": ("index.html", "text/html; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "app.css": ("app.css", "text/css; charset=utf-8"),
}
_MOST_ROWS = 2048  # a question may name
_LONGEST_TEXT = 200  # of a search
_MOST_FILTERED = 4096  # rows kept
_WITH_FUNCTION = (OPERATION, PART, "CollApi", "P2pApi", "Coll", "P2p", "CeColl")


class Routes:
    """Answers for one timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._lock = threading.Lock()
        self._of: tuple[int, Scene, Lookup] | None = None
        self._filtered: OrderedDict[tuple[int, Filter], Bars] = OrderedDict()
        self._slopes: dict[int, queries.Slope] = {}

    def __call__(self, path: str, query: Query) -> Response:
        """The answer to a path and a query."""
        if path in _STATIC:
            name, kind = _STATIC[path]
            return Response(files("ncclscope.web").joinpath(f"static/{name}").read_bytes(), kind)
        handler = _HANDLERS.get(path)
        if handler is None:
            raise RequestError(404, "there is nothing of that name")
        if path == "api/state":
            return _json(self._state())
        with self._lock:
            scene, lookup = self._current(query)
            found = handler(self, scene, lookup, query)
        return found if isinstance(found, Response) else _json(found)

    def _current(self, query: Query) -> tuple[Scene, Lookup]:
        """The scene that the question is about."""
        generation, scene = self._timeline.generation, self._timeline.scene
        if self._of is None or self._of[1] is not scene:
            self._of = (generation, scene, Lookup(scene, self._timeline.capture))
            self._filtered.clear()
            self._slopes.clear()
        if "g" in query and _number(query, "g") != self._of[0]:
            raise RequestError(409, "the picture has changed: ask for the scene again")
        return scene, self._of[2]

    def _state(self) -> dict[str, Any]:
        one = self._timeline
        return {
            "generation": one.generation,
            "progress": one.progress,
            "trouble": one.trouble,
        }

    # ---- what the page asks for ----
    def scene(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Lanes, names and the extent of time."""
        assert self._of is not None
        return {**self._state(), "generation": self._of[0], **scene_json(scene, self._timeline)}

    def tile(self, scene: Scene, lookup: Lookup, query: Query) -> Response:
        """Runs of pixels of some rows."""
        zoom, place = _number(query, "z", 0, LARGEST_ZOOM), _number(query, "i")
        first = scene.first_ns + place * (WIDTH << zoom)
        chosen, rows = _filter(query), _rows(query, scene)
        bars = [self._bars(scene, number, chosen) for number in rows]
        windows = [scene.rows[number].window(first, first + (WIDTH << zoom)) for number in rows]
        counts, runs = tile_of([(row, *at) for row, at in zip(bars, windows, strict=True)])
        ends = np.cumsum(counts)
        for place, number in enumerate(rows):
            if scene.rows[number].kind in (OPERATION, PART) and scene.model is not None:
                mine = slice(int(ends[place] - counts[place]), int(ends[place]))
                single = runs.count[mine] == 1
                sizes = scene.model.tables["operations"]["size_bytes"]
                runs.value[mine][single] = sizes[bars[place].ref[runs.item[mine][single]]]
        return Response(encode(counts, runs), "application/octet-stream")

    def _bars(self, scene: Scene, number: int, chosen: Filter) -> Bars:
        """A row's bars, without those that a filter leaves out."""
        row = scene.rows[number]
        if chosen == Filter() or row.kind not in _WITH_FUNCTION or scene.model is None:
            return row.bars
        key = (number, chosen)
        if key not in self._filtered:
            if row.kind in (OPERATION, PART):
                self._filtered[key] = filtered(row.bars, scene.model, chosen)
            elif chosen.functions is not None:
                self._filtered[key] = kept(row.bars, np.isin(row.bars.code, chosen.functions))
            else:
                return row.bars
            while len(self._filtered) > _MOST_FILTERED:
                self._filtered.popitem(last=False)
        return self._filtered[key]

    def line(self, scene: Scene, lookup: Lookup, query: Query) -> Response:
        """Bandwidth of some rows of operations together, or a row of a counter, by pixel."""
        zoom, place = _number(query, "z", 0, LARGEST_ZOOM), _number(query, "i")
        first = scene.first_ns + place * (WIDTH << zoom)
        edges = first + np.arange(WIDTH + 1, dtype=np.int64) * (1 << zoom)
        total = np.zeros(WIDTH)
        for number in _rows(query, scene):
            if scene.rows[number].kind in (OPERATION, COUNTER) and scene.model is not None:
                if number not in self._slopes:
                    self._slopes[number] = queries.Slope(scene, number)
                total += self._slopes[number].between(edges)
        return Response(total.astype(np.float32).tobytes(), "application/octet-stream")

    def item(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """All about one bar; with a filter, places count the bars that are left."""
        number = _number(query, "row", 0, len(scene.rows) - 1)
        bars, place = self._bars(scene, number, _filter(query)), _number(query, "item", 0)
        if place >= len(bars):
            raise RequestError(404, "there is no such bar")
        return item(lookup, number, self._place(scene, number, bars, place))

    def _place(self, scene: Scene, number: int, bars: Bars, place: int) -> int:
        """A place among the bars that a filter left as one among all."""
        every = scene.rows[number].bars
        if bars is every:
            return place
        at = int(np.searchsorted(every.start_ns, bars.start_ns[place]))
        while int(every.ref[at]) != int(bars.ref[place]):
            at += 1
        return at

    def marks(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Lines and states of the bars in a window."""
        first, last = (scene.first_ns + _number(query, name) for name in ("t0", "t1"))
        return marks(lookup, _rows(query, scene), first, last)

    def span(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Statistics of a span."""
        first, last = (scene.first_ns + _number(query, name) for name in ("t0", "t1"))
        return queries.span(scene, _rows(query, scene), first, last, _filter(query))

    def find(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Operations that fit a search."""
        text = query.get("q", "")
        if len(text) > _LONGEST_TEXT:
            raise RequestError(400, "the search is too long")
        return queries.find(lookup, text)

    def jumps(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """Places that are worth a look."""
        found = queries.highlights(lookup)
        return found | {"findings": self._timeline.findings}

    def glance(self, scene: Scene, lookup: Lookup, query: Query) -> Any:
        """The whole in a few pixels."""
        return queries.overview(scene, _number(query, "w", 16, 4096))


def scene_json(scene: Scene, timeline: Timeline) -> dict[str, Any]:
    """A scene without its bars."""
    model = scene.model
    root = scene.root.as_json()
    return {
        "capture": str(timeline.capture),
        "first_ns": str(scene.first_ns),  # too large for a double
        "wall_ns": str(scene.first_ns + model.realtime_offset_ns) if model else None,
        "span_ns": max(scene.last_ns - scene.first_ns, 1),
        "lanes": root["children"],
        "names": palette.names(),
        "sources": list(SOURCES),
        "complete": model.completeness.line() if model else "",
        "notes": model.completeness.notes if model else [],
        "has_model": model is not None,
        "errors_ns": _clock_errors(scene),
        "ends": _ends(scene),
        "pauses": _pauses(scene),
    }


def _clock_errors(scene: Scene) -> dict[str, int | None]:
    """How far the clock of each host's lane may be off: median over the run."""
    found: dict[str, int | None] = {}
    for known in scene.known:
        clock = known.shift.clock
        error = float(np.median(clock.error_ns)) if clock is not None and clock.tied else np.inf
        found[known.node] = int(error) if np.isfinite(error) else None
    return found


def _ends(scene: Scene) -> list[int | None]:
    """By process when it was last heard of, where it did not end by itself."""
    return [
        known.shift.to_scene(known.last_ns) - scene.first_ns if known.fate else None
        for known in scene.known
    ]


def _pauses(scene: Scene) -> list[list[tuple[int, int]]]:
    """By process when it recorded totals only."""
    if scene.model is None:
        return []
    pauses = []
    for known, recorded in zip(scene.known, windows_by_process(scene.model), strict=True):
        last = max(known.shift.to_scene(known.last_ns), scene.first_ns)
        edges = [scene.first_ns, *(edge for window in recorded or () for edge in window), last]
        between = zip(edges[::2], edges[1::2], strict=True) if recorded is not None else ()
        pauses.append([(a - scene.first_ns, b - scene.first_ns) for a, b in between if b - a > 0])
    return pauses


_HANDLERS: dict[str, Any] = {
    "api/state": None,
    "api/scene": Routes.scene,
    "api/tile": Routes.tile,
    "api/line": Routes.line,
    "api/item": Routes.item,
    "api/marks": Routes.marks,
    "api/span": Routes.span,
    "api/find": Routes.find,
    "api/jumps": Routes.jumps,
    "api/glance": Routes.glance,
}
_HANDLERS["api/state"] = Routes.scene  # answered before a scene is needed


def _json(value: Any) -> Response:
    return Response(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())


def _number(query: Query, name: str, least: int = -(1 << 62), most: int = 1 << 62) -> int:
    """A whole number of a query, within bounds."""
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
    """The filter of a query."""

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
