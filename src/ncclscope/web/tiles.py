"""Tiles: a row's bars as runs of pixels, for one stretch of time.

A tile is `WIDTH` pixels of 2**zoom ns each. Bars of at least a pixel come one by one; narrower ones
that begin in the same pixel come as one run with their number, and how much of it they fill.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.web.bars import FANOUT, Bars, Ints

WIDTH = 512
LARGEST_ZOOM = 50  # 2**50 ns are 13 days a pixel
_FEW = 2 * WIDTH  # elements of a level to begin with
_FULL = 255
_TYPES = ("f4", "f4", "u4", "u4", "f4", "u1", "u1", "u1", "u1")


@dataclass(frozen=True, slots=True)
class Runs:
    """What a row shows in a tile, from left to right. Positions are pixels of the tile."""

    x0: npt.NDArray[np.float32]  # of single bars also outside the tile
    x1: npt.NDArray[np.float32]
    item: npt.NDArray[np.uint32]  # place of the bar, of several the longest
    count: npt.NDArray[np.uint32]
    value: npt.NDArray[np.float32]  # for its label, e.g. bytes; negative: none
    code: npt.NDArray[np.uint8]
    look: npt.NDArray[np.uint8]
    fill: npt.NDArray[np.uint8]  # share of the run that bars cover, of 255
    wait: npt.NDArray[np.uint8]  # share of the bars that is waiting, of 255

    def __len__(self) -> int:
        return len(self.x0)


FIELDS = ("x0", "x1", "item", "count", "value", "code", "look", "fill", "wait")


@dataclass(frozen=True, slots=True)
class _Elements:
    """Bars, and groups of bars that are narrower than a pixel, in order."""

    start: Ints
    end: Ints
    busy: Ints
    wait: Ints
    count: Ints
    item: Ints
    code: npt.NDArray[np.uint8]
    looks: npt.NDArray[np.uint8]

    def at(self, order: Ints) -> "_Elements":
        return _Elements(*(getattr(self, name)[order] for name in self.__slots__))


def _joined(parts: Sequence[_Elements]) -> _Elements:
    if len(parts) == 1:
        return parts[0]
    return _Elements(
        *(np.concatenate([getattr(one, name) for one in parts]) for name in _Elements.__slots__)
    )


def runs_of(bars: Bars, first_ns: int, last_ns: int, width: int = WIDTH) -> Runs:
    """The runs of a row between two times of the row's own clock."""
    return tile_of([(bars, first_ns, last_ns)], width)[1]


def tile_of(
    rows: Sequence[tuple[Bars, int, int]], width: int = WIDTH
) -> tuple[npt.NDArray[np.int64], Runs]:
    """How many runs each row has, and all of them. A row comes with the two times of its own clock
    between which it is shown. All rows are merged at once: calls cost more than their work.
    """
    parts, pixels = [], []
    for bars, first_ns, last_ns in rows:
        pixels.append(max((last_ns - first_ns) / width, 1e-3))
        parts.append(_elements(bars, first_ns, last_ns, pixels[-1]))
    sizes = np.array([len(part.start) for part in parts], np.int64)
    found = _joined(parts)
    pixel = np.repeat(np.array(pixels), sizes)
    origin = np.repeat(np.array([first_ns for _, first_ns, _ in rows], np.int64), sizes)
    left, right = (found.start - origin) / pixel, (found.end - origin) / pixel
    wide = (found.end - found.start >= pixel) & (found.count == 1)
    column = np.floor(left)
    begins = np.ones(len(left), bool)
    begins[1:] = wide[1:] | wide[:-1] | (column[1:] != column[:-1])
    ends = np.cumsum(sizes)
    begins[ends[:-1][ends[:-1] < len(begins)]] = True
    first = np.flatnonzero(begins)
    counts = np.diff(np.searchsorted(first, np.append(0, ends)))
    return counts, _merged(found, first, left, right, pixel)


def _merged(
    found: _Elements,
    first: Ints,
    left: npt.NDArray[np.float64],
    right: npt.NDArray[np.float64],
    pixel: npt.NDArray[np.float64],
) -> Runs:
    """Elements from one of `first` to the next as one run."""
    if not len(first):
        nothing = np.empty(0)
        return Runs(*(nothing.astype(t) for t in _TYPES))
    if len(first) == len(left):  # nothing to merge
        x0, x1, count, busy, wait = left, right, found.count, found.busy, found.wait
        item, code, looks = found.item, found.code, found.looks
    else:
        x0, x1, pixel = left[first], np.maximum.reduceat(right, first), pixel[first]
        count = np.add.reduceat(found.count, first)
        busy, wait = np.add.reduceat(found.busy, first), np.add.reduceat(found.wait, first)
        longest = _longest(found, first)
        item, code = found.item[longest], found.code[longest]
        looks = np.bitwise_or.reduceat(found.looks, first)
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


def _longest(found: _Elements, first: Ints) -> Ints:
    """Of each run the place of the element that is busy longest."""
    most = np.repeat(np.maximum.reduceat(found.busy, first), np.diff(first, append=len(found.busy)))
    places = np.flatnonzero(found.busy == most)
    return places[np.searchsorted(places, first)]


def _elements(bars: Bars, first_ns: int, last_ns: int, pixel_ns: float) -> _Elements:
    """Everything between two times, summed up as far as a pixel reaches."""
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
        whole = places[narrow]
        if len(whole):
            done.append(_groups(bars, depth, whole))
        wide = places[~narrow]
        places = (wide[:, None] * FANOUT + np.arange(FANOUT)).ravel()
        depth -= 1
        size = len(bars.levels[depth - 1].start_ns) if depth else len(bars)
        places = places[places < size]
    places = places[(places >= low) & (places < high)]
    done.append(_single(bars, places))
    if len(done) == 1:
        return done[0]
    joined = _joined(done)
    return joined.at(np.argsort(joined.start, kind="stable"))


def _groups(bars: Bars, depth: int, places: Ints) -> _Elements:
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


def _single(bars: Bars, places: Ints) -> _Elements:
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


def encode(counts: npt.NDArray[np.int64], runs: Runs) -> bytes:
    """Rows of runs for the page: the number of rows, of runs in each, then field by field."""
    head = np.concatenate([[len(counts)], counts]).astype(np.uint32)
    return b"".join([head.tobytes(), *(getattr(runs, name).tobytes() for name in FIELDS)])
