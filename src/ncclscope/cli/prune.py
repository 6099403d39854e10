"""`ncclscope prune`."""

import argparse
from pathlib import Path

from ncclscope.capture.deletion import delete
from ncclscope.capture.housekeeping import (
    CaptureInfo,
    captures_below,
    choose_for_deletion,
    parse_age,
    parse_bytes,
)
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import amount, plural, printable

_LEAST_WITHOUT_UNIT = 4096  # bytes: no capture is smaller


def _delete(info: CaptureInfo) -> None:
    try:
        left = delete(info.path)
    except OSError as error:
        message = f"cannot delete {error.filename or info.path}: {error.strerror}"
        raise NcclscopeError(message, "Delete it as the user whose job made it") from None
    if left:
        named = ", ".join(printable(path.name) for path in left[:3])
        more = f" and {len(left) - 3:,} more" if len(left) > 3 else ""
        print(f"left there, as ncclscope did not write it: {named}{more}")


def _bytes_to_keep(text: str) -> int:
    """Bytes in 50G. A small number without a unit is refused: whoever means five captures, or
    gigabytes, would lose all of them.
    """
    size_bytes = parse_bytes(text)
    if text.isdigit() and 0 < size_bytes < _LEAST_WITHOUT_UNIT:
        message = f"--keep {text} would delete every finished capture: it says {text} bytes"
        raise UsageError(message, f"Give a size with its unit, such as --keep {text}G")
    return size_bytes


def run(arguments: argparse.Namespace) -> int:
    """Deletes captures by age and size; captures of running jobs stay."""
    if not arguments.older_than and not arguments.keep:
        message = "prune deletes nothing without a limit"
        raise UsageError(message, "Give --older-than AGE, --keep BYTES, or both")
    age = parse_age(arguments.older_than) if arguments.older_than else None
    keep = _bytes_to_keep(arguments.keep) if arguments.keep else None
    captures = captures_below(Path(arguments.directory), follow_links=False)
    deleted = choose_for_deletion(captures, age, keep)
    for info in deleted:
        verb = "would delete" if arguments.dry_run else "deleting"
        print(f"{verb} {printable(str(info.path))} ({amount(info.bytes)})")
        if not arguments.dry_run:
            _delete(info)
    freed = amount(sum(info.bytes for info in deleted))
    running = sum(bool(info.running) for info in captures)
    note = f"; {plural(running, 'running capture')} left alone" if running else ""
    print(f"{plural(len(deleted), 'capture')}, {freed}{note}")
    return 0
