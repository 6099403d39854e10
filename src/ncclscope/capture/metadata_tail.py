"""A metadata file that is being written, of which each reading takes what is new: after days a file
has megabytes of clock pairs, and hardly anything else.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ncclscope.capture import dtypes, layout, metadata
from ncclscope.capture.header import LARGEST_HEADER_BYTES, Header
from ncclscope.capture.metadata import Communicator, EventClock
from ncclscope.capture.segment import Damage, Slots, checked_header
from ncclscope.errors import FormatError
from ncclscope.regular_files import open_binary

_MOST_AT_ONCE = 64 << 20  # bytes; the rest waits for the next reading
_SYNC, _COUNT = layout.KINDS["Sync"], layout.KINDS["Count"]


def _none() -> Slots:
    return np.empty(0, dtypes.ANY_SLOT)


@dataclass(slots=True)
class MetadataTail:
    """The contents of a metadata file so far."""

    path: Path
    header: Header | None = None
    communicators: tuple[Communicator, ...] = ()
    strings: dict[int, str] = field(default_factory=dict)
    range_texts: dict[int, str] = field(default_factory=dict)
    counters: dict[tuple[str, int], int] = field(default_factory=dict)
    event_clocks: dict[int, EventClock] = field(default_factory=dict)
    ended: bool = False
    read_bytes: int = 0
    last: Slots = field(default_factory=_none)  # the newest slot, for the order of the next
    kept: Slots = field(default_factory=_none)  # all but clock pairs and counters

    def read(self) -> bool:
        """Reads what is new; False where the file cannot be read."""
        try:
            # Another file in its place.
            if self.read_bytes and self.path.stat().st_size < self.read_bytes:
                self.header, self.read_bytes = None, 0
                self.last, self.kept, self.counters = _none(), _none(), {}
            with open_binary(self.path) as file:
                if self.header is None:
                    start = memoryview(file.read(LARGEST_HEADER_BYTES))
                    self.header = checked_header(start, self.path)
                    self.read_bytes = self.header.header_bytes
                file.seek(self.read_bytes)
                # Not more than there is: room for all of it would be asked for and given back.
                rest = max(os.fstat(file.fileno()).st_size - self.read_bytes, 0)
                data = file.read(min(rest, _MOST_AT_ONCE))
        except (OSError, FormatError):
            return self.header is not None
        count = len(data) // layout.SLOT_BYTES
        self.read_bytes += count * layout.SLOT_BYTES
        if count:
            self._take(np.frombuffer(data, dtypes.ANY_SLOT, count))
        return True

    def _take(self, slots: Slots) -> None:
        assert self.header is not None
        fresh = metadata.in_order(metadata.joined(self.last, slots), Damage())[len(self.last) :]
        if len(fresh):
            self.last = fresh[-1:].copy()  # not a view, which would keep all of it
        counts = metadata.by_kind(fresh[fresh["kind"] == _COUNT])
        self.counters |= metadata.counters(counts, self.header, None)
        more = fresh[(fresh["kind"] != _COUNT) & (fresh["kind"] != _SYNC)]
        if not len(more):
            return
        self.kept = metadata.joined(self.kept, more)
        meta = metadata.by_kind(self.kept)
        self.communicators = metadata.communicators(meta)
        self.strings = dict(metadata.texts(meta, layout.TEXT_STRING))
        self.event_clocks = metadata.event_clocks(meta)
        self.range_texts = dict(metadata.texts(meta, layout.TEXT_RANGE))
        self.ended = len(meta.of("End")) > 0
