"""Rows of callbacks on disk, one file for each process: an index that can be mapped."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.capture.process import Process
from ncclscope.web.bars import COLUMNS, LEVEL_COLUMNS, Bars, Level
from ncclscope.web.callback_rows import Place

FOLDER = "timeline"
_VERSION = 2


def save_rows(rows: list[tuple[Place, Bars]], who: dict[str, Any], path: Path) -> None:
    """Writes a process's rows; the file appears when it is whole."""
    records: list[dict[str, Any]] = []
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        for place, bars in rows:
            records.append(
                {
                    "place": asdict(place),
                    "columns": _write(file, bars, COLUMNS),
                    "levels": [
                        {"size": level.size, "columns": _write(file, level, LEVEL_COLUMNS)}
                        for level in bars.levels
                    ],
                }
            )
    part.rename(path)
    written = path.with_suffix(f".{os.getpid()}.json.part")
    written.write_text(json.dumps({"version": _VERSION, "who": who, "rows": records}))
    written.rename(path.with_suffix(".json"))


def _write(file: Any, values: Any, columns: dict[str, Any]) -> dict[str, list[int]]:
    """Appends columns, each from a multiple of 8 on; where they are, and how long."""
    places = {}
    for name, dtype in columns.items():
        array = np.ascontiguousarray(getattr(values, name), dtype)
        file.write(b"\0" * (-file.tell() % 8))
        places[name] = [file.tell(), len(array)]
        file.write(array.data)
    return places


def load_rows(path: Path) -> tuple[list[tuple[Place, Bars]], dict[str, Any]]:
    """A process's rows, mapped, and who it is. ValueError, KeyError, TypeError: it is damaged."""
    told = json.loads(path.with_suffix(".json").read_text())
    if told["version"] != _VERSION:
        raise ValueError(f"{path} is of another release")
    size = path.stat().st_size
    data = np.memmap(path, np.uint8, "r", shape=(size,)) if size else np.empty(0, np.uint8)
    rows = []
    for record in told["rows"]:
        levels = tuple(
            Level(size=level["size"], **_read(data, level["columns"], LEVEL_COLUMNS))
            for level in record["levels"]
        )
        bars = Bars(**_read(data, record["columns"], COLUMNS), levels=levels)
        rows.append((Place(**record["place"]), bars))
    return rows, told["who"]


def _read(data: Any, places: dict[str, list[int]], columns: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for name, dtype in columns.items():
        first, count = places[name]
        size = np.dtype(dtype).itemsize * count
        if first < 0 or count < 0 or first + size > len(data):
            raise ValueError("the file is cut off")
        out[name] = np.asarray(data[first : first + size]).view(dtype)
    return out


def who_is(process: Process, last_ns: int) -> dict[str, Any]:
    """What lanes need to know of a process, without its events."""
    return {
        "folder": process.folder,
        "host": process.host,
        "node": [
            process.identity.get("boot_id") or process.host,
            process.identity.get("time_namespace", ""),
        ],
        "pid": process.header.pid,
        "rank": process.rank,
        "ended": process.ended,
        "last_ns": last_ns,
        "wall_ns": process.clock.realtime_offset_ns,
        "threads": {str(tid): name for tid, name in process.threads.items()},
        "dropped": process.dropped(),
        "communicators": [
            {
                "number": comm.number,
                "name": comm.name,
                "id": f"{comm.id:x}",
                "rank": comm.rank,
                "ranks": comm.ranks,
                "opened_ns": int(process.clock.to_ns(np.array([comm.t_open], np.uint64))[0]),
            }
            for comm in process.communicators
        ],
    }
