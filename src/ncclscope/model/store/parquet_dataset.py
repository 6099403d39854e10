"""A dataset of Parquet files, exported or imported, as a model: docs/schema.md read back.

Datasets are not trusted: every reference is checked and every number is cast. What does not fit is
an error of one sentence.
"""

import json
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ncclscope.capture.reader import DATASET_FILE
from ncclscope.errors import FormatError
from ncclscope.model.column_files import is_absent
from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model, Progress
from ncclscope.model.node_clock import NodeClock
from ncclscope.model.rows import GpuRow, ProcessRow
from ncclscope.model.schema import (
    FORMER_NAMES,
    NONE,
    OPTIONAL_COLUMNS,
    SCHEMA_VERSION,
    TABLES,
    Column,
    Columns,
)
from ncclscope.model.sql_views import (
    SQL_TYPES,
    literal,
    open_connection,
    row_number,
    shown_columns,
)
from ncclscope.model.store.checksums import REFERENCES, DamagedError, record_of, wrong_reference
from ncclscope.model.store.dataset_files import file_bundles, scan
from ncclscope.model.store.dataset_layout import KEYS, table_files
from ncclscope.model.store.saved_model import Writer, manifest_of
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.regular_files import open_binary

_CHUNK_ROWS = 1 << 20  # that are held in memory at once
_MOST_NAMES = 1000  # of one column
_LARGEST_SCHEMA_BYTES = 1 << 26
_HINT = "Export or import it again"
_WRONG_REFERENCE = "{} refers to {} that are not there"


def read_dataset(
    path: Path, mark: str, progress: Progress | None = None, keep: bool = True
) -> Model:
    """The model of a dataset, saved in it if `keep`."""
    schema = _schema(path)
    writer = Writer(path, keep=keep)
    try:
        with open_connection() as connection:
            model = _read(connection, path, schema, writer, progress)
        return writer.finish(path, manifest_of(model, mark))
    except BaseException as error:
        writer.kept = False
        if isinstance(error, duckdb.Error):
            cause = str(error).splitlines()[0][:300]
            raise _unreadable(path, cause) from None
        if isinstance(error, DamagedError):
            raise _unreadable(path, f"{error} cannot be") from None
        raise
    finally:
        if not writer.kept:  # what is mapped stays readable
            writer.discard()


def _schema(path: Path) -> dict[str, Any]:
    """The dataset's description of itself."""
    try:
        with open_binary(path / DATASET_FILE) as file:
            schema: dict[str, Any] = json.loads(file.read(_LARGEST_SCHEMA_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        cause = getattr(error, "strerror", None) or error
        raise _unreadable(path, f"{DATASET_FILE} is damaged ({cause})") from None
    version = schema.get("schema_version") if isinstance(schema, dict) else None
    if not isinstance(version, int):
        raise _unreadable(path, f"{DATASET_FILE} tells no schema_version")
    if version > SCHEMA_VERSION:
        message = f"cannot read {path}: its schema {version} is newer than {SCHEMA_VERSION}"
        raise FormatError(message, "Use a newer ncclscope")
    return schema


def _unreadable(path: Path, cause: str) -> FormatError:
    return FormatError(f"cannot read the dataset {path}: {cause}", _HINT)


def _read(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    schema: dict[str, Any],
    writer: Writer,
    progress: Progress | None,
) -> Model:
    words = _words(connection, path)
    processes, nodes, clocks = _processes(connection, path), *_nodes(connection, path)
    gpus = [record_of(GpuRow, values) for values in _small_rows(connection, path, "gpus")]
    names = _names(connection, path)
    rows = {"processes": len(processes), "communicators": len(names), "nodes": len(nodes)}
    if any(not 0 <= gpu.process < len(processes) for gpu in gpus):
        raise _unreadable(path, _WRONG_REFERENCE.format("gpus", "processes"))
    numbers = {
        table: _append(connection, path, table, words, writer, rows, progress) for table in TABLES
    }
    for table in ("communicators", "counters", "modules"):
        if (numbers[table] != np.arange(rows[table])).any():
            raise _unreadable(path, f"its {table} are not numbered one by one")
    operations = writer.columns("operations")
    numbers["operations"] = _in_order(operations, numbers["operations"])
    for column, table in (("instance", "instances"), ("part_of", "operations")):
        _renumber(operations[column], numbers[table])
    return Model(
        path=path,
        tables={},
        words=words.lists,
        communicator_names=names,
        processes=processes,
        nodes=nodes,
        completeness=_completeness(path, schema),
        realtime_offset_ns=_realtime_offset_ns(path, schema),
        clocks=clocks,
        gpus=gpus,
        module_names=_texts(connection, path, "modules", "module", "module_name"),
        descriptions=_texts(connection, path, "communicators", "communicator", "described"),
    )


def _append(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    table: str,
    words: Vocabulary,
    writer: Writer,
    rows: dict[str, int],
    progress: Progress | None,
) -> np.ndarray:
    """Appends a table to the model and returns its rows' own numbers, none where it has none.
    `rows`: of the tables that were read before; this one is added.
    """
    number, numbers = row_number(table), [np.empty(0, np.int64)]
    left_out = _unknown_columns(connection, path, table)
    for columns in _chunks(connection, path, table, words, progress):
        for name in left_out:
            del columns[name]
        if number:
            numbers.append(columns.pop(number.name))
        target = wrong_reference(table, columns, rows, REFERENCES)
        if target:
            raise _unreadable(path, _WRONG_REFERENCE.format(table, target))
        writer.append(table, columns)
    joined = np.concatenate(numbers)
    rows.setdefault(table, len(joined))
    return joined


def _unknown_columns(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str
) -> tuple[str, ...]:
    """The optional columns of a table, where nothing is known in any of them."""
    names, files = OPTIONAL_COLUMNS.get(table, ()), _files(path, table)
    present = _present(connection, scan(files)) if names and files else set()
    counted = " + ".join(f"count({name})" for name in names if name in present)
    if counted:
        known = connection.execute(f"select {counted} from {scan(files)}").fetchall()[0][0]
        return () if known else names
    return names


def _files(path: Path, table: str) -> list[Path]:
    return [file.path for file in table_files(path, table)]


def _present(connection: duckdb.DuckDBPyConnection, source: str) -> set[str]:
    return {row[0] for row in connection.execute(f"describe select * from {source}").fetchall()}


def _words(connection: duckdb.DuckDBPyConnection, path: Path) -> Vocabulary:
    """Codes for the names that occur."""
    words = Vocabulary()
    for table, columns in TABLES.items():
        files = _files(path, table)
        present = _present(connection, scan(files)) if files else set()
        named = [column.name for column in columns if column.words and column.name in present]
        if not named:
            continue
        listed = ", ".join(f'list(distinct cast("{name}" as varchar))' for name in named)
        found = connection.execute(f"select {listed} from {scan(files)}").fetchall()[0]
        for sort, names in zip(named, found, strict=True):
            for name in sorted(name for name in names or () if name is not None)[:_MOST_NAMES]:
                words.code(sort, name)
    for sort, names in words.lists.items():
        if names:
            listed = ", ".join(map(literal, names))
            connection.execute(f"create temp type {sort}_name as enum ({listed})")
    return words


def _expression(column: Column, present: Set[str], words: Vocabulary) -> str:
    quoted = f'"{column.name}"'
    kind = SQL_TYPES[column.dtype]
    name = column.name if column.name in present else FORMER_NAMES.get(column.name, column.name)
    if name not in present or (column.words and not words.lists[column.name]):
        return f"cast({NONE} as {kind}) as {quoted}"
    if not column.words:
        return f'coalesce(cast("{name}" as {kind}), cast({NONE} as {kind})) as {quoted}'
    other = words.code(column.name, "other") if "other" in words.lists[column.name] else NONE
    code = f"enum_code(try_cast({quoted} as {column.name}_name))"
    return (
        f"case when {quoted} is null then cast({NONE} as tinyint) "
        f"else coalesce(cast({code} as tinyint), {other}) end as {quoted}"
    )


def _chunks(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    table: str,
    words: Vocabulary,
    progress: Progress | None,
) -> Iterator[Columns]:
    """A table's columns, a million rows at a time, in the order of its files."""
    number = row_number(table)
    columns = [*([number] if number else []), *TABLES[table]]
    bundles = file_bundles(connection, table_files(path, table), _CHUNK_ROWS)
    for place, bundle in enumerate(bundles):
        if progress and table == "operations":
            progress(place, len(bundles))
        if number and number.name not in bundle.columns:
            name = bundle.files[0].path.name
            raise _unreadable(path, f"{name} of {table} has no column {number.name}")
        present = bundle.columns | ({KEYS[table]} if bundle.has_key else set())
        shown = ", ".join(_expression(column, present, words) for column in columns)
        rows = bundle.rows
        for first in range(0, rows, _CHUNK_ROWS):
            last = first + _CHUNK_ROWS
            within = (
                f" where file_row_number >= {first} and file_row_number < {last}"
                if rows > _CHUNK_ROWS
                else ""
            )
            source = bundle.source(table)
            chunk = connection.execute(f"select {shown} from {source}{within}").fetchnumpy()
            yield {name: np.asarray(values) for name, values in chunk.items()}


def _in_order(columns: Columns, numbers: np.ndarray) -> np.ndarray:
    """The numbers of operations in order. Their columns are brought into it, in place: processes of
    a node need not follow each other.
    """
    if not (np.diff(numbers) < 0).any():
        return numbers
    order = np.argsort(numbers, kind="stable")
    for values in columns.values():
        if not is_absent(values):
            values[:] = values[order]
    return numbers[order]


def _renumber(values: np.ndarray, numbers: np.ndarray) -> None:
    """Replaces row numbers by places in the table, in place: a dataset of a part of a capture keeps
    the capture's numbers.
    """
    if not len(values):
        return
    if not len(numbers):
        values[:] = NONE
        return
    order = np.argsort(numbers, kind="stable")
    place = np.minimum(np.searchsorted(numbers, values, sorter=order), len(numbers) - 1)
    values[:] = np.where(numbers[order[place]] == values, order[place], NONE)


def _small_rows(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str
) -> list[dict[str, Any]]:
    """The rows of a small table in order, values by column without the row's number; "" and NONE
    for unknown ones.
    """
    files = _files(path, table)
    if not files:
        return []
    columns = shown_columns(table)
    present = _present(connection, scan(files))
    if columns[0].name not in present:
        raise _unreadable(path, f"{table} has no column {columns[0].name}")
    shown = ", ".join(
        f'cast("{column.name}" as {SQL_TYPES[column.dtype]})' if column.name in present else "null"
        for column in columns
    )
    rows = connection.execute(f"select {shown} from {scan(files)} order by 1").fetchall()
    if [row[0] for row in rows] != list(range(len(rows))):
        raise _unreadable(path, f"rows of {table} are not numbered one by one")
    return [
        {
            column.name: ("" if column.dtype == "text" else NONE) if value is None else value
            for column, value in zip(columns[1:], row[1:], strict=True)
        }
        for row in rows
    ]


def _processes(connection: duckdb.DuckDBPyConnection, path: Path) -> list[ProcessRow]:
    return [
        record_of(ProcessRow, {**values, "ended": values["ended"] == 1})
        for values in _small_rows(connection, path, "processes")
    ]


def _nodes(
    connection: duckdb.DuckDBPyConnection, path: Path
) -> tuple[list[str], tuple[NodeClock, ...]]:
    """Hosts, and their clocks: a dataset's times are on the one clock already, so offsets are 0."""
    hosts, clocks = [], []
    zero = np.zeros(1, np.int64)
    for number, values in enumerate(_small_rows(connection, path, "nodes")):
        hosts.append(values["host"])
        error_ns = np.array([float(max(values["clock_error_ns"], 0))])
        clocks.append(NodeClock(zero, zero, error_ns, number if values["tied"] == 0 else 0))
    return hosts, tuple(clocks)


def _names(connection: duckdb.DuckDBPyConnection, path: Path) -> list[str]:
    files = _files(path, "communicators")
    if not files:
        return []
    query = f"select cast(name as varchar) from {scan(files)} order by communicator"
    return [
        name or f"comm{row}" for row, (name,) in enumerate(connection.execute(query).fetchall())
    ]


def _texts(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, number: str, column: str
) -> list[str]:
    """A column of texts in the order of the rows' numbers, "" where there is none."""
    files = _files(path, table)
    if not files or column not in _present(connection, scan(files)):
        return []
    query = f"select cast({column} as varchar) from {scan(files)} order by {number}"
    return [text or "" for (text,) in connection.execute(query).fetchall()]


def _completeness(path: Path, schema: dict[str, Any]) -> Completeness:
    try:
        return Completeness.from_json(schema["completeness"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _unreadable(path, f"{DATASET_FILE} has no completeness") from None


def _realtime_offset_ns(path: Path, schema: dict[str, Any]) -> int:
    offset = schema.get("realtime_offset_ns", 0)
    if not isinstance(offset, int) or abs(offset) >= 1 << 63:
        raise _unreadable(path, f"{DATASET_FILE} has no realtime_offset_ns")
    return offset
