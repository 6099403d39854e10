"""Rows of callbacks on disk: one file for each process, which can be memory-mapped."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.capture.process import Process
from ncclscope.private_directory import new_private_file, write_private_text
from ncclscope.regular_files import open_regular, read_text
from ncclscope.web.bars import COLUMNS, LEVEL_COLUMNS, Bars, Level
from ncclscope.web.callback_rows import LaneKey, Rows

FOLDER = "timeline"
_VERSION = 3
_LARGEST_INDEX = 1 << 28
ProcessFacts = dict[str, Any]  # see `facts_of`


def save_rows(rows: Rows, facts: ProcessFacts, path: Path) -> None:
    """Writes a process's rows; the file appears once it is complete."""
    records: list[dict[str, Any]] = []
    with new_private_file(path) as file:
        for key, bars in rows:
            records.append(
                {
                    "key": asdict(key),
                    "columns": _write(file, bars, COLUMNS),
                    "levels": [
                        {"size": level.size, "columns": _write(file, level, LEVEL_COLUMNS)}
                        for level in bars.levels
                    ],
                }
            )
    text = json.dumps({"version": _VERSION, "process": facts, "rows": records})
    write_private_text(path.with_suffix(".json"), text)


def _write(file: Any, values: Any, columns: dict[str, Any]) -> dict[str, list[int]]:
    """Appends columns, each aligned to 8 bytes; by name their offset and length."""
    places = {}
    for name, dtype in columns.items():
        array = np.ascontiguousarray(getattr(values, name), dtype)
        file.write(b"\0" * (-file.tell() % 8))
        places[name] = [file.tell(), len(array)]
        file.write(array.data)
    return places


def load_rows(path: Path) -> tuple[Rows, ProcessFacts]:
    """A process's rows, memory-mapped, and its facts.

    Raises ValueError, KeyError or TypeError where the files are damaged or of another release.
    """
    index = json.loads(read_text(path.with_suffix(".json"), _LARGEST_INDEX))
    if index["version"] != _VERSION:
        raise ValueError(f"{path} is of another release")
    os.close(open_regular(path))  # raises where it is no regular file
    size = path.stat().st_size
    data = np.memmap(path, np.uint8, "r", shape=(size,)) if size else np.empty(0, np.uint8)
    rows = []
    for record in index["rows"]:
        levels = tuple(
            Level(size=level["size"], **_read(data, level["columns"], LEVEL_COLUMNS))
            for level in record["levels"]
        )
        bars = Bars(**_read(data, record["columns"], COLUMNS), levels=levels)
        rows.append((LaneKey(**record["key"]), bars))
    return rows, index["process"]


def _read(data: Any, places: dict[str, list[int]], columns: dict[str, Any]) -> dict[str, Any]:
    arrays = {}
    for name, dtype in columns.items():
        first, count = places[name]
        size = np.dtype(dtype).itemsize * count
        if first < 0 or count < 0 or first + size > len(data):
            raise ValueError("the file is cut off")
        arrays[name] = np.asarray(data[first : first + size]).view(dtype)
    return arrays


def facts_of(process: Process, last_ns: int) -> ProcessFacts:
    """What lanes need to know of a process, without its events. It is stored as JSON."""
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
