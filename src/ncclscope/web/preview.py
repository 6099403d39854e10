"""A preview of a large capture, from samples of each process's files."""

from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.capture import dtypes, layout
from ncclscope.capture.header import Header, launcher_rank
from ncclscope.capture.metadata import by_kind, communicators, read_meta_file, texts
from ncclscope.capture.segment import Damage, Slots, map_file, open_file, view_slots
from ncclscope.capture.tick_clock import TickClock, clock_of
from ncclscope.errors import FormatError
from ncclscope.web import palette
from ncclscope.web.bars import Bars, make_bars
from ncclscope.web.callback_index import ProcessFacts
from ncclscope.web.kinds import CALL_KINDS, CALLBACKS_WITH_FUNCTION

_SAMPLES, _SAMPLE_SLOTS = 192, 48  # of each file
_SAMPLED_KINDS = tuple(kind for kind in CALL_KINDS if kind in CALLBACKS_WITH_FUNCTION)


def preview_rows(folders: list[Path]) -> list[tuple[ProcessFacts, Bars]]:
    """The facts of each process, and roughly what it did when."""
    previews = []
    for folder in folders:
        try:
            previews.append(_preview(folder))
        except (FormatError, OSError, IndexError, ValueError):
            continue  # indexing it says what is wrong
    return previews


def _preview(folder: Path) -> tuple[ProcessFacts, Bars]:
    damage = Damage()
    header, meta_slots = read_meta_file(folder / "meta", damage)
    meta = by_kind(meta_slots)
    clock = clock_of(meta.of("Sync"), header, 1_000_000_000)
    samples = [_sample(path, damage) for path in sorted(folder.glob("log.*"))]
    slots = np.concatenate([np.empty(0, dtypes.ANY_SLOT), *samples])
    strings = dict(texts(meta, layout.TEXT_STRING))
    bars = _bars(slots, clock, strings)
    last = int(bars.end_ns[-1]) if len(bars) else int(clock.monotonic_ns[-1])
    return _facts(folder, header, communicators(meta), clock, last), bars


def _sample(path: Path, damage: Damage) -> Slots:
    """Samples of a file's slots at equal distances."""
    header, data = open_file(path, map_file)
    slots = view_slots(data, header.header_bytes, damage)
    if len(slots) <= _SAMPLES * _SAMPLE_SLOTS:
        return slots
    first = np.linspace(0, len(slots) - _SAMPLE_SLOTS, _SAMPLES).astype(np.int64)
    return np.asarray(slots[(first[:, None] + np.arange(_SAMPLE_SLOTS)).ravel()])


def _bars(slots: Slots, clock: TickClock, strings: dict[int, str]) -> Bars:
    """A bar from each sampled call to the next, in the colour of its function."""
    codes = np.full(256, palette.OTHER, np.uint8)
    for number, text in strings.items():
        if number < 256:
            codes[number] = palette.function_code(text)
    times, colours = [np.empty(0, np.int64)], [np.empty(0, np.uint8)]
    for kind in _SAMPLED_KINDS:
        events = slots[slots["kind"] == layout.KINDS[kind]].view(dtypes.OURS.dtypes[kind])
        events = events[clock.covers_ticks(events["t0"])]
        times.append(clock.to_ns(events["t0"]))
        colours.append(codes[events["func"]])
    start, code = np.concatenate(times), np.concatenate(colours)
    order = np.argsort(start, kind="stable")
    start, code = start[order], code[order]
    end = np.append(start[1:], start[-1:])
    longest = int(np.median(end - start)) * 64 if len(start) else 0  # else a gap would look busy
    end = np.minimum(end, start + max(longest, 1000))
    columns = {
        "start_ns": start,
        "end_ns": end,
        "wait_ns": np.empty(0, np.int64),
        "ref": np.zeros(len(start), np.int64),
        "code": code,
        "look": np.zeros(len(start), np.uint8),
    }
    return make_bars(columns)


def _facts(
    folder: Path, header: Header, comms: Any, clock: TickClock, last_ns: int
) -> ProcessFacts:
    identity = header.identity
    rank = launcher_rank(identity)
    with_rank = [comm for comm in comms if comm.rank >= 0]
    if rank is None and with_rank:
        rank = max(with_rank, key=lambda comm: comm.ranks).rank
    return {
        "folder": folder.name,
        "host": identity.get("host", "unknown"),
        "node": [identity.get("boot_id") or identity.get("host", "unknown")],
        "pid": header.pid,
        "rank": rank,
        "ended": True,
        "last_ns": last_ns,
        "wall_ns": clock.realtime_offset_ns,
        "threads": {},
        "dropped": 0,
        "communicators": [],
    }
