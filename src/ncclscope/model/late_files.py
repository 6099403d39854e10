"""Files that another machine wrote, and that this one sees late.

Shared file systems keep what a machine knows of a directory for some seconds: a file that exists is
not there yet, or shorter than it is. Tasks of a cluster wait for such files. What they cannot see
is an error, and never taken for nothing.
"""

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

PATIENCE_S = 90.0  # NFS knows a directory for up to 60 s
_PAUSE_S = 0.2
_CHANGING = ("live", "arena.partial")  # while a job runs
_LOG, _DECODED = "log.", "decoded."
_patience_s: ContextVar[float] = ContextVar("patience_s", default=0.0)
_seen: deque[Path] = deque(maxlen=8)  # folders of which this machine has seen a whole file


@contextmanager
def waiting_for_late_files() -> Iterator[None]:
    """Inside, files that are not there yet are waited for."""
    token = _patience_s.set(PATIENCE_S)
    try:
        yield
    finally:
        _patience_s.reset(token)


def wait_for_size(path: Path, size_bytes: int) -> None:
    """Waits until a file has this size; OSError where it has not in time. Outside of
    `waiting_for_late_files` nothing happens.
    """
    if _patience_s.get():
        _wait(lambda: [] if _size(path) >= size_bytes else [path.name], path.parent)


def sizes_in(folder: Path) -> dict[str, int]:
    """Names and sizes of the files of a process."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # rotated away right now
                if entry.name not in _CHANGING and entry.is_file(follow_symlinks=False):
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
    return sizes


def wait_for_process(folder: Path, sizes: Mapping[str, int]) -> None:
    """Waits until this machine sees the files of a process as another one does: `sizes`, or more of
    them. Logs may have been rotated away meanwhile, or decoded.
    """

    def late() -> list[str]:
        seen: dict[str, int] = {}
        with suppress(FileNotFoundError):
            seen = sizes_in(folder)
        if any(name.startswith(_DECODED) for name in seen.keys() - sizes.keys()):
            return []
        oldest = min((name for name in seen if name.startswith(_LOG)), default="")
        return [
            name
            for name, size in sizes.items()
            if seen.get(name, -1) < size and not (name.startswith(_LOG) and name < oldest)
        ]

    _wait(late, folder)


def _wait(late: Callable[[], list[str]], folder: Path) -> None:
    until = time.monotonic() + (_patience_s.get() or PATIENCE_S)
    while names := late():
        if time.monotonic() > until or _is_removed(folder):
            message = f"this machine does not see {', '.join(names[:3])} of {folder} as others do"
            raise OSError(errno.ESTALE, message)
        with suppress(OSError):
            os.listdir(folder)  # has a network file system look again
        time.sleep(_PAUSE_S)
    if folder not in _seen:
        _seen.append(folder)


def _is_removed(folder: Path) -> bool:
    """Whether a folder that this machine saw is no longer there: its command was interrupted, and
    the worker is free for others.
    """
    return folder in _seen and not folder.exists()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
