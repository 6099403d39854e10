"""The model as a dataset of Parquet files that DuckDB, Polars, Spark and others read as it is.

With pyarrow, columns that grow are kept as differences: up to a sixth less. DuckDB's own
differences are not used: they are in blocks that some readers refuse.
"""

import importlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from ncclscope._version import __version__
from ncclscope.analysis.selection import Selection
from ncclscope.capture.reader import DATASET_FILE
from ncclscope.export.chunks import chunks
from ncclscope.export.files import check_directory, put_directory, scratch_beside
from ncclscope.model.model import Model, Progress
from ncclscope.model.shown import (
    SQL_TYPES,
    create_small_tables,
    literal,
    open_connection,
    shown_columns,
)
from ncclscope.model.tables import SCHEMA_VERSION, TABLES

TABLES_WRITTEN = (*TABLES, "processes", "nodes")
_KEY = "ncclscope_schema"
_LEVEL = 3
ROWS = 1 << 20  # of a file, roughly, and of a row group
# Columns that grow from row to row, and those that do so in several strands at once.
_GROWING = (
    "operation", "call_ns", "call_end_ns", "launch_ns", "launch_end_ns", "enqueue_ns", "start_ns",
    "end_ns", "first_start_ns", "last_start_ns", "last_end_ns", "group_call", "event",
    "call_order", "sequence",
)  # fmt: skip
_IN_STRANDS = ("instance",)
WritePart = Callable[[duckdb.DuckDBPyConnection, str, Path], None]  # query, file


def write_parquet(
    model: Model,
    chosen: Selection,
    path: Path,
    force: bool = False,
    progress: Progress | None = None,
) -> int:
    """Writes the chosen operations and all that they refer to; returns how many operations."""
    check_directory(path, force)
    write_part = _write_with_pyarrow if has_pyarrow() else _write_with_duckdb
    with scratch_beside(path) as scratch, open_connection() as connection:
        dataset = scratch / "dataset"
        dataset.mkdir()
        create_small_tables(connection, model)
        for table in TABLES_WRITTEN:
            (dataset / table).mkdir()
        count = _write_table(connection, model, "operations", chosen, dataset, write_part, progress)
        for table in TABLES_WRITTEN[1:]:
            if table in TABLES:
                _write_table(connection, model, table, chosen, dataset, write_part)
            else:
                write_part(connection, f"select * from {table}", dataset / table / _part(0))
        (dataset / DATASET_FILE).write_text(json.dumps(_schema(model), indent=1) + "\n")
        put_directory(dataset, path)
    return count


def has_pyarrow() -> bool:
    """Whether the smaller encoding is at hand."""
    return importlib.util.find_spec("pyarrow") is not None


def _part(number: int) -> str:
    return f"part-{number:05d}.parquet"


def _write_table(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    chosen: Selection,
    dataset: Path,
    write_part: WritePart,
    progress: Progress | None = None,
) -> int:
    count = 0
    for number, chunk in enumerate(chunks(connection, model, table, chosen, ROWS)):
        write_part(connection, chunk.query, dataset / table / _part(number))
        count += chunk.rows
        if progress:
            progress(chunk.done, chunk.of)
    return count


def _write_with_duckdb(connection: duckdb.DuckDBPyConnection, query: str, file: Path) -> None:
    """Plain and dictionary encodings only: every reader knows them."""
    connection.execute(
        f"copy ({query}) to {literal(str(file))} (format parquet, compression zstd, "
        f"row_group_size {ROWS}, kv_metadata {{{_KEY}: '{SCHEMA_VERSION}'}})"
    )


def _write_with_pyarrow(connection: duckdb.DuckDBPyConnection, query: str, file: Path) -> None:
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    table = arrow.RecordBatchReader.from_stream(connection.sql(query)).read_all()
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
