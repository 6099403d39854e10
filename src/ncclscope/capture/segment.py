"""Log segments: their blocks of slots, checked slot by slot, and how files are opened."""

import ctypes
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.library import length_arg, library, pointer
from ncclscope.arrays.types import Ints
from ncclscope.capture import dtypes, layout
from ncclscope.capture.file_sizes import LARGEST_META, check_log_size
from ncclscope.capture.header import Header, parse_header
from ncclscope.errors import FormatError
from ncclscope.regular_files import open_binary, open_regular, read_bytes

Slots = npt.NDArray[np.void]

_UPDATES = layout.KINDS["Updates"]
_BLOCK_DTYPE = dtypes.OURS.dtypes["Block"]
_WHOLE = np.dtype(f"V{layout.SLOT_BYTES}")  # copied as one piece, not field by field
_NO_ROWS = np.empty(0, np.int64)
KEY_SHIFT = 48  # stream number above, slot index below: one sortable key
INDEX_LIMIT = 1 << KEY_SHIFT
_READ_AT_ONCE = 1 << 20  # bytes that one call of the system gives


@dataclass(slots=True)
class Damage:
    """What a reader had to leave out; all zero for a whole capture."""

    torn_bytes: int = 0  # a last slot that is not complete
    bad_slots: int = 0  # not where they claim to be, or between blocks
    unreadable: list[str] = field(default_factory=list)  # files, with the reason


@dataclass(frozen=True, slots=True)
class Blocks:
    """Runs of neighbouring slots; `row` is the first slot's place."""

    key: Ints  # stream << 48 | index of the first slot
    count: Ints
    row: Ints
    tid: Ints  # of the thread that wrote them


_NO_BLOCKS = Blocks(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS)


@dataclass(frozen=True, slots=True)
class Segment:
    """One log file. Slots that are not what their place says are blanked: their kind is 0."""

    slots: Slots
    blocks: Blocks
    update_rows: Ints  # newer versions of slots that were written before
    update_keys: Ints
    threads: dict[int, str]  # names by thread id
    kinds: Ints  # how many slots there are of each kind


def key_of(stream: int, index: int) -> int:
    """The key of a slot."""
    return stream << KEY_SHIFT | index


def expand(first: Ints, count: Ints) -> Ints:
    """All numbers of the runs [first, first + count).

    Example: expand([5, 20], [3, 2]) is [5, 6, 7, 20, 21].
    """
    total = int(count.sum())
    if total == 0:
        return np.empty(0, np.int64)
    starts = np.cumsum(count) - count
    return np.repeat(first - starts, count) + np.arange(total, dtype=np.int64)


def map_file(path: Path) -> memoryview:
    """A file's bytes, private to this process: replacing a slot copies its page only."""
    descriptor = open_regular(path)
    try:
        state = os.fstat(descriptor)
        check_log_size(path, state)
        size = state.st_size
        return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) if size else b"")
    finally:
        os.close(descriptor)


def read_file(path: Path, largest_bytes: int = LARGEST_META) -> memoryview:
    """A small file's bytes. Files with holes must not be mapped: on a full tmpfs a hole is a
    SIGBUS.
    """
    return memoryview(read_bytes(path, largest_bytes))


def read_beginning(path: Path) -> memoryview:
    """The bytes of a metadata file up to the size to which it is read."""
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        if size <= _READ_AT_ONCE:  # without a file object: there may be ten thousand such files
            return memoryview(os.pread(descriptor, size, 0))
    finally:
        os.close(descriptor)
    with open_binary(path) as file:
        return memoryview(file.read(min(size, LARGEST_META)))


def open_file(
    path: Path, read: Callable[[Path], memoryview] = read_file
) -> tuple[Header, memoryview]:
    """Header and bytes of a capture file that this release can read."""
    data = read(path)
    return checked_header(data, path), data


def checked_header(data: memoryview, path: Path) -> Header:
    """The header of a file whose slots this release understands."""
    header = parse_header(data, path)
    try:
        dtypes.check_schema(header.schema)
    except FormatError as error:
        message = f"cannot read {path}: {error}"
        raise FormatError(message, "Restore the file or leave it out") from None
    return header


def view_slots(data: memoryview, offset: int, damage: Damage) -> Slots:
    """Everything behind `offset` as slots; a torn last one is counted."""
    usable = max(len(data) - offset, 0)
    damage.torn_bytes += usable % layout.SLOT_BYTES
    return np.frombuffer(data, dtypes.ANY_SLOT, usable // layout.SLOT_BYTES, offset)


def heads_of(slots: Slots) -> npt.NDArray[np.uint64]:
    """The head words, as a view."""
    return slots.view("<u8").reshape(-1, 8)[:, 0]


def _scan(slots: Slots) -> tuple[Ints, Ints, int]:
    """Rows of the blocks' heads; number of slots by kind; number of slots that were blanked because
    their check is not that of their index.
    """
    heads, kinds = np.empty(len(slots), np.int64), np.empty(256, np.int64)
    misplaced = ctypes.c_int64()
    blocks = library().ncclscope_scan(
        pointer(slots), length_arg(slots), pointer(heads), pointer(kinds), ctypes.byref(misplaced)
    )
    return heads[:blocks].copy(), kinds, misplaced.value


def read_segment(slots: Slots, damage: Damage) -> Segment:
    """The blocks of a log file."""
    at, kinds, misplaced = _scan(slots)
    if not len(at):
        damage.bad_slots += len(slots) + misplaced
        return Segment(slots, _NO_BLOCKS, _NO_ROWS, _NO_ROWS, {}, kinds)
    block_heads = slots.view(_WHOLE)[at].view(_BLOCK_DTYPE)
    stream, first = block_heads["stream"], block_heads["first"]
    room = np.append(at[1:], len(slots)) - at - 1
    sound = (stream < layout.CONTEXT_STREAM) & (first < INDEX_LIMIT)
    length = np.minimum(block_heads["count"].astype(np.int64), room) * sound
    # Slots before the first block, or behind the last of a block, belong to nobody.
    damage.bad_slots += int((room - length)[:-1].sum()) + int(at[0]) + misplaced
    key = stream.astype(np.int64) << KEY_SHIFT | first.astype(np.int64)
    tid = block_heads["tid"].astype(np.int64)
    threads = _thread_names(tid.tolist(), block_heads)
    if kinds[_UPDATES] or not length.all():
        update = sound & (block_heads["kind"] == _UPDATES)
        keep = sound & ~update & (length > 0)
        blocks = Blocks(key[keep], length[keep], at[keep] + 1, tid[keep])
        rows, keys = _updates(slots, at[update], key[update], length[update])
        return Segment(slots, blocks, rows, keys, threads, kinds)
    return Segment(slots, Blocks(key, length, at + 1, tid), _NO_ROWS, _NO_ROWS, threads, kinds)


def _thread_names(tids: list[int], block_heads: Slots) -> dict[int, str]:
    """Names by thread id, in the order of ids: of each thread that in its first block."""
    first_of = dict(zip(reversed(tids), range(len(tids) - 1, -1, -1), strict=True))
    names = block_heads["thread_name"]
    return {tid: _name_in(names[first_of[tid]].tobytes()) for tid in sorted(first_of)}


def _updates(slots: Slots, at: Ints, key: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Rows and keys of slots that were written again. `at`: rows of their blocks' heads."""
    if not len(at):
        return _NO_ROWS, _NO_ROWS
    rows = expand(at + 1, length)
    base = np.repeat(key, length)
    # An updated slot's check is the lower half of its index, which is not below its block's first.
    # Example: first 0x1_FFFF_FFF0 and check 5 are 0x15 apart, so the index is 0x2_0000_0005.
    step = (slots["check"][rows].astype(np.int64) - base) & 0xFFFFFFFF
    return rows, base + step


def thread_name(head: np.void) -> str:
    """The thread's name in a block's head."""
    return _name_in(head["thread_name"].tobytes())


def _name_in(content: bytes) -> str:
    return content.rstrip(b"\0").decode("utf-8", "replace")
