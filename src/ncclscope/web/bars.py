"""Rows of bars: in the order of time, without overlap, with sums over 8, 64, 512 … bars.

With the sums the cost of a tile depends on its pixels, not on the number of bars in it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Ints

Bytes = npt.NDArray[np.uint8]

FANOUT = 8
_MOST_ROWS = 48  # for bars that overlap; the others share the last row and are cut
_SMALL_CLUSTER = 8  # overlapping bars up to this number have a row each, in their order

# Bits of a bar's look, with what the page says about such a bar.
OPEN, UNTIMED, REPAIRED, INFERRED, REPLAY, LOWER_BOUND, CUT, MISMATCH = (1 << n for n in range(8))
LOOKS = {
    OPEN: "not ended when the capture ended",
    UNTIMED: "no GPU time: as the host saw it",
    REPAIRED: "stamps repaired: NCCL had given them to another operation",
    INFERRED: "function inferred from a group of sends and receives",
    REPLAY: "replay of a captured call",
    LOWER_BOUND: "may have lasted longer: stamps are partial or early",
    CUT: "drawn shorter: too many bars overlap here",
    MISMATCH: "ranks disagree on function, bytes or datatype",
}


@dataclass(frozen=True, slots=True)
class Level:
    """Sums over groups of neighbouring bars."""

    size: int  # bars of a group
    start_ns: Ints
    end_ns: Ints
    busy_ns: Ints
    wait_ns: Ints
    longest: npt.NDArray[np.uint32]  # place of the longest bar
    looks: Bytes  # bits of all bars


@dataclass(frozen=True, slots=True)
class Bars:
    """One row of bars. Times are of the process's host, or of the capture's one clock."""

    start_ns: Ints
    end_ns: Ints
    wait_ns: Ints  # how long each waited for other ranks; empty: bars of this kind do not wait
    ref: Ints  # what a bar stands for: a row of `operations`, or an event's key
    code: Bytes  # its colour code
    look: Bytes
    levels: tuple[Level, ...]

    def __len__(self) -> int:
        return len(self.start_ns)


COLUMNS = {
    "start_ns": np.int64,
    "end_ns": np.int64,
    "wait_ns": np.int64,
    "ref": np.int64,
    "code": np.uint8,
    "look": np.uint8,
}
LEVEL_COLUMNS = {
    "start_ns": np.int64,
    "end_ns": np.int64,
    "busy_ns": np.int64,
    "wait_ns": np.int64,
    "longest": np.uint32,
    "looks": np.uint8,
}


def make_bars(columns: dict[str, Any]) -> Bars:
    """Bars with their sums, from columns in the order of time and without overlap."""
    typed = {name: np.asarray(columns[name], dtype) for name, dtype in COLUMNS.items()}
    return Bars(**typed, levels=_levels(typed))


def _levels(columns: dict[str, Any]) -> tuple[Level, ...]:
    """Sums over 8 bars, over 8 of those, and so on."""
    start, end, look = columns["start_ns"], columns["end_ns"], columns["look"]
    wait = columns["wait_ns"] if len(columns["wait_ns"]) else np.zeros(1, np.int64)
    busy, size = end - start, 1
    wait = np.broadcast_to(wait, busy.shape) if len(wait) < len(busy) else wait
    longest, length = np.arange(len(start), dtype=np.uint32), busy
    levels: list[Level] = []
    while len(start) > FANOUT:
        first = np.arange(0, len(start), FANOUT)
        place = _places_of_longest(length)
        size *= FANOUT
        longest, length = longest[place], length[place]
        start, end = start[first], np.maximum.reduceat(end, first)
        busy, wait = np.add.reduceat(busy, first), np.add.reduceat(wait, first)
        look = np.bitwise_or.reduceat(look, first)
        levels.append(Level(size, start, end, busy, wait, longest, look))
    return tuple(levels)


def _places_of_longest(length: Ints) -> Ints:
    """The place of the longest bar in each group."""
    groups = -(-len(length) // FANOUT)
    padded = np.full(groups * FANOUT, -1, np.int64)
    padded[: len(length)] = length
    within = padded.reshape(groups, FANOUT).argmax(axis=1)
    return np.asarray(within + np.arange(groups) * FANOUT)


def assign_rows(start_ns: Ints, end_ns: Ints) -> Ints:
    """The row of each bar, so that none overlaps another. Bars are sorted by start."""
    count = len(start_ns)
    rows = np.zeros(count, np.int64)
    if count < 2:
        return rows
    reach = np.maximum.accumulate(end_ns)
    begins_cluster = np.ones(count, bool)
    begins_cluster[1:] = start_ns[1:] >= reach[:-1]
    if begins_cluster.all():
        return rows
    first = np.flatnonzero(begins_cluster)
    sizes = np.diff(np.append(first, count))
    rows[:] = np.arange(count) - np.repeat(first, sizes)
    for cluster in np.flatnonzero(sizes > _SMALL_CLUSTER).tolist():
        part = slice(int(first[cluster]), int(first[cluster] + sizes[cluster]))
        rows[part] = _assign_cluster(start_ns[part], end_ns[part])
    return rows


def _assign_cluster(start_ns: Ints, end_ns: Ints) -> Ints:
    """Rows of many bars that overlap: each takes the first row that is free."""
    for period in range(2, _SMALL_CLUSTER + 1):  # network steps start and end in turns
        if (start_ns[period:] >= end_ns[:-period]).all():
            return np.arange(len(start_ns)) % period
    free: list[int] = []
    rows = np.empty(len(start_ns), np.int64)
    for place, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        row = next((n for n, until in enumerate(free) if until <= start), len(free))
        if row == len(free) and row < _MOST_ROWS:
            free.append(0)
        row = min(row, _MOST_ROWS - 1)
        free[row] = end
        rows[place] = row
    return rows


def split_rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """The columns of each row that bars need so that none overlaps another.

    Where bars need too many rows, those of the last row are cut.
    """
    typed = {name: np.asarray(columns[name], dtype) for name, dtype in COLUMNS.items()}
    start = typed["start_ns"]
    if len(start) > 1 and (np.diff(start) < 0).any():
        order = np.argsort(start, kind="stable")
        typed = {name: values[order] if len(values) else values for name, values in typed.items()}
    typed["end_ns"] = np.maximum(typed["end_ns"], typed["start_ns"])
    rows = assign_rows(typed["start_ns"], typed["end_ns"])
    split = []
    count = int(rows.max(initial=-1)) + 1
    for row in range(count):
        places = slice(None) if count == 1 else np.flatnonzero(rows == row)
        own = {name: values[places] if len(values) else values for name, values in typed.items()}
        split.append(_cut(own) if row == _MOST_ROWS - 1 else own)
    return split


def _cut(columns: dict[str, Any]) -> dict[str, Any]:
    """The columns with each bar ended where the next begins; CUT marks those."""
    end = columns["end_ns"].copy()
    end[:-1] = np.minimum(end[:-1], columns["start_ns"][1:])
    look = columns["look"] | np.where(end < columns["end_ns"], CUT, 0).astype(np.uint8)
    return columns | {"end_ns": end, "look": look}


def select_bars(bars: Bars, mask: Any) -> Bars:
    """The bars of a row that a mask marks."""
    columns = {name: np.asarray(getattr(bars, name)) for name in COLUMNS}
    return make_bars(
        {name: values[mask] if len(values) else values for name, values in columns.items()}
    )
