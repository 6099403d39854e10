"""Operations as lines of text, chunk after chunk into one file or stream."""

import shutil
from pathlib import Path
from typing import BinaryIO

from ncclscope.analysis.selection import Selection
from ncclscope.export.atomic_files import writing
from ncclscope.export.chunks import chunks
from ncclscope.model.model import Model, Progress
from ncclscope.model.sql_views import literal, open_connection

ROWS = 1 << 17  # of a piece: a hundred MB of JSON


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
    with writing(path) as (out, scratch):
        return _write(model, chosen, scratch, out, options, first_options, progress)


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
