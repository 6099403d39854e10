"""Operations as lines of text, chunk after chunk into one file or stream."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from ncclscope.analysis.selection import Selection
from ncclscope.errors import UsageError
from ncclscope.export.chunks import Progress, chunks, open_connection
from ncclscope.export.files import put_file, scratch_beside
from ncclscope.model.model import Model

STDOUT = Path("-")


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
    if path.suffix == ".gz":
        options, first_options = (f"{text}, compression gzip" for text in (options, first_options))
    with scratch_beside(path) as scratch:
        whole = scratch / "whole"
        with whole.open("xb") as out:
            count = _write(model, chosen, scratch, out, options, first_options, progress)
        put_file(whole, path)
    return count


def _write(
    model: Model,
    chosen: Selection,
    scratch: Path,
    out: BinaryIO,
    options: str,
    first_options: str,
    progress: Progress | None,
) -> int:
    """Compressed chunks one behind the other are one compressed file."""
    count, piece = 0, scratch / "piece"
    with open_connection() as connection:
        for number, chunk in enumerate(chunks(connection, model, "operations", chosen)):
            how = options if number else first_options
            connection.execute(f"copy ({chunk.query}) to {literal(piece)} ({how})")
            with piece.open("rb") as written:
                shutil.copyfileobj(written, out, 1 << 20)
            piece.unlink()
            count += chunk.rows
            if progress:
                progress(chunk.done, chunk.of)
    return count


def literal(path: Path) -> str:
    """A path as a SQL literal."""
    return "'" + str(path).replace("'", "''") + "'"
