"""Stacks of a job's processes on this host, by py-spy: Python and native frames of every thread."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.capture.liveness import RUNS_HERE, STOPPED_HERE
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.threads import in_threads

_AT_ONCE = 4
_PATIENCE_S = 20.0
_MOST_FRAMES = 200
NOT_INSTALLED = "py-spy is not installed: pip install py-spy"


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that is being called."""

    function: str
    file: str
    line: int  # 0: not known, as of native frames

    def __str__(self) -> str:
        """As Python's own tracebacks name it, in one line."""
        return f"{self.function} ({self.file}{f':{self.line}' if self.line else ''})"


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread; the innermost frame comes first."""

    name: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ProcessStacks:
    """The threads of one process, or why they cannot be shown."""

    rank: int
    host: str
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    why_not: str = ""


def py_spy_path() -> str | None:
    """The program, in this Python's own environment or on PATH."""
    own = Path(sys.executable).with_name("py-spy")
    return str(own) if os.access(own, os.X_OK) else shutil.which("py-spy")


def read_stacks(processes: Sequence[ProcessSnapshot]) -> list[ProcessStacks]:
    """The stacks of all processes, in the order of their ranks."""
    ordered = sorted(processes, key=lambda process: (process.global_rank, process.pid))
    return in_threads(_stacks_of, ordered, _AT_ONCE)


def _stacks_of(process: ProcessSnapshot) -> ProcessStacks:
    who = (process.global_rank, process.host, process.pid)
    if process.how not in (RUNS_HERE, STOPPED_HERE):
        return ProcessStacks(*who, why_not=f"it does not run on this host: {process.how}")
    program = py_spy_path()
    if program is None:
        return ProcessStacks(*who, why_not=NOT_INSTALLED)
    threads, why_not = _dump(program, process.pid, "--native")
    if not threads and "ermission" not in why_not:  # native frames cannot be had everywhere
        threads, why_not = _dump(program, process.pid)
    return ProcessStacks(*who, threads, "" if threads else why_not)


def _dump(program: str, pid: int, *options: str) -> tuple[tuple[ThreadStack, ...], str]:
    """The threads of a process, and why there are none."""
    command = [program, "dump", "--json", *options, "--pid", str(pid)]
    try:
        printed = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return (), f"py-spy took longer than {_PATIENCE_S:.0f} s"
    except OSError as error:
        return (), f"cannot run {program}: {error.strerror}"
    if printed.returncode:
        return (), _cause(printed.stderr)
    try:
        return tuple(map(_thread, json.loads(printed.stdout))), ""
    except (ValueError, TypeError, AttributeError):
        return (), "py-spy printed something else than stacks"


def _cause(message: str) -> str:
    """Why py-spy failed, and what to do."""
    if "ermission" in message:
        return "py-spy may not look at it: run this as root, or allow ptrace (CAP_SYS_PTRACE)"
    if "python" in message.lower() and "find" in message.lower():
        return "it is no Python process"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"py-spy: {lines[0].removeprefix('Error: ')}" if lines else "py-spy failed"


def _thread(row: dict[str, Any]) -> ThreadStack:
    frames = tuple(
        Frame(
            str(frame["name"]),
            str(frame["short_filename"] or frame["filename"]),
            int(frame["line"] or 0),
        )
        for frame in row["frames"][:_MOST_FRAMES]
        if not str(frame["name"]).startswith("0x")  # no name, and another number in every process
    )
    return ThreadStack(str(row["thread_name"] or f"thread {row['os_thread_id']}"), frames)
