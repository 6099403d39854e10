"""Files and directories that appear under their name once they are complete, or not at all."""

import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, cast

from ncclscope.capture.reader import DATASET_FILE
from ncclscope.errors import NcclscopeError, UsageError

STDOUT = Path("-")
_GZIP_LEVEL = 3  # half the time of level 6, a fifth larger


@dataclass(frozen=True, slots=True)
class Written:
    """What an export wrote, and what it left out."""

    count: int  # of units
    untimed: int = 0  # selected operations without the times that the format needs: left out
    unit: str = "operation"
    notes: tuple[str, ...] = ()  # advice for the user

    def __add__(self, other: "Written") -> "Written":
        return Written(
            self.count + other.count,
            self.untimed + other.untimed,
            self.unit,
            (*self.notes, *other.notes),
        )


def write_error(path: Path, error: OSError) -> NcclscopeError:
    """The error for a file that the file system refuses to write."""
    hint = "Name another place with -o"
    return NcclscopeError(f"cannot write {path}: {error.strerror or error}", hint)


@contextmanager
def scratch_near(path: Path) -> Iterator[Path]:
    """A temporary directory in the directory of `path`, so that moving there is atomic."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.absolute().parent))
    except OSError as error:
        raise write_error(path, error) from None
    try:
        yield scratch
    except OSError as error:
        raise write_error(path, error) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _is_dataset(path: Path) -> bool:
    return (path / DATASET_FILE).is_file()


def check_directory(
    path: Path,
    force: bool,
    is_export: Callable[[Path], bool] = _is_dataset,
    what: str = "dataset",
) -> None:
    """Raises UsageError unless `path` is free, empty, or an export of the same format and `force`.

    `is_export` tells whether a directory is such an export, `what` names one in messages.
    """
    if not path.exists() and not path.is_symlink():
        return
    is_plain_directory = path.is_dir() and not path.is_symlink()
    replaceable = is_plain_directory and is_export(path)
    empty = is_plain_directory and not any(path.iterdir())
    if empty or (replaceable and force):
        return
    article = "an" if what[0] in "AEIOaeio" else "a"
    if replaceable:
        message = f"cannot write {path}: there is {article} {what} already"
        raise UsageError(message, "Use --force to replace it")
    message = f"cannot write {path}: it exists and is not {article} {what}"
    raise UsageError(message, "Name another directory with -o")


def holds_only(pattern: str) -> Callable[[Path], bool]:
    """A function that tells whether a directory holds nothing but files that match `pattern`."""

    def matches(path: Path) -> bool:
        return all(fnmatch(entry.name, pattern) and entry.is_file() for entry in path.iterdir())

    return matches


@contextmanager
def writing_directory(path: Path) -> Iterator[Path]:
    """An empty directory to fill; it appears as `path` once it is complete."""
    with scratch_near(path) as scratch:
        directory = scratch / "directory"
        directory.mkdir()
        yield directory
        put_directory(directory, path)


def put_directory(directory: Path, path: Path) -> None:
    """Moves a finished directory to `path` and replaces the directory that was there."""
    if path.is_dir():
        shutil.rmtree(path)
    os.rename(directory, path)


def put_file(file: Path, path: Path) -> None:
    """Moves a finished file to `path`."""
    os.replace(file, path)


def _create(path: Path, compressed: bool) -> BinaryIO:
    if compressed:
        return cast(BinaryIO, gzip.open(path, "xb", compresslevel=_GZIP_LEVEL))
    return path.open("xb")


@contextmanager
def writing(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A file to write to, and a directory for temporary files. The file appears as `path` once it
    is complete; it is compressed if its name ends in .gz. The path `-` is stdout.
    """
    if path == STDOUT:
        with tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
            yield sys.stdout.buffer, Path(scratch)
        return
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory", "Name a file with -o")
    with scratch_near(path) as scratch:
        file = scratch / "file"
        with _create(file, path.suffix == ".gz") as out:
            yield out, scratch
        put_file(file, path)
