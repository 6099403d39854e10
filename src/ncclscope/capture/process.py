"""One recorded process: who it was, its communicators and threads, its clock, and its slots."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.clock import Clock, clock_of
from ncclscope.capture.header import Header
from ncclscope.capture.salvage import arena_of
from ncclscope.capture.segment import (
    Blocks,
    Chunk,
    Damage,
    Slots,
    arena_chunks,
    open_file,
    read_segment,
    view_slots,
)
from ncclscope.capture.slots import SlotLog, merge_blocks
from ncclscope.errors import FormatError

_COUNTER_BYTES = 4096  # of an arena


@dataclass(frozen=True, slots=True)
class Communicator:
    """One communicator as its process saw it; times are counter values."""

    number: int
    id: int  # equal on all ranks; 0 where the interface does not tell
    name: str
    version: int  # of NCCL's profiler interface
    rank: int  # -1 where the interface does not tell
    ranks: int
    nodes: int
    tid: int
    mask: int
    gpu_uuid: str
    gpu_bus_id: str
    t_open: int
    t_close: int | None


@dataclass(frozen=True, slots=True)
class Process:
    """Everything one process left behind. Without `ended` it was killed, or still runs."""

    folder: str
    header: Header
    communicators: tuple[Communicator, ...]
    threads: dict[int, str]  # names by thread id
    strings: dict[int, str]
    counters: dict[tuple[str, int], int]  # (counter, NCCL's event bit number)
    notes: tuple[str, ...]
    clock: Clock
    ended: bool
    slots: SlotLog
    damage: Damage

    @property
    def identity(self) -> dict[str, str]:
        """What the process said about itself: host, pid, boot_id, command, env.RANK and so on."""
        return self.header.identity

    @property
    def host(self) -> str:
        """The host's name."""
        return self.identity.get("host", "unknown")

    @property
    def rank(self) -> int | None:
        """The global rank that a launcher gave, else the rank in the widest communicator, else
        None.
        """
        for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
            text = self.identity.get(f"env.{name}", "")
            if text.isdigit():
                return int(text)
        known = [comm for comm in self.communicators if comm.rank >= 0]
        return max(known, key=lambda comm: comm.ranks).rank if known else None

    def dropped(self) -> int:
        """Events that NCCL reported and that are not on record, whatever the reason."""
        return sum(
            count for (name, _), count in self.counters.items() if name.startswith("dropped_")
        )


@dataclass(slots=True)
class _Meta:
    """Metadata slots by kind, in order."""

    slots: dict[str, npt.NDArray[np.void]] = field(default_factory=dict)

    def of(self, kind: str) -> npt.NDArray[np.void]:
        return self.slots[kind]


def _by_kind(slots: Slots) -> _Meta:
    meta = _Meta()
    for name, number in layout.KINDS.items():
        meta.slots[name] = slots[slots["kind"] == number].view(dtypes.OURS.dtypes[name])
    return meta


def _texts(meta: _Meta, what: int) -> list[tuple[int, str]]:
    """(owner, text) in order of appearance; a text's pieces are joined by their offsets."""
    pieces = meta.of("Text")
    pieces = pieces[pieces["what"] == what]
    texts: list[tuple[int, bytearray]] = []
    for piece in pieces:
        offset, length = int(piece["offset"]), int(piece["length"])
        if offset == 0 or not texts or texts[-1][0] != int(piece["owner"]):
            texts.append((int(piece["owner"]), bytearray(length)))
        text = texts[-1][1]
        content = piece["text"].tobytes()[: max(len(text) - offset, 0)]
        text[offset : offset + len(content)] = content
    return [(owner, text.decode("utf-8", "replace").rstrip("\0")) for owner, text in texts]


def _communicators(meta: _Meta) -> tuple[Communicator, ...]:
    names = dict(_texts(meta, layout.TEXT_COMM_NAME))
    bus_ids = dict(_texts(meta, layout.TEXT_GPU_BUS_ID))
    closed = {int(end["comm"]): int(end["t0"]) for end in meta.of("CommEnd")}
    return tuple(
        Communicator(
            number=int(comm["comm"]),
            id=int(comm["id"]),
            name=names.get(int(comm["comm"]), ""),
            version=int(comm["version"]),
            rank=int(comm["rank"]),
            ranks=int(comm["ranks"]),
            nodes=int(comm["nodes"]),
            tid=int(comm["tid"]),
            mask=int(comm["mask"]),
            gpu_uuid=comm["gpu_uuid"].tobytes().hex() if comm["has_gpu"] else "",
            gpu_bus_id=bus_ids.get(int(comm["comm"]), ""),
            t_open=int(comm["t0"]),
            t_close=closed.get(int(comm["comm"])),
        )
        for comm in meta.of("Comm")
    )


def _counters(
    meta: _Meta, header: Header, arena: npt.NDArray[np.uint64] | None
) -> dict[tuple[str, int], int]:
    names = dtypes.check_schema(header.schema).counters
    counters: dict[tuple[str, int], int] = {}
    for slot in meta.of("Count"):
        if int(slot["counter"]) < len(names) and int(slot["event"]) < layout.EVENT_KINDS:
            counters[names[int(slot["counter"])], int(slot["event"])] = int(slot["value"])
    if arena is not None:  # newer than anything that was written out
        for number, name in enumerate(names):
            for event in range(layout.EVENT_KINDS):
                value = int(arena[number * layout.EVENT_KINDS + event])
                if value:
                    counters[name, event] = max(value, counters.get((name, event), 0))
    return counters


def _meta_file(path: Path, damage: Damage) -> tuple[Header, Slots]:
    """The metadata on disk; slots that are not where they claim to be are left out."""
    header, data = open_file(path)
    slots = view_slots(data, header.header_bytes, damage)
    fine = slots["check"] == np.arange(len(slots), dtype=np.int64).astype(np.uint32)
    damage.bad_slots += int((~fine).sum())
    return header, slots


def _meta_ring(data: memoryview, header: Header, already: int) -> Slots:
    """Metadata slots of an arena's ring that are not on disk yet, in order."""
    fits = header.meta_offset % layout.SLOT_BYTES == 0 and 0 < header.meta_slots <= 1 << 20
    if not fits or header.meta_offset + header.meta_slots * layout.SLOT_BYTES > len(data):
        return np.empty(0, dtypes.ANY_SLOT)
    ring = np.frombuffer(data, dtypes.ANY_SLOT, header.meta_slots, header.meta_offset)
    ring = ring[ring["kind"] != 0]
    # The check counts on from what is on disk; a slot that was written out before lies far "ahead"
    # of it.
    start = already or header.meta_drained
    ahead = (ring["check"].astype(np.int64) - start) & 0xFFFFFFFF
    order = np.argsort(ahead, kind="stable")
    in_sequence = ahead[order] == np.arange(len(order))
    end = len(order) if in_sequence.all() else int(np.argmin(in_sequence))
    return np.asarray(ring[order[:end]])


def _join_arena(log: SlotLog, chunks: list[Chunk]) -> SlotLog:
    """The log with an arena's slots: newer versions over those on disk, the rest behind them."""
    extra: list[Slots] = []
    blocks: list[Blocks] = [log.blocks]
    row = sum(len(segment) for segment in log.segments)
    for chunk in chunks:
        slots = chunk.slots
        if not len(slots):
            continue
        keys = chunk.key + np.arange(len(slots), dtype=np.int64)
        rows = log.rows_of(keys)
        on_disk = rows >= 0
        if on_disk.any():
            before, now = log.take(rows[on_disk]), slots[on_disk]
            newer = (now["states"] != before["states"]) | (now["kind"] == layout.KINDS["State"])
            log.overlay(rows[on_disk][newer], now[newer])
        # What is missing on disk is a run at the chunk's end; a hole before it stays a hole.
        missing = np.flatnonzero(~on_disk)
        if len(missing):
            run = slots[missing[0] :]
            extra.append(run.copy())
            one = (int(keys[missing[0]]), len(run), row, chunk.tid)
            blocks.append(Blocks(*(np.array([value], np.int64) for value in one)))
            row += len(run)
    return SlotLog([*log.segments, *extra], merge_blocks(blocks), log.damage)


def _read_log(paths: list[Path], damage: Damage) -> tuple[SlotLog, list[Header], dict[int, str]]:
    """All log segments with newer versions of slots in their places; headers; thread names."""
    segments, headers = [], []
    for path in paths:
        try:
            header, data = open_file(path)
        except (FormatError, OSError) as error:
            damage.unreadable.append(str(error))
            continue
        headers.append(header)
        segments.append(read_segment(view_slots(data, header.header_bytes, damage), damage))
    first_rows = np.cumsum([0, *(len(segment.slots) for segment in segments)])
    moved = [
        Blocks(s.blocks.key, s.blocks.count, s.blocks.row + first, s.blocks.tid)
        for s, first in zip(segments, first_rows, strict=False)
    ]
    log = SlotLog([segment.slots for segment in segments], merge_blocks(moved), damage)
    for segment, first in zip(segments, first_rows, strict=False):
        targets = log.rows_of(segment.update_keys)
        known = targets >= 0  # the slot itself may have been rotated away
        log.overlay(targets[known], log.take(segment.update_rows[known] + first))
    threads = {tid: name for segment in segments for tid, name in segment.threads.items()}
    return log, headers, threads


def open_process(folder: Path) -> Process:
    """The process recorded in `folder`, with its shared memory where that can be reached."""
    damage = Damage()
    log, headers, threads = _read_log(sorted(folder.glob("log.*")), damage)
    meta_slots = np.empty(0, dtypes.ANY_SLOT)
    counters = None
    if (folder / "meta").exists():
        try:
            header, meta_slots = _meta_file(folder / "meta", damage)
            headers.insert(0, header)
        except (FormatError, OSError) as error:
            damage.unreadable.append(str(error))
    arena = arena_of(folder, headers[0].identity if headers else {})
    if arena is not None:
        try:
            header, data = open_file(arena)
            chunks = arena_chunks(data, header, arena)
            threads |= {chunk.tid: chunk.thread_name for chunk in chunks}
            log = _join_arena(log, chunks)
            meta_slots = np.concatenate([meta_slots, _meta_ring(data, header, len(meta_slots))])
            if (
                header.counters_offset + _COUNTER_BYTES <= len(data)
                and header.counters_offset % 8 == 0
            ):
                counters = np.frombuffer(data, "<u8", _COUNTER_BYTES // 8, header.counters_offset)
            headers.append(header)
        except (FormatError, OSError) as error:
            damage.unreadable.append(str(error))
    if not headers:
        reason = (
            damage.unreadable[0]
            if damage.unreadable
            else f"cannot read {folder}: it holds no capture files"
        )
        raise FormatError(reason)
    return _assemble(folder.name, headers, meta_slots, log, threads, counters)


def _assemble(
    folder: str,
    headers: list[Header],
    meta_slots: Slots,
    log: SlotLog,
    threads: dict[int, str],
    counters: npt.NDArray[np.uint64] | None,
) -> Process:
    header = headers[0]
    meta = _by_kind(meta_slots)
    sync = meta.of("Sync")
    nominal_hz = next((h.clock_hz for h in reversed(headers) if h.clock_hz), 0)
    clock = clock_of(
        sync["ticks_before"],
        sync["ticks_after"],
        sync["monotonic_ns"],
        sync["realtime_ns"],
        nominal_hz,
    )
    return Process(
        folder=folder,
        header=header,
        communicators=_communicators(meta),
        threads=threads,
        strings=dict(_texts(meta, layout.TEXT_STRING)),
        counters=_counters(meta, header, counters),
        notes=tuple(text for _, text in _texts(meta, layout.TEXT_NOTE)),
        clock=clock,
        ended=len(meta.of("End")) > 0,
        slots=log,
        damage=log.damage,
    )
