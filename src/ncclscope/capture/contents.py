"""What a capture holds, counted without numpy: `run` prints it when the job has ended."""

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.file_sizes import (
    LARGEST_ARENA,
    LARGEST_CHUNK,
    LARGEST_META,
    LEAST_CHUNK,
    check_log_size,
)
from ncclscope.capture.header import LARGEST_HEADER_BYTES, Header, parse_header
from ncclscope.errors import FormatError
from ncclscope.regular_files import open_regular

_SLOT = layout.SLOT_BYTES
_KINDS = layout.KINDS
_EVENTS = {name: number for name, number in _KINDS.items() if number <= layout.EVENT_KINDS}
_BLOCK = layout.slot_struct("Block", "first", "stream", "count")
_COMM = layout.slot_struct("Comm", "ranks", "nodes")
_TEXT = layout.slot_struct("Text", "what", "owner", "offset", "length", "text")
_COUNT = layout.slot_struct("Count", "value", "counter", "event")
_ZOOM = layout.slot_struct("Zoom", "t0", "gpu_timing")
_TALLY = layout.slot_struct("Tally", "calls", "level")


@dataclass(slots=True)
class ProcessContents:
    """One process: events by kind, calls, and how it ended."""

    folder: str
    identity: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_EVENTS, 0))
    calls_by_level: dict[int, int] = field(default_factory=dict)
    communicators: int = 0
    # How many nodes communicators of several ranks have; 0: the interface does not say.
    comm_nodes: set[int] = field(default_factory=set)
    dropped: int = 0
    ended: bool = False
    bytes: int = 0
    note_texts: dict[int, bytearray] = field(default_factory=dict)  # by number
    start_ticks: int = 0
    clock_hz: int = 0
    timings: dict[int, str] = field(default_factory=dict)  # GPU timing by ticks from when on

    @property
    def events(self) -> int:
        """All events on record."""
        return sum(self.kinds.values())

    @property
    def notes(self) -> list[str]:
        """What the recorder noted when something went wrong."""
        texts = [text.decode("utf-8", "replace") for text in self.note_texts.values()]
        return [text.rstrip("\0") for text in texts]

    @property
    def timing_changes(self) -> list[tuple[str, float]]:
        """Changes of the GPU timing by `ctl`, each with its seconds after the start."""
        hz, now, changes = self.clock_hz or 1, self.identity.get("gpu_timing.in_force", ""), []
        for ticks, timing in sorted(self.timings.items()):
            if timing and timing != now:
                changes.append((timing, max(ticks - self.start_ticks, 0) / hz))
                now = timing
        return changes

    @property
    def calls(self) -> int:
        """Calls of the user: API calls where the interface has them, NCCL's work before."""
        levels = self.calls_by_level
        return levels.get(layout.LEVEL_CALL, 0) or levels.get(layout.LEVEL_WORK, 0)


def _count_kinds(contents: ProcessContents, kinds: bytes) -> None:
    for name, number in _EVENTS.items():
        contents.kinds[name] += kinds.count(number)


def _count_log(
    contents: ProcessContents, data: mmap.mmap, start: int, ends: dict[int, int]
) -> None:
    """Counts a log segment, from block to block; `ends` gets the last index of each stream."""
    offset = start
    while offset + _SLOT <= len(data):
        kind, (first, stream, count) = data[offset], _BLOCK.unpack_from(data, offset)
        if kind not in (_KINDS["Block"], _KINDS["Updates"]):
            return  # damaged from here on; readers look closer
        begin, end = offset + _SLOT, min(offset + _SLOT * (1 + count), len(data))
        if kind == _KINDS["Block"]:
            _count_kinds(contents, data[begin:end:_SLOT])
            ends[stream] = max(ends.get(stream, 0), first + (end - begin) // _SLOT)
        offset += _SLOT * (1 + count)


def _add_note(
    contents: ProcessContents, owner: int, offset: int, length: int, piece: bytes
) -> None:
    """Puts a piece of a note at its offset in the text."""
    text = contents.note_texts.setdefault(owner, bytearray(length))
    piece = piece[: max(len(text) - offset, 0)]
    text[offset : offset + len(piece)] = piece


def _count_meta(contents: ProcessContents, data: mmap.mmap | bytes, start: int) -> None:
    dropped: dict[tuple[int, int], int] = {}
    for offset in range(start, len(data) - _SLOT + 1, _SLOT):
        kind = data[offset]
        if kind == _KINDS["Comm"]:
            contents.communicators += 1
            ranks, nodes = _COMM.unpack_from(data, offset)
            contents.comm_nodes |= {nodes} if ranks > 1 else set()
        elif kind == _KINDS["Text"]:
            what, *piece = _TEXT.unpack_from(data, offset)
            if what == layout.TEXT_NOTE:
                _add_note(contents, *piece)
        elif kind == _KINDS["Zoom"]:
            ticks, timing = _ZOOM.unpack_from(data, offset)
            contents.timings[ticks] = layout.GPU_TIMINGS.get(timing, "")
        elif kind == _KINDS["End"]:
            contents.ended = True
        elif kind == _KINDS["Count"]:
            value, counter, event = _COUNT.unpack_from(data, offset)
            is_known = counter < len(layout.COUNTERS)
            if is_known and layout.COUNTERS[counter].startswith("dropped_"):
                dropped[counter, event] = value
    contents.dropped += sum(dropped.values())


def _count_calls(contents: ProcessContents, table: bytes, step: int) -> None:
    """Adds the calls of Tally slots, one every `step` bytes."""
    for offset in range(0, len(table) - _SLOT + 1, step):
        if table[offset] == _KINDS["Tally"]:
            calls, level = _TALLY.unpack_from(table, offset)
            contents.calls_by_level[level] = contents.calls_by_level.get(level, 0) + calls


def _count_chunk(contents: ProcessContents, chunk: bytes, ends: dict[int, int]) -> None:
    """Counts a chunk's committed slots, less those that are on disk."""
    first, stream, _ = _BLOCK.unpack_from(chunk)
    kinds = chunk[::_SLOT]
    committed = kinds.find(b"\0") if b"\0" in kinds else len(kinds)
    on_disk = max(ends.get(stream, 0) - first, 1)  # slot 0 is the chunk's own
    _count_kinds(contents, kinds[on_disk:committed])


def _count_arena(contents: ProcessContents, fd: int, header: Header, ends: dict[int, int]) -> None:
    """Counts an arena. It has holes, so it is read piece by piece, not mapped."""
    size = header.chunk_slots * _SLOT
    places = (header.tally_offset, header.meta_offset, header.chunks_offset)
    counts = (header.tally_slots, header.meta_slots)
    too_large = max(*places) > LARGEST_CHUNK or max(*counts) * _SLOT > LARGEST_CHUNK
    if not LEAST_CHUNK <= size <= LARGEST_CHUNK or too_large:
        return
    contents.calls_by_level.clear()  # the arena's counts are newer than the tally file's
    table = os.pread(fd, header.tally_slots * _SLOT, header.tally_offset)
    _count_calls(contents, table, _SLOT)
    for number in range(min(header.chunk_count, LARGEST_ARENA // size)):
        offset = header.chunks_offset + number * size
        kind = os.pread(fd, 1, offset)
        if not kind:
            break
        if kind[0] == _KINDS["Tallies"]:
            _count_calls(contents, os.pread(fd, size, offset), _SLOT)
        elif kind[0] == _KINDS["Block"]:
            chunk = os.pread(fd, size, offset)
            if len(chunk) >= _SLOT:
                _count_chunk(contents, chunk, ends)
    ring = os.pread(fd, header.meta_slots * _SLOT, header.meta_offset)
    _count_meta(contents, ring, 0)


def _pread(fd: int, most: int, offset: int) -> bytes:
    """At most `most` bytes of a file from an offset on."""
    return os.pread(fd, max(min(os.fstat(fd).st_size - offset, most), 0), offset)


def _headers(folder: Path, names: list[str]) -> Iterator[tuple[Path, int, Header]]:
    """Files of a folder that can be opened, with their headers."""
    for name in names:
        with suppress(OSError, FormatError):
            path = folder / name
            fd = open_regular(path)
            try:
                yield path, fd, parse_header(os.pread(fd, LARGEST_HEADER_BYTES, 0), path)
            finally:
                os.close(fd)


def contents_of_process(folder: Path) -> ProcessContents:
    """Counts of one process folder; files that cannot be read count nothing."""
    contents = ProcessContents(folder.name)
    ends: dict[int, int] = {}
    logs = sorted(path.name for path in folder.glob("log.*"))
    for path, fd, header in _headers(folder, ["meta", "tally", *logs, "arena"]):
        if not contents.identity:
            contents.identity = header.identity
            contents.start_ticks, contents.clock_hz = header.start_ticks, header.clock_hz
        contents.bytes += os.fstat(fd).st_blocks * 512
        if path.name == "meta":
            _count_meta(contents, _pread(fd, LARGEST_META, 0), header.header_bytes)
        elif path.name == "tally":
            records = _pread(fd, LARGEST_META, header.header_bytes)
            with suppress(FormatError):
                _count_calls(contents, records, layout.tally_record_bytes(header.schema))
        elif path.name == "arena":
            _count_arena(contents, fd, header, ends)
        else:
            with suppress(OSError):
                check_log_size(path, os.fstat(fd))
                with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
                    _count_log(contents, data, header.header_bytes, ends)
    return contents


def metadata_of_process(folder: Path) -> ProcessContents:
    """What a process folder's metadata on disk say, without counting its events."""
    contents = ProcessContents(folder.name)
    for _, fd, header in _headers(folder, ["meta"]):
        contents.identity = header.identity
        contents.start_ticks, contents.clock_hz = header.start_ticks, header.clock_hz
        _count_meta(contents, _pread(fd, LARGEST_META, 0), header.header_bytes)
    return contents


def contents_of_capture(capture: Path) -> list[ProcessContents]:
    """Counts of every process below a capture."""
    if not capture.is_dir():
        return []
    folders = sorted(entry for entry in capture.iterdir() if entry.is_dir())
    return [contents for contents in map(contents_of_process, folders) if contents.identity]
