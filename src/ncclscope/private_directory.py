"""Directories and files that only their owner can read, as captures are."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# How names of files begin that are being written, or that a killed command left.
UNFINISHED = "new."


def make_private_directory(path: Path) -> None:
    """Creates a directory and its missing parents, all with mode 0700."""
    missing = [path, *path.parents]
    while missing and missing[-1].exists():
        missing.pop()
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def new_path(path: Path) -> Iterator[Path]:
    """A name for a library that makes its file itself. The file takes the place of `path` once it
    is complete. A link that another user put there is replaced; nothing is written through it.
    """
    new = _unfinished(path)
    try:
        yield new
        with os.fdopen(os.open(new, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


@contextmanager
def new_private_file(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file to be written, which takes the place of `path` once it is complete, as with
    `new_path`. `mode`: 0o644 where others shall read it.
    """
    new = _unfinished(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, mode), "wb") as file:
            yield file
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def write_private_text(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file with a text, as `new_private_file` does."""
    with new_private_file(path, mode) as file:
        file.write(text.encode())


def _unfinished(path: Path) -> Path:
    """A name beside `path` that nobody else can have guessed; readers and `pack` pass over it."""
    # os.urandom, not secrets: `run` imports this, and that would bring hashlib and random along.
    return path.with_name(f"{UNFINISHED}{path.name}.{os.urandom(8).hex()}")
