"""Foreign files: opened whether compressed or not, and never read without a bound."""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ncclscope.errors import FormatError
from ncclscope.ingest.records import ImportReport

_GZIP = b"\x1f\x8b"
HEAD_BYTES = 1 << 16
LONGEST_LINE = 1 << 24
# What compresses better than text of tools does is there to fill memory and disks.
_MOST_EXPANDED = 250
_EXPANDED_ANYHOW = 1 << 28
_HEAD_OF_LOG, _TAIL_OF_LOG = 48 << 20, 16 << 20  # some seconds' work
DAMAGED = "lines cannot be read"


class _Bounded(io.RawIOBase):
    """A decompressed stream that ends with an error where its file is a bomb."""

    def __init__(self, inner: BinaryIO, path: Path, compressed_bytes: int) -> None:
        self._inner, self._path = inner, path
        self._left = _EXPANDED_ANYHOW + _MOST_EXPANDED * compressed_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        data = self._inner.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            cause = f"it expands to over {_MOST_EXPANDED} times its size"
            raise cannot_read(self._path, cause, "Decompress it yourself if that is right")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()


def cannot_read(path: Path, cause: object, hint: str = "") -> FormatError:
    """An error that names the file."""
    return FormatError(f"cannot read {path}: {cause}", hint)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed where it is compressed."""
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP
            file.seek(0)
            if not compressed:
                yield cast(BinaryIO, file)
                return
            size = os.fstat(file.fileno()).st_size
            with gzip.GzipFile(fileobj=file) as inner:
                bounded = _Bounded(cast(BinaryIO, inner), path, size)
                yield io.BufferedReader(bounded, 1 << 17)
    except (OSError, EOFError, zlib.error) as error:
        raise cannot_read(path, getattr(error, "strerror", None) or error) from None


def head_of(path: Path) -> bytes:
    """The beginning of a file, decompressed; b"" where it cannot be read."""
    try:
        with opened(path) as file:
            return file.read(HEAD_BYTES)
    except FormatError:
        return b""


def lines_of(path: Path, found: ImportReport) -> Iterator[bytes]:
    """Lines; of a compressed file that is cut off, those before. Too long ones are counted."""
    with opened(path) as file:
        while True:
            try:
                line = file.readline(LONGEST_LINE)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                found.lose("files are cut off or damaged")
                return
            if not line:
                return
            if len(line) >= LONGEST_LINE and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE)
                found.lose(DAMAGED)
                continue
            yield line


def ends_of(path: Path, found: ImportReport) -> Iterator[bytes]:
    """Lines of a log that may be of any length: all of them, or those at its beginning and end."""
    size = path.stat().st_size
    if size <= _HEAD_OF_LOG + _TAIL_OF_LOG:
        yield from lines_of(path, found)
        return
    found.lose("MB in the middle of a log not read", (size - _HEAD_OF_LOG - _TAIL_OF_LOG) >> 20)
    with path.open("rb") as file:
        while file.tell() < _HEAD_OF_LOG and (line := file.readline(LONGEST_LINE)):
            yield line
        file.seek(size - _TAIL_OF_LOG)
        file.readline(LONGEST_LINE)  # the rest of one
        while line := file.readline(LONGEST_LINE):
            yield line


def whole(path: Path, largest_bytes: int) -> bytes:
    """All of a file that has to be read at once."""
    with opened(path) as file:
        data = file.read(largest_bytes + 1)
    if len(data) > largest_bytes:
        raise cannot_read(path, f"it is larger than {largest_bytes >> 20} MB")
    return data
