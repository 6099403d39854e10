"""Rows of a table as Parquet files. Each has one writer, and appears when it is complete: a writer
that is killed, or done again, leaves whole files or none.

With pyarrow, growing columns are written as differences, which saves up to a sixth; names stay
codes until they are written, and columns without unknown values are declared so, which is twice as
fast. DuckDB's own delta encoding is not used: some readers refuse its blocks.
"""

import importlib
import importlib.util
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ncclscope.analysis.query import Rows
from ncclscope.analysis.selection import Selection
from ncclscope.arrays.chunks import row_chunks
from ncclscope.export.chunks import RowChunk, chunks, rows_in
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import NONE, SCHEMA_VERSION
from ncclscope.model.sql_views import (
    copy_to_file,
    literal,
    named_by,
    open_connection,
    rows_of_table,
    shown_columns,
)
from ncclscope.model.store.dataset_layout import KEYS, key_folder, part_name, unfinished_part
from ncclscope.output_files import put_file
from ncclscope.threads import Task, Threads

ROWS = 1 << 20  # of a file, roughly, and of a row group
_KEY = "ncclscope_schema"
_ZSTD_LEVEL = 1
# Columns whose values mostly grow from row to row.
_GROWING = (
    "operation", "call_ns", "call_end_ns", "launch_ns", "launch_end_ns", "enqueue_ns", "start_ns",
    "end_ns", "first_start_ns", "last_start_ns", "last_end_ns", "group_call", "event",
    "call_order", "sequence", "instance",
)  # fmt: skip
_FILES_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class FolderRows:
    """What goes into one folder of a dataset."""

    table: str
    folder: str  # below the dataset
    parts: tuple[Rows, ...]  # rows of the table, in order


@dataclass(frozen=True, slots=True)
class _File:
    table: str
    path: Path
    chunk: RowChunk
    done: int  # rows up to its end, of all that are written


def has_pyarrow() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def folders_of(model: Model, table: str) -> list[FolderRows]:
    """The folders of a table: one, or one for each value of its key."""
    if table not in KEYS:
        return [FolderRows(table, table, ((0, rows_of_table(model, table)),))]
    by_value: dict[int, list[Rows]] = {}
    column = model.tables[table][KEYS[table]]
    for first, last in _runs(column):
        by_value.setdefault(int(column[first]), []).append((first, last))
    return [
        FolderRows(table, key_folder(table, value), tuple(by_value[value]))
        for value in sorted(by_value, key=lambda value: (value == NONE, value))
    ]


def _runs(column: np.ndarray) -> Iterator[Rows]:
    """Stretches of equal values."""
    first = 0
    for rows in row_chunks(len(column)):
        before = max(rows.start - 1, 0)
        own = np.asarray(column[before : rows.stop])
        for last in (np.flatnonzero(own[1:] != own[:-1]) + before + 1).tolist():
            yield first, last
            first = last
    if first < len(column):
        yield first, len(column)


def write_folders(
    model: Model,
    selection: Selection,
    dataset: Path,
    folders: Sequence[FolderRows],
    with_pyarrow: bool,
    progress: Progress | None = None,
) -> int:
    """Writes the selected rows; returns how many. A folder of a key without any is left out."""
    write = _write_with_pyarrow if with_pyarrow else _write_with_duckdb
    with open_connection() as connection:
        files = _files(connection, model, selection, dataset, folders)
        total = sum(last - first for own in folders for first, last in own.parts)
        return write(connection, model, files, progress, total)


def write_no_rows(model: Model, dataset: Path, table: str) -> None:
    """Writes a file without rows, which tells readers the columns of a table."""
    folder = key_folder(table, 0) if table in KEYS else table
    (dataset / folder).mkdir(parents=True, exist_ok=True)
    with open_connection() as connection:
        chunk = next(chunks(connection, model, table, Selection(), ROWS, (), _left_out(table)))
        copy_query(connection, chunk.query, dataset / folder / part_name(0))


def _left_out(table: str) -> frozenset[str]:
    """Columns that are not in the files: the folder's name says the key."""
    return frozenset({KEYS[table]} if table in KEYS else ())


def _files(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    selection: Selection,
    dataset: Path,
    folders: Sequence[FolderRows],
) -> Iterator[_File]:
    before = 0
    for own in folders:
        parts = chunks(
            connection, model, own.table, selection, ROWS, own.parts, _left_out(own.table)
        )
        for number, chunk in enumerate(parts):
            if chunk.rows or own.table not in KEYS:
                (dataset / own.folder).mkdir(parents=True, exist_ok=True)
                path = dataset / own.folder / part_name(number)
                yield _File(own.table, path, chunk, before + chunk.done)
        before += sum(last - first for first, last in own.parts)


# ---- without pyarrow ----
def _write_with_duckdb(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    files: Iterator[_File],
    progress: Progress | None,
    total: int,
) -> int:
    count = 0
    for file in files:
        copy_query(connection, file.chunk.query, file.path)
        count += file.chunk.rows
        if progress:
            progress(file.done, total)
    return count


def copy_query(connection: duckdb.DuckDBPyConnection, query: str, file: Path) -> None:
    """Writes a file with plain and dictionary encodings only: every reader knows them."""
    new = unfinished_part(file)
    copy_to_file(
        connection,
        f"copy ({query}) to {literal(str(new))} (format parquet, compression zstd, "
        f"row_group_size {ROWS}, kv_metadata {{{_KEY}: '{SCHEMA_VERSION}'}})",
    )
    put_file(new, file)


# ---- with pyarrow ----
def _write_with_pyarrow(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    files: Iterator[_File],
    progress: Progress | None,
    total: int,
) -> int:
    """Writes several files at once: encoding and compression take most of the time."""
    arrow: Any = importlib.import_module("pyarrow")
    count, waiting, gaps = 0, deque[Task[None]](), dict[str, frozenset[str]]()
    with Threads(_FILES_AT_ONCE) as threads:
        for file in files:
            table, chunk = file.table, file.chunk
            if chunk.restricted:
                stream = connection.sql(chunk.query)
                rows = arrow.RecordBatchReader.from_stream(stream).read_all()
            else:
                if table not in gaps:
                    gaps[table] = _with_unknowns(model, table)
                rows = _arrow_table(model, table, chunk.parts, gaps[table])
            while len(waiting) >= _FILES_AT_ONCE:
                waiting.popleft().result()
            waiting.append(threads.submit(_write_file, rows, file.path))
            count += chunk.rows
            if progress:
                progress(file.done, total)
        for task in waiting:
            task.result()
    return count


def _with_unknowns(model: Model, table: str) -> frozenset[str]:
    """Columns in which a value may be unknown. All files of a table must declare the same."""
    whole, raw = model.whole.get(table, frozenset()), model.tables[table]
    names = set()
    for column in shown_columns(table):
        named = named_by(model, column)
        source = named[0] if named else column.name
        if source in raw and source not in whole:  # a row's own number is always known
            names.add(column.name)
    return frozenset(names)


def _arrow_table(model: Model, table: str, parts: Sequence[Rows], gaps: frozenset[str]) -> Any:
    """Rows as an Arrow table, with names as dictionaries. `gaps`: columns with unknown values."""
    arrow: Any = importlib.import_module("pyarrow")
    raw = rows_in(model, table, parts)
    columns, fields = [], []
    for column in shown_columns(table):
        if column.name in _left_out(table):
            continue
        named = named_by(model, column)
        values, has_gaps = raw[named[0] if named else column.name], column.name in gaps
        if named is None:
            array = arrow.array(values, mask=values == NONE if has_gaps else None)
        elif not any(name is not None for name in named[1]):
            array, has_gaps = arrow.nulls(len(values), arrow.string()), True
        else:
            unknown = (values < 0) | (values >= len(named[1])) if has_gaps else None
            nameless = [code for code, name in enumerate(named[1]) if name is None]
            if nameless:
                unknown, has_gaps = np.isin(values, [NONE, *nameless]), True
            names = arrow.array([name or "" for name in named[1]], arrow.string())
            array = arrow.DictionaryArray.from_arrays(arrow.array(values, mask=unknown), names)
        columns.append(array)
        fields.append(arrow.field(column.name, array.type, nullable=has_gaps))
    return arrow.table(columns, schema=arrow.schema(fields))


def _write_file(table: Any, file: Path) -> None:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    names = table.column_names
    growing = {names[0], *_GROWING}  # the first column is the row number
    new = unfinished_part(file)
    with parquet.ParquetWriter(
        new,
        table.schema,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        store_schema=False,
        use_dictionary=[name for name in names if name not in growing],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in names if name in growing},
    ) as writer:
        writer.write_table(table, ROWS)
        writer.add_key_value_metadata({_KEY: str(SCHEMA_VERSION)})
    put_file(new, file)
