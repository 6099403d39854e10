"""Files of other tools: opened whether compressed or not, and never read without a bound."""

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
from ncclscope.regular_files import open_binary

_GZIP = b"\x1f\x8b"
HEAD_BYTES = 1 << 16
LONGEST_LINE = 1 << 24
# Tools' text compresses less than this; a file that expands more is there to fill the disk.
_MOST_EXPANDED = 250
_EXPANDED_ANYHOW = 1 << 28
_HEAD_OF_LOG, _TAIL_OF_LOG = 48 << 20, 16 << 20  # bytes of a long log that are read
# Reasons why records are lost.
DAMAGED = "lines cannot be read"
CUT_OFF = "files are cut off or damaged"


class _Bounded(io.RawIOBase):
    """A decompressed stream that ends with an error where its file expands too much."""

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
def open_file(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed if it is compressed."""
    try:
        with open_binary(path, follow=True) as file:
            compressed = file.read(2) == _GZIP
            file.seek(0)
            if not compressed:
                yield file
                return
            size = os.fstat(file.fileno()).st_size
            with gzip.GzipFile(fileobj=file) as inner:
                bounded = _Bounded(cast(BinaryIO, inner), path, size)
                yield io.BufferedReader(bounded, 1 << 17)
    except (OSError, EOFError, zlib.error) as error:
        raise cannot_read(path, getattr(error, "strerror", None) or error) from None


def head_of(path: Path) -> bytes:
    """The first bytes of a file, decompressed; b"" where it cannot be read."""
    try:
        with open_file(path) as file:
            return file.read(HEAD_BYTES)
    except FormatError:
        return b""


def lines_of(path: Path, report: ImportReport) -> Iterator[bytes]:
    """The lines of a file, of one that is cut off those before; overlong ones are counted."""
    with open_file(path) as file:
        while True:
            try:
                line = file.readline(LONGEST_LINE)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                report.lose(CUT_OFF)
                return
            if not line:
                return
            if len(line) >= LONGEST_LINE and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE)
                report.lose(DAMAGED)
                continue
            yield line


def ends_of(path: Path, report: ImportReport) -> Iterator[bytes]:
    """The lines of a log; of a very long one those at its beginning and end."""
    size = path.stat().st_size
    if size <= _HEAD_OF_LOG + _TAIL_OF_LOG:
        yield from lines_of(path, report)
        return
    report.lose("MB in the middle of a log not read", (size - _HEAD_OF_LOG - _TAIL_OF_LOG) >> 20)
    with open_binary(path, follow=True) as file:
        while file.tell() < _HEAD_OF_LOG and (line := file.readline(LONGEST_LINE)):
            yield line
        file.seek(size - _TAIL_OF_LOG)
        file.readline(LONGEST_LINE)  # the rest of a line
        while line := file.readline(LONGEST_LINE):
            yield line


def read_bytes(path: Path, largest_bytes: int) -> bytes:
    """All bytes of a file, decompressed; FormatError for more than `largest_bytes`."""
    with open_file(path) as file:
        data = file.read(largest_bytes + 1)
    if len(data) > largest_bytes:
        raise cannot_read(path, f"it is larger than {largest_bytes >> 20} MB")
    return data
