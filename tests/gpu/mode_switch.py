"""`ncclscope run` in front of a job on real NCCL, and `ncclscope ctl` on it while it runs."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.live_page import read_live_page
from ncclscope.capture.reader import open_capture

RANKS, ITERATIONS = 2, 5  # thousands of calls
WINDOW_S = 2
DEADLINE_S = 60.0


def modes(capture: Path) -> list[str]:
    """What the live pages of the processes tell."""
    folders = process_folders(capture) if capture.is_dir() else []
    return [page.mode for page in map(read_live_page, folders) if page and len(page.communicators)]


def until(true: Callable[[], bool], job: subprocess.Popen[str]) -> float:
    """Seconds that passed until then."""
    began = time.monotonic()
    while not true():
        if job.poll() is not None or time.monotonic() - began > DEADLINE_S:
            raise RuntimeError(f"the job ended too early, or too late: {job.poll()}")
        time.sleep(0.02)
    return time.monotonic() - began


def rows_of(capture: Path, made: dict[int, int]) -> tuple[list[list[object]], bool]:
    """By rank: calls made, counted, in the window, and whether the window has no hole."""
    rows: list[list[object]] = []
    fine = True
    for process in sorted(open_capture(capture).processes, key=lambda process: process.rank):
        counted = sum(t.calls for t in process.call_counts if t.key.level == layout.LEVEL_CALL)
        events = list(events_of(process))
        calls = [e for e in events if e["event"] == "CollApi"]
        steps = [e for e in events if e["event"] == "ProxyStep"]
        sequences = [e["fields"]["seqNumber"] for e in events if e["event"] == "Coll"]
        holes = max(sequences) - min(sequences) + 1 - len(set(sequences)) if sequences else -1
        fine &= counted == made[process.rank] and holes == 0 and 0 < len(calls) < counted
        fine &= bool(steps) and process.dropped() == 0
        followed = ", ".join(change.mode for change in process.mode_changes)
        row = [process.rank, made[process.rank], counted, len(calls), len(steps), holes, followed]
        rows.append(row)
    return rows, fine


def switch_modes() -> tuple[list[list[object]], str, bool]:
    """Rows by rank, what `ctl` said and how long it took, and whether all is as it must be."""
    with tempfile.TemporaryDirectory() as directory:
        capture = Path(directory) / "capture"
        program = [sys.executable, "-m", "ncclscope"]
        command = [*program, "run", "--mode", "profile", "-o", str(capture), "--"]
        command += [sys.executable, "-m", "tests.gpu.ranks", str(RANKS), "steady"]
        env = os.environ | {"ITERATIONS": str(ITERATIONS)}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as job:
            until(lambda: modes(capture) == ["profile"] * RANKS, job)
            words = ["ctl", str(capture), "--mode", "full", "--seconds", str(WINDOW_S)]
            ctl = subprocess.Popen([*program, *words], stdout=subprocess.PIPE, text=True)
            delay_s = until(lambda: modes(capture) == ["full"] * RANKS, job)
            answer = ctl.communicate()[0].strip()
            until(lambda: modes(capture) == ["profile"] * RANKS, job)
            out = job.communicate(timeout=DEADLINE_S)[0]
            if job.returncode or ctl.returncode:
                raise RuntimeError(f"exit codes {job.returncode} and {ctl.returncode}")
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        made = {line["rank"]: line["cases"]["steady"]["calls"]["AllReduce"] for line in lines}
        rows, fine = rows_of(capture, made)
        return rows, f"{answer}; on the live pages after {delay_s:.1f} s", fine
