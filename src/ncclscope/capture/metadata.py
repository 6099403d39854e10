"""A process's metadata: communicators, strings, counters, clock pairs, notes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.file_sizes import LARGEST_META
from ncclscope.capture.header import Header
from ncclscope.capture.segment import (
    Damage,
    Slots,
    open_file,
    read_beginning,
    view_slots,
)

_WHOLE = np.dtype(f"V{layout.SLOT_BYTES}")  # copied as one piece, not field by field
_COMMUNICATOR = (
    "comm", "id", "version", "rank", "ranks", "nodes", "tid", "mask", "has_gpu", "t0"
)  # fmt: skip
_LARGEST_STEP = 1 << 24  # between two checks, where files were begun anew; more is damage


@dataclass(frozen=True, slots=True)
class Communicator:
    """One communicator of a process; times are ticks."""

    number: int
    id: int  # equal on all ranks; 0 where the interface does not say
    name: str
    version: int  # of NCCL's profiler interface
    rank: int  # -1 where the interface does not say
    ranks: int
    nodes: int
    tid: int
    mask: int
    gpu_uuid: str
    gpu_bus_id: str
    t_open: int
    t_close: int | None


@dataclass(frozen=True, slots=True)
class ModeChange:
    """A change of what a process records."""

    ticks: int
    mode: str
    events: int  # NCCL's bits
    writes: bool  # events go to disk, or to the ring
    gpu_timing: str  # from here on; "" before format 1.4


@dataclass(frozen=True, slots=True)
class EventClock:
    """A clock of CUDA events. excess: how much longer the time between two events is than that of
    the kernel between them.
    """

    number: int
    calibrated: bool  # False: the excess is not known
    excess_ns: int  # the median
    excess_busy_ns: int  # of a busy stream
    excess_idle_ns: int  # of an idle one
    spread_ns: int  # half the distance from the 5th to the 95th percentile
    reason: str  # why it is not calibrated


@dataclass(frozen=True, slots=True)
class GraphCall:
    """Calls of one key that one capture took into a CUDA graph."""

    capture: int
    communicator: int
    function: int
    datatype: int
    count: int
    bits: int
    calls: int


@dataclass(frozen=True, slots=True)
class Graphs:
    """CUDA graphs whose replays a marker counted."""

    replays: dict[int, int]  # by capture
    untold: dict[int, str]  # captures whose replays were not counted, and why
    calls: tuple[GraphCall, ...]
    at_least: frozenset[int] = frozenset()  # captures that may have been replayed more often


class Metadata:
    """Metadata slots by kind, in order."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots.view(_WHOLE)
        self._kinds = slots["kind"]
        self._present = set(self._kinds.tolist())
        self._pieces: dict[int, list[tuple[int, int, int, bytes]]] | None = None

    def of(self, kind: str) -> npt.NDArray[np.void]:
        """The slots of one kind."""
        number, dtype = layout.KINDS[kind], dtypes.OURS.dtypes[kind]
        if number not in self._present:
            return np.empty(0, dtype)
        own = self._slots[self._kinds == number]
        quick: npt.NDArray[np.void] = np.ndarray(len(own), dtype, own)  # quicker than a view
        return quick

    def text_pieces(self, what: int) -> list[tuple[int, int, int, bytes]]:
        """Owner, offset, length and bytes of all pieces of one sort of text, in order."""
        if self._pieces is None:
            slots = self.of("Text")
            self._pieces = {}
            columns = (slots[name].tolist() for name in ("what", "owner", "offset", "length"))
            width, content = slots["text"].shape[1], slots["text"].tobytes()
            for row, (sort, *piece) in enumerate(zip(*columns, strict=True)):
                own = content[row * width : (row + 1) * width]
                self._pieces.setdefault(sort, []).append((*piece, own))
        return self._pieces.get(what, [])


def by_kind(slots: Slots) -> Metadata:
    """Metadata slots, to be asked for by their kind."""
    return Metadata(slots)


def texts(meta: Metadata, what: int) -> list[tuple[int, str]]:
    """(owner, text) in order of appearance; a text's pieces are joined by their offsets.

    Threads append at the same time, so pieces of different owners may lie between each other.
    """
    texts: list[tuple[int, bytearray]] = []
    latest: dict[int, bytearray] = {}  # by owner
    for owner, offset, length, piece in meta.text_pieces(what):
        if offset == 0 or owner not in latest:
            latest[owner] = bytearray(length)
            texts.append((owner, latest[owner]))
        text = latest[owner]
        content = piece[: max(len(text) - offset, 0)]
        text[offset : offset + len(content)] = content
    return [(owner, text.decode("utf-8", "replace").rstrip("\0")) for owner, text in texts]


def communicators(meta: Metadata) -> tuple[Communicator, ...]:
    """All communicators in the order of their creation."""
    names = dict(texts(meta, layout.TEXT_COMM_NAME))
    bus_ids = dict(texts(meta, layout.TEXT_GPU_BUS_ID))
    ends, slots = meta.of("CommEnd"), meta.of("Comm")
    closed = dict(zip(ends["comm"].tolist(), ends["t0"].tolist(), strict=True))
    columns = (slots[name].tolist() for name in _COMMUNICATOR)
    width, uuids = slots["gpu_uuid"].shape[1], slots["gpu_uuid"].tobytes()
    return tuple(
        Communicator(
            number=number,
            id=communicator_id,
            name=names.get(number, ""),
            version=version,
            rank=rank,
            ranks=ranks,
            nodes=nodes,
            tid=tid,
            mask=mask,
            gpu_uuid=uuids[row * width : (row + 1) * width].hex() if has_gpu else "",
            gpu_bus_id=bus_ids.get(number, ""),
            t_open=opened,
            t_close=closed.get(number),
        )
        for row, (
            number, communicator_id, version, rank, ranks, nodes, tid, mask, has_gpu, opened,
        ) in enumerate(zip(*columns, strict=True))
    )  # fmt: skip


def mode_changes(meta: Metadata) -> tuple[ModeChange, ...]:
    """Changes of the mode, in order."""
    return tuple(
        ModeChange(
            int(slot["t0"]),
            layout.MODES.get(int(slot["mode"]), "unknown"),
            int(slot["events"]),
            bool(slot["writes"]),
            layout.GPU_TIMINGS.get(int(slot["gpu_timing"]), ""),
        )
        for slot in meta.of("Zoom")
    )


def timing_reason(number: int) -> str:
    """Why a launch, clock or graph has no times; "" where nothing is amiss."""
    reasons = layout.TIMING_REASONS
    return reasons[number] if number < len(reasons) else f"reason {number}"


def event_clocks(meta: Metadata) -> dict[int, EventClock]:
    """Clocks of CUDA events by number; the last one of a number holds."""
    return {
        int(slot["clock"]): EventClock(
            number=int(slot["clock"]),
            calibrated=bool(slot["calibrated"]),
            excess_ns=int(slot["excess_median_ns"]),
            excess_busy_ns=int(slot["excess_busy_ns"]),
            excess_idle_ns=int(slot["excess_idle_ns"]),
            spread_ns=int(slot["excess_spread_ns"]),
            reason=timing_reason(int(slot["reason"])),
        )
        for slot in meta.of("EventClock")
    }


def graphs(meta: Metadata) -> Graphs:
    """What markers counted; the last slot of a capture, and of a key in it, holds."""
    replays: dict[int, int] = {}
    untold: dict[int, str] = {}
    at_least: dict[int, bool] = {}
    for slot in meta.of("GraphReplays"):
        capture, reason = int(slot["capture"]), timing_reason(int(slot["reason"]))
        if reason:
            untold[capture] = reason
        else:
            replays[capture] = int(slot["replays"])
            at_least[capture] = bool(slot["at_least"])
    names = ("capture", "comm", "func", "dtype", "count", "bits")
    calls: dict[tuple[int, ...], GraphCall] = {}
    for slot in meta.of("GraphCall"):
        number = {name: int(slot[name]) for name in (*names, "calls")}
        calls[tuple(number[name] for name in names)] = GraphCall(
            capture=number["capture"],
            communicator=number["comm"],
            function=number["func"],
            datatype=number["dtype"],
            count=number["count"],
            bits=number["bits"],
            calls=number["calls"],
        )
    lower_bounds = frozenset(capture for capture, is_bound in at_least.items() if is_bound)
    return Graphs(replays, untold, tuple(calls.values()), lower_bounds)


def counters(
    meta: Metadata, header: Header, arena: npt.NDArray[np.uint64] | None
) -> dict[tuple[str, int], int]:
    names = dtypes.check_schema(header.schema).counters
    counters: dict[tuple[str, int], int] = {}
    for slot in meta.of("Count"):
        if int(slot["counter"]) < len(names) and int(slot["event"]) < layout.COUNTER_EVENTS:
            counters[names[int(slot["counter"])], int(slot["event"])] = int(slot["value"])
    if arena is not None:  # newer than anything that was written out
        for number, name in enumerate(names):
            for event in range(layout.COUNTER_EVENTS):
                value = int(arena[number * layout.COUNTER_EVENTS + event])
                if value:
                    counters[name, event] = max(value, counters.get((name, event), 0))
    return counters


def dropped_events(counters: dict[tuple[str, int], int]) -> int:
    """Events that NCCL reported and that are not on record, whatever the reason."""
    return sum(
        count
        for (name, _), count in counters.items()
        if name.startswith("dropped_") and name != "dropped_ranges"
    )


def read_meta_file(path: Path, damage: Damage) -> tuple[Header, Slots]:
    """The metadata on disk, in order."""
    header, data = open_file(path, read_beginning)
    if len(data) >= LARGEST_META:
        damage.unreadable.append(f"{path} is read up to {LARGEST_META >> 20} MB only")
    return header, in_order(view_slots(data, header.header_bytes, damage), damage)


def joined(before: Slots, more: Slots) -> Slots:
    """Slots behind each other."""
    if not len(before):
        return more
    return np.concatenate([before.view(_WHOLE), more.view(_WHOLE)]).view(dtypes.ANY_SLOT)


def in_order(slots: Slots, damage: Damage) -> Slots:
    """Slots whose `check` counts up; the others are damage."""
    checks = slots["check"].astype(np.int64)
    steps = checks[1:] - checks[:-1]
    if not len(steps) or (int(steps.min()) > 0 and int(steps.max()) < _LARGEST_STEP):
        return slots
    highest = np.maximum.accumulate(checks)
    rising = np.ones(len(slots), bool)
    rising[1:] = (checks[1:] > highest[:-1]) & (checks[1:] - highest[:-1] < _LARGEST_STEP)
    damage.bad_slots += int((~rising).sum())
    return slots[rising]


def read_meta_ring(data: memoryview, header: Header, on_disk: Slots) -> Slots:
    """Metadata slots of an arena's ring that are not on disk yet, in order."""
    fits = header.meta_offset % layout.SLOT_BYTES == 0 and 0 < header.meta_slots <= 1 << 20
    if not fits or header.meta_offset + header.meta_slots * layout.SLOT_BYTES > len(data):
        return np.empty(0, dtypes.ANY_SLOT)
    ring = np.frombuffer(data, dtypes.ANY_SLOT, header.meta_slots, header.meta_offset)
    ring = ring[ring["kind"] != 0]
    # The check counts on; a slot that was written out before lies far "ahead".
    start = int(on_disk["check"][-1]) + 1 if len(on_disk) else header.meta_drained
    ahead = (ring["check"].astype(np.int64) - (start & 0xFFFFFFFF)) & 0xFFFFFFFF
    order = np.argsort(ahead, kind="stable")
    in_sequence = ahead[order] == np.arange(len(order))
    end = len(order) if in_sequence.all() else int(np.argmin(in_sequence))
    return np.asarray(ring[order[:end]])


def arena_counters(data: memoryview, header: Header) -> npt.NDArray[np.uint64] | None:
    """The arena's page of counters."""
    offset = header.counters_offset
    if offset % 8 or offset + layout.COUNTER_BYTES > len(data):
        return None
    return np.frombuffer(data, "<u8", layout.COUNTER_BYTES // 8, offset)
