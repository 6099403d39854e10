"""The model's tables in DuckDB, as SQL texts see them: names for codes, NULL for NONE.

SQL texts keep to what DuckDB, Spark, Polars, DataFusion and ClickHouse understand alike: signed
integers, explicit aliases, no QUALIFY, FILTER or GROUP BY ALL, sums cast to bigint. They name the
tables `operations`, `instances` and `members`, whose columns are those of model/schema.py, so that
the same texts run over exported Parquet.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from ncclscope.analysis.measures import BEGAN_SQL, GRADE_SQL
from ncclscope.analysis.selection import KEYS, Selection
from ncclscope.errors import FormatError
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE, TABLES, Column
from ncclscope.model.sql_views import kept_columns, literal, open_connection, rows_of_table

Row = tuple[Any, ...]
Rows = tuple[int, int]  # the first, and the one behind the last
TEXT_TABLES = ("operations", "instances", "members")
_SQL = Path(__file__).parent
# So many rows are named once and copied. DuckDB would plan the expressions of a view for each text,
# which takes longer than to run over this many rows; of more rows a copy takes memory.
_COPIED_ROWS = 100_000
# Places that any text may have.
_MEASURES = {
    "began_ns": BEGAN_SQL,
    "grade": GRADE_SQL,
    "gpu_sources": ", ".join(map(literal, GPU_SOURCES)),
}


def sql_text(name: str, **values: str | int) -> str:
    """The text of `name`.sql with its {places} filled: with measures, column names or numbers."""
    return (_SQL / f"{name}.sql").read_text().format(**_MEASURES, **values)


def connect(
    model: Model, selection: Selection, share: Mapping[str, Sequence[Rows]] | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection with the tables and columns that the texts name, restricted to the selection.
    `share`: by table the rows that it is about; of other tables, all of them.
    """
    connection = open_connection()
    create_names(connection, model)
    for table, shown in _columns_in_texts().items():
        parts = (share or {}).get(table, [(0, rows_of_table(model, table))])
        count = sum(last - first for first, last in parts)
        _register(connection, model, table, parts)
        selected = table in ("operations", "instances")
        where = selection.sql(model, table) if selected else "true"
        whole = model.whole.get(table, frozenset())
        listed = ", ".join(_expression(column, model.words, whole) for column in shown)
        if table == "operations":
            listed += f", {_dimension(model)} as dimension"
        kind = "table" if count <= _COPIED_ROWS else "view"
        connection.execute(
            f"create temp {kind} {table} as select {listed} from raw_{table} where {where}"
        )
    return connection


def _register(
    connection: duckdb.DuckDBPyConnection, model: Model, table: str, parts: Sequence[Rows]
) -> None:
    """Has the connection see these rows of a table as `raw_` and its name."""
    if len(parts) == 1:
        connection.register(f"raw_{table}", kept_columns(model, table, *parts[0]))
        return
    for number, (first, last) in enumerate(parts):
        connection.register(f"raw_{table}_{number}", kept_columns(model, table, first, last))
    texts = [f"select * from raw_{table}_{number}" for number in range(len(parts))]
    connection.execute(f"create temp view raw_{table} as {' union all '.join(texts)}")


def create_names(connection: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Makes a type for the names of each column that has words, unless it has none."""
    for column in sorted(columns_of_names()):
        if names := model.words[column]:  # an enum is a small number: quick to compare and group by
            listed = ", ".join(map(literal, names))
            connection.execute(f"create temp type {column}_name as enum ({listed})")


@cache
def columns_of_names() -> frozenset[str]:
    """The columns of the texts that are names."""
    shown = (column for columns in _columns_in_texts().values() for column in columns)
    return frozenset({column.name for column in shown if column.words} | {"dimension"})


@cache
def _columns_in_texts() -> dict[str, list[Column]]:
    """By table the columns that the texts name."""
    named = _names_in_texts()
    return {table: [c for c in TABLES[table] if c.name in named] for table in TEXT_TABLES}


@cache
def _names_in_texts() -> frozenset[str]:
    """Every word of the texts and of what fills their places: among them the columns they need."""
    texts = [path.read_text() for path in _SQL.glob("*.sql")]
    return frozenset(re.findall(r"\w+", " ".join([*texts, *_MEASURES.values(), *KEYS.values()])))


def _dimension(model: Model) -> str:
    """The dimension of an operation's communicator."""
    if not any(model.dimensions):
        return "cast(null as varchar)"
    listed = ", ".join(literal(name) if name else "null" for name in model.dimensions)
    return f"cast(([{listed}])[communicator + 1] as dimension_name)"


def rows(connection: duckdb.DuckDBPyConnection, name: str, **values: str | int) -> list[Row]:
    """All rows that `name`.sql gives."""
    with sums_that_fit():
        return connection.execute(sql_text(name, **values)).fetchall()


@contextmanager
def sums_that_fit() -> Iterator[None]:
    """Raises a FormatError where a sum does not fit into 64 bits."""
    try:
        yield
    except (duckdb.ConversionException, duckdb.OutOfRangeException):
        message = "cannot add up what the capture says: its numbers are too large"
        raise FormatError(message, "Leave the damaged process out") from None


def _expression(column: Column, words: Mapping[str, list[str]], whole: frozenset[str]) -> str:
    """The column as SQL texts see it; `whole`: columns without NONE, which need no look at it."""
    quoted = f'"{column.name}"'  # some are SQL's own words
    if not column.words and column.name in whole:
        return quoted
    if not column.words:
        return f"nullif({quoted}, {NONE}) as {quoted}"
    return f"{name_of_code(column.name, words[column.name])} as {quoted}"


def name_of_code(column: str, names: Sequence[str]) -> str:
    """The name behind a column's code; NULL for other numbers."""
    cases = " ".join(
        f"when {code} then cast({literal(name)} as {column}_name)"
        for code, name in enumerate(names)
    )
    return f'case "{column}" {cases} end' if cases else "cast(null as varchar)"
