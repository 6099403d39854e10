"""Directories and files that only their owner can read, as captures are."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def make_private_directory(path: Path) -> None:
    """Creates a directory and its missing parents, all with mode 0700."""
    missing = [path, *path.parents]
    while missing and missing[-1].exists():
        missing.pop()
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def new_private_file(path: Path) -> Iterator[BinaryIO]:
    """A file to be written, which takes the place of `path` once it is complete. A link that
    another user put there is replaced; nothing is written through it.
    """
    # os.urandom, not secrets: `run` imports this, and that would bring hashlib and random along.
    new = path.with_name(f"{path.name}.{os.urandom(8).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            yield file
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def write_private_text(path: Path, text: str) -> None:
    """Writes a file with a text, as `new_private_file` does."""
    with new_private_file(path) as file:
        file.write(text.encode())
