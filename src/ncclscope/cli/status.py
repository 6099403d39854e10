"""`ncclscope status`."""

import argparse
import json
import sys
import time
from pathlib import Path

from ncclscope.capture.housekeeping import is_running, process_folders
from ncclscope.capture.reader import (
    find_captures,
    is_dataset,
    resolve_capture,
)
from ncclscope.cli import suggested_commands
from ncclscope.diagnose.hang.judge import judge
from ncclscope.diagnose.hang.verdict import Status
from ncclscope.errors import UsageError
from ncclscope.humanize import printable
from ncclscope.report.status import as_json, lines, other_lines
from ncclscope.snapshot.process import read_snapshots

_WATCH_S = 2.0  # between two looks
_HUNG = 4  # exit code
_CLEAR = "\x1b[H\x1b[2J"
Others = dict[str, Status]  # by path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, and how often."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument("--json", action="store_true", help="JSON; see docs/verbs/status.md")
    parser.add_argument(
        "--watch",
        nargs="?",
        const="",
        metavar="SECONDS",
        help="again and again (default: every 2 s) until no process is alive",
    )


def _look(capture: Path) -> Status:
    return judge(*read_snapshots(process_folders(capture)))


def _running_beside(capture: Path) -> Others:
    """Other captures here whose jobs run: who names none asks about all of them."""
    others = [path for path in find_captures(Path.cwd()) if path.resolve() != capture.resolve()]
    running = [path for path in others if any(map(is_running, process_folders(path)))]
    return {str(path): _look(path) for path in running}


def _show(status: Status, capture: Path, others: Others, arguments: argparse.Namespace) -> None:
    if arguments.json:
        indent = None if arguments.watch is not None else 2
        answer = as_json(status, str(capture), others)
        print(json.dumps(answer, indent=indent), flush=True)
        return
    if arguments.watch is not None:
        clear = _CLEAR if sys.stdout.isatty() else ""
        print(f"{clear}{time.strftime('%H:%M:%S')} {capture}")
    chosen = arguments.watch is None and arguments.capture != str(capture)
    for line in lines(status, _shortest(capture) if chosen else ""):
        print(line, flush=True)
    for line in other_lines({_shortest(Path(path)): one for path, one in others.items()}):
        print(line, flush=True)


def _shortest(path: Path) -> str:
    """From here, where it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def _pause_s(arguments: argparse.Namespace) -> float | None:
    """Between two looks; None: one is enough. The word behind --watch may be the capture."""
    if arguments.watch is None:
        return None
    try:
        return float(arguments.watch or _WATCH_S)
    except ValueError:
        if arguments.capture is not None:
            message = f"--watch {arguments.watch} is no number of seconds"
            raise UsageError(message, "Give it as in --watch 5") from None
        arguments.capture = arguments.watch
        return _WATCH_S


def run(arguments: argparse.Namespace) -> int:
    """Prints one line for each communicator that is not fine; 4 where one is hung."""
    pause_s = _pause_s(arguments)
    capture = resolve_capture(arguments.capture)
    if is_dataset(capture):
        message = f"cannot tell the status of {capture}: a dataset has no running processes"
        raise UsageError(message, "Try `ncclscope report`")
    asked_for_all = arguments.capture is None
    status, others = _look(capture), _running_beside(capture) if asked_for_all else {}
    _show(status, capture, others, arguments)
    while pause_s is not None and not status.post_mortem:
        time.sleep(max(pause_s, 0.1))
        status = _look(resolve_capture(str(capture)))
        others = _running_beside(capture) if asked_for_all else {}
        _show(status, capture, others, arguments)
    if status.hung and not arguments.json and not status.post_mortem:
        print(
            f"next: {printable(suggested_commands.command('diagnose', capture))}", file=sys.stderr
        )
    return _HUNG if any(one.hung for one in (status, *others.values())) else 0
