"""Rows of a table as Parquet files. Each has one writer, and appears when it is complete: a writer
that is killed, or done again, leaves whole files or none.

With pyarrow, growing columns and durations are written as differences, which saves up to a sixth;
names stay codes until they are written, and columns without unknown values are declared so, which
is twice as fast. DuckDB's own delta encoding is not used: some readers refuse its blocks.
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
from ncclscope.export.chunks import (
    RowChunk,
    chunks,
    is_restricted,
    register_rows,
    row_query,
    rows_in,
)
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import NONE, SCHEMA_VERSION, Columns
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
# Of columns of times, which no level makes much smaller, and of others.
_ZSTD_LEVEL_OF_TIMES, _ZSTD_LEVEL = 1, 4
# Columns whose values mostly grow from row to row, and durations: nearly all differ, so that those
# of a node with few operations would not fit a dictionary.
_AS_DIFFERENCES = (
    "operation", "call_ns", "call_end_ns", "launch_ns", "launch_end_ns", "enqueue_ns", "start_ns",
    "end_ns", "first_start_ns", "last_start_ns", "last_end_ns", "group_call", "event",
    "call_order", "sequence", "instance", "duration_ns", "wait_ns", "wire_ns", "relative_wait_ns",
)  # fmt: skip
_FILES_AT_ONCE = 2
_MANY_NAMES = 32  # of a column; which of fewer occur is not looked up


@dataclass(frozen=True, slots=True)
class FolderRows:
    """What goes into one folder of a dataset."""

    table: str
    folder: str  # below the dataset
    parts: tuple[Rows, ...]  # rows of the table, in order


@dataclass(frozen=True, slots=True)
class _File:
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
    """Writes the selected rows of a table; returns how many. A folder of a key without any is left
    out.
    """
    table = folders[0].table
    write = _write_with_pyarrow if with_pyarrow else _write_with_duckdb
    with open_connection() as connection:
        rows = _Rows(connection, model, table, selection)
        files = _files(rows, dataset, folders)
        total = sum(last - first for own in folders for first, last in own.parts)
        return write(rows, files, progress, total)


def write_no_rows(model: Model, dataset: Path, table: str) -> None:
    """Writes a file without rows, which tells readers the columns of a table."""
    folder = dataset / (key_folder(table, 0) if table in KEYS else table)
    folder.mkdir(parents=True, exist_ok=True)
    with open_connection() as connection:
        rows = _Rows(connection, model, table, Selection())
        copy_query(connection, rows.query(((0, 0),)), folder / part_name(0))


class _Rows:
    """The rows of a table, as DuckDB shows them."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        model: Model,
        table: str,
        selection: Selection,
    ) -> None:
        self.connection, self.model, self.table = connection, model, table
        self.selection = selection
        self.restricted = is_restricted(table, selection)
        self._text = ""

    def query(self, parts: Sequence[Rows]) -> str:
        """A query for some rows. It is valid until the next one is asked for."""
        left_out = _left_out(self.table)
        self._text = self._text or row_query(self.model, self.table, self.selection, left_out)
        register_rows(self.connection, self.model, self.table, parts)
        return self._text

    def chunks(self, parts: Sequence[Rows]) -> Iterator[RowChunk]:
        """Chunks of some rows, one for each file."""
        return chunks(self.connection, self.model, self.table, self.selection, ROWS, parts)


def _left_out(table: str) -> frozenset[str]:
    """Columns that are not in the files: the folder's name says the key."""
    return frozenset({KEYS[table]} if table in KEYS else ())


def _files(rows: _Rows, dataset: Path, folders: Sequence[FolderRows]) -> Iterator[_File]:
    before = 0
    for own in folders:
        for number, chunk in enumerate(rows.chunks(own.parts)):
            if chunk.rows or own.table not in KEYS:
                (dataset / own.folder).mkdir(parents=True, exist_ok=True)
                path = dataset / own.folder / part_name(number)
                yield _File(path, chunk, before + chunk.done)
        before += sum(last - first for first, last in own.parts)


# ---- without pyarrow ----
def _write_with_duckdb(
    rows: _Rows, files: Iterator[_File], progress: Progress | None, total: int
) -> int:
    count = 0
    for file in files:
        copy_query(rows.connection, rows.query(file.chunk.parts), file.path)
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
    rows: _Rows, files: Iterator[_File], progress: Progress | None, total: int
) -> int:
    """Writes several files at once: encoding and compression take most of the time."""
    arrow: Any = importlib.import_module("pyarrow")
    count, waiting = 0, deque[Task[None]]()
    columns = [] if rows.restricted else _arrow_columns(rows.model, rows.table)
    with Threads(_FILES_AT_ONCE) as threads:
        for file in files:
            parts = file.chunk.parts
            if rows.restricted:
                stream = rows.connection.sql(rows.query(parts))
                made = arrow.RecordBatchReader.from_stream(stream).read_all()
            else:
                made = _arrow_table(rows_in(rows.model, rows.table, parts), columns)
            while len(waiting) >= _FILES_AT_ONCE:
                waiting.popleft().result()
            waiting.append(threads.submit(_write_file, made, file.path))
            count += file.chunk.rows
            if progress:
                progress(file.done, total)
        for task in waiting:
            task.result()
    return count


def _arrow_columns(model: Model, table: str) -> list["_ArrowColumn"]:
    """The columns of a table's files. All files declare the same ones to have unknown values."""
    whole, raw = model.whole.get(table, frozenset()), model.tables[table]
    columns = []
    for column in shown_columns(table):
        if column.name in _left_out(table):
            continue
        source, names = named_by(model, column) or (column.name, None)
        # A row's own number is always known.
        has_gaps = source in raw and source not in whole
        columns.append(_ArrowColumn(column.name, source, names, has_gaps))
    return columns


class _ArrowColumn:
    """A column of a table's files, with names as dictionaries."""

    def __init__(
        self, name: str, source: str, names: Sequence[str | None] | None, has_gaps: bool
    ) -> None:
        self.name, self._source, self._is_named = name, source, names is not None
        self._names = np.array([text or "" for text in names or ()], object)
        self._nameless = [code for code, text in enumerate(names or ()) if text is None]
        self._is_empty = self._is_named and len(self._nameless) == len(self._names)
        self.has_gaps = has_gaps or bool(self._nameless) or self._is_empty

    def array(self, raw: Columns) -> Any:
        """Its values of some rows."""
        arrow: Any = importlib.import_module("pyarrow")
        values = raw[self._source]
        if not self._is_named:
            return arrow.array(values, mask=values == NONE if self.has_gaps else None)
        if self._is_empty:
            return arrow.nulls(len(values), arrow.string())
        unknown, names = None, self._names
        if self.has_gaps:
            unknown = (values < 0) | (values >= len(names))
            if self._nameless:
                unknown |= np.isin(values, self._nameless)
        if len(names) > _MANY_NAMES:
            values, names = _used_names(values, unknown, names)
        codes = arrow.array(values, mask=unknown)
        return arrow.DictionaryArray.from_arrays(codes, arrow.array(names, arrow.string()))


def _used_names(
    values: np.ndarray, unknown: np.ndarray | None, names: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Codes and names of those that occur: a file has all names that it is given."""
    used = np.zeros(len(names), bool)
    used[values if unknown is None else values[~unknown]] = True
    places = (np.cumsum(used) - 1).astype(np.int32)
    return places[values if unknown is None else np.where(unknown, 0, values)], names[used]


def _arrow_table(raw: Columns, columns: Sequence[_ArrowColumn]) -> Any:
    """Rows as an Arrow table."""
    arrow: Any = importlib.import_module("pyarrow")
    arrays = [column.array(raw) for column in columns]
    fields = [
        arrow.field(column.name, array.type, nullable=column.has_gaps)
        for column, array in zip(columns, arrays, strict=True)
    ]
    return arrow.table(arrays, schema=arrow.schema(fields))


def _write_file(table: Any, file: Path) -> None:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    names = table.column_names
    growing = {names[0], *_AS_DIFFERENCES}  # the first column is the row number
    times = {name for name in names if name.endswith("_ns")}
    new = unfinished_part(file)
    with parquet.ParquetWriter(
        new,
        table.schema,
        compression=dict.fromkeys(names, "zstd"),
        compression_level={
            name: _ZSTD_LEVEL_OF_TIMES if name in times else _ZSTD_LEVEL for name in names
        },
        store_schema=False,
        use_dictionary=[name for name in names if name not in growing],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in names if name in growing},
    ) as writer:
        writer.write_table(table, ROWS)
        writer.add_key_value_metadata({_KEY: str(SCHEMA_VERSION)})
    put_file(new, file)
