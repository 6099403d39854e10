"""The model as a dataset of Parquet files, for DuckDB, Polars, Spark and others.

With pyarrow, growing columns are written as differences, which saves up to a sixth; names stay
codes until they are written, and columns without unknown values are declared so, which is twice as
fast. DuckDB's own delta encoding is not used: some readers refuse its blocks.
"""

import importlib
import importlib.util
import json
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ncclscope._version import __version__
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.path_edges import PATH_KINDS, path_edges_of
from ncclscope.capture.reader import DATASET_FILE, is_dataset
from ncclscope.export.chunks import RowChunk, chunks
from ncclscope.export.result import ExportResult
from ncclscope.export.trace_path import NO_PATH
from ncclscope.ingest.call_stacks import TABLE as STACKS
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import NONE, SCHEMA_VERSION, SMALL_TABLES, TABLES
from ncclscope.model.sql_views import (
    SQL_TYPES,
    copy_to_file,
    create_small_tables,
    literal,
    named_by,
    open_connection,
    raw_columns,
    shown_columns,
)
from ncclscope.model.store.saved_model import FOLDER
from ncclscope.model.topology import FILE as TOPOLOGY_FILE
from ncclscope.output_files import check_directory, put_directory, scratch_near, write_text
from ncclscope.threads import Task, Threads

TABLES_WRITTEN = (*TABLES, *SMALL_TABLES)
PATH_TABLE = "critical_path"  # where it was asked for
# Columns of the critical path, with their SQL types and meanings.
_PATH_COLUMNS = (
    ("start_ns", "bigint", "when the edge begins, where the one before ends"),
    ("end_ns", "bigint", "when it ends"),
    ("kind", "varchar", "host, host after sync, launch, gpu, transfer or start-up"),
    ("global_rank", "integer", "whose call, start or end it leads to"),
    ("communicator_name", "varchar", "of that operation"),
    ("function", "varchar", "of that operation"),
    ("operation", "bigint", "row of `operations`"),
    ("excess_ns", "bigint", "beyond the usual length of such an edge"),
)
_KEY = "ncclscope_schema"
_ZSTD_LEVEL = 1
ROWS = 1 << 20  # of a file, roughly, and of a row group
# Columns whose values mostly grow from row to row.
_GROWING = (
    "operation", "call_ns", "call_end_ns", "launch_ns", "launch_end_ns", "enqueue_ns", "start_ns",
    "end_ns", "first_start_ns", "last_start_ns", "last_end_ns", "group_call", "event",
    "call_order", "sequence", "instance",
)  # fmt: skip
_FILES_AT_ONCE = 2
_HINT = "with pyarrow it is up to a sixth smaller: pip install pyarrow"


def holds_dataset(path: Path) -> bool:
    """Whether a directory holds a dataset, what readers keep in it, and nothing else."""
    if not is_dataset(path):
        return False
    for entry in path.iterdir():
        if entry.name in (*TABLES_WRITTEN, PATH_TABLE, STACKS, FOLDER):
            fits = entry.is_dir() and not entry.is_symlink()
            if entry.name != FOLDER:
                fits = fits and all(file.suffix == ".parquet" for file in entry.iterdir())
        else:
            fits = entry.name in (DATASET_FILE, TOPOLOGY_FILE) and entry.is_file()
        if not fits:
            return False
    return True


def write_parquet(
    model: Model,
    selection: Selection,
    path: Path,
    force: bool = False,
    critical_path: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Writes the selected operations, all rows of other tables that they can refer to, and with
    `critical_path` the critical path of the selected time.
    """
    notes = () if has_pyarrow() else (_HINT,)
    check_directory(path, force, holds_dataset)
    count = 0
    write_table = _write_with_pyarrow if has_pyarrow() else _write_with_duckdb
    with scratch_near(path) as scratch, open_connection() as connection:
        dataset = scratch / "dataset"
        dataset.mkdir()
        create_small_tables(connection, model)
        for table in TABLES_WRITTEN:
            (dataset / table).mkdir()
        for table in TABLES:
            parts = chunks(connection, model, table, selection, ROWS)
            own_progress = progress if table == "operations" else None
            rows = write_table(connection, model, table, parts, dataset / table, own_progress)
            count = rows if table == "operations" else count
        for table in TABLES_WRITTEN[len(TABLES) :]:
            _copy(connection, f"select * from {table}", dataset / table / _part(0))
        has_path = critical_path and _write_path(connection, model, selection, dataset)
        schema = _schema(model, has_path)
        write_text(dataset / DATASET_FILE, json.dumps(schema, indent=1) + "\n")
        put_directory(dataset, path)
    return ExportResult(count, notes=(*notes, NO_PATH) if critical_path and not has_path else notes)


def _write_path(
    connection: duckdb.DuckDBPyConnection, model: Model, selection: Selection, dataset: Path
) -> bool:
    """Writes the critical path; False where there is none."""
    edges = path_edges_of(model, selection)
    if edges is None:
        return False
    ops = model.tables["operations"]
    names: dict[str, Sequence[str]] = {
        "kind": PATH_KINDS,
        "communicator_name": model.communicator_names,
        "function": model.words["function"],
    }
    columns = {
        "kind": edges.kind,
        "communicator_name": np.asarray(ops["communicator"])[edges.operation],
        "function": np.asarray(ops["function"])[edges.operation],
        "global_rank": np.asarray(ops["global_rank"])[edges.operation],
        **{name: getattr(edges, name) for name in ("start_ns", "end_ns", "operation", "excess_ns")},
    }
    for name, words in names.items():
        table = np.array([*words, None], object)  # place -1, the last one, is for unknown ones
        columns[name] = table[columns[name]]
    connection.register("path", columns)
    listed = ", ".join(f"{name}::{kind} as {name}" for name, kind, _ in _PATH_COLUMNS)
    (dataset / PATH_TABLE).mkdir()
    _copy(connection, f"select {listed} from path", dataset / PATH_TABLE / _part(0))
    connection.unregister("path")
    return True


def has_pyarrow() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def _part(number: int) -> str:
    return f"part-{number:05d}.parquet"


# ---- without pyarrow ----
def _write_with_duckdb(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    parts: Iterator[RowChunk],
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
    """Writes a file with plain and dictionary encodings only: every reader knows them."""
    copy_to_file(
        connection,
        f"copy ({query}) to {literal(str(file))} (format parquet, compression zstd, "
        f"row_group_size {ROWS}, kv_metadata {{{_KEY}: '{SCHEMA_VERSION}'}})",
    )


# ---- with pyarrow ----
def _write_with_pyarrow(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    parts: Iterator[RowChunk],
    folder: Path,
    progress: Progress | None,
) -> int:
    """Writes several files at once: encoding and compression take most of the time."""
    arrow: Any = importlib.import_module("pyarrow")
    count, waiting, gaps = 0, deque[Task[None]](), None
    with Threads(_FILES_AT_ONCE) as threads:
        for number, chunk in enumerate(parts):
            if chunk.restricted:
                stream = connection.sql(chunk.query)
                rows = arrow.RecordBatchReader.from_stream(stream).read_all()
            else:
                gaps = _with_unknowns(model, table) if gaps is None else gaps
                rows = _arrow_table(model, table, chunk.done - chunk.rows, chunk.done, gaps)
            while len(waiting) >= _FILES_AT_ONCE:
                waiting.popleft().result()
            waiting.append(threads.submit(_write_file, rows, folder / _part(number)))
            count += chunk.rows
            if progress:
                progress(chunk.done, chunk.of)
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


def _arrow_table(model: Model, table: str, first: int, last: int, gaps: frozenset[str]) -> Any:
    """Rows as an Arrow table, with names as dictionaries. `gaps`: columns with unknown values."""
    arrow: Any = importlib.import_module("pyarrow")
    raw = raw_columns(model, table, first, last)
    columns, fields = [], []
    for column in shown_columns(table):
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
    with parquet.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        store_schema=False,
        use_dictionary=[name for name in names if name not in growing],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in names if name in growing},
    ) as writer:
        writer.write_table(table, ROWS)
        writer.add_key_value_metadata({_KEY: str(SCHEMA_VERSION)})


def _schema(model: Model, has_path: bool) -> dict[str, Any]:
    """The contents of schema.json: what a reader without documentation needs."""
    tables = {
        table: [
            (column.name, "varchar" if column.words else SQL_TYPES[column.dtype], column.meaning)
            for column in shown_columns(table)
        ]
        for table in TABLES_WRITTEN
    }
    if has_path:
        tables[PATH_TABLE] = list(_PATH_COLUMNS)
    return {
        "schema_version": SCHEMA_VERSION,
        "ncclscope": __version__,
        "realtime_offset_ns": model.realtime_offset_ns,
        "completeness": model.completeness.as_json(),
        "tables": {
            table: [{"name": name, "type": kind, "meaning": text} for name, kind, text in columns]
            for table, columns in tables.items()
        },
    }
