"""The control file of a capture: requests to the processes of a running job.

Every process reads it twice a second. It is replaced as a whole and has a serial number, so that a
request is carried out once.
"""

from pathlib import Path

from ncclscope.private_directory import write_private_text
from ncclscope.regular_files import read_bytes


def _serial(path: Path) -> int:
    try:
        first = read_bytes(path, 1 << 16).decode(errors="replace").split("\n", 1)[0]
    except OSError:
        return 0
    number = first.removeprefix("serial ")
    return int(number) if number.isdigit() else 0


def request(capture: Path, *lines: str) -> int:
    """Writes a request to the processes of a capture; returns its serial number."""
    path = capture / "control"
    serial = _serial(path) + 1
    write_private_text(path, "\n".join([f"serial {serial}", *lines, ""]))
    return serial
