"""`ncclscope status`."""

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ncclscope.capture.housekeeping import is_running, process_folders
from ncclscope.capture.liveness import DEAD, ENDED
from ncclscope.capture.reader import (
    find_captures,
    is_dataset,
    none_readable,
    resolve_capture,
)
from ncclscope.cli import suggested_commands
from ncclscope.cli.messages import print_message
from ncclscope.cli.removed_logs import warn_of_removed_logs
from ncclscope.cli.terminal import fit, paint
from ncclscope.diagnose.hang.judge import judge
from ncclscope.diagnose.hang.verdict import Status
from ncclscope.errors import UsageError
from ncclscope.humanize import printable
from ncclscope.report.status import as_json, lines, other_lines
from ncclscope.snapshot.process import read_snapshots

if TYPE_CHECKING:
    from ncclscope.snapshot.stacks import ProcessStacks

_WATCH_S = 2.0  # default of --watch
_HUNG_EXIT = 4
_CLEAR = "\x1b[H\x1b[2J"
Others = dict[str, Status]  # by path


def _status(capture: Path) -> Status:
    was_enabled = gc.isenabled()
    # Of ten thousand processes it takes 0.4 s to look for circles, of which there are none.
    gc.disable()
    try:
        return judge(*read_snapshots(process_folders(capture)))
    finally:
        if was_enabled:
            gc.enable()


def _stacks(capture: Path) -> "list[ProcessStacks]":
    """Stacks of all processes that have not ended."""
    from ncclscope.snapshot.stacks import read_stacks  # with --stacks alone

    processes = read_snapshots(process_folders(capture)).processes
    return read_stacks([process for process in processes if process.life not in (ENDED, DEAD)])


def _other_running_jobs(capture: Path) -> Others:
    """The status of other captures here whose jobs run; asked for if the user names no capture."""
    others = [path for path in find_captures(Path.cwd()) if path.resolve() != capture.resolve()]
    running = [path for path in others if any(map(is_running, process_folders(path)))]
    return {str(path): _status(path) for path in running}


def _show(status: Status, capture: Path, others: Others, arguments: argparse.Namespace) -> None:
    if arguments.json:
        indent = None if arguments.watch is not None else 2
        answer = as_json(status, str(capture), others)
        if arguments.stacks:
            from ncclscope.report.stacks import stacks_json

            answer["stacks"] = stacks_json(_stacks(capture))
        print(json.dumps(answer, indent=indent), flush=True)
        return
    if arguments.watch is not None:
        clear = _CLEAR if sys.stdout.isatty() else ""
        print(f"{clear}{time.strftime('%H:%M:%S')} {capture}")
    name_it = arguments.watch is None and arguments.capture != str(capture)
    for line in lines(status, _short_path(capture) if name_it else ""):
        first, *rest = fit(line)
        print(paint(first), *rest, sep="\n", flush=True)
    if arguments.stacks:
        from ncclscope.report.stacks import stack_lines

        for line in stack_lines(_stacks(capture)):
            print(line, flush=True)
    for line in other_lines({_short_path(Path(path)): other for path, other in others.items()}):
        print(line, flush=True)


def _short_path(path: Path) -> str:
    """The path relative to the current directory, if it is below that."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def _pause_s(arguments: argparse.Namespace) -> float | None:
    """Seconds between two readings; None for a single one. The word after --watch may be the
    capture.
    """
    if arguments.watch is None:
        return None
    try:
        pause_s = float(arguments.watch or _WATCH_S)
        if not 0.1 <= pause_s <= 86400:
            message = f"cannot watch every {arguments.watch} s"
            raise UsageError(message, "Give 0.1 s or more, up to a day")
        return pause_s
    except ValueError:
        if arguments.capture is not None:
            message = f"--watch {arguments.watch} is no number of seconds"
            raise UsageError(message, "Give it as in --watch 5") from None
        arguments.capture = arguments.watch
        return _WATCH_S


def run(arguments: argparse.Namespace) -> int:
    """Prints a line for each communicator that is not ok; returns 4 if one is hung."""
    pause_s = _pause_s(arguments)
    capture = resolve_capture(arguments.capture)
    if is_dataset(capture):
        message = f"cannot tell the status of {capture}: a dataset has no running processes"
        raise UsageError(message, "Try `ncclscope report`")
    all_jobs = arguments.capture is None
    status = _status(capture)
    if status.unreadable and not status.processes:
        raise none_readable(capture, status.unreadable)
    others = _other_running_jobs(capture) if all_jobs else {}
    _show(status, capture, others, arguments)
    warn_of_removed_logs(capture, "the last calls are not known")
    while pause_s is not None and not status.post_mortem:
        time.sleep(pause_s)
        status = _status(resolve_capture(str(capture)))
        others = _other_running_jobs(capture) if all_jobs else {}
        _show(status, capture, others, arguments)
    if status.hung and not arguments.json and not status.post_mortem:
        print_message(
            f"next: {printable(suggested_commands.command('diagnose', capture))}",
        )
    return _HUNG_EXIT if any(job.hung for job in (status, *others.values())) else 0
