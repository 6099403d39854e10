"""Operations as lines of text, chunk after chunk into one file or stream."""

import gzip
import shutil
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from ncclscope.analysis.selection import Selection
from ncclscope.errors import UsageError
from ncclscope.export.chunks import chunks
from ncclscope.export.files import put_file, scratch_beside
from ncclscope.model.model import Model, Progress
from ncclscope.model.shown import literal, open_connection

STDOUT = Path("-")
ROWS = 1 << 17  # of a piece: a hundred MB of JSON
_LEVEL = 3  # half the time of 6, a fifth larger


def write_text(
    model: Model,
    chosen: Selection,
    path: Path,
    options: str,
    first_options: str,
    progress: Progress | None = None,
) -> int:
    """Writes operations and returns how many. Options are those of DuckDB's COPY; the first chunk
    has its own. The path `-` is stdout; one that ends in .gz is compressed.
    """
    if path == STDOUT:
        with tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
            return _write(
                model, chosen, Path(scratch), sys.stdout.buffer, options, first_options, progress
            )
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory", "Name a file with -o")
    with scratch_beside(path) as scratch:
        whole = scratch / "whole"
        with _create(whole, path.suffix == ".gz") as out:
            count = _write(model, chosen, scratch, out, options, first_options, progress)
        put_file(whole, path)
    return count


def _create(path: Path, compressed: bool) -> BinaryIO:
    """A new file for bytes."""
    if compressed:
        return cast(BinaryIO, gzip.open(path, "xb", compresslevel=_LEVEL))
    return path.open("xb")


def _write(
    model: Model,
    chosen: Selection,
    scratch: Path,
    out: BinaryIO,
    options: str,
    first_options: str,
    progress: Progress | None,
) -> int:
    count, piece = 0, scratch / "piece"
    with open_connection() as connection:
        for number, chunk in enumerate(chunks(connection, model, "operations", chosen, ROWS)):
            how = options if number else first_options
            connection.execute(f"copy ({chunk.query}) to {literal(str(piece))} ({how})")
            with piece.open("rb") as written:
                shutil.copyfileobj(written, out, 1 << 20)
            piece.unlink()
            count += chunk.rows
            if progress:
                progress(chunk.done, chunk.of)
    return count
