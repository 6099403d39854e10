"""Files and directories that appear when they are whole, or not at all."""

import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, cast

from ncclscope.capture.reader import DATASET_FILE
from ncclscope.errors import NcclscopeError, UsageError

STDOUT = Path("-")
_LEVEL = 3  # half the time of 6, a fifth larger


def cannot_write(path: Path, error: OSError) -> NcclscopeError:
    """What to say when a file system refuses."""
    hint = "Name another place with -o"
    return NcclscopeError(f"cannot write {path}: {error.strerror or error}", hint)


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """A directory on the file system of `path`, removed in the end."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.absolute().parent))
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        yield folder
    except OSError as error:
        raise cannot_write(path, error) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_dataset(path: Path) -> bool:
    return (path / DATASET_FILE).is_file()


def check_directory(
    path: Path, force: bool, is_ours: Callable[[Path], bool] = _is_dataset, what: str = "dataset"
) -> None:
    """Refuses to replace anything but an export of the same sort, and that without `force`."""
    if not path.exists() and not path.is_symlink():
        return
    ours = path.is_dir() and not path.is_symlink() and is_ours(path)
    empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    if empty or (ours and force):
        return
    article = "an" if what[0] in "AEIOaeio" else "a"
    known = f"there is {article} {what} already" if ours else f"it exists and is no {what} of ours"
    hint = "Use --force to replace it" if ours else "Name another directory with -o"
    raise UsageError(f"cannot write {path}: {known}", hint)


def holds_only(pattern: str) -> Callable[[Path], bool]:
    """Whether all that is in a directory are files of such names."""

    def fits(path: Path) -> bool:
        return all(fnmatch(entry.name, pattern) and entry.is_file() for entry in path.iterdir())

    return fits


@contextmanager
def writing_directory(path: Path) -> Iterator[Path]:
    """A directory that appears when it is whole."""
    with scratch_beside(path) as scratch:
        made = scratch / "made"
        made.mkdir()
        yield made
        put_directory(made, path)


def put_directory(made: Path, path: Path) -> None:
    """Moves a finished directory into its place; what was there goes."""
    if path.is_dir():
        shutil.rmtree(path)
    os.rename(made, path)


def put_file(made: Path, path: Path) -> None:
    """Moves a finished file into its place."""
    os.replace(made, path)


def create(path: Path, compressed: bool) -> BinaryIO:
    """A new file for bytes."""
    if compressed:
        return cast(BinaryIO, gzip.open(path, "xb", compresslevel=_LEVEL))
    return path.open("xb")


@contextmanager
def writing(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A file that appears when it is whole, and a directory for scratch. `-` is stdout; what ends
    in .gz is compressed.
    """
    if path == STDOUT:
        with tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
            yield sys.stdout.buffer, Path(scratch)
        return
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory", "Name a file with -o")
    with scratch_beside(path) as beside:
        whole = beside / "whole"
        with create(whole, path.suffix == ".gz") as out:
            yield out, beside
        put_file(whole, path)
