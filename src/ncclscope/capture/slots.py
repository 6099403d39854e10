"""The slots of one process: log segments as they lie on disk, an arena's chunks, and where each
slot is found.
"""

import mmap
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.header import Header, parse_header
from ncclscope.errors import FormatError

Slots = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]

_BLOCK = layout.KINDS["Block"]
_UPDATES = layout.KINDS["Updates"]
_BLOCK_DTYPE = dtypes.OURS.dtypes["Block"]
_KEY_SHIFT = 48  # stream number above, slot index below: one sortable key
_INDEX_LIMIT = 1 << _KEY_SHIFT


@dataclass(slots=True)
class Damage:
    """What a reader had to leave out, and why; all zero for a whole capture."""

    torn_bytes: int = 0  # a last slot that is not complete
    bad_slots: int = 0  # not where they claim to be, or between blocks
    unknown_kinds: int = 0  # of a newer minor version
    unreadable: list[str] = field(default_factory=list)  # files, with the reason


@dataclass(frozen=True, slots=True)
class Blocks:
    """Runs of neighbouring slots, sorted by key: `row` is the first slot's place in the log."""

    key: Ints  # stream << 48 | index of the first slot
    count: Ints
    row: Ints
    tid: Ints  # of the thread that wrote them


def map_file(path: Path) -> memoryview:
    """A file's bytes, private to this process: overlaying newer versions of slots copies single
    pages only.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else b"")


def view_slots(data: memoryview, offset: int, damage: Damage) -> Slots:
    """Everything behind `offset` as slots; a torn last one is counted."""
    usable = max(len(data) - offset, 0)
    damage.torn_bytes += usable % layout.SLOT_BYTES
    return np.frombuffer(data, dtypes.ANY_SLOT, usable // layout.SLOT_BYTES, offset)


def find_blocks(slots: Slots, first_row: int, damage: Damage) -> tuple[Blocks, Ints, Ints]:
    """The blocks of a log segment; rows of updated versions, and their keys."""
    kinds = slots["kind"]
    at = np.flatnonzero((kinds == _BLOCK) | (kinds == _UPDATES))
    if not len(at):
        damage.bad_slots += len(slots)
        return _no_blocks(), np.empty(0, np.int64), np.empty(0, np.int64)
    heads = slots[at].view(_BLOCK_DTYPE)
    room = np.diff(at, append=len(slots)) - 1
    count = np.minimum(heads["count"].astype(np.int64), room)
    sound = (heads["stream"] < layout.CONTEXT_STREAM) & (heads["first"] < _INDEX_LIMIT)
    count[~sound] = 0
    # Slots before the first block, or behind a block that ends before the next one begins, belong
    # to nobody.
    damage.bad_slots += int(at[0]) + int((room - count)[:-1].sum())
    is_update = heads["kind"] == _UPDATES
    key = heads["stream"].astype(np.int64) << _KEY_SHIFT | heads["first"].astype(np.int64)
    keep = sound & ~is_update & (count > 0)
    blocks = Blocks(
        key[keep], count[keep], at[keep] + 1 + first_row, heads["tid"][keep].astype(np.int64)
    )
    rows, keys = _update_rows(
        slots, at[is_update & sound], count[is_update & sound], key[is_update & sound]
    )
    return blocks, rows + first_row, keys


def _no_blocks() -> Blocks:
    empty = np.empty(0, np.int64)
    return Blocks(empty, empty, empty, empty)


def _update_rows(slots: Slots, at: Ints, count: Ints, key: Ints) -> tuple[Ints, Ints]:
    """Rows of updated versions and the keys of the slots they replace: the check tells the index's
    lower half.
    """
    rows = expand(at + 1, count)
    base = np.repeat(key, count)
    step = (slots["check"][rows].astype(np.int64) - base) & 0xFFFFFFFF
    return rows, base + step


def expand(first: Ints, count: Ints) -> Ints:
    """All numbers of the runs [first, first + count)."""
    total = int(count.sum())
    if total == 0:
        return np.empty(0, np.int64)
    starts = np.cumsum(count) - count
    return np.repeat(first - starts, count) + np.arange(total, dtype=np.int64)


def merge_blocks(parts: list[Blocks]) -> Blocks:
    """All blocks in the order of their keys."""
    if not parts:
        return _no_blocks()
    key = np.concatenate([part.key for part in parts])
    order = np.argsort(key, kind="stable")
    count = np.concatenate([part.count for part in parts])[order]
    row = np.concatenate([part.row for part in parts])[order]
    return Blocks(key[order], count, row, np.concatenate([part.tid for part in parts])[order])


class SlotLog:
    """All slots of a process. Rows number them in the order in which they were written."""

    def __init__(self, segments: list[Slots], blocks: Blocks, damage: Damage) -> None:
        self._segments = segments
        self._first_rows = np.cumsum([0, *(len(segment) for segment in segments)])
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
        found = (at >= 0) & (offset < blocks.count[at]) & (offset >= 0)
        return np.where(found, blocks.row[at] + offset, -1)

    def take(self, rows: Ints) -> Slots:
        """Copies of the slots at `rows`."""
        out = np.empty(len(rows), dtypes.ANY_SLOT)
        part = np.searchsorted(self._first_rows, rows, side="right") - 1
        for number, segment in enumerate(self._segments):
            mine = part == number
            out[mine] = segment[rows[mine] - self._first_rows[number]]
        return out

    def overlay(self, rows: Ints, slots: Slots) -> None:
        """Replaces the slots at `rows` by newer versions, in this process's memory only."""
        part = np.searchsorted(self._first_rows, rows, side="right") - 1
        for number, segment in enumerate(self._segments):
            mine = part == number
            if mine.any():
                segment[rows[mine] - self._first_rows[number]] = slots[mine]

    def block_slots(self, number: int) -> tuple[int, int, Slots]:
        """Stream, first index and slots (a view) of the block with that place in `blocks`."""
        key, row = int(self.blocks.key[number]), int(self.blocks.row[number])
        part = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        start = row - int(self._first_rows[part])
        slots = self._segments[part][start : start + int(self.blocks.count[number])]
        return key >> _KEY_SHIFT, key & (_INDEX_LIMIT - 1), slots


def key_of(stream: int, index: int) -> int:
    """The key by which a slot is found."""
    return stream << _KEY_SHIFT | index


def check_blocks(log: SlotLog) -> None:
    """Blanks slots that are not what their place says, and counts them; their neighbours stay."""
    for number in range(len(log.blocks.count)):
        _, first, slots = log.block_slots(number)
        wrong = slots["check"] != _checks(first, len(slots))
        if wrong.any():
            log.damage.bad_slots += int(wrong.sum())
            slots["kind"][wrong] = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of slots in an arena."""

    key: int
    slots: Slots  # copies
    tid: int
    thread_name: str


def thread_names(slots: Slots) -> dict[int, str]:
    """Names by thread id, from the heads of blocks."""
    heads = slots[slots["kind"] == _BLOCK].view(_BLOCK_DTYPE)
    tids, at = np.unique(heads["tid"], return_index=True)
    return {int(tid): _name(head) for tid, head in zip(tids, heads[at], strict=True)}


def _name(head: np.void) -> str:
    return bytes(head["thread_name"].tobytes()).rstrip(b"\0").decode("utf-8", "replace")


def arena_chunks(data: memoryview, header: Header, path: Path) -> list[Chunk]:
    """The committed slots of every chunk in use; its process may go on writing."""
    size = header.chunk_slots * layout.SLOT_BYTES
    if not 2 <= header.chunk_slots <= 1 << 20 or header.chunks_offset % layout.SLOT_BYTES:
        raise FormatError(f"cannot read {path}: its chunks are not described", "Leave the file out")
    found = []
    for number in range(min(header.chunk_count, len(data) // size)):
        offset = header.chunks_offset + number * size
        if offset + size > len(data):
            break
        chunk = np.frombuffer(data, dtypes.ANY_SLOT, header.chunk_slots, offset)
        if chunk["kind"][0] != _BLOCK:
            continue
        # Heads before and after the bodies: a slot whose head stood still while it was copied is
        # whole.
        before = _heads(chunk).copy()
        slots = chunk.copy()
        steady = _heads(chunk) == before
        _heads(slots)[:] = before
        head = slots[:1].view(_BLOCK_DTYPE)[0]
        if (
            not steady[0]
            or head["stream"] >= layout.CONTEXT_STREAM
            or head["first"] >= _INDEX_LIMIT
        ):
            continue
        first = int(head["first"])
        committed = steady & (slots["kind"] != 0) & (slots["check"] == _checks(first, len(slots)))
        end = len(slots) if committed.all() else int(np.argmin(committed))
        key = key_of(int(head["stream"]), first + 1)
        found.append(Chunk(key, slots[1:end], int(head["tid"]), _name(head)))
    return found


def _heads(slots: Slots) -> npt.NDArray[np.uint64]:
    return slots.view("<u8").reshape(-1, 8)[:, 0]


def _checks(first: int, count: int) -> npt.NDArray[np.uint32]:
    """What the `check` of slots `first`, first + 1, … must be."""
    return np.arange(first, first + count, dtype=np.int64).astype(np.uint32)


def open_file(path: Path) -> tuple[Header, memoryview]:
    """Header and bytes of a capture file that this release can read."""
    data = map_file(path)
    header = parse_header(data, path)
    try:
        dtypes.check_schema(header.schema)
    except FormatError as error:
        raise FormatError(
            f"cannot read {path}: {error}", "Restore the file or leave it out"
        ) from None
    return header, data
