"""An arena: shared memory of a process that may still run, or the copy that salvage made of it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.file_sizes import LARGEST_ARENA, LARGEST_CHUNK, LEAST_CHUNK
from ncclscope.capture.header import LARGEST_HEADER_BYTES, Header
from ncclscope.capture.segment import (
    INDEX_LIMIT,
    Slots,
    checked_header,
    heads_of,
    key_of,
    thread_name,
)
from ncclscope.errors import FormatError
from ncclscope.regular_files import check_size, open_regular

_BLOCK, _TALLIES, _TALLY = (layout.KINDS[kind] for kind in ("Block", "Tallies", "Tally"))
_BLOCK_DTYPE, _TALLY_DTYPE = dtypes.OURS.dtypes["Block"], dtypes.OURS.dtypes["Tally"]
_LARGEST_FRONT = 64 << 20
_ATTEMPTS = 20  # at a chunk of a running process; a change takes nanoseconds


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of committed slots of one stream."""

    key: int
    slots: Slots
    tid: int
    thread_name: str


@dataclass(frozen=True, slots=True)
class Arena:
    """What an arena holds."""

    header: Header
    front: memoryview  # header, counters, metadata ring, shared table of calls
    chunks: tuple[Chunk, ...]
    call_counts: Slots  # Tally slots of all tables


def read_arena(path: Path) -> Arena:
    """Reads an arena; FormatError when it is none. It has holes, so it is not mapped."""
    fd = open_regular(path)
    try:
        check_size(path, os.fstat(fd).st_size, LARGEST_ARENA)
        header = checked_header(memoryview(os.pread(fd, LARGEST_HEADER_BYTES, 0)), path)
        bytes_a_chunk = header.chunk_slots * layout.SLOT_BYTES
        if (
            not 0 < header.chunks_offset <= _LARGEST_FRONT
            or header.chunks_offset % layout.SLOT_BYTES
            or not LEAST_CHUNK <= bytes_a_chunk <= LARGEST_CHUNK
        ):
            message = f"cannot read {path}: it does not say where its chunks are"
            raise FormatError(message, "Leave the file out")
        front = memoryview(os.pread(fd, header.chunks_offset, 0))
        chunks: list[Chunk] = []
        tables = [_shared_table(front, header)]
        for kind, offset in _used_chunks(fd, header, bytes_a_chunk):
            if kind == _TALLIES:
                data = os.pread(fd, bytes_a_chunk, offset)
                tables.append(np.frombuffer(data, _TALLY_DTYPE, len(data) // layout.SLOT_BYTES))
            else:
                chunk = _read_chunk(fd, offset, bytes_a_chunk)
                chunks += [chunk] if chunk else []
    finally:
        os.close(fd)
    call_counts = np.concatenate([table[table["kind"] == _TALLY] for table in tables])
    return Arena(header, front, tuple(chunks), call_counts)


def _used_chunks(fd: int, header: Header, bytes_a_chunk: int) -> Iterator[tuple[int, int]]:
    size = os.fstat(fd).st_size
    for number in range(min(header.chunk_count, size // bytes_a_chunk + 1)):
        offset = header.chunks_offset + number * bytes_a_chunk
        if offset >= size:
            return
        kind = os.pread(fd, 1, offset)
        if kind and kind[0] in (_BLOCK, _TALLIES):
            yield kind[0], offset


def _shared_table(front: memoryview, header: Header) -> npt.NDArray[np.void]:
    end = header.tally_offset + header.tally_slots * layout.SLOT_BYTES
    if header.tally_offset % layout.SLOT_BYTES or not 0 < end <= len(front):
        return np.empty(0, _TALLY_DTYPE)
    return np.frombuffer(front, _TALLY_DTYPE, header.tally_slots, header.tally_offset)


def _slots_at(fd: int, offset: int, size: int) -> Slots:
    data = bytearray(os.pread(fd, size, offset))
    return np.frombuffer(data, dtypes.ANY_SLOT, len(data) // layout.SLOT_BYTES)


def _read_chunk(fd: int, offset: int, size: int) -> Chunk | None:
    """A chunk's committed slots; None when it was reused meanwhile."""
    # Read twice: a slot whose head did not change is whole. Fields are stored before the head that
    # speaks of them, so the second reading's bodies are at least as new as the first one's heads.
    # Read again while an older slot changes, or all slots after it would be left out.
    slots = _slots_at(fd, offset, size)
    for _ in range(_ATTEMPTS):
        before, slots = heads_of(slots), _slots_at(fd, offset, size)
        if len(slots) != len(before) or not len(slots):
            return None
        steady = heads_of(slots) == before
        if steady[before != 0].all():
            break
    head = slots[:1].view(_BLOCK_DTYPE)[0]
    sound = head["stream"] < layout.CONTEXT_STREAM and head["first"] < INDEX_LIMIT
    if not steady[0] or not sound or head["kind"] != _BLOCK:
        return None
    first = int(head["first"])
    expected = np.arange(first, first + len(slots), dtype=np.int64).astype(np.uint32)
    committed = steady & (slots["kind"] != 0) & (slots["check"] == expected)
    end = len(slots) if committed.all() else int(np.argmin(committed))
    key = key_of(int(head["stream"]), first + 1)
    return Chunk(key, slots[1:end], int(head["tid"]), thread_name(head))
