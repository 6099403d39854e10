"""`ncclscope salvage`."""

import argparse
import os
from pathlib import Path

from ncclscope.capture.salvage import salvage, salvage_for_all
from ncclscope.cli.messages import print_message
from ncclscope.errors import UsageError
from ncclscope.humanize import plural, printable


def run(arguments: argparse.Namespace) -> int:
    """Brings in what dead processes left in shared memory. Meant for a scheduler's epilog or a
    preStop hook; it can be run at any time.
    """
    capture = Path(arguments.capture) if arguments.capture else None
    refused: list[str] = []
    bring_in = salvage_for_all if os.geteuid() == 0 else salvage
    folders = bring_in(capture, refused)
    for text in refused:
        print_message(f"ncclscope: left alone: {printable(text)}")
    if capture is not None and not folders and not refused and not capture.exists():
        message = f"cannot salvage {capture}: no such directory, and nothing in shared memory"
        raise UsageError(message, "Name the directory that `ncclscope run` printed")
    for folder in folders:
        print(printable(str(folder)))
    print(f"{plural(len(folders), 'process', 'processes')} brought in")
    return 0
