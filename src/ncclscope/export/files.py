"""Files and directories that appear when they are whole, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncclscope.capture.reader import DATASET_FILE
from ncclscope.errors import NcclscopeError, UsageError


def _cannot_write(path: Path, error: OSError) -> NcclscopeError:
    hint = "Name another place with -o"
    return NcclscopeError(f"cannot write {path}: {error.strerror or error}", hint)


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """A directory on the file system of `path`, removed in the end."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.absolute().parent))
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        yield folder
    except OSError as error:
        raise _cannot_write(path, error) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_directory(path: Path, force: bool) -> None:
    """Refuses to replace anything but a dataset of ours, and that without `force`."""
    if not path.exists() and not path.is_symlink():
        return
    ours = path.is_dir() and (path / DATASET_FILE).is_file()
    empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    if empty or (ours and force):
        return
    what = "there is a dataset already" if ours else "it exists and is no dataset of ours"
    hint = "Use --force to replace it" if ours else "Name another directory with -o"
    raise UsageError(f"cannot write {path}: {what}", hint)


def put_directory(made: Path, path: Path) -> None:
    """Moves a finished directory into its place; what was there goes."""
    if path.is_dir():
        shutil.rmtree(path)
    os.rename(made, path)


def put_file(made: Path, path: Path) -> None:
    """Moves a finished file into its place."""
    os.replace(made, path)
