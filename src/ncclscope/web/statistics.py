"""Numbers of operations over time: statistics of a span, and lines of bandwidth and of counters.

Statistics are those of the report. The single-file page computes them in TypeScript
(web/src/statistics.ts); a test compares their answers.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from ncclscope.analysis.measures import bus_bytes, counts_for_bandwidth, durations
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, STATES, Columns
from ncclscope.nccl.bandwidth import bandwidth_gbs
from ncclscope.web.bar_details import Json
from ncclscope.web.bars import Bars
from ncclscope.web.counters import amounts
from ncclscope.web.kinds import OPERATION
from ncclscope.web.operation_rows import CAPTURED_STATE, Filter
from ncclscope.web.scene import Scene

_CAPTURED = STATES.index(CAPTURED_STATE)
_COLUMNS = ("communicator", "function", "source", "size_bytes", "duration_ns", "wait_ns")


def span_statistics(
    scene: Scene, rows: list[int], first_ns: int, last_ns: int, operation_filter: Filter
) -> Json:
    """Statistics of the operations of some rows that begin in a span, by communicator and function.
    The groups with the most time come first.
    """
    model = scene.model
    if model is None:
        return {"groups": [], "operations": 0, "span_ns": last_ns - first_ns}
    operations = model.tables["operations"]
    selected = [np.empty(0, np.int64)]
    for number in rows:
        row = scene.rows[number]
        if row.kind == OPERATION:
            low, high = np.searchsorted(row.bars.start_ns, (first_ns, last_ns))
            ref, code = row.bars.ref[low:high], row.bars.code[low:high]
            selected.append(ref[operation_filter.mask(model, code, ref)])
    ref = np.concatenate(selected)
    ref = ref[np.asarray(operations["state"][ref]) != _CAPTURED]
    groups = [_group(model, columns) for columns in _by_group(model, ref)]
    groups.sort(key=lambda group: (-group["time_ns"], group["communicator"], group["function"]))
    return {"groups": groups, "operations": len(ref), "span_ns": last_ns - first_ns}


def _by_group(model: Model, rows: Ints) -> Iterator[Columns]:
    """Columns of operations by communicator and function, with their bytes on the bus."""
    operations = model.tables["operations"]
    pair = np.asarray(operations["communicator"][rows]).astype(np.int64) << 8
    pair |= np.asarray(operations["function"][rows]).view(np.uint8)
    order = np.argsort(pair, kind="stable")
    rows, first = rows[order], np.flatnonzero(np.diff(pair[order], prepend=-1 << 40))
    columns = {name: np.asarray(operations[name][rows]) for name in _COLUMNS}
    counts = counts_for_bandwidth(columns)
    columns["bus_bytes"] = np.where(counts, bus_bytes(model, rows), 0.0)
    columns["bus_ns"] = np.where(counts, columns["duration_ns"], 0)
    for begin, end in pairwise([*first.tolist(), len(rows)]):
        yield {name: values[begin:end] for name, values in columns.items()}


def _group(model: Model, columns: Columns) -> Json:
    """Statistics of operations of one communicator and one function."""
    communicator, function = int(columns["communicator"][0]), int(columns["function"][0])
    duration, wait = columns["duration_ns"], columns["wait_ns"]
    timed, waited = duration != NONE, wait != NONE
    waited_of_ns = int(duration[waited].sum())
    moved, moved_ns = float(columns["bus_bytes"].sum()), int(columns["bus_ns"].sum())
    times = durations(columns)
    return {
        "communicator": model.communicator_name(communicator),
        "function": model.words["function"][function] if function >= 0 else "?",
        "operations": len(duration),
        "timed": int(timed.sum()),
        "bytes": int(np.maximum(columns["size_bytes"], 0).sum()),
        "time_ns": int(duration[timed].sum()),
        "median_ns": times.median_ns if times else None,
        "p99_ns": times.p99_ns if times else None,
        "busbw_gbs": None if np.isnan(moved) else bandwidth_gbs(moved, moved_ns),
        "wait_share": int(wait[waited].sum()) / waited_of_ns if waited_of_ns > 0 else None,
    }


def bandwidth_bytes(scene: Scene, number: int) -> Floats:
    """The bus bytes of each bar of a row of operations; NaN: it does not count for bandwidth."""
    assert scene.model is not None
    model, rows = scene.model, scene.rows[number].bars.ref
    counts = counts_for_bandwidth(model.tables["operations"], rows)
    return np.where(counts, bus_bytes(model, rows), np.nan)


class RateLine:
    """The line of a row: bandwidth of operations, or a counter.

    It adds up the amounts of bars (bytes on the bus, or value x time) over time. Between two times
    the line shows the amount divided by the time. Without a bar no bytes were moved; a counter is
    unknown.
    """

    def __init__(self, scene: Scene, number: int) -> None:
        row = scene.rows[number]
        self._bars: Bars = row.bars
        if row.line_style:
            amount = amounts(row.line_style, row.bars)
        else:
            amount = np.nan_to_num(bandwidth_bytes(scene, number))
        self._amount = np.concatenate([[0.0], np.cumsum(amount)])
        lengths = row.bars.end_ns - row.bars.start_ns
        self._known_ns = np.concatenate([[0], np.cumsum(lengths)]) if row.line_style else None

    def between(self, edges_ns: Any) -> Any:
        """Amount a ns between neighbouring edges: GB/s of bytes. NaN: not known."""
        moved = np.diff(self._up_to(self._amount, edges_ns))
        if self._known_ns is None:
            return moved / np.maximum(np.diff(edges_ns), 1)
        known_ns = np.diff(self._up_to(self._known_ns, edges_ns))
        return np.where(known_ns > 0, moved / np.where(known_ns > 0, known_ns, 1), np.nan)

    def _up_to(self, sums: Any, edges_ns: Any) -> Any:
        """The sum over all bars up to each edge; of the bar at the edge its share."""
        bars = self._bars
        at = np.searchsorted(bars.start_ns, edges_ns, "right")
        before = np.maximum(at - 1, 0)
        length = np.maximum(bars.end_ns[before] - bars.start_ns[before], 1)
        share = np.clip((edges_ns - bars.start_ns[before]) / length, 0, 1)
        last = sums[at] - sums[before]
        return sums[before] + np.where(at > 0, share * last, 0.0)
