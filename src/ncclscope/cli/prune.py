"""`ncclscope prune`."""

import argparse
from pathlib import Path

from ncclscope.capture.housekeeping import (
    captures_below,
    choose_for_deletion,
    delete,
    parse_age,
    parse_bytes,
)
from ncclscope.errors import UsageError
from ncclscope.humanize import amount, plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which captures to delete."""
    parser.add_argument("directory", nargs="?", default=".", metavar="DIR", help="(default: here)")
    parser.add_argument(
        "--older-than", metavar="AGE", help="last written longer ago than this: 12h, 7d, 2w"
    )
    parser.add_argument(
        "--keep", metavar="BYTES", help="the oldest, until the rest has this size: 50G"
    )
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="show what would be deleted, delete nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Deletes captures by age and size; captures of running jobs stay."""
    if not arguments.older_than and not arguments.keep:
        message = "prune needs to be told what to delete"
        raise UsageError(message, "Give --older-than AGE, --keep BYTES, or both")
    age = parse_age(arguments.older_than) if arguments.older_than else None
    keep = parse_bytes(arguments.keep) if arguments.keep else None
    captures = captures_below(Path(arguments.directory))
    deleted = choose_for_deletion(captures, age, keep)
    for info in deleted:
        verb = "would delete" if arguments.dry_run else "deleting"
        print(f"{verb} {info.path} ({amount(info.bytes)})")
        if not arguments.dry_run:
            delete(info)
    freed = amount(sum(info.bytes for info in deleted))
    running = sum(bool(info.running) for info in captures)
    note = f"; {plural(running, 'running capture')} left alone" if running else ""
    print(f"{plural(len(deleted), 'capture')}, {freed}{note}")
    return 0
