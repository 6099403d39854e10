"""A dataset of Parquet files, exported or imported, as a model: docs/schema.md read back.

Files of others are hostile: every reference is checked, every number is cast, and what does not fit
is one sentence.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ncclscope.capture.reader import DATASET_FILE
from ncclscope.errors import FormatError
from ncclscope.model.align.host_clocks import NodeClock
from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model, ProcessRow, Progress
from ncclscope.model.schema import NONE, SCHEMA_VERSION, TABLES, Column, Columns
from ncclscope.model.sql_views import (
    SQL_TYPES,
    literal,
    open_connection,
    row_number,
    shown_columns,
)
from ncclscope.model.store.checksums import REFERENCES, DamagedError, wrong_reference
from ncclscope.model.store.columns import Writer, load, manifest_of
from ncclscope.model.vocabulary import Vocabulary

_ROWS = 1 << 20  # that are held in memory at once
_MOST_NAMES = 1000  # of one column
_LARGEST_SCHEMA_BYTES = 1 << 26
_HINT = "Export or import it again"


def read_dataset(path: Path, mark: str, progress: Progress | None = None) -> Model:
    """The model of a dataset, kept beside it."""
    schema = _schema(path)
    writer = Writer(path)
    try:
        with open_connection() as connection:
            model = _read(connection, path, schema, writer, progress)
        return load(path, writer.finish(path, manifest_of(model, mark)))
    except BaseException as error:
        writer.kept = False
        if isinstance(error, duckdb.Error):
            cause = str(error).splitlines()[0][:300]
            raise FormatError(f"cannot read the dataset {path}: {cause}", _HINT) from None
        if isinstance(error, DamagedError):
            raise _unreadable(path, f"{error} cannot be") from None
        raise
    finally:
        if not writer.kept:  # what is mapped stays readable
            writer.discard()


def _schema(path: Path) -> dict[str, Any]:
    """What the dataset says of itself."""
    try:
        with (path / DATASET_FILE).open("rb") as file:
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
    names = _names(connection, path)
    rows = {"processes": len(processes), "communicators": len(names), "nodes": len(nodes)}
    numbers: dict[str, list[np.ndarray]] = {table: [] for table in TABLES}
    for table in TABLES:
        for columns in _pieces(connection, path, table, words, progress):
            number = row_number(table)
            if number:
                numbers[table].append(columns.pop(number.name))
            _check_references(path, table, columns, rows)
            writer.append(table, columns)
    places = {table: np.concatenate([np.empty(0, np.int64), *n]) for table, n in numbers.items()}
    if (places["communicators"] != np.arange(len(names))).any():
        raise _unreadable(path, "its communicators are not numbered one by one")
    operations = writer.columns("operations")
    for column, table in (("instance", "instances"), ("part_of", "operations")):
        _renumber(operations[column], places[table])
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
    )


def _files(path: Path, table: str) -> list[Path]:
    return sorted((path / table).glob("*.parquet"))


def _scan(files: list[Path]) -> str:
    listed = ", ".join(literal(str(file)) for file in files)
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"


def _present(connection: duckdb.DuckDBPyConnection, source: str) -> set[str]:
    return {row[0] for row in connection.execute(f"describe select * from {source}").fetchall()}


def _words(connection: duckdb.DuckDBPyConnection, path: Path) -> Vocabulary:
    """Codes for the names that occur."""
    words = Vocabulary()
    for table, columns in TABLES.items():
        files = _files(path, table)
        present = _present(connection, _scan(files)) if files else set()
        for column in columns:
            if column.words and column.name in present:
                query = (
                    f'select distinct cast("{column.name}" as varchar) as name '
                    f"from {_scan(files)} where name is not null order by 1 limit {_MOST_NAMES}"
                )
                for (name,) in connection.execute(query).fetchall():
                    words.code(column.name, name)
    for sort, names in words.lists.items():
        if names:
            listed = ", ".join(map(literal, names))
            connection.execute(f"create type {sort}_name as enum ({listed})")
    return words


def _expression(column: Column, present: set[str], words: Vocabulary) -> str:
    quoted = f'"{column.name}"'
    kind = SQL_TYPES[column.dtype]
    if column.name not in present or (column.words and not words.lists[column.name]):
        return f"cast({NONE} as {kind}) as {quoted}"
    if not column.words:
        return f"coalesce(cast({quoted} as {kind}), cast({NONE} as {kind})) as {quoted}"
    other = words.code(column.name, "other") if "other" in words.lists[column.name] else NONE
    code = f"enum_code(try_cast({quoted} as {column.name}_name))"
    return (
        f"case when {quoted} is null then cast({NONE} as tinyint) "
        f"else coalesce(cast({code} as tinyint), {other}) end as {quoted}"
    )


def _pieces(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    table: str,
    words: Vocabulary,
    progress: Progress | None,
) -> Iterator[Columns]:
    """A table's columns, so many rows at a time, in the order of its files."""
    number = row_number(table)
    columns = [*([number] if number else []), *TABLES[table]]
    files = _files(path, table)
    for place, file in enumerate(files):
        if progress and table == "operations":
            progress(place, len(files))
        source = _scan([file])
        present = _present(connection, source)
        if number and number.name not in present:
            raise _unreadable(path, f"{file.name} of {table} has no column {number.name}")
        shown = ", ".join(_expression(column, present, words) for column in columns)
        rows = int(connection.execute(f"select count(*) from {source}").fetchall()[0][0])
        for first in range(0, rows, _ROWS):
            within = (
                f" where file_row_number >= {first} and file_row_number < {first + _ROWS}"
                if rows > _ROWS
                else ""
            )
            counted = source[:-1] + ", file_row_number = true)"
            found = connection.execute(f"select {shown} from {counted}{within}").fetchnumpy()
            yield {name: np.asarray(values) for name, values in found.items()}


def _check_references(path: Path, table: str, columns: Columns, rows: dict[str, int]) -> None:
    target = wrong_reference(table, columns, rows, REFERENCES)
    if target:
        raise _unreadable(path, f"{table} refers to {target} that are not there")


def _renumber(values: np.ndarray, numbers: np.ndarray) -> None:
    """Numbers of rows as the file has them become places: a part of a capture keeps its numbers."""
    if not len(values):
        return
    if not len(numbers):
        values[:] = NONE
        return
    order = np.argsort(numbers, kind="stable")
    place = np.minimum(np.searchsorted(numbers, values, sorter=order), len(numbers) - 1)
    values[:] = np.where(numbers[order[place]] == values, order[place], NONE)


def _rows(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str
) -> list[tuple[int | str | None, ...]]:
    """The rows of a small table, in order."""
    files = _files(path, table)
    if not files:
        return []
    columns = shown_columns(table)
    present = _present(connection, _scan(files))
    if columns[0].name not in present:
        raise _unreadable(path, f"{table} has no column {columns[0].name}")
    shown = ", ".join(
        f'cast("{column.name}" as {SQL_TYPES[column.dtype]})' if column.name in present else "null"
        for column in columns
    )
    found = connection.execute(f"select {shown} from {_scan(files)} order by 1").fetchall()
    if [row[0] for row in found] != list(range(len(found))):
        raise _unreadable(path, f"rows of {table} are not numbered one by one")
    return found


def _processes(connection: duckdb.DuckDBPyConnection, path: Path) -> list[ProcessRow]:
    found = []
    for row in _rows(connection, path, "processes"):
        values = {
            column.name: ("" if column.dtype == "text" else NONE) if value is None else value
            for column, value in zip(shown_columns("processes"), row, strict=True)
        }
        del values["process"]
        values["ended"] = values["ended"] == 1
        found.append(ProcessRow(**values))  # type: ignore[arg-type]
    return found


def _nodes(
    connection: duckdb.DuckDBPyConnection, path: Path
) -> tuple[list[str], tuple[NodeClock, ...]]:
    """Hosts, and clocks that are on the one clock already: only their errors are left to say."""
    hosts, clocks = [], []
    zero = np.zeros(1, np.int64)
    for number, (_, host, tied, error) in enumerate(_rows(connection, path, "nodes")):
        hosts.append(str(host or ""))
        error_ns = np.array([0.0 if error is None else float(error)])
        clocks.append(NodeClock(zero, zero, error_ns, number if tied == 0 else 0))
    return hosts, tuple(clocks)


def _names(connection: duckdb.DuckDBPyConnection, path: Path) -> list[str]:
    files = _files(path, "communicators")
    if not files:
        return []
    query = f"select cast(name as varchar) from {_scan(files)} order by communicator"
    return [
        name or f"comm{row}" for row, (name,) in enumerate(connection.execute(query).fetchall())
    ]


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
