"""Processes that left nothing open, read for their last moment alone: metadata, and the log in one
compiled pass that keeps no slot.

A job that has ended has thousands of such processes. What models need besides takes as long again.
First all metadata are read and then all logs, because a log takes the caches away from Python.
"""

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture import layout, metadata
from ncclscope.capture.call_counts import (
    NO_CALL_COUNTS,
    NO_SLOTS,
    CallCount,
    merge_call_counts,
    read_call_counts,
)
from ncclscope.capture.header import Header
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.salvage import arena_of
from ncclscope.capture.segment import Damage, checked_header
from ncclscope.capture.settled_events import (
    RawSlots,
    Reporting,
    SettledEvents,
    settled_segment,
)
from ncclscope.capture.tick_clock import TickClock, clock_of
from ncclscope.errors import FormatError
from ncclscope.regular_files import open_regular

_FIRST_BUFFER, _LARGEST_LOG = 1 << 20, 16 << 20  # bytes; a longer log takes its time anyway


@dataclass(frozen=True, slots=True)
class SettledProcess:
    """What its last moment needs besides its events."""

    header: Header
    communicators: tuple[Communicator, ...]
    strings: dict[int, str]
    counters: dict[tuple[str, int], int]
    clock: TickClock
    call_counts: tuple[CallCount, ...]
    ended: bool

    @property
    def identity(self) -> dict[str, str]:
        """Facts about the process in its files."""
        return self.header.identity

    def dropped(self) -> int:
        """Events that NCCL reported and that are not on record."""
        return metadata.dropped_events(self.counters)


def read_settled(
    folders: Sequence[Path], reporting: Reporting
) -> list[tuple[SettledProcess, SettledEvents] | None]:
    """Processes in whose files nothing is open, in flight, damaged or out of the ordinary, and
    sums of their events; None in place of others. `reporting`: what the kernels of a communicator's
    works tell.
    """
    buffer = _LogBuffer()
    begun = [_begin(folder) for folder in folders]
    return [None if one is None else _with_events(*one, buffer, reporting) for one in begun]


def _begin(folder: Path) -> tuple[SettledProcess, Path] | None:
    """What a process's metadata tell, and its log; None where more than these must be read."""
    with suppress(OSError, FormatError):
        names = os.listdir(folder)
        logs = [name for name in names if name.startswith("log.")]
        if len(logs) != 1 or "meta" not in names or "live" in names:
            return None
        damage = Damage()
        header, slots = metadata.read_meta_file(folder / "meta", damage)
        if damage.unreadable or arena_of(folder, header.identity) is not None:
            return None
        meta = metadata.by_kind(slots)
        communicators = metadata.communicators(meta)
        if not all(comm.id and comm.rank >= 0 for comm in communicators):
            return None  # the works alone tell them
        tally = read_call_counts(folder / "tally") if "tally" in names else NO_CALL_COUNTS
        process = SettledProcess(
            header,
            communicators,
            dict(metadata.texts(meta, layout.TEXT_STRING)),
            metadata.counters(meta, header, None),
            clock_of(meta.of("Sync"), header, header.clock_hz),
            merge_call_counts(tally, NO_SLOTS),
            len(meta.of("End")) > 0,
        )
        return process, folder / logs[0]
    return None


def _with_events(
    process: SettledProcess, log: Path, buffer: "_LogBuffer", reporting: Reporting
) -> tuple[SettledProcess, SettledEvents] | None:
    """The process with the sums of its log; None where that is not settled."""
    header = process.header
    try:
        content = buffer.read(log)
        log_header = checked_header(content, log)
    except (OSError, FormatError):
        return None
    if log_header.clock_hz not in (0, header.clock_hz):
        return None  # the log's own would be taken
    slots = buffer.slots(log_header.header_bytes, len(content))
    events = settled_segment(slots, process.clock, header.nonce, process.communicators, reporting)
    return None if events is None else (process, events)


class _LogBuffer:
    """Memory that one log after the other is read into: new memory for each would be given by the
    kernel, page by page, which takes longer than to copy the log.
    """

    def __init__(self) -> None:
        self._make(_FIRST_BUFFER)

    def _make(self, size: int) -> None:
        self._memory = bytearray(size)
        self._where = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def read(self, path: Path) -> memoryview:
        """A log's bytes, until the next one is read; OSError for one that is too long."""
        descriptor = open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
            if size > _LARGEST_LOG:
                raise OSError(f"{path} is too long to be read at once")
            if size > len(self._memory):
                self._make(size)
            view = memoryview(self._memory)
            return view[: os.preadv(descriptor, [view[:size]], 0)]
        finally:
            os.close(descriptor)

    def slots(self, offset: int, size: int) -> RawSlots:
        """The slots behind the header of the log that was read."""
        return RawSlots(self._where + offset, max(size - offset, 0) // layout.SLOT_BYTES)
