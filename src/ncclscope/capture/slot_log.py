"""All slots of one process, from all its files, and where each of them is."""

import itertools

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.capture import dtypes
from ncclscope.capture.segment import INDEX_LIMIT, KEY_SHIFT, Blocks, Damage, Slots


def merge_blocks(parts: list[Blocks]) -> Blocks:
    """All blocks in the order of their keys."""
    if len(parts) == 1 and (parts[0].key[1:] >= parts[0].key[:-1]).all():
        return parts[0]
    key = np.concatenate([np.empty(0, np.int64), *(part.key for part in parts)])
    order = np.argsort(key, kind="stable")
    return Blocks(
        key[order],
        np.concatenate([np.empty(0, np.int64), *(part.count for part in parts)])[order],
        np.concatenate([np.empty(0, np.int64), *(part.row for part in parts)])[order],
        np.concatenate([np.empty(0, np.int64), *(part.tid for part in parts)])[order],
    )


_WHOLE = np.dtype("V64")  # copied as one piece; field by field takes ten times as long


def _copy(segment: Slots, rows: Ints) -> Slots:
    return np.asarray(segment.view(_WHOLE)[rows].view(dtypes.ANY_SLOT))


class SlotLog:
    """All slots of a process. Rows number them in the order in which they were written."""

    def __init__(
        self, segments: list[Slots], blocks: Blocks, damage: Damage, kinds: Ints | None = None
    ) -> None:
        self.kinds = kinds  # upper bound of the number of slots by kind; None: not counted
        self._segments = segments
        self._first_rows = np.array([0, *itertools.accumulate(map(len, segments))], np.int64)
        self.blocks = blocks
        self.damage = damage

    @property
    def segments(self) -> list[Slots]:
        """The mapped arrays, block heads included; every slot that `blocks` names is in one of
        them.
        """
        return self._segments

    def __len__(self) -> int:
        return int(self.blocks.count.sum())

    def rows_of(self, keys: Ints) -> Ints:
        """Row of each (stream << 48 | index), -1 where no such slot is on record."""
        blocks = self.blocks
        if not len(blocks.key):
            return np.full(len(keys), -1, np.int64)
        at = np.searchsorted(blocks.key, keys, side="right") - 1
        offset = keys - blocks.key[at]
        recorded = (at >= 0) & (offset < blocks.count[at]) & (offset >= 0)
        return np.where(recorded, blocks.row[at] + offset, -1)

    def take(self, rows: Ints) -> Slots:
        """Copies of the slots at `rows`."""
        if len(self._segments) == 1:
            return _copy(self._segments[0], rows)
        out = np.empty(len(rows), _WHOLE)
        part = np.searchsorted(self._first_rows, rows, side="right") - 1
        for number, segment in enumerate(self._segments):
            here = np.flatnonzero(part == number)
            if len(here):
                out[here] = _copy(segment, rows[here] - self._first_rows[number]).view(_WHOLE)
        return out.view(dtypes.ANY_SLOT)

    def overlay(self, rows: Ints, slots: Slots) -> None:
        """Replaces the slots at `rows` by newer versions, in this process's memory only."""
        if self.kinds is not None:
            self.kinds = self.kinds + np.bincount(slots["kind"], minlength=256)
        part = np.searchsorted(self._first_rows, rows, side="right") - 1
        for number, segment in enumerate(self._segments):
            here = part == number
            if here.any():
                segment[rows[here] - self._first_rows[number]] = slots[here]

    def block_slots(self, number: int) -> tuple[int, int, Slots]:
        """Stream, first index and slots (a view) of a block by its place in `blocks`."""
        key, row = int(self.blocks.key[number]), int(self.blocks.row[number])
        part = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        start = row - int(self._first_rows[part])
        slots = self._segments[part][start : start + int(self.blocks.count[number])]
        return key >> KEY_SHIFT, key & (INDEX_LIMIT - 1), slots
