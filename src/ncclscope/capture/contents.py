"""What a capture holds, counted without numpy: `run` prints it when the job has ended."""

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.header import Header, parse_header
from ncclscope.errors import FormatError

_SLOT = layout.SLOT_BYTES
_EVENTS = {name: number for name, number in layout.KINDS.items() if number <= layout.EVENT_KINDS}
_KINDS = layout.KINDS
_RECORD = 2240  # bytes of a record in the tally file: a Tally slot and its times
_LARGEST_CHUNK = 64 << 20


@dataclass(slots=True)
class ProcessContents:
    """One process: events by kind, calls, and how it ended."""

    folder: str
    identity: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_EVENTS, 0))
    calls_by_level: dict[int, int] = field(default_factory=dict)
    communicators: int = 0
    dropped: int = 0
    ended: bool = False
    bytes: int = 0
    note_texts: dict[int, bytearray] = field(default_factory=dict)  # by number

    @property
    def events(self) -> int:
        """All events on record."""
        return sum(self.kinds.values())

    @property
    def notes(self) -> list[str]:
        """What the recorder said went wrong."""
        texts = [text.decode("utf-8", "replace") for text in self.note_texts.values()]
        return [text.rstrip("\0") for text in texts]

    @property
    def calls(self) -> int:
        """What the user called: API calls where the interface has them, NCCL's work before."""
        levels = self.calls_by_level
        return levels.get(layout.LEVEL_CALL, 0) or levels.get(layout.LEVEL_WORK, 0)


def _number(data: mmap.mmap | bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _count_kinds(tally: ProcessContents, kinds: bytes) -> None:
    for name, number in _EVENTS.items():
        tally.kinds[name] += kinds.count(number)


def _count_log(tally: ProcessContents, data: mmap.mmap, start: int, ends: dict[int, int]) -> None:
    """Walks from block to block; `ends` remembers how far each stream is on disk."""
    offset = start
    while offset + _SLOT <= len(data):
        kind, first = data[offset], _number(data, offset + 8, 8)
        stream, count = _number(data, offset + 16, 4), _number(data, offset + 20, 4)
        if kind not in (_KINDS["Block"], _KINDS["Updates"]):
            return  # damaged from here on; readers look closer
        begin, end = offset + _SLOT, min(offset + _SLOT * (1 + count), len(data))
        if kind == _KINDS["Block"]:
            _count_kinds(tally, data[begin:end:_SLOT])
            ends[stream] = max(ends.get(stream, 0), first + (end - begin) // _SLOT)
        offset += _SLOT * (1 + count)


def _add_note(tally: ProcessContents, data: mmap.mmap | bytes, at: int) -> None:
    """A piece of a note, from its Text slot; pieces say where in the text they belong."""
    owner, offset, length = (_number(data, at + place, 2) for place in (10, 12, 14))
    text = tally.note_texts.setdefault(owner, bytearray(length))
    piece = bytes(data[at + 16 : at + _SLOT])[: max(len(text) - offset, 0)]
    text[offset : offset + len(piece)] = piece


def _count_meta(tally: ProcessContents, data: mmap.mmap | bytes, start: int) -> None:
    dropped: dict[tuple[int, int], int] = {}
    for offset in range(start, len(data) - _SLOT + 1, _SLOT):
        kind = data[offset]
        if kind == _KINDS["Comm"]:
            tally.communicators += 1
        elif kind == _KINDS["Text"] and _number(data, offset + 8, 2) == layout.TEXT_NOTE:
            _add_note(tally, data, offset)
        elif kind == _KINDS["End"]:
            tally.ended = True
        elif kind == _KINDS["Count"]:
            counter, event = _number(data, offset + 24, 2), _number(data, offset + 26, 2)
            known = counter < len(layout.COUNTERS)
            if known and layout.COUNTERS[counter].startswith("dropped_"):
                dropped[counter, event] = _number(data, offset + 8, 8)
    tally.dropped += sum(dropped.values())


def _count_calls(tally: ProcessContents, table: bytes, step: int) -> None:
    for offset in range(0, len(table) - _SLOT + 1, step):
        if table[offset] == _KINDS["Tally"]:
            level = table[offset + 34]
            calls = tally.calls_by_level.get(level, 0) + _number(table, offset + 16, 8)
            tally.calls_by_level[level] = calls


def _count_arena(tally: ProcessContents, fd: int, header: Header, ends: dict[int, int]) -> None:
    """An arena has holes: it is read piece by piece, not mapped."""
    size = header.chunk_slots * _SLOT
    places = (header.tally_offset, header.meta_offset, header.chunks_offset)
    counts = (header.tally_slots, header.meta_slots)
    if not 0 < size <= _LARGEST_CHUNK or max(*places, *counts) > _LARGEST_CHUNK:
        return
    tally.calls_by_level.clear()  # newer than what the tally file says
    table = os.pread(fd, header.tally_slots * _SLOT, header.tally_offset)
    _count_calls(tally, table, _SLOT)
    for number in range(header.chunk_count):
        offset = header.chunks_offset + number * size
        kind = os.pread(fd, 1, offset)
        if not kind:
            break
        if kind[0] == _KINDS["Tallies"]:
            _count_calls(tally, os.pread(fd, size, offset), _SLOT)
        elif kind[0] == _KINDS["Block"]:
            chunk = os.pread(fd, size, offset)
            first, stream = _number(chunk, 8, 8), _number(chunk, 16, 4)
            kinds = chunk[::_SLOT]
            committed = kinds.find(b"\0") if b"\0" in kinds else len(kinds)
            known = max(ends.get(stream, 0) - first, 1)  # slot 0 is the chunk's own
            _count_kinds(tally, kinds[known:committed])
    ring = os.pread(fd, header.meta_slots * _SLOT, header.meta_offset)
    _count_meta(tally, ring, 0)


def _headers(folder: Path, names: list[str]) -> Iterator[tuple[Path, int, Header]]:
    """Files of a folder that can be opened, with their headers."""
    for name in names:
        with suppress(OSError, FormatError):
            fd = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield folder / name, fd, parse_header(os.pread(fd, 1 << 16, 0), folder / name)
            finally:
                os.close(fd)


def contents_of_process(folder: Path) -> ProcessContents:
    """Counts of one process folder; files that cannot be read count nothing."""
    tally = ProcessContents(folder.name)
    ends: dict[int, int] = {}
    logs = sorted(path.name for path in folder.glob("log.*"))
    for path, fd, header in _headers(folder, ["meta", "tally", *logs, "arena"]):
        tally.identity = tally.identity or header.identity
        tally.bytes += os.fstat(fd).st_blocks * 512
        if path.name == "meta":
            _count_meta(tally, os.pread(fd, os.fstat(fd).st_size, 0), header.header_bytes)
        elif path.name == "tally":
            records = os.pread(fd, os.fstat(fd).st_size, header.header_bytes)
            _count_calls(tally, records, _RECORD)
        elif path.name == "arena":
            _count_arena(tally, fd, header, ends)
        else:
            with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
                _count_log(tally, data, header.header_bytes, ends)
    return tally


def contents_of_capture(capture: Path) -> list[ProcessContents]:
    """Counts of every process below a capture."""
    if not capture.is_dir():
        return []
    folders = sorted(entry for entry in capture.iterdir() if entry.is_dir())
    return [tally for tally in map(contents_of_process, folders) if tally.identity]
