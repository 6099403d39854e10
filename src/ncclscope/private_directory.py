"""Directories that nobody but their owner looks into: what captures are made of."""

from pathlib import Path


def make_private_directory(path: Path) -> None:
    """Makes a directory and those above it that are missing, all of them with mode 0700."""
    missing = [path, *path.parents]
    while missing and missing[-1].exists():
        missing.pop()
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
