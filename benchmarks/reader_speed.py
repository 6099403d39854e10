"""Slots per second that the reader scans, on a capture as the plugin wrote it."""

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.results import ROOT, publish, table
from ncclscope.capture import layout
from ncclscope.capture.process import Process, open_process
from ncclscope.native import player_path
from tests.support.player import recording

BAR = 40e6
CACHE_FULL = 1 << 14  # slots, 1 MB


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def scan(process: Process) -> int:
    """Reads every slot: kinds, states and all times, a cache full at a time."""
    total = 0
    for segment in process.slots.segments:
        for first in range(0, len(segment), CACHE_FULL):
            part = segment[first : first + CACHE_FULL]
            kinds = np.bincount(part["kind"], minlength=256)
            closed = np.count_nonzero(part["states"] & layout.STATE_STOPPED)
            longest = (part["t1"] - part["t0"]).max()
            total += int(kinds.sum()) + int(closed) + int(longest > 0)
    return total


def main() -> None:
    """Records some gigabyte of synthetic load and reads it back."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as temporary:
        env = recording(Path(temporary) / "c", NCCLSCOPE_DISK_LIMIT="4G")
        load = [str(player_path()), "load", "--collectives", "40000", "--rate", "6000000"]
        subprocess.run(load, env=env, check=True, capture_output=True)
        (folder,) = (Path(temporary) / "c").iterdir()
        process = open_process(folder)
        slots = len(process.slots)
        opening, scanning = best(lambda: open_process(folder)), best(lambda: scan(process))
    speeds = {
        "open: find blocks, check every slot's place, apply updates": slots / opening,
        "full scan: histogram of kinds, closed events, longest span": slots / scanning,
    }
    rows: list[list[object]] = [[what, f"{speed / 1e6:.0f}"] for what, speed in speeds.items()]
    note = (
        f"{slots / 1e6:.1f} M slots as the plugin wrote them, page cache warm, one core, best of "
        "five. Bar: 40 M slots/s."
    )
    publish("reader-speed", f"{table(['reading a capture', 'M slots/s'], rows)}\n\n{note}")
    if min(speeds.values()) < BAR:
        raise SystemExit(f"the reader does {min(speeds.values()) / 1e6:.0f} M slots/s")
