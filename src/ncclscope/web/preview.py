"""A first picture of a large capture: runs of slots here and there in each process's files."""

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
from ncclscope.web.bars import Bars, bars_of

_RUNS, _RUN = 192, 48  # of each process: so many runs of so many slots
_WITH_FUNCTION = ("CollApi", "P2pApi", "Coll", "P2p")


def preview_rows(folders: list[Path]) -> list[tuple[dict[str, Any], Bars]]:
    """Who each process is, and roughly what it did when."""
    out = []
    for folder in folders:
        try:
            out.append(_coarse(folder))
        except (FormatError, OSError, IndexError, ValueError):
            continue  # the index says what is wrong with it
    return out


def _coarse(folder: Path) -> tuple[dict[str, Any], Bars]:
    damage = Damage()
    header, meta_slots = read_meta_file(folder / "meta", damage)
    meta = by_kind(meta_slots)
    clock = clock_of(meta.of("Sync"), header, 1_000_000_000)
    found = [_sample(path, damage) for path in sorted(folder.glob("log.*"))]
    slots = np.concatenate([np.empty(0, dtypes.ANY_SLOT), *found])
    strings = dict(texts(meta, layout.TEXT_STRING))
    bars = _bars(slots, clock, strings)
    last = int(bars.end_ns[-1]) if len(bars) else int(clock.monotonic_ns[-1])
    return _who(folder, header, communicators(meta), clock, last), bars


def _sample(path: Path, damage: Damage) -> Slots:
    """Runs of a file's slots at equal distances."""
    header, data = open_file(path, map_file)
    slots = view_slots(data, header.header_bytes, damage)
    if len(slots) <= _RUNS * _RUN:
        return slots
    first = np.linspace(0, len(slots) - _RUN, _RUNS).astype(np.int64)
    return np.asarray(slots[(first[:, None] + np.arange(_RUN)).ravel()])


def _bars(slots: Slots, clock: TickClock, strings: dict[int, str]) -> Bars:
    """From each sampled call to the next: the colour of what was called there."""
    codes = np.full(256, palette.OTHER, np.uint8)
    for number, text in strings.items():
        if number < 256:
            codes[number] = palette.function_code(text)
    times, colours = [np.empty(0, np.int64)], [np.empty(0, np.uint8)]
    for kind in _WITH_FUNCTION:
        mine = slots[slots["kind"] == layout.KINDS[kind]].view(dtypes.OURS.dtypes[kind])
        mine = mine[clock.covers_ticks(mine["t0"])]
        times.append(clock.to_ns(mine["t0"]))
        colours.append(codes[mine["func"]])
    start, code = np.concatenate(times), np.concatenate(colours)
    order = np.argsort(start, kind="stable")
    start, code = start[order], code[order]
    end = np.append(start[1:], start[-1:])
    usual = int(np.median(end - start)) * 64 if len(start) else 0
    end = np.minimum(end, start + max(usual, 1000))
    columns = {
        "start_ns": start,
        "end_ns": end,
        "wait_ns": np.empty(0, np.int64),
        "ref": np.zeros(len(start), np.int64),
        "code": code,
        "look": np.zeros(len(start), np.uint8),
    }
    return bars_of(columns)


def _who(
    folder: Path, header: Header, comms: Any, clock: TickClock, last_ns: int
) -> dict[str, Any]:
    identity = header.identity
    rank = launcher_rank(identity)
    told = [comm for comm in comms if comm.rank >= 0]
    if rank is None and told:
        rank = max(told, key=lambda comm: comm.ranks).rank
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
