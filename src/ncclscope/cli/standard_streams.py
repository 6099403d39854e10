"""stdin, stdout and stderr as verbs need them, whatever this process was started with."""

import io
import os
import sys

TYPE_CHECKING = False  # not typing's: see ncclscope/__init__.py
if TYPE_CHECKING:
    from typing import TextIO


def prepare_streams() -> None:
    """Opens the streams that are closed, and makes characters that stdout cannot show `?`.

    A file that is opened while stdout is closed would become stdout. Writing to a closed stdout
    fails as it did, here and in a job that inherits it; what is for a closed stderr is lost.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
    sys.stdout = _usable(sys.stdout, 1)
    sys.stderr = _usable(sys.stderr, 2)


def _usable(stream: "TextIO | None", descriptor: int) -> "TextIO":
    if stream is None:  # Python found it closed
        return open(descriptor, "w", encoding="utf-8", errors="replace", closefd=False)
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        stream.reconfigure(errors="replace")
    return stream
