"""Faults while a real Dask cluster of two workers makes a model: the answer is right, or there is
none, and the next command goes on.

    python -m benchmarks cluster_faults
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.loads import scratch
from benchmarks.results import publish, table
from benchmarks.slurm import write_capture
from tests.support.dask_clusters import START_S, WITHOUT_PACKAGE, cluster_of_processes
from tests.support.waiting import eventually

_WORKERS = 2


def _report(capture: Path, on: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "ncclscope", "report", "--json", "--on", on, str(capture)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _answer(command: "subprocess.Popen[str]", capture: Path) -> Any:
    """The JSON of a report, and the saved model with checksums of all columns."""
    printed, errors = command.communicate()
    assert command.returncode == 0, errors
    report = json.loads(printed)
    saved = json.loads((capture / "model" / "manifest.json").read_text())
    for name in ("seal", "stamps", "fingerprint"):
        saved.pop(name, None)
    return {**report, "capture": ""}, saved


def _sentence(command: "subprocess.Popen[str]", capture: Path) -> str:
    """What a command says that fails; it may not leave a model."""
    errors = command.communicate()[1]
    assert command.returncode == 1, errors
    assert not (capture / "model").exists()
    return errors.strip().splitlines()[-1].replace(str(capture), "CAPTURE")


def _wait_for(capture: Path, pattern: str, command: "subprocess.Popen[str]") -> None:
    """Waits until the command has written a file of the model."""
    eventually(
        lambda: any(capture.glob(f".model-*/{pattern}")) or command.poll() is not None, START_S
    )
    assert command.poll() is None, command.communicate()


def _killed_command(capture: Path, folder: Path) -> tuple[str, Any]:
    with cluster_of_processes(folder, _WORKERS) as (on, _):
        command = _report(capture, on)
        _wait_for(capture, "process.n*", command)
        command.kill()
        command.communicate()
        assert not (capture / "model").exists()
        kept = len(list(capture.glob(".model-*/process.n*")))
        return f"decoded processes kept: {kept}", _answer(_report(capture, on), capture)


def _killed_scheduler(capture: Path, folder: Path) -> tuple[str, Any]:
    with cluster_of_processes(folder, _WORKERS) as (on, processes):
        command = _report(capture, on)
        _wait_for(capture, "process.n*", command)
        processes[0].kill()
        said = _sentence(command, capture).replace(str(folder), "")
    with cluster_of_processes(folder, _WORKERS) as (on, _):
        return f"`{said}`", _answer(_report(capture, on), capture)


def _killed_worker(capture: Path, folder: Path) -> tuple[str, Any]:
    with cluster_of_processes(folder, _WORKERS) as (on, processes):
        command = _report(capture, on)
        _wait_for(capture, "states.*", command)
        os.kill(processes[1].pid, signal.SIGKILL)
        return "the other worker did its tasks", _answer(command, capture)


def _two_commands(capture: Path, folder: Path) -> tuple[str, Any]:
    with cluster_of_processes(folder, _WORKERS) as (on, _):
        commands = [_report(capture, on), _report(capture, on)]
        first, second = [_answer(command, capture) for command in commands]
        assert first == second
        return "both gave the same answer", first


def _no_package(capture: Path, folder: Path) -> tuple[str, Any]:
    with cluster_of_processes(folder, _WORKERS, WITHOUT_PACKAGE) as (on, _):
        said = _sentence(_report(capture, on), capture)
    return f"`{said}`", _answer(_report(capture, "here"), capture)


CASES = {
    "the command is killed with SIGKILL while it decodes, and run again": _killed_command,
    "the scheduler is killed while it decodes; a new one, and a second run": _killed_scheduler,
    "a worker is killed while instances are written": _killed_worker,
    "two commands at once on one capture": _two_commands,
    "workers without ncclscope; then on one machine": _no_package,
}


def main() -> None:
    """Runs each case against one machine, and publishes what came of it."""
    rows: list[list[object]] = []
    with scratch() as folder:
        write_capture(folder / "here")
        damaged = sorted((folder / "here").glob("node1.*/log.*"))[0]  # of one process
        os.truncate(damaged, damaged.stat().st_size // 2)
        for number in range(len(CASES)):
            shutil.copytree(folder / "here", folder / f"there{number}")
        expected = _answer(_report(folder / "here", "here"), folder / "here")
        for number, (name, run) in enumerate(CASES.items()):
            said, values = run(folder / f"there{number}", folder)
            rows.append([name, said, "yes" if values == expected else "NO"])
            print(*rows[-1], flush=True)  # of a run that does not reach its end
    text = (
        f"\n\n{_WORKERS} workers on one host, {expected[1]['rows']['operations']:,} operations; "
        "one process is missing, one was killed, and the log of one is cut off in its middle. "
        "Equal: the JSON of the report, and checksums of all columns of the model."
    )
    publish("cluster-faults", table(["", "what happens", "equal to one machine"], rows) + text)
    assert all(row[2] == "yes" for row in rows)
