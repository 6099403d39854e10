"""The model's tables in DuckDB, as SQL texts see them: names for codes, NULL for NONE.

SQL texts keep to what DuckDB, Spark, Polars, DataFusion and ClickHouse understand alike: signed
integers, explicit aliases, no QUALIFY, FILTER or GROUP BY ALL, sums cast to bigint. They name the
tables `operations`, `instances`, `communicators` and `members`, whose columns are those of
model/schema.py, so that the same texts run over exported Parquet.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from ncclscope.analysis.measures import BEGAN_SQL, GRADE_SQL
from ncclscope.analysis.selection import Selection
from ncclscope.errors import FormatError
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE, TABLES, Column
from ncclscope.model.sql_views import kept_columns, literal, open_connection, rows_of_table

Row = tuple[Any, ...]
_SQL = Path(__file__).parent
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
    """A connection with a view of each table, restricted to the selection."""
    connection = open_connection()
    for sort, names in model.words.items():
        if names:  # an enum is a small number to DuckDB: quick to compare and to group by
            listed = ", ".join(map(literal, names))
            connection.execute(f"create type {sort}_name as enum ({listed})")
    for table, columns in TABLES.items():
        raw = kept_columns(model, table, 0, rows_of_table(model, table))
        connection.register(f"raw_{table}", raw)
        selected = table in ("operations", "instances")
        where = selection.sql(model, table) if selected else "true"
        whole = model.whole.get(table, frozenset())
        shown = ", ".join(_expression(column, model.words, whole) for column in columns)
        if table == "operations":
            shown += f", {_dimension(model)} as dimension"
        connection.execute(
            f"create temp view {table} as select {shown} from raw_{table} where {where}"
        )
    return connection


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
