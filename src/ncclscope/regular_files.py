"""Files opened for reading: regular files only, never waiting, never larger than expected.

Captures lie in directories that other users may write to. A FIFO there would stop a reader for
ever, a link to /dev/zero would fill its memory.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
}


class NotRegularError(OSError):
    """A path that is no regular file, or a file that is larger than its format allows."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(errno.EINVAL, cause, str(path))

    def __str__(self) -> str:
        return f"cannot read {self.filename}: {self.strerror}"


def kind_of_file(mode: int) -> str:
    """What a file of this mode is, in words; "" for a regular file."""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no regular file")


def is_path_within(path: str) -> bool:
    """Whether a text can be a path within some directory: no path elsewhere, and no zero byte."""
    return "\0" not in path and not path.startswith("/") and ".." not in path.split("/")


def open_regular(path: Path, *, follow: bool = False) -> int:
    """A descriptor of a regular file. Symbolic links are followed only with `follow`: where the
    user named the file.
    """
    # Looked at before it is opened: opening a device can do something.
    _check(path, os.stat(path, follow_symlinks=follow).st_mode)
    descriptor = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW)
    try:
        _check(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_binary(path: Path, *, follow: bool = False) -> BinaryIO:
    """A regular file for reading."""
    return os.fdopen(open_regular(path, follow=follow), "rb")


def read_bytes(path: Path, largest_bytes: int, *, follow: bool = False) -> bytes:
    """All bytes of a regular file of at most `largest_bytes`."""
    with open_binary(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        check_size(path, size, largest_bytes)
        # Files of /proc have no size. Room for `largest_bytes` is not asked for where it is not
        # needed: the kernel would give and take it back each time.
        data = file.read(size + 1 if size else largest_bytes + 1)
    check_size(path, len(data), largest_bytes)  # it may have grown
    return data


def read_text(path: Path, largest_bytes: int) -> str:
    """The text of a regular file of at most `largest_bytes`; UnicodeDecodeError for other bytes."""
    return read_bytes(path, largest_bytes).decode()


def check_size(path: Path, size_bytes: int, largest_bytes: int) -> None:
    """Raises NotRegularError for a file that is larger than its format allows."""
    if size_bytes > largest_bytes:
        cause = f"it has {size_bytes:,} bytes, and no such file has over {largest_bytes:,}"
        raise NotRegularError(path, cause)


def _check(path: Path, mode: int) -> None:
    kind = kind_of_file(mode)
    if kind:
        raise NotRegularError(path, f"it is {kind}, not a regular file")
