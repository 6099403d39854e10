"""Slots from plain values, and streams of them cut into blocks as the drain writes them."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout

Slot = dict[str, Any]  # fields by name, "kind" and "check" among them; others are zero
Slots = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]

CHUNK_SLOTS = layout.CHUNK_SLOTS  # slot 0 of each is the chunk's head, which no log has
_BLOCK = dtypes.OURS.dtypes["Block"]


def _zeros(dtype: np.dtype[np.void]) -> dict[str, Any]:
    """A zero for each field."""
    shapes = {name: dtype.fields[name][0].shape for name in dtype.names or ()}  # type: ignore[index]
    return {name: (0,) * shape[0] if shape else 0 for name, shape in shapes.items()}


_ZEROS = {number: _zeros(dtypes.OURS.dtypes[name]) for name, number in dtypes.OURS.kinds.items()}


def pack(slots: list[Slot]) -> Slots:
    """The slots as they lie in a file."""
    out = np.zeros(len(slots), dtypes.ANY_SLOT)
    places: dict[int, list[int]] = defaultdict(list)
    for place, slot in enumerate(slots):
        places[slot["kind"]].append(place)
    for kind, rows_of_kind in places.items():
        zeros = _ZEROS[kind]
        rows = [tuple((zeros | slots[place]).values()) for place in rows_of_kind]
        assert all(len(row) == len(zeros) for row in rows), "a field that the kind does not have"
        out[rows_of_kind] = np.array(rows, dtypes.OURS.dtypes[dtypes.OURS.names[kind]]).view(
            out.dtype
        )
    return out


def handle_of(nonce: int, stream: int, index: int) -> int:
    """What NCCL holds for the event in that slot."""
    return nonce << layout.HANDLE_BITS | stream << layout.INDEX_BITS | index


def block_heads(
    first: Ints, count: Ints, written_ns: Ints, stream: int, tid: int, thread_name: str
) -> Slots:
    """Block slots for runs of one stream."""
    heads = np.zeros(len(first), _BLOCK)
    heads["kind"] = layout.KINDS["Block"]
    heads["check"] = first & 0xFFFFFFFF
    heads["first"], heads["count"], heads["written"] = first, count, written_ns
    heads["stream"], heads["tid"] = stream, tid
    heads["thread_name"] = np.frombuffer(thread_name.encode()[:15].ljust(16, b"\0"), np.uint8)
    return heads.view(dtypes.ANY_SLOT)


@dataclass(frozen=True)
class Placed:
    """Where some slots of a stream go: their indexes, and their rows in `out`."""

    out: Slots  # with block heads and pads in place, everything else zero
    index: Ints
    row: Ints


class StreamLayout:
    """Numbers a stream's slots and cuts them into blocks; state of one stream between calls."""

    def __init__(self, number: int, tid: int, thread_name: str) -> None:
        self.number = number
        self._tid, self._thread_name = tid, thread_name
        self._next = 1  # the first slot of a chunk is its head

    def place(self, count: int, pairs: Ints, written_ns: int) -> Placed:
        """The next `count` slots; those at `pairs` and their next must be in one chunk."""
        is_pair = np.zeros(count + 1, bool)
        is_pair[pairs] = True
        first, start, length, padded = [], [], [], []
        at = 0
        while at < count:
            room = CHUNK_SLOTS - self._next % CHUNK_SLOTS
            end = min(at + room, count)
            pad = end == at + room and bool(is_pair[end - 1])
            first.append(self._next)
            start.append(at)
            length.append(end - pad - at)
            padded.append(pad)
            self._next += end - at
            self._next += self._next % CHUNK_SLOTS == 0
            at = end - pad
        return self._placed(count, *map(np.array, (first, start, length, padded)), written_ns)

    def _placed(
        self, count: int, first: Ints, start: Ints, length: Ints, padded: Ints, written_ns: int
    ) -> Placed:
        blocks, pads = np.arange(len(first)), padded.astype(np.int64)
        pads_before = np.cumsum(pads) - pads
        shift = blocks + 1 + pads_before  # from a slot's number to its row
        out = np.zeros(count + len(first) + int(pads.sum()), dtypes.ANY_SLOT)
        written = np.full(len(first), written_ns, np.int64)
        out[start + shift - 1] = block_heads(
            first, length + pads, written, self.number, self._tid, self._thread_name
        )
        at_pads = (start + shift + length)[padded]
        out["kind"][at_pads] = layout.KINDS["Pad"]
        out["check"][at_pads] = (first + length)[padded] & 0xFFFFFFFF
        slots = np.arange(count, dtype=np.int64)
        index = slots + np.repeat(first - start, length)
        return Placed(out, index, slots + np.repeat(shift, length))
