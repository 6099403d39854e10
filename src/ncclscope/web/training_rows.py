"""Training steps, phases and the program's ranges as rows of bars, on the capture's one clock."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ncclscope.capture.reader import is_dataset
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, Columns
from ncclscope.web import palette
from ncclscope.web.bars import OPEN, make_bars, split_rows
from ncclscope.web.callback_rows import LaneKey, Rows
from ncclscope.web.kinds import PHASE, RANGE, STEP

_DEEPEST = 8  # ranges inside each other
_NO_WAIT = np.empty(0, np.int64)


def training_rows(model: Model, process: int, last_ns: int) -> Rows:
    """Steps, phases and ranges of a process; nothing where it has no training context. What has
    not ended is drawn up to `last_ns`.
    """
    if not model.has_context:
        return []
    packed: Rows = []
    for kind, table in ((STEP, "steps"), (PHASE, "phases")):
        columns = model.tables[table]
        rows = np.flatnonzero(np.asarray(columns["process"]) == process)
        code: Any = palette.STEP
        if kind == PHASE:
            code = palette.phase_codes(model.words["phase"])[np.asarray(columns["phase"])[rows]]
        packed += _packed(kind, columns, rows, rows, code, last_ns)
    ranges = ranges_of(model, process)
    if ranges is None:
        return packed
    for thread in np.unique(ranges["thread"]).tolist():
        for depth in range(_DEEPEST):
            kept = (ranges["thread"] == thread) & (ranges["depth"] == depth)
            rows = np.flatnonzero(kept & (ranges["is_mark"] == 0))
            refs = np.asarray(ranges["event"])[rows]
            packed += _packed(RANGE, ranges, rows, refs, palette.RANGE, last_ns, thread, depth)
    return packed


def _packed(
    kind: str,
    columns: Columns,
    rows: Any,
    refs: Any,
    code: Any,
    last_ns: int,
    thread: int = NONE,
    depth: int = 0,
) -> Rows:
    if not len(rows):
        return []
    start, end = (np.asarray(columns[name])[rows] for name in ("start_ns", "end_ns"))
    bars = {
        "start_ns": start,
        "end_ns": np.where(end == NONE, np.maximum(last_ns, start), end),
        "wait_ns": _NO_WAIT,
        "ref": refs,
        "code": np.broadcast_to(np.asarray(code, np.uint8), (len(rows),)),
        "look": np.where(end == NONE, OPEN, 0),
    }
    return [
        (LaneKey(kind, thread=thread, depth=depth + place), make_bars(row))
        for place, row in enumerate(split_rows(bars))
    ]


def ranges_of(model: Model, process: int) -> Columns | None:
    """The table `ranges` of a process; None where there is none."""
    if is_dataset(model.path) or not model.has_context:
        return None
    return details_of_process(model, "ranges", process)


RangeTexts = dict[int, tuple[str, str]]


def range_texts(model: Model, process: int) -> RangeTexts:
    """Text and source of a process's ranges by event."""
    columns = ranges_of(model, process)
    if columns is None:
        return {}
    texts = zip(columns["text"].tolist(), columns["source"].tolist(), strict=True)
    return dict(zip(columns["event"].tolist(), texts, strict=True))


def bar_of_training(
    model: Model, kind: str, ref: int, texts: Callable[[], RangeTexts]
) -> dict[str, Any]:
    """Title and fields of a bar of one of these kinds. `texts`: of the process's ranges."""
    if kind == RANGE:
        text, source = texts().get(ref, ("range", ""))
        return {"title": text, "fields": [_field("written by", source)] if source else []}
    columns = model.tables["steps" if kind == STEP else "phases"]
    step = int(columns["step"][ref])
    if kind == PHASE:
        fields = [_field("step", step)] if step != NONE else []
        return {"title": model.words["phase"][int(columns["phase"][ref])], "fields": fields}
    fields = [_field("known by", model.words["origin"][int(columns["origin"][ref])])]
    for name in ("data_ns", "forward_ns", "backward_ns", "optimizer_ns", "tokens"):
        value = int(columns[name][ref])
        if value != NONE:
            fields.append(_field(name, value, "ns" if name.endswith("_ns") else ""))
    return {"title": f"step {step}", "fields": fields}


def _field(name: str, value: Any, unit: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "source": "host"}
