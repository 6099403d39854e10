"""The model's tables in DuckDB, as SQL texts see them: names for codes, NULL for NONE.

SQL texts keep to what DuckDB, Spark, Polars, DataFusion and ClickHouse understand alike: signed
integers, explicit aliases, no QUALIFY, FILTER or GROUP BY ALL, sums cast to bigint. They name the
tables `operations`, `instances`, `communicators` and `members`, whose columns are those of
model/tables.py, so that the same texts run over exported Parquet.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ncclscope.analysis.selection import Selection, conditions
from ncclscope.model.model import Model
from ncclscope.model.tables import NONE, TABLES, Column

Row = tuple[Any, ...]
_SQL = Path(__file__).parent


def sql_text(name: str, **values: str | int) -> str:
    """The text of `name`.sql with its {places} filled; values are column names or numbers."""
    return (_SQL / f"{name}.sql").read_text().format(**values)


def connect(model: Model, chosen: Selection) -> duckdb.DuckDBPyConnection:
    """A connection with a view of each table, restricted to the selection."""
    connection = duckdb.connect(":memory:")
    connection.execute("set enable_progress_bar = false")
    for sort, names in model.words.items():
        if names:  # an enum is a small number to DuckDB: quick to compare and to group by
            listed = ", ".join(map(_literal, names))
            connection.execute(f"create type {sort}_name as enum ({listed})")
    for table, columns in TABLES.items():
        raw = {column.name: model.tables[table][column.name] for column in columns}
        connection.register(f"raw_{table}", _scannable(raw))
        where = conditions(model, chosen, table) if table in ("operations", "instances") else "true"
        shown = ", ".join(_expression(column, model.words) for column in columns)
        connection.execute(
            f"create temp view {table} as select {shown} from raw_{table} where {where}"
        )
    return connection


def rows(connection: duckdb.DuckDBPyConnection, name: str, **values: str | int) -> list[Row]:
    """All rows that `name`.sql gives."""
    return connection.execute(sql_text(name, **values)).fetchall()


def _scannable(raw: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Plain arrays: DuckDB knows nothing of numpy's subclass for mapped files."""
    return {name: np.asarray(column) for name, column in raw.items()}


def _literal(text: str) -> str:
    """A name from the job as a SQL literal."""
    return "'" + text.replace("\0", "\\0").replace("'", "''") + "'"


def _expression(column: Column, words: Mapping[str, list[str]]) -> str:
    quoted = f'"{column.name}"'  # some are SQL's own words
    if not column.words:
        return f"nullif({quoted}, {NONE}) as {quoted}"
    cases = " ".join(
        f"when {code} then cast({_literal(name)} as {column.name}_name)"
        for code, name in enumerate(words[column.name])
    )
    chosen = f"case {quoted} {cases} end" if cases else "cast(null as varchar)"
    return f"{chosen} as {quoted}"
