"""Tiles: the bars of a row as runs of pixels, for one stretch of time.

A tile is `WIDTH` pixels of 2**zoom ns each. A bar of at least a pixel is a run of its own; narrower
bars that begin in the same pixel are one run, with their number and how much of it they fill.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Floats, Ints
from ncclscope.web.bars import FANOUT, Bars

WIDTH = 512
LARGEST_ZOOM = 50  # 2**50 ns are 13 days a pixel
_FEW = 2 * WIDTH  # elements of the level to begin with
_FULL = 255


@dataclass(frozen=True, slots=True)
class Runs:
    """What a row shows in a tile, from left to right. `FIELDS` explains the fields."""

    x0: npt.NDArray[np.float32]
    x1: npt.NDArray[np.float32]
    item: npt.NDArray[np.uint32]
    count: npt.NDArray[np.uint32]
    value: npt.NDArray[np.float32]
    code: npt.NDArray[np.uint8]
    look: npt.NDArray[np.uint8]
    fill: npt.NDArray[np.uint8]
    wait: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.x0)


# Fields of a run in the order in which a tile is sent: dtype, meaning. Four bytes come before one,
# so that all are aligned. The page's decoder is made of this.
FIELDS = {
    "x0": ("f4", "first pixel of the tile; of a single bar it may lie outside"),
    "x1": ("f4", "last pixel, likewise"),
    "item": ("u4", "place of the bar in its row; of several bars that of the longest"),
    "count": ("u4", "bars of the run"),
    "value": ("f4", "number of its label: bytes of an operation; negative: none"),
    "code": ("u1", "colour code"),
    "look": ("u1", "bits of LOOK"),
    "fill": ("u1", "share of the run that bars cover, of 255"),
    "wait": ("u1", "share of the bars that is waiting, of 255"),
}


@dataclass(frozen=True, slots=True)
class _Elements:
    """Bars, and groups of bars that are narrower than a pixel, in the order of time."""

    start: Ints
    end: Ints
    busy: Ints
    wait: Ints
    count: Ints
    item: Ints
    code: npt.NDArray[np.uint8]
    looks: npt.NDArray[np.uint8]

    def take(self, order: Ints) -> "_Elements":
        return _Elements(*(getattr(self, name)[order] for name in self.__slots__))


def _concatenate(parts: Sequence[_Elements]) -> _Elements:
    if len(parts) == 1:
        return parts[0]
    return _Elements(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in _Elements.__slots__)
    )


def runs_of(bars: Bars, first_ns: int, last_ns: int, width: int = WIDTH) -> Runs:
    """The runs of a row between two times of the row's own clock."""
    return make_tile([(bars, first_ns, last_ns)], width)[1]


def make_tile(rows: Sequence[tuple[Bars, int, int]], width: int = WIDTH) -> tuple[Ints, Runs]:
    """The number of runs of each row, and the runs of all rows.

    A row comes with the two times of its own clock between which it is shown. All rows are
    processed at once, because calls of numpy cost more than their work.
    """
    parts, pixels = [], []
    for bars, first_ns, last_ns in rows:
        pixels.append(max((last_ns - first_ns) / width, 1e-3))
        parts.append(_elements(bars, first_ns, last_ns, pixels[-1]))
    sizes = np.array([len(part.start) for part in parts], np.int64)
    elements = _concatenate(parts)
    pixel = np.repeat(np.array(pixels), sizes)
    origin = np.repeat(np.array([first_ns for _, first_ns, _ in rows], np.int64), sizes)
    left, right = (elements.start - origin) / pixel, (elements.end - origin) / pixel
    wide = (elements.end - elements.start >= pixel) & (elements.count == 1)
    column = np.floor(left)
    begins = np.ones(len(left), bool)
    begins[1:] = wide[1:] | wide[:-1] | (column[1:] != column[:-1])
    ends = np.cumsum(sizes)
    begins[ends[:-1][ends[:-1] < len(begins)]] = True
    first = np.flatnonzero(begins)
    counts = np.diff(np.searchsorted(first, np.append(0, ends)))
    return counts, _merge(elements, first, left, right, pixel)


def _merge(elements: _Elements, first: Ints, left: Floats, right: Floats, pixel: Floats) -> Runs:
    """Runs: the elements from one of `first` to the next are one run."""
    if not len(first):
        empty = np.empty(0)
        return Runs(*(empty.astype(dtype) for dtype, _ in FIELDS.values()))
    if len(first) == len(left):  # each element is a run
        x0, x1, count, busy, wait = left, right, elements.count, elements.busy, elements.wait
        item, code, looks = elements.item, elements.code, elements.looks
    else:
        x0, x1, pixel = left[first], np.maximum.reduceat(right, first), pixel[first]
        count = np.add.reduceat(elements.count, first)
        busy, wait = np.add.reduceat(elements.busy, first), np.add.reduceat(elements.wait, first)
        longest = _longest(elements, first)
        item, code = elements.item[longest], elements.code[longest]
        looks = np.bitwise_or.reduceat(elements.looks, first)
    length = np.maximum((x1 - x0) * pixel, np.maximum(busy, 1))
    share = np.minimum(wait / np.maximum(busy, 1), 1.0)
    return Runs(
        x0.astype(np.float32),
        x1.astype(np.float32),
        item.astype(np.uint32),
        count.astype(np.uint32),
        np.full(len(count), -1, np.float32),
        code,
        looks,
        (_FULL * busy / length + 0.5).astype(np.uint8),
        (_FULL * share + 0.5).astype(np.uint8),
    )


def _longest(elements: _Elements, first: Ints) -> Ints:
    """The place of the element of each run that is busy longest."""
    busy = elements.busy
    most = np.repeat(np.maximum.reduceat(busy, first), np.diff(first, append=len(busy)))
    places = np.flatnonzero(busy == most)
    return places[np.searchsorted(places, first)]


def _elements(bars: Bars, first_ns: int, last_ns: int, pixel_ns: float) -> _Elements:
    """Bars between two times; groups of bars where a whole group is narrower than a pixel."""
    low = int(np.searchsorted(bars.end_ns, first_ns, "left"))
    high = int(np.searchsorted(bars.start_ns, last_ns, "left"))
    depth = 0  # levels[depth - 1] is the one to begin with
    while depth < len(bars.levels) and (high - low) // FANOUT**depth > _FEW:
        depth += 1
    places = np.arange(low // FANOUT**depth, -(-high // FANOUT**depth) if high > low else 0)
    done: list[_Elements] = []
    while depth:
        level = bars.levels[depth - 1]
        narrow = level.end_ns[places] - level.start_ns[places] <= pixel_ns
        groups = places[narrow]
        if len(groups):
            done.append(_group_elements(bars, depth, groups))
        wide = places[~narrow]
        places = (wide[:, None] * FANOUT + np.arange(FANOUT)).ravel()
        depth -= 1
        size = len(bars.levels[depth - 1].start_ns) if depth else len(bars)
        places = places[places < size]
    places = places[(places >= low) & (places < high)]
    done.append(_bar_elements(bars, places))
    if len(done) == 1:
        return done[0]
    elements = _concatenate(done)
    return elements.take(np.argsort(elements.start, kind="stable"))


def _group_elements(bars: Bars, depth: int, places: Ints) -> _Elements:
    level = bars.levels[depth - 1]
    longest = level.longest[places].astype(np.int64)
    return _Elements(
        level.start_ns[places],
        level.end_ns[places],
        level.busy_ns[places],
        level.wait_ns[places],
        np.minimum(level.size, len(bars) - places * level.size),
        longest,
        bars.code[longest],
        level.looks[places],
    )


def _bar_elements(bars: Bars, places: Ints) -> _Elements:
    start, end = bars.start_ns[places], bars.end_ns[places]
    return _Elements(
        start,
        end,
        end - start,
        bars.wait_ns[places] if len(bars.wait_ns) else np.zeros(len(places), np.int64),
        np.ones(len(places), np.int64),
        places,
        bars.code[places],
        bars.look[places],
    )


def encode_tile(counts: Ints, runs: Runs) -> bytes:
    """A tile for the page: the number of rows, of runs in each, then the runs field by field."""
    head = np.concatenate([[len(counts)], counts]).astype(np.uint32)
    return b"".join([head.tobytes(), *(getattr(runs, name).tobytes() for name in FIELDS)])
