"""The live page: what a process was doing at its last heartbeat, in every mode."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.file_sizes import LARGEST_LIVE_PAGE
from ncclscope.capture.segment import open_file, read_file
from ncclscope.errors import FormatError

_KINDS, _DTYPES = layout.KINDS, dtypes.OURS.dtypes
_ATTEMPTS = 5
_NOBODY = -1
_READ = partial(read_file, largest_bytes=LARGEST_LIVE_PAGE)


@dataclass(frozen=True, slots=True)
class LivePage:
    """One live page. Times in slots are ticks of the process."""

    serial: int
    monotonic_ns: int
    realtime_ns: int
    ticks: int
    dropped: int
    comms_open: int
    mode: str
    ended: bool
    communicators: npt.NDArray[np.void]  # LiveComm: progress of each
    operations: npt.NDArray[np.void]  # LiveOp: begun and not ended on the GPU, oldest first
    open_events: tuple[tuple[int, int, Any], ...]  # (stream, index, slot) open for over a second
    open_ranges: tuple[tuple[int, int, Any], ...]  # the same of Range slots, outer ones first
    step: Any  # a LiveStep slot; None: no range says steps


def _parse(slots: npt.NDArray[np.void]) -> LivePage | None:
    """The page, or None when it is half written."""
    if not len(slots) or slots["kind"][0] != _KINDS["Live"]:
        return None
    head = slots[:1].view(_DTYPES["Live"])[0]
    count = int(head["slots"])
    if not 2 <= count <= len(slots):
        return None
    end = slots[count - 1 : count].view(_DTYPES["LiveEnd"])[0]
    if end["kind"] != _KINDS["LiveEnd"] or end["serial"] != head["serial"]:
        return None
    body = slots[1 : count - 1]
    events, ranges = [], []
    for at in np.flatnonzero(body["kind"] == _KINDS["Updates"]).tolist():
        kind = int(body["kind"][at + 1]) if at + 1 < len(body) else 0
        block = body[at : at + 1].view(_DTYPES["Block"])[0]
        place = int(block["stream"]), int(block["first"])
        if 1 <= kind <= layout.EVENT_KINDS:
            events.append((*place, body[at + 1]))
        elif kind == _KINDS["Range"]:
            ranges.append((*place, body[at + 1 : at + 2].view(_DTYPES["Range"])[0]))
    steps = body[body["kind"] == _KINDS["LiveStep"]].view(_DTYPES["LiveStep"])
    return LivePage(
        serial=int(head["serial"]),
        monotonic_ns=int(head["monotonic_ns"]),
        realtime_ns=int(head["realtime_ns"]),
        ticks=int(head["ticks"]),
        dropped=int(head["dropped"]),
        comms_open=int(head["comms_open"]),
        mode=layout.MODES.get(int(head["mode"]), "unknown"),
        ended=bool(head["phase"]),
        communicators=body[body["kind"] == _KINDS["LiveComm"]].view(_DTYPES["LiveComm"]),
        operations=body[body["kind"] == _KINDS["LiveOp"]].view(_DTYPES["LiveOp"]),
        open_events=tuple(events),
        open_ranges=tuple(sorted(ranges, key=lambda one: one[:2])),
        step=steps[0] if len(steps) else None,
    )


def read_live_page(folder: Path) -> LivePage | None:
    """A process's live page; None where there is none, or it cannot be read."""
    for _ in range(_ATTEMPTS):  # it is rewritten in place
        try:
            header, data = open_file(folder / "live", _READ)
        except (FormatError, OSError):
            return None
        usable = max(len(data) - header.header_bytes, 0) // layout.SLOT_BYTES
        slots = np.frombuffer(data, dtypes.ANY_SLOT, usable, header.header_bytes).copy()
        page = _parse(slots)
        if page is not None:
            if header.major == 1 and header.minor < layout.ADDED_FIELDS["LiveOp.peer"]:
                page.operations["peer"] = _NOBODY
            return page
    return None
