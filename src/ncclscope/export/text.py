"""Operations as text, one a line: CSV with a line of column names, or JSON lines."""

import shutil
from pathlib import Path
from typing import BinaryIO

from ncclscope.analysis.selection import Selection
from ncclscope.export.chunks import chunks, register_rows, row_query
from ncclscope.export.result import ExportResult
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import CONTEXT_COLUMNS
from ncclscope.model.sql_views import copy_to_file, literal, open_connection
from ncclscope.output_files import open_output

ROWS = 1 << 17  # of a chunk: a hundred MB of JSON
# Options of DuckDB's COPY.
_JSON_LINES = "format json, array false"
# Columns that CSV has where the capture has a training context: every program reads all of it.
_OF_CONTEXT = (*CONTEXT_COLUMNS, "module_name", "dimension")
_CSV, _CSV_WITH_HEADER = "format csv, header false", "format csv, header true"


def write_csv(
    model: Model, selection: Selection, path: Path, progress: Progress | None = None
) -> ExportResult:
    """Writes the selected operations as CSV; a value that is not known is empty."""
    known = ("step",) if len(model.tables["steps"]["step"]) else ()
    left_out = () if model.has_context else tuple(n for n in _OF_CONTEXT if n not in known)
    return _write(model, selection, path, (_CSV_WITH_HEADER, _CSV), progress, left_out)


def write_jsonl(
    model: Model, selection: Selection, path: Path, progress: Progress | None = None
) -> ExportResult:
    """Writes the selected operations as JSON lines; a value that is not known is null."""
    return _write(model, selection, path, (_JSON_LINES, _JSON_LINES), progress)


def _write(
    model: Model,
    selection: Selection,
    path: Path,
    copy_options: tuple[str, str],  # of the first chunk, of the others
    progress: Progress | None,
    left_out: tuple[str, ...] = (),  # columns
) -> ExportResult:
    chosen = f"* exclude ({', '.join(left_out)})" if left_out else "*"
    with open_output(path) as (out, scratch):
        file = scratch / "chunk"
        return _write_chunks(model, selection, file, out, copy_options, progress, chosen)


def _write_chunks(
    model: Model,
    selection: Selection,
    file: Path,
    out: BinaryIO,
    copy_options: tuple[str, str],
    progress: Progress | None,
    chosen: str,
) -> ExportResult:
    """Copies chunk after chunk through a temporary file: DuckDB cannot append to a stream."""
    count = 0
    query = f"select {chosen} from ({row_query(model, 'operations', selection)})"
    with open_connection() as connection:
        for number, chunk in enumerate(chunks(connection, model, "operations", selection, ROWS)):
            options = copy_options[min(number, 1)]
            register_rows(connection, model, "operations", chunk.parts)
            copy_to_file(connection, f"copy ({query}) to {literal(str(file))} ({options})")
            with file.open("rb") as lines:
                shutil.copyfileobj(lines, out, 1 << 20)
            file.unlink()
            count += chunk.rows
            if progress:
                progress(chunk.done, chunk.of)
    return ExportResult(count)
