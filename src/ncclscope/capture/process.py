"""One recorded process: who it was, its communicators and threads, its clock, and its slots."""

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout, metadata
from ncclscope.capture.arena import Arena, Chunk, read_arena
from ncclscope.capture.call_counts import (
    NO_CALL_COUNTS,
    CallCount,
    merge_call_counts,
    read_call_counts,
)
from ncclscope.capture.header import Header, launcher_rank
from ncclscope.capture.live_page import LivePage, read_live_page
from ncclscope.capture.liveness import counts_end_early
from ncclscope.capture.metadata import Communicator, EventClock, Graphs, ModeChange
from ncclscope.capture.range_names import PayloadField, category_names, payload_schemas
from ncclscope.capture.salvage import arena_of
from ncclscope.capture.segment import (
    Blocks,
    Damage,
    Slots,
    heads_of,
    map_file,
    open_file,
    read_segment,
    view_slots,
)
from ncclscope.capture.slot_log import SlotLog, merge_blocks
from ncclscope.capture.tick_clock import TickClock, clock_of
from ncclscope.errors import FormatError

_ATTEMPTS = (
    5  # to read a running process while its recorder writes nothing: it writes once a second
)


@dataclass(frozen=True, slots=True)
class Process:
    """Everything one process left behind. Without `ended` it was killed, or still runs."""

    folder: str
    path: Path  # of the folder
    header: Header
    communicators: tuple[Communicator, ...]
    threads: dict[int, str]  # names by thread id
    strings: dict[int, str]
    counters: dict[tuple[str, int], int]  # (counter, NCCL's event bit number)
    notes: tuple[str, ...]
    clock: TickClock
    call_counts: tuple[CallCount, ...]  # exact, whatever was dropped
    live: LivePage | None  # at the last heartbeat
    ended: bool
    mode_changes: tuple[ModeChange, ...]
    event_clocks: dict[int, EventClock]  # by number
    graphs: Graphs
    slots: SlotLog
    damage: Damage
    range_texts: dict[int, str] = field(default_factory=dict)  # by number, as in Range slots
    range_domains: dict[int, str] = field(default_factory=dict)  # of NVTX; 0 has no name
    range_schemas: dict[int, tuple[PayloadField, ...]] = field(default_factory=dict)
    range_categories: dict[tuple[int, int], str] = field(default_factory=dict)  # (domain, category)
    counts_end_early: bool = False  # at its last heartbeat: the rest is nowhere

    @property
    def identity(self) -> dict[str, str]:
        """Facts about the process in its files: host, pid, boot_id, command, env.RANK and so on."""
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
        given = launcher_rank(self.identity)
        if given is not None:
            return given
        ranked = [comm for comm in self.communicators if comm.rank >= 0]
        return max(ranked, key=lambda comm: comm.ranks).rank if ranked else None

    def calls_counted(self) -> int:
        """Calls that the process made, by its counters: API calls where the interface has them,
        NCCL's work before.
        """
        counted = dict.fromkeys((layout.LEVEL_CALL, layout.LEVEL_WORK), 0)
        for entry in self.call_counts:
            counted[entry.key.level] = counted.get(entry.key.level, 0) + entry.calls
        return counted[layout.LEVEL_CALL] or counted[layout.LEVEL_WORK]

    def gave_up_events(self) -> bool:
        """Whether older events made room for newer ones: NCCLSCOPE_RING, or the disk limit."""
        return any(name == "rotated_out" and count for (name, _), count in self.counters.items())

    def dropped(self) -> int:
        """Events that NCCL reported and that are not on record, whatever the reason."""
        return metadata.dropped_events(self.counters)


def _join_arena(log: SlotLog, chunks: tuple[Chunk, ...]) -> SlotLog:
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
            # The arena was read later, so what differs in it is newer; State slots change without
            # their heads.
            newer = (heads_of(now) != heads_of(before)) | (now["kind"] == layout.KINDS["State"])
            log.overlay(rows[on_disk][newer], now[newer])
        # What the disk lacks is a run at the chunk's end. A hole before it stays a hole: recording
        # had paused, or writing failed and was counted so.
        known = np.flatnonzero(on_disk)
        first = int(known[-1]) + 1 if len(known) else 0
        if first < len(slots):
            run = slots[first:]
            extra.append(run.copy())
            block = (int(keys[first]), len(run), row, chunk.tid)
            blocks.append(Blocks(*(np.array([value], np.int64) for value in block)))
            row += len(run)
    return SlotLog([*log.segments, *extra], merge_blocks(blocks), log.damage)


def _map_log(paths: list[Path], damage: Damage) -> list[tuple[Header, memoryview]]:
    """Header and bytes of each log segment as they are now; a segment may grow meanwhile."""
    files = []
    for path in paths:
        try:
            files.append(open_file(path, map_file))
        except (FormatError, OSError) as error:
            damage.unreadable.append(str(error))
    return files


def _read_log(
    files: list[tuple[Header, memoryview]], damage: Damage, newest: int | None = None
) -> tuple[SlotLog, list[Header], dict[int, str]]:
    """All log segments with newer versions of slots in their places; headers; thread names.

    `newest`: at most this many slots of each.
    """
    segments, headers = [], []
    for header, data in files:
        headers.append(header)
        slots = view_slots(data, header.header_bytes, damage)
        segments.append(read_segment(slots[-newest:] if newest else slots, damage))
    first_rows = [0, *itertools.accumulate(len(segment.slots) for segment in segments)]
    moved = [
        Blocks(s.blocks.key, s.blocks.count, s.blocks.row + first, s.blocks.tid)
        if first
        else s.blocks
        for s, first in zip(segments, first_rows, strict=False)
    ]
    kinds = sum((segment.kinds for segment in segments), np.zeros(256, np.int64))
    log = SlotLog([segment.slots for segment in segments], merge_blocks(moved), damage, kinds)
    for segment, first in zip(segments, first_rows, strict=False):
        if not len(segment.update_rows):
            continue
        targets = log.rows_of(segment.update_keys)
        known = targets >= 0  # the slot itself may have been rotated away
        log.overlay(targets[known], log.take(segment.update_rows[known] + first))
    threads = {tid: name for segment in segments for tid, name in segment.threads.items()}
    return log, headers, threads


@dataclass(slots=True)
class _ProcessFiles:
    """What a process's files gave."""

    log: SlotLog
    headers: list[Header]  # the first one that could be read speaks for the process
    threads: dict[int, str]
    meta: Slots = field(default_factory=lambda: np.empty(0, dtypes.ANY_SLOT))
    counters: npt.NDArray[np.uint64] | None = None  # of the arena
    call_counts: Slots = field(default_factory=lambda: np.empty(0, dtypes.OURS.dtypes["Tally"]))


def _add_arena(found: _ProcessFiles, arena: Arena) -> None:
    """Newer slots, metadata and counts from a process's shared memory."""
    found.threads |= {chunk.tid: chunk.thread_name for chunk in arena.chunks}
    found.log = _join_arena(found.log, arena.chunks)
    ring = metadata.read_meta_ring(arena.front, arena.header, found.meta)
    found.meta = np.concatenate([found.meta, ring])
    found.counters = metadata.arena_counters(arena.front, arena.header)
    found.call_counts = arena.call_counts
    found.headers.append(arena.header)


def open_process(folder: Path, with_log: bool = True) -> Process:
    """The process recorded in `folder`, with its shared memory where that can be reached. Without
    its log it has no slots.
    """
    for _ in range(_ATTEMPTS):
        names = _names_in(folder)
        paths = _log_files(folder, names)
        damage, log_bytes = Damage(), _size_of(paths)
        files = _map_log(paths if with_log else [], damage)
        meta, arena = _read_meta_and_arena(folder, [header for header, _ in files], damage)
        # A running process moves slots from shared memory to its log. What it moved after the log
        # was mapped and before the arena was read is in neither.
        if arena is None or _size_of(_log_files(folder, _names_in(folder))) == log_bytes:
            break
    found = _ProcessFiles(*_read_log(files, damage))
    if meta is not None:
        found.headers.insert(0, meta[0])
        found.meta = meta[1]
    if arena is not None:
        _add_arena(found, arena)
    if not found.headers:
        reasons = [*damage.unreadable, f"cannot read {folder}: it holds no capture files"]
        raise FormatError(reasons[0])
    return _assemble(folder, found, names)


def _names_in(folder: Path) -> list[str]:
    """The files in a folder; none where it cannot be listed."""
    with suppress(OSError):
        # Not glob: it takes ten times as long, and there may be ten thousand folders.
        return os.listdir(folder)
    return []


def _log_files(folder: Path, names: list[str]) -> list[Path]:
    """All log segments, the oldest first."""
    return [folder / name for name in sorted(names) if name.startswith("log.")]


def _size_of(paths: list[Path]) -> int:
    """Size of log segments now; rotation may take the oldest away."""
    total = 0
    for path in paths:
        with suppress(FileNotFoundError):
            total += os.stat(path).st_size
    return total


def _read_meta_and_arena(
    folder: Path, headers: list[Header], damage: Damage
) -> tuple[tuple[Header, Slots] | None, Arena | None]:
    """The metadata file, and the process's shared memory; None for what is not there."""
    meta, arena = None, None
    path = folder / "meta"
    if path.exists():
        try:
            meta = metadata.read_meta_file(path, damage)
        except (FormatError, OSError) as error:
            damage.unreadable.append(str(error))
    headers = [meta[0], *headers] if meta else headers
    shared = arena_of(folder, headers[0].identity if headers else {})
    if shared is not None:
        try:
            arena = read_arena(shared)
        except (FormatError, OSError) as error:
            damage.unreadable.append(str(error))
    return meta, arena


def open_recent(folder: Path, slots: int) -> Process:
    """The process with the end of its log alone: what it did last, whatever the log's size.

    What was cut counts as damage; parents that lie before the cut are missing.
    """
    names = _names_in(folder)
    paths = _log_files(folder, names)[-2:]  # the last one may have just begun
    found = _ProcessFiles(*_read_log(_map_log(paths, Damage()), Damage(), slots))
    header, found.meta = metadata.read_meta_file(folder / "meta", Damage())
    found.headers.insert(0, header)
    return _assemble(folder, found, names)


def _assemble(folder: Path, found: _ProcessFiles, names: list[str]) -> Process:
    """The process of these files. `names`: of all that are in its folder."""
    header = found.headers[0]
    meta = metadata.by_kind(found.meta)
    nominal_hz = next((h.clock_hz for h in reversed(found.headers) if h.clock_hz), 0)
    tally, unreadable = folder / "tally", found.log.damage.unreadable
    # Not looked for where it is not: there may be ten thousand folders.
    call_counts = read_call_counts(tally, unreadable) if "tally" in names else NO_CALL_COUNTS
    ended = len(meta.of("End")) > 0
    if ended and header.identity.get("mode") == "profile" and not os.path.lexists(tally):
        unreadable.append(f"there is no {tally}: its counts are missing")
    return Process(
        folder=folder.name,
        path=folder,
        header=header,
        communicators=metadata.communicators(meta),
        threads=found.threads,
        strings=dict(metadata.texts(meta, layout.TEXT_STRING)),
        counters=metadata.counters(meta, header, found.counters),
        notes=tuple(text for _, text in metadata.texts(meta, layout.TEXT_NOTE)),
        clock=clock_of(meta.of("Sync"), header, nominal_hz),
        call_counts=merge_call_counts(call_counts, found.call_counts),
        live=read_live_page(folder) if "live" in names else None,
        ended=ended,
        mode_changes=metadata.mode_changes(meta),
        event_clocks=metadata.event_clocks(meta),
        graphs=metadata.graphs(meta),
        slots=found.log,
        damage=found.log.damage,
        range_texts=dict(metadata.texts(meta, layout.TEXT_RANGE)),
        range_domains=dict(metadata.texts(meta, layout.TEXT_DOMAIN)),
        range_schemas=payload_schemas(metadata.texts(meta, layout.TEXT_SCHEMA)),
        range_categories=category_names(metadata.texts(meta, layout.TEXT_CATEGORY)),
        counts_end_early=found.counters is None and counts_end_early(folder, ended),
    )
