"""Directories that only their owner can read, as captures are."""

from pathlib import Path


def make_private_directory(path: Path) -> None:
    """Creates a directory and its missing parents, all with mode 0700."""
    missing = [path, *path.parents]
    while missing and missing[-1].exists():
        missing.pop()
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
