"""Captures that workers of a real Slurm decode: every value is that of one machine.

    python -m benchmarks slurm

Needs root, and Debian's packages slurmctld, slurmd, slurm-client and munge.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.loads import scratch
from benchmarks.results import publish, table
from tests.support.slurm_cluster import (
    NODES,
    no_job_is_left,
    output_of,
    slurm_cluster,
    why_not,
)
from tests.support.waiting import eventually
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, synthetic

_WORKERS, _START_S = 2, 120


def write_capture(path: Path) -> None:
    """Two attempts on two nodes, all sorts of calls, a missing process and a killed one."""
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=8, operations=2000, ranks_per_node=4, communicators=groups,
        mix=ALL_KINDS_OF_WORK, attempts=2,
        missing=frozenset({5}), killed=frozenset({2}),
    )  # fmt: skip
    synthetic(path, spec)


def _ncclscope(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "ncclscope", *map(str, words)]


def _answer(capture: Path, on: str) -> tuple[Any, Any]:
    """The JSON of `report`, and the saved model with checksums of all columns."""
    words = _ncclscope("report", "--json", "--on", on, capture)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    saved = json.loads((capture / "model" / "manifest.json").read_text())
    left_out = ("seal", "stamps", "fingerprint")
    return {n: v for n, v in report.items() if n != "capture"}, {
        n: v for n, v in saved.items() if n not in left_out
    }


def _workers() -> list[int]:
    """Processes of workers that decode: children of Dask's nannies."""
    listed = output_of("pgrep", "-f", "multiprocessing.spawn.*--multiprocessing-fork")
    return [
        int(pid)
        for pid in listed.split()
        if b"SLURM_JOB_ID" in Path(f"/proc/{pid}/environ").read_bytes()
    ]


def _has_workers() -> bool:
    try:
        return bool(_workers())
    except OSError:  # one of them ended meanwhile
        return False


def _killed_worker(capture: Path, on: str) -> tuple[Any, Any]:
    """The answer of a command whose worker is killed as soon as there is one."""
    words = _ncclscope("report", "--json", "--on", on, capture)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        eventually(_has_workers, _START_S)
        os.kill(_workers()[0], signal.SIGKILL)
        _, errors = command.communicate()
        assert command.returncode == 0, errors
    return _answer(capture, "here")


def _second_run(capture: Path, on: str) -> tuple[Any, Any]:
    """The answer of a second command, after the first one was interrupted while workers ran."""
    words = _ncclscope("report", "--on", on, capture)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        eventually(_has_workers, _START_S)
        command.send_signal(signal.SIGINT)
    eventually(no_job_is_left, _START_S)
    assert not [path for path in capture.iterdir() if "model" in path.name], "nothing half-written"
    return _answer(capture, on)


def _after_kill(capture: Path, on: str) -> tuple[Any, Any]:
    """The answer of a second command, after the first one was killed with SIGKILL while workers
    ran: nothing of it may be left but what they decoded.
    """
    words = _ncclscope("report", "--on", on, capture)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        eventually(_has_workers, _START_S)
        command.kill()
    eventually(no_job_is_left, _START_S)
    assert not (capture / "model").exists(), "nothing half-written"
    return _answer(capture, on)


def main() -> None:
    """Runs each case against one machine, and publishes what came of it."""
    cases: dict[str, Callable[[Path, str], tuple[Any, Any]]] = {
        "`report --on slurm:2`": _answer,
        "a worker is killed": _killed_worker,
        "the command is interrupted, and run again": _second_run,
        "the command is killed with SIGKILL, and run again": _after_kill,
    }
    rows: list[list[object]] = []
    if reason := why_not():
        raise SystemExit(f"slurm: {reason}")
    with scratch() as folder, slurm_cluster(folder):
        write_capture(folder / "here")
        copies = [folder / f"there{number}" for number in range(len(cases) + 1)]
        for copy in copies:
            shutil.copytree(folder / "here", copy)
        expected = _answer(folder / "here", "here")
        for (name, answer), copy in zip(cases.items(), copies, strict=False):
            began = time.perf_counter()
            values = answer(copy, f"slurm:{_WORKERS}")
            eventually(no_job_is_left, _START_S)
            wall_s = time.perf_counter() - began
            rows.append([name, "yes" if values == expected else "NO", f"{wall_s:.0f}"])
        refused = subprocess.run(
            _ncclscope("report", "--on", "slurm", copies[-1]),
            env={**os.environ, "SBATCH_PARTITION": "nowhere"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        version = output_of("sinfo", "--version").strip()
    operations = expected[1]["rows"]["operations"]
    text = (
        f"\n\n{version}, {NODES} nodes on one host, {_WORKERS} workers; {operations:,} operations "
        "of 14 processes. Equal: the JSON of the report, and checksums of all columns of the "
        "model. No job was left behind. A partition that does not exist: "
        f"`{refused.stderr.strip()}`"
    )
    publish("slurm", table(["", "equal to one machine", "wall s"], rows) + text)
    assert all(row[1] == "yes" for row in rows)
    assert refused.returncode == 1
