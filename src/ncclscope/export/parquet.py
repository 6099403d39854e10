"""The model as a dataset of Parquet files that DuckDB, Polars, Spark and others read as it is.

With pyarrow, columns that grow are kept as differences: up to a sixth less; and names stay codes
until they are written, which is twice as fast. DuckDB's own differences are not used: they are in
blocks that some readers refuse.
"""

import importlib
import importlib.util
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb

from ncclscope._version import __version__
from ncclscope.analysis.selection import Selection
from ncclscope.capture.reader import DATASET_FILE
from ncclscope.export.chunks import Chunk, chunks
from ncclscope.export.files import check_directory, put_directory, scratch_beside
from ncclscope.model.model import Model, Progress
from ncclscope.model.shown import (
    SQL_TYPES,
    create_small_tables,
    literal,
    named_by,
    open_connection,
    raw_columns,
    shown_columns,
)
from ncclscope.model.tables import NONE, SCHEMA_VERSION, TABLES

TABLES_WRITTEN = (*TABLES, "processes", "nodes")
_KEY = "ncclscope_schema"
_LEVEL = 1
ROWS = 1 << 20  # of a file, roughly, and of a row group
# Columns that grow from row to row, and those that do so in several strands at once.
_GROWING = (
    "operation", "call_ns", "call_end_ns", "launch_ns", "launch_end_ns", "enqueue_ns", "start_ns",
    "end_ns", "first_start_ns", "last_start_ns", "last_end_ns", "group_call", "event",
    "call_order", "sequence",
)  # fmt: skip
_IN_STRANDS = ("instance",)
_AT_ONCE = 2  # files that are written


def write_parquet(
    model: Model,
    chosen: Selection,
    path: Path,
    force: bool = False,
    progress: Progress | None = None,
) -> int:
    """Writes the chosen operations and all that they refer to; returns how many operations."""
    check_directory(path, force)
    count = 0
    write_table = _write_with_pyarrow if has_pyarrow() else _write_with_duckdb
    with scratch_beside(path) as scratch, open_connection() as connection:
        dataset = scratch / "dataset"
        dataset.mkdir()
        create_small_tables(connection, model)
        for table in TABLES_WRITTEN:
            (dataset / table).mkdir()
        for table in TABLES:
            parts = chunks(connection, model, table, chosen, ROWS)
            told = progress if table == "operations" else None
            written = write_table(connection, model, table, parts, dataset / table, told)
            count = written if table == "operations" else count
        for table in TABLES_WRITTEN[len(TABLES) :]:
            _copy(connection, f"select * from {table}", dataset / table / _part(0))
        (dataset / DATASET_FILE).write_text(json.dumps(_schema(model), indent=1) + "\n")
        put_directory(dataset, path)
    return count


def has_pyarrow() -> bool:
    """Whether the smaller encoding is at hand."""
    return importlib.util.find_spec("pyarrow") is not None


def _part(number: int) -> str:
    return f"part-{number:05d}.parquet"


# ---- without pyarrow ----
def _write_with_duckdb(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    parts: Iterator[Chunk],
    folder: Path,
    progress: Progress | None,
) -> int:
    count = 0
    for number, chunk in enumerate(parts):
        _copy(connection, chunk.query, folder / _part(number))
        count += chunk.rows
        if progress:
            progress(chunk.done, chunk.of)
    return count


def _copy(connection: duckdb.DuckDBPyConnection, query: str, file: Path) -> None:
    """Plain and dictionary encodings only: every reader knows them."""
    connection.execute(
        f"copy ({query}) to {literal(str(file))} (format parquet, compression zstd, "
        f"row_group_size {ROWS}, kv_metadata {{{_KEY}: '{SCHEMA_VERSION}'}})"
    )


# ---- with pyarrow ----
def _write_with_pyarrow(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    parts: Iterator[Chunk],
    folder: Path,
    progress: Progress | None,
) -> int:
    """Files are written side by side: encoding and compression take most of the time."""
    arrow: Any = importlib.import_module("pyarrow")
    count, waiting = 0, deque[Future[None]]()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for number, chunk in enumerate(parts):
            if chunk.restricted:
                stream = connection.sql(chunk.query)
                found = arrow.RecordBatchReader.from_stream(stream).read_all()
            else:
                found = _arrow_of(model, table, chunk.done - chunk.rows, chunk.done)
            while len(waiting) >= _AT_ONCE:
                waiting.popleft().result()
            waiting.append(pool.submit(_write_file, found, folder / _part(number)))
            count += chunk.rows
            if progress:
                progress(chunk.done, chunk.of)
        for one in waiting:
            one.result()
    return count


def _arrow_of(model: Model, table: str, first: int, last: int) -> Any:
    """Rows as they are shown, as an Arrow table; names as dictionaries."""
    arrow: Any = importlib.import_module("pyarrow")
    raw = raw_columns(model, table, first, last)
    columns = {}
    for column in shown_columns(table):
        named = named_by(model, column)
        values = raw[named[0] if named else column.name]
        if named is None:
            columns[column.name] = arrow.array(values, mask=values == NONE)
        elif not named[1]:
            columns[column.name] = arrow.nulls(len(values), arrow.string())
        else:
            unknown = (values < 0) | (values >= len(named[1]))
            codes = arrow.array(values, mask=unknown)
            names = arrow.array(list(named[1]), arrow.string())
            columns[column.name] = arrow.DictionaryArray.from_arrays(codes, names)
    return arrow.table(columns)


def _write_file(table: Any, file: Path) -> None:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    names = table.column_names
    growing = {names[0], *_GROWING}  # first comes the row's number
    with parquet.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        compression_level=_LEVEL,
        store_schema=False,
        use_dictionary=[name for name in names if name not in (*growing, *_IN_STRANDS)],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in names if name in growing},
    ) as writer:
        writer.write_table(table, ROWS)
        writer.add_key_value_metadata({_KEY: str(SCHEMA_VERSION)})


def _schema(model: Model) -> dict[str, Any]:
    """What a reader without documentation needs."""
    return {
        "schema_version": SCHEMA_VERSION,
        "ncclscope": __version__,
        "realtime_offset_ns": model.realtime_offset_ns,
        "completeness": model.completeness.as_json(),
        "tables": {
            table: [
                {
                    "name": column.name,
                    "type": "varchar" if column.words else SQL_TYPES[column.dtype],
                    "meaning": column.meaning,
                }
                for column in shown_columns(table)
            ]
            for table in TABLES_WRITTEN
        },
    }
