"""The model's tables in DuckDB, as SQL texts see them: names for codes, NULL for NONE.

SQL texts keep to what DuckDB, Spark, Polars, DataFusion and ClickHouse understand alike: signed
integers, explicit aliases, no QUALIFY, FILTER or GROUP BY ALL, sums cast to bigint. They name the
tables `operations`, `instances` and `members`, whose columns are those of model/schema.py, so that
the same texts run over exported Parquet.
"""

import re
from collections.abc import Mapping
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


def connect(model: Model, selection: Selection) -> duckdb.DuckDBPyConnection:
    """A connection with the tables and columns that the texts name, restricted to the selection."""
    connection = open_connection()
    named = _names_in_texts()
    columns = {table: [c for c in TABLES[table] if c.name in named] for table in TEXT_TABLES}
    with_words = {column.name for shown in columns.values() for column in shown if column.words}
    for sort in sorted(with_words):
        if names := model.words[sort]:  # an enum is a small number: quick to compare and group by
            listed = ", ".join(map(literal, names))
            connection.execute(f"create temp type {sort}_name as enum ({listed})")
    for table, shown in columns.items():
        count = rows_of_table(model, table)
        connection.register(f"raw_{table}", kept_columns(model, table, 0, count))
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


@cache
def _names_in_texts() -> frozenset[str]:
    """Every word of the texts and of what fills their places: among them the columns they need."""
    texts = [path.read_text() for path in _SQL.glob("*.sql")]
    return frozenset(re.findall(r"\w+", " ".join([*texts, *_MEASURES.values(), *KEYS.values()])))


def _dimension(model: Model) -> str:
    """The dimension of an operation's communicator."""
    names = [literal(name) if name else "null" for name in model.dimensions]
    listed = ", ".join(names)
    return f"([{listed}])[communicator + 1]" if set(names) - {"null"} else "cast(null as varchar)"


def rows(connection: duckdb.DuckDBPyConnection, name: str, **values: str | int) -> list[Row]:
    """All rows that `name`.sql gives."""
    try:
        return connection.execute(sql_text(name, **values)).fetchall()
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
    cases = " ".join(
        f"when {code} then cast({literal(name)} as {column.name}_name)"
        for code, name in enumerate(words[column.name])
    )
    named = f"case {quoted} {cases} end" if cases else "cast(null as varchar)"
    return f"{named} as {quoted}"
