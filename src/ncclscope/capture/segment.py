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
_NO_ROWS = np.empty(0, np.int64)
KEY_SHIFT = 48  # stream number above, slot index below: one sortable key
INDEX_LIMIT = 1 << KEY_SHIFT


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
    with open_binary(path) as file:
        return memoryview(file.read(min(os.fstat(file.fileno()).st_size, LARGEST_META)))


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
    room = np.empty(len(at), np.int64)
    np.subtract(at[1:], at[:-1] + 1, out=room[:-1])
    room[-1:] = len(slots) - 1 - at[-1:]
    block_heads = slots[at].view(_BLOCK_DTYPE)
    length = np.minimum(block_heads["count"].astype(np.int64), room)
    sound = (block_heads["stream"] < layout.CONTEXT_STREAM) & (block_heads["first"] < INDEX_LIMIT)
    length[~sound] = 0
    # Slots before the first block, or behind the last of a block, belong to nobody.
    between = int((room - length)[:-1].sum()) if len(at) else 0
    damage.bad_slots += between + (int(at[0]) if len(at) else len(slots)) + misplaced
    key = block_heads["stream"].astype(np.int64) << KEY_SHIFT
    key |= block_heads["first"].astype(np.int64)
    update = sound & (block_heads["kind"] == _UPDATES)
    keep = sound & ~update & (length > 0)
    tid = block_heads["tid"].astype(np.int64)
    first_of = dict(zip(reversed(tid.tolist()), range(len(tid) - 1, -1, -1), strict=True))
    one_each = block_heads[[first_of[own] for own in sorted(first_of)]]
    threads = {int(head["tid"]): thread_name(head) for head in one_each}
    blocks = Blocks(key[keep], length[keep], at[keep] + 1, tid[keep])
    rows, keys = _updates(slots, at[update], key[update], length[update])
    return Segment(slots, blocks, rows, keys, threads, kinds)


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
    return bytes(head["thread_name"].tobytes()).rstrip(b"\0").decode("utf-8", "replace")
