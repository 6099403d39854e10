"""`ncclscope ls`."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ncclscope.capture.housekeeping import CaptureInfo, captures_below
from ncclscope.humanize import amount, plural, printable
from ncclscope.json_answers import VERSION


def _row(info: CaptureInfo) -> list[str]:
    age = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.newest))
    state = f"{info.state} ({info.running})" if info.running else info.state
    ranks = f"{info.processes} on {plural(len(info.hosts), 'host')}"
    return [
        amount(info.bytes),
        age,
        state,
        printable(",".join(info.modes)),
        ranks,
        printable(info.job),
        printable(str(info.path)),
    ]


def _as_json(info: CaptureInfo) -> dict[str, Any]:
    fields = ("job", "processes", "ranks", "hosts", "modes", "state")
    return {
        "capture": str(info.path),
        "total_bytes": info.bytes,
        "last_write_unix_s": info.newest,
        **{name: getattr(info, name) for name in fields},
    }


def run(arguments: argparse.Namespace) -> int:
    """Prints a line for each capture, the newest last."""
    captures = captures_below(Path(arguments.directory))
    if arguments.json:
        answer = {"version": VERSION, "captures": [_as_json(info) for info in captures]}
        print(json.dumps(answer, indent=2))
        return 0
    if not captures:
        print(f"no captures below {arguments.directory}")
        return 0
    header = ["size", "last write", "state", "mode", "processes", "job", "capture"]
    table = [header, *map(_row, captures)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for row in table:
        columns = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(columns).rstrip())
    return 0
