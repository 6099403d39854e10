"""The control file of a capture: requests to the processes of a running job.

Every process reads it twice a second. It is replaced as a whole and has a serial number, so that a
request is carried out once.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncclscope.private_directory import write_private_text
from ncclscope.regular_files import read_bytes

_LOCK_S = 1.0


@contextmanager
def _alone(capture: Path) -> Iterator[None]:
    """Holds others off who make a request at the same moment: two with one serial number would be
    taken for one. For a second at most: anybody may hold the lock, and some file systems have none.
    """
    folder, end = os.open(capture, os.O_RDONLY | os.O_DIRECTORY), time.monotonic() + _LOCK_S
    try:
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not isinstance(error, BlockingIOError) or time.monotonic() > end:
                    break
                time.sleep(0.01)
        yield
    finally:
        os.close(folder)


def last_serial(capture: Path) -> int:
    """The serial number of the last request; 0: there was none."""
    try:
        first = read_bytes(capture / "control", 1 << 16).decode(errors="replace").split("\n", 1)[0]
    except OSError:
        return 0
    number = first.removeprefix("serial ")
    return int(number) if number.isdigit() else 0


def request(capture: Path, *lines: str) -> int:
    """Writes a request to the processes of a capture; returns its serial number."""
    with _alone(capture):
        serial = last_serial(capture) + 1
        write_private_text(capture / "control", "\n".join([f"serial {serial}", *lines, ""]))
    return serial
