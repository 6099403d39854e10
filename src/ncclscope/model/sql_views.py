"""Tables as people and other programs see them: names for codes, NULL for NONE, rows numbered.

What SQL, notebooks and exports show. The columns of model/schema.py keep their names; the row's own
number comes first, and numbers of communicators and nodes are followed by their names.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import duckdb
import numpy as np

from ncclscope.arrays.memory_limit import database_limit_bytes, memory_limit_bytes
from ncclscope.errors import UsageError
from ncclscope.model.detail_schema import DETAILS, SYSTEM
from ncclscope.model.model import Model
from ncclscope.model.rows import GpuRow, ProcessRow
from ncclscope.model.schema import NONE, SMALL_TABLES, TABLES, Column, Columns
from ncclscope.model.system_samples import system_columns, system_of

SQL_TYPES = {"i1": "tinyint", "i2": "smallint", "i4": "integer", "i8": "bigint", "text": "varchar"}
_ROW_NUMBERS = {
    "operations": Column("operation", "i8", "row"),
    "instances": Column("instance", "i8", "row"),
    "communicators": Column("communicator", "i4", "row"),
    "counters": Column("counter", "i8", "row"),
    "modules": Column("module", "i4", "row"),
}
# Columns behind which a name is shown.
_NAMES = {
    "communicator": Column("communicator_name", "text", "name of the communicator"),
    "node": Column("host", "text", "name of the node's host"),
    "module": Column("module_name", "text", "name of the module"),
}
_DIMENSION = Column("dimension", "text", "of parallelism: that of its communicator")
_DESCRIBED = Column("described", "text", "what the program calls it")
_OWN_NAME = Column("name", "text", "its name; inferred where `name_inferred` is 1")


def shown_columns(table: str) -> tuple[Column, ...]:
    """The columns of a table as it is shown. Those with words are texts."""
    if table in _WITHOUT_CODES:
        return _WITHOUT_CODES[table]
    shown: list[Column] = []
    for column in _with_row_number(table):
        shown.append(column)
        if table == "communicators" and column.name == "communicator":
            shown.append(_OWN_NAME)
        elif column.name in _NAMES:
            shown.append(_NAMES[column.name])
    if table == "operations":
        shown.append(_DIMENSION)
    elif table == "communicators":
        shown.append(_DESCRIBED)
    return tuple(shown)


def row_number(table: str) -> Column | None:
    """The column with the row's own number, of tables that have one."""
    return _ROW_NUMBERS.get(table)


def _with_row_number(table: str) -> tuple[Column, ...]:
    number = _ROW_NUMBERS.get(table)
    columns = (TABLES | DETAILS)[table]
    return (number, *columns) if number else columns


def open_database() -> duckdb.DuckDBPyConnection:
    """A connection to a database of its own: for users, who may make tables in it."""
    return _configured(_new_database())


def open_connection() -> duckdb.DuckDBPyConnection:
    """A connection to this process's one database, which takes 25 ms of CPU to make. What it makes
    there must be temporary: that is its own, and goes with it.
    """
    try:
        return _configured(_database(os.getpid()).cursor())
    except duckdb.Error:  # an error within DuckDB makes a database useless
        _database.cache_clear()
        return _configured(_database(os.getpid()).cursor())


@cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """The database of a process: its threads are not there in a fork."""
    return _new_database()


def _new_database() -> duckdb.DuckDBPyConnection:
    # DuckDB's own threads crash where there is no memory for them.
    if memory_limit_bytes() is not None:
        return duckdb.connect(":memory:", config={"threads": 1})
    return duckdb.connect(":memory:")


def _configured(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    connection.execute("set enable_progress_bar = false")
    limit = database_limit_bytes()
    if limit is not None:
        connection.execute(f"set memory_limit = '{limit} B'")
    return connection


def copy_to_file(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Runs a COPY … TO. What the file system refuses is an OSError, as of any other file."""
    try:
        connection.execute(statement)
    except duckdb.IOException as error:
        text = str(error).splitlines()[0]
        full = "No space left" in text or "Could not write all bytes" in text
        number = errno.ENOSPC if full else errno.EIO
        raise OSError(number, os.strerror(number) if full else text[:200]) from None


def rows_of_table(model: Model, table: str) -> int:
    """How many rows a kept table has."""
    return len(model.tables[table][TABLES[table][0].name])


def kept_columns(model: Model, table: str, first: int, last: int) -> Columns:
    """Some rows of a kept table as plain arrays that DuckDB can scan."""
    return {name: np.asarray(v[first:last]) for name, v in model.tables[table].items()}


def raw_columns(model: Model, table: str, first: int, last: int) -> Columns:
    """The same with the numbers of the rows."""
    columns = kept_columns(model, table, first, last)
    number = _ROW_NUMBERS.get(table)
    if number:
        columns[number.name] = np.arange(first, last, dtype=number.dtype)
    return columns


def named_by(model: Model, column: Column) -> tuple[str, Sequence[str | None]] | None:
    """For a shown column of texts the raw column of codes and the names at their places; None for
    texts that are not codes.
    """
    if column.dtype == "text":
        named: dict[str, tuple[str, Sequence[str | None]]] = {
            "communicator_name": ("communicator", model.communicator_names),
            "name": ("communicator", model.communicator_names),
            "host": ("node", model.nodes),
            "module_name": ("module", model.module_names),
            "dimension": ("communicator", [name or None for name in model.dimensions]),
            "described": ("communicator", [text or None for text in model.descriptions]),
        }
        return named.get(column.name)
    return (column.name, model.words[column.name]) if column.words else None


def select_list(model: Model, table: str, without: frozenset[str] = frozenset()) -> str:
    """What to select from a table's raw columns in order to show it. `without`: columns that are
    left out.
    """
    parts = []
    for column in shown_columns(table):
        if column.name in without:
            continue
        quoted = f'"{column.name}"'  # some are SQL's own words
        named = named_by(model, column)
        plain = (
            f"cast({quoted} as varchar)" if column.dtype == "text" else f"nullif({quoted}, {NONE})"
        )
        expression = _lookup(*named) if named else plain
        parts.append(f"{expression} as {quoted}")
    return ", ".join(parts)


def _lookup(column: str, names: Sequence[str | None]) -> str:
    """The name at a code's place; NONE is before the first, and gives NULL."""
    if not any(name is not None for name in names):
        return "cast(null as varchar)"
    listed = ", ".join("null" if name is None else literal(name) for name in names)
    return f'([{listed}])[cast("{column}" as integer) + 1]'


def literal(text: str) -> str:
    """A name or a path as a SQL literal; UsageError where it is not UTF-8, which DuckDB needs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"cannot use {text}: it is not UTF-8", "Use another name") from None
    return "'" + text.replace("\0", "\\0").replace("'", "''") + "'"


def create_small_tables(connection: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Makes the tables `processes`, `gpus` and `nodes`."""
    for table, rows in (
        ("processes", [{"process": n, **_known(row)} for n, row in enumerate(model.processes)]),
        ("gpus", [{"gpu": n, **_known(row)} for n, row in enumerate(model.gpus)]),
        ("nodes", _nodes(model)),
    ):
        columns = SMALL_TABLES[table]
        if not rows:
            listed = ", ".join(f'"{column.name}" {SQL_TYPES[column.dtype]}' for column in columns)
            connection.execute(f"create temp table {table} ({listed})")
            continue
        # One statement for each of ten thousand rows would take ten seconds.
        connection.register("raw_rows", {c.name: _values(rows, c) for c in columns})
        listed = ", ".join(
            f'cast("{column.name}" as varchar) as "{column.name}"'
            if column.dtype == "text"
            else f'cast(nullif("{column.name}", {NONE}) as {SQL_TYPES[column.dtype]})'
            f' as "{column.name}"'
            for column in columns
        )
        connection.execute(f"create temp table {table} as select {listed} from raw_rows")
        connection.unregister("raw_rows")


def _values(rows: Sequence[Mapping[str, Any]], column: Column) -> np.ndarray:
    """A column of rows that have None for what is not known."""
    values = [row[column.name] for row in rows]
    if column.dtype == "text":
        return np.array(values, object)
    return np.array([NONE if value is None else value for value in values], np.int64)


def _known(row: ProcessRow | GpuRow) -> dict[str, Any]:
    """A row's values by name, None for unknown ones."""
    return {name: None if value in ("", NONE) else value for name, value in asdict(row).items()}


def _nodes(model: Model) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, host in enumerate(model.nodes):
        clock = model.clocks[number] if number < len(model.clocks) else None
        error = float(np.median(clock.error_ns)) if clock and clock.tied else np.inf
        rows.append(
            {
                "node": number,
                "host": host,
                "tied": None if clock is None else int(clock.tied),
                "clock_error_ns": int(error) if np.isfinite(error) else None,
            }
        )
    return rows


def create_system_table(connection: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Makes the table `system`; without rows where no sampler ran."""
    columns, names = system_columns(system_of(model))
    names["host"] = model.nodes
    shown = []
    for column in SYSTEM:
        raw = "node" if column.name == "host" else column.name
        text = (
            _lookup(raw, names[column.name])
            if column.dtype == "text"
            else f'nullif("{raw}", {NONE})'
        )
        shown.append(f'cast({text} as {SQL_TYPES[column.dtype]}) as "{column.name}"')
    connection.register("raw_system", columns)
    connection.execute(f"create temp table system as select {', '.join(shown)} from raw_system")
    connection.unregister("raw_system")


_WITHOUT_CODES = SMALL_TABLES | {"system": SYSTEM}
SHOWN = (*TABLES, *_WITHOUT_CODES, *DETAILS)
