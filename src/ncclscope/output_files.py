"""Files and directories that appear under their name once they are complete, or not at all.

Only regular files are replaced. Behind a symbolic link that is the file it points to. A FIFO, a
terminal and a character device such as /dev/null are written to as they are; block devices and
sockets are refused.
"""

import errno
import gzip
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, cast

from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.regular_files import kind_of_file

STDOUT = Path("-")
_GZIP_LEVEL = 3  # half the time of level 6, a fifth larger
_LONGEST_SCRATCH = 100  # bytes of a temporary directory's name; file systems take 255
_READER_WAIT_S = 10.0  # for a program to open the other end of a FIFO
_DESCRIPTORS = ("/dev/", "/proc/")  # where names stand for open files and devices
_SHARED_MEMORY = "/dev/shm/"  # plain files


def write_error(path: Path, error: OSError) -> NcclscopeError:
    """The error for a file that the file system refuses to write."""
    # pyarrow puts a sentence of its own around the system's.
    cause = error.strerror or str(error)
    if error.errno and "[errno " in cause:
        cause = os.strerror(error.errno)
    return NcclscopeError(f"cannot write {path}: {cause}", "Name another place")


# ---- files ----
def is_stdout(path: Path) -> bool:
    """Whether a path names this program's stdout: `-`, /dev/stdout, /dev/fd/1 …"""
    if path == STDOUT:
        return True
    if not _names_open_file(path):
        return False
    with suppress(OSError, ValueError):  # no such file; a stdout without a descriptor
        state, own = os.stat(path), os.fstat(sys.stdout.fileno())
        return (state.st_dev, state.st_ino) == (own.st_dev, own.st_ino)
    return False


def _names_open_file(path: Path) -> bool:
    """Whether a path is where names stand for open files and devices."""
    return str(path).startswith(_DESCRIPTORS) and not str(path).startswith(_SHARED_MEMORY)


def is_replaced(path: Path) -> bool:
    """Whether writing makes a regular file of that name, and not a stream to something else."""
    if is_stdout(path) or _names_open_file(path):
        return False
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def check_file(path: Path) -> None:
    """Raises an error if nothing can be written under that name, before much work is done."""
    if is_stdout(path):
        return
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory", "Name a file")
    with suppress(OSError):
        mode = os.stat(path).st_mode
        if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
            kind = "a disk" if stat.S_ISBLK(mode) else kind_of_file(mode)
            raise UsageError(f"cannot write {path}: it is {kind}", "Name a file")
    parent = Path(os.path.realpath(path)).parent
    if is_replaced(path) and not parent.is_dir():
        message = f"cannot write {path}: No such file or directory"
        raise UsageError(message, f"Create {parent}, or name another place")


@contextmanager
def open_output(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A file to write to, and a directory for temporary files. The file appears as `path` once it
    is complete; it is compressed if its name ends in .gz. The path `-` is stdout.
    """
    check_file(path)
    if not is_replaced(path):
        with _streaming(path) as out, tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
            yield out, Path(scratch)
        return
    with scratch_near(path) as scratch:
        file = scratch / "file"
        with _create(file, path.suffix == ".gz") as out:
            yield out, scratch
        put_file(file, path)


def write_text(path: Path, text: str) -> None:
    """Writes a whole file."""
    with open_output(path) as (out, _):
        out.write(text.encode())


def put_file(file: Path, path: Path) -> None:
    """Moves a finished file to `path`, or copies it into a FIFO or a device."""
    if not is_replaced(path):
        with _streaming(path) as out, file.open("rb") as source:
            shutil.copyfileobj(source, out, 1 << 20)
        return
    target = os.path.realpath(path)
    with suppress(FileNotFoundError):  # who may read it stays as it was
        os.chmod(file, stat.S_IMODE(os.stat(target).st_mode))
    os.replace(file, target)


def size_written(path: Path) -> int | None:
    """Bytes of what was written: a file, or all files of a directory; None for a stream."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if is_replaced(path) else None


def _create(path: Path, compressed: bool) -> BinaryIO:
    if compressed:
        return cast(BinaryIO, gzip.open(path, "xb", compresslevel=_GZIP_LEVEL))
    return path.open("xb")


@contextmanager
def _streaming(path: Path) -> Iterator[BinaryIO]:
    """Stdout, a FIFO or a device, compressed if its name ends in .gz."""
    try:
        if is_stdout(path):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        with os.fdopen(_open_stream(path), "wb") as plain:
            if path.suffix != ".gz":
                yield plain
                return
            with gzip.GzipFile(fileobj=plain, mode="wb", compresslevel=_GZIP_LEVEL) as compressed:
                yield cast(BinaryIO, compressed)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_error(path, error) from None


def _open_stream(path: Path) -> int:
    """A descriptor of something that is no regular file, or of an open file by its /dev name."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    deadline = time.monotonic() + _READER_WAIT_S
    while True:
        try:
            descriptor = os.open(path, flags)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                if error.errno == errno.ENXIO:
                    error.strerror = "no program reads from it"
                raise
        time.sleep(0.05)
    os.set_blocking(descriptor, True)
    return descriptor


# ---- directories ----
def _short_name(path: Path) -> str:
    """The beginning of a file's name, which must stay short and is given to DuckDB."""
    return path.name.encode(errors="ignore")[:_LONGEST_SCRATCH].decode(errors="ignore")


@contextmanager
def scratch_near(path: Path) -> Iterator[Path]:
    """A temporary directory in the directory of `path`, so that moving there is atomic. Where
    `path` is a stream, it is in the system's temporary directory.
    """
    streams = not path.is_dir() and not is_replaced(path)
    parent = None if streams else Path(os.path.realpath(path)).parent
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{_short_name(path)}-", dir=parent))
    except OSError as error:
        raise write_error(path, error) from None
    try:
        yield scratch
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_error(path, error) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check_directory(
    path: Path, force: bool, is_export: Callable[[Path], bool], what: str = "dataset"
) -> None:
    """Raises UsageError unless `path` is free, empty, or an export of the same format and `force`.

    `is_export` tells whether a directory holds such an export and nothing else, `what` names one in
    messages.
    """
    if not path.exists() and not path.is_symlink():
        return
    is_plain_directory = path.is_dir() and not path.is_symlink()
    empty = is_plain_directory and not any(path.iterdir())
    replaceable = is_plain_directory and is_export(path)
    if empty or (replaceable and force):
        return
    article = "an" if what[0] in "AEIOaeio" else "a"
    if replaceable:
        message = f"cannot write {path}: there is {article} {what} already"
        raise UsageError(message, "Use --force to replace it")
    message = f"cannot write {path}: it exists and is not {article} {what}"
    raise UsageError(message, "Name another directory with -o")


def holds_only(*patterns: str) -> Callable[[Path], bool]:
    """A function that tells whether a directory holds nothing but files that match a pattern."""

    def matches(path: Path) -> bool:
        return all(
            entry.is_file() and any(fnmatch(entry.name, pattern) for pattern in patterns)
            for entry in path.iterdir()
        )

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
    """Moves a finished directory out of its scratch directory to `path`. The directory that was
    there goes with the scratch directory, once the new one is in its place.
    """
    replaced = directory.with_name("replaced")
    if path.is_dir():
        os.rename(path, replaced)
    try:
        os.rename(directory, path)
    except OSError:
        if replaced.exists():
            os.rename(replaced, path)
        raise
