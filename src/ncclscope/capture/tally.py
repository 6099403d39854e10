"""What a capture holds, counted without numpy: `run` prints it when the job has ended."""

import mmap
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.header import Header, parse_header
from ncclscope.errors import FormatError

_SLOT = layout.SLOT_BYTES
_EVENTS = {name: number for name, number in layout.KINDS.items() if number <= layout.EVENT_KINDS}


@dataclass(slots=True)
class Tally:
    """One process: slots by kind, and how it ended."""

    folder: str
    identity: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    communicators: int = 0
    dropped: int = 0
    ended: bool = False
    bytes: int = 0

    @property
    def events(self) -> int:
        """All events on record."""
        return sum(self.kinds.get(name, 0) for name in _EVENTS)

    @property
    def calls(self) -> int:
        """What the user called: API events where the interface has them, collectives and messages
        before.
        """
        api = self.kinds.get("CollApi", 0) + self.kinds.get("P2pApi", 0)
        return api or self.kinds.get("Coll", 0) + self.kinds.get("P2p", 0)


def _number(data: mmap.mmap | bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _count_kinds(tally: Tally, kinds: bytes) -> None:
    for name, number in _EVENTS.items():
        tally.kinds[name] = tally.kinds.get(name, 0) + kinds.count(number)


def _count_log(tally: Tally, data: mmap.mmap, header: Header, ends: dict[int, int]) -> None:
    """Walks from block to block; `ends` remembers how far each stream is on disk."""
    offset = header.header_bytes
    while offset + _SLOT <= len(data):
        kind, first = data[offset], _number(data, offset + 8, 8)
        stream, count = _number(data, offset + 16, 4), _number(data, offset + 20, 4)
        if kind not in (layout.KINDS["Block"], layout.KINDS["Updates"]):
            return  # damaged from here on; `report` looks closer
        start, end = offset + _SLOT, min(offset + _SLOT * (1 + count), len(data))
        if kind == layout.KINDS["Block"]:
            _count_kinds(tally, data[start:end:_SLOT])
            ends[stream] = max(ends.get(stream, 0), first + (end - start) // _SLOT)
        offset += _SLOT * (1 + count)


def _count_arena(tally: Tally, data: mmap.mmap, header: Header, ends: dict[int, int]) -> None:
    size = header.chunk_slots * _SLOT
    for number in range(header.chunk_count):
        offset = header.chunks_offset + number * size
        if data[offset : offset + 1] != bytes([layout.KINDS["Block"]]):
            continue
        first, stream = _number(data, offset + 8, 8), _number(data, offset + 16, 4)
        kinds = data[offset : offset + size : _SLOT]
        committed = kinds.find(b"\0") if b"\0" in kinds else len(kinds)
        known = max(ends.get(stream, 0) - first, 1)  # slot 0 is the chunk's own
        _count_kinds(tally, kinds[known:committed])


def _count_meta(tally: Tally, data: mmap.mmap | bytes, start: int) -> None:
    dropped: dict[tuple[int, int], int] = {}
    for offset in range(start, len(data) - _SLOT + 1, _SLOT):
        kind = data[offset]
        if kind == layout.KINDS["Comm"]:
            tally.communicators += 1
        elif kind == layout.KINDS["End"]:
            tally.ended = True
        elif kind == layout.KINDS["Count"]:
            counter, event = _number(data, offset + 24, 2), _number(data, offset + 26, 2)
            if counter < len(layout.COUNTERS) and layout.COUNTERS[counter].startswith("dropped_"):
                dropped[counter, event] = _number(data, offset + 8, 8)
    tally.dropped += sum(dropped.values())


def _read(path: Path) -> tuple[mmap.mmap, Header]:
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return data, parse_header(memoryview(data), path)


def tally_process(folder: Path) -> Tally:
    """Counts of one process folder; files that cannot be read count nothing."""
    tally = Tally(folder.name)
    ends: dict[int, int] = {}
    for path in [folder / "meta", *sorted(folder.glob("log.*")), folder / "arena"]:
        try:
            data, header = _read(path)
        except (OSError, ValueError, FormatError):  # missing, empty or not ours
            continue
        tally.identity = tally.identity or header.identity
        tally.bytes += path.stat().st_blocks * 512
        if path.name == "meta":
            _count_meta(tally, data, header.header_bytes)
        elif path.name == "arena":
            _count_arena(tally, data, header, ends)
            first, last = header.meta_offset, header.meta_offset + header.meta_slots * _SLOT
            ring = data[first:last]
            _count_meta(tally, ring, 0)
        else:
            _count_log(tally, data, header, ends)
    return tally


def tally_capture(capture: Path) -> list[Tally]:
    """Counts of every process below a capture."""
    if not capture.is_dir():
        return []
    folders = sorted(entry for entry in capture.iterdir() if entry.is_dir())
    return [tally for tally in map(tally_process, folders) if tally.identity]
