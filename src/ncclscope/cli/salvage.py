"""`ncclscope salvage`."""

import argparse
import os
from pathlib import Path

from ncclscope.capture.salvage import salvage, salvage_for_all
from ncclscope.errors import UsageError
from ncclscope.humanize import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which capture to salvage."""
    parser.add_argument(
        "capture",
        nargs="?",
        metavar="DIR",
        help="only this capture (default: all of this user's on this host; as root: of all users)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Brings in what dead processes left in shared memory. Meant for a scheduler's epilog or a
    preStop hook; it can be run at any time.
    """
    capture = Path(arguments.capture) if arguments.capture else None
    folders = salvage_for_all(capture) if os.geteuid() == 0 else salvage(capture)
    if capture is not None and not folders and not capture.exists():
        message = f"cannot salvage {capture}: no such directory, and nothing in shared memory"
        raise UsageError(message, "Name the directory that `ncclscope run` printed")
    for folder in folders:
        print(folder)
    print(f"{plural(len(folders), 'process', 'processes')} brought in")
    return 0
