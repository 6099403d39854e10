"""Bars in order of time, none over another in a row, with sums over 8, 64 … of them.

The sums let a tile be drawn at the price of its pixels, whatever the number of bars behind them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Ints

Bytes = npt.NDArray[np.uint8]

FANOUT = 8
_MOST_ROWS = 48  # of bars that overlap; what is left shares the last one and is cut
_WHOLE_GROUPS = 8  # so many overlapping bars have a row each, in order

# How a bar looks, as bits.
OPEN, UNTIMED, REPAIRED, INFERRED, REPLAY, LOWER_BOUND, CUT, MISMATCH = (1 << n for n in range(8))


@dataclass(frozen=True, slots=True)
class Level:
    """Sums over so many neighbouring bars each."""

    size: int
    start_ns: Ints
    end_ns: Ints
    busy_ns: Ints
    wait_ns: Ints
    longest: npt.NDArray[np.uint32]  # place of the longest bar
    looks: Bytes  # of all of them


@dataclass(frozen=True, slots=True)
class Bars:
    """One row of bars. Times are those of the host, or of the one clock."""

    start_ns: Ints
    end_ns: Ints
    wait_ns: Ints  # of each: how long it waited for others; empty: nobody waits here
    ref: Ints  # what a bar stands for: a row of `operations`, or an event's key
    code: Bytes  # its colour
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


def bars_of(columns: dict[str, Any]) -> Bars:
    """Bars with their sums. The columns are in order of time, and no bar is over another."""
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
    """Place of the longest in each group."""
    groups = -(-len(length) // FANOUT)
    padded = np.full(groups * FANOUT, -1, np.int64)
    padded[: len(length)] = length
    within = padded.reshape(groups, FANOUT).argmax(axis=1)
    return np.asarray(within + np.arange(groups) * FANOUT)


def rows_of(start_ns: Ints, end_ns: Ints) -> npt.NDArray[np.int64]:
    """The row of each bar, so that none is over another. Bars are in order of their starts."""
    count = len(start_ns)
    rows = np.zeros(count, np.int64)
    if count < 2:
        return rows
    reach = np.maximum.accumulate(end_ns)
    fresh = np.ones(count, bool)
    fresh[1:] = start_ns[1:] >= reach[:-1]
    if fresh.all():
        return rows
    first = np.flatnonzero(fresh)
    sizes = np.diff(np.append(first, count))
    rows[:] = np.arange(count) - np.repeat(first, sizes)
    for cluster in np.flatnonzero(sizes > _WHOLE_GROUPS).tolist():
        part = slice(int(first[cluster]), int(first[cluster] + sizes[cluster]))
        rows[part] = _packed(start_ns[part], end_ns[part])
    return rows


def _packed(start_ns: Ints, end_ns: Ints) -> Ints:
    """Rows of many bars that overlap: each takes the first row that is free."""
    for period in range(2, _WHOLE_GROUPS + 1):  # network steps come and go in turns
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


def packed_bars(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """The columns as one set for each row. Of too many rows the last has bars that were cut."""
    typed = {name: np.asarray(columns[name], dtype) for name, dtype in COLUMNS.items()}
    start = typed["start_ns"]
    if len(start) > 1 and (np.diff(start) < 0).any():
        order = np.argsort(start, kind="stable")
        typed = {name: values[order] if len(values) else values for name, values in typed.items()}
    typed["end_ns"] = np.maximum(typed["end_ns"], typed["start_ns"])
    rows = rows_of(typed["start_ns"], typed["end_ns"])
    out = []
    most = int(rows.max(initial=-1)) + 1
    for row in range(most):
        mine = slice(None) if most == 1 else np.flatnonzero(rows == row)
        one = {name: values[mine] if len(values) else values for name, values in typed.items()}
        out.append(_cut(one) if row == _MOST_ROWS - 1 else one)
    return out


def _cut(columns: dict[str, Any]) -> dict[str, Any]:
    """Ends each bar where the next begins, and says so."""
    end = columns["end_ns"].copy()
    end[:-1] = np.minimum(end[:-1], columns["start_ns"][1:])
    look = columns["look"] | np.where(end < columns["end_ns"], CUT, 0).astype(np.uint8)
    return columns | {"end_ns": end, "look": look}
