"""Tables of sums from SQL texts, merged, and as tables of SQL again.

Everything in the texts is a sum, a count, a least or a most by keys, so sums of parts of the
operations merge into those of all, value by value.
"""

import re
from collections.abc import Sequence

import duckdb
import numpy as np

from ncclscope.analysis.query import Row, columns_of_names, name_of_code, sums_that_fit
from ncclscope.analysis.sum_columns import NOTHING, SumTable
from ncclscope.model.model import Model
from ncclscope.model.schema import Columns
from ncclscope.model.sql_views import open_connection

_ALIAS = re.compile(r"\bas (\w+),?$", re.MULTILINE)  # of texts: those that are no keys have one
_LEAST = ("shortest_ns",)
_MOST = ("longest_ns", "inferred", "error_ns")  # all others are added up


def fetch_sums(
    connection: duckdb.DuckDBPyConnection, text: str, keys: Sequence[str], model: Model
) -> SumTable:
    """What a SQL text gives."""
    names = dict.fromkeys([*keys, *_ALIAS.findall(text)])
    listed = ", ".join(_as_number(name, model) for name in names)
    with sums_that_fit():
        return SumTable(tuple(keys), _fetch(connection, f"select {listed} from ({text})"))


def _as_number(column: str, model: Model) -> str:
    """A column of a text's answer as a number."""
    number = f'"{column}"'
    if column in columns_of_names():
        known = any(model.dimensions) if column == "dimension" else bool(model.words[column])
        number = f'enum_code("{column}")' if known else "null"
    return f'coalesce(cast({number} as bigint), {NOTHING}) as "{column}"'


def _fetch(connection: duckdb.DuckDBPyConnection, text: str) -> Columns:
    fetched = connection.execute(text).fetchnumpy()
    return {name: np.asarray(values, np.int64) for name, values in fetched.items()}


def merge_sums(parts: Sequence[SumTable]) -> SumTable:
    """One table of several with the same keys and columns."""
    keys, names = parts[0].keys, list(parts[0].columns)
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
    grouped = ", ".join(f'"{key}"' for key in keys)
    listed = ", ".join(f'"{name}"' if name in keys else _merged(name) for name in names)
    with open_connection() as connection, sums_that_fit():
        connection.register("parts", columns)
        return SumTable(keys, _fetch(connection, f"select {listed} from parts group by {grouped}"))


def _merged(column: str) -> str:
    """A measure of all parts: NULL where it is NULL in all of them."""
    how = "min" if column in _LEAST else "max" if column in _MOST else "sum"
    known = f'nullif("{column}", {NOTHING})'
    return f'coalesce(cast({how}({known}) as bigint), {NOTHING}) as "{column}"'


def create_sums(
    connection: duckdb.DuckDBPyConnection, name: str, table: SumTable, model: Model
) -> None:
    """Makes a table as the SQL text gives it: names for codes, NULL for NOTHING. The connection has
    the types of names.
    """
    listed = []
    for column in table.columns:
        shown = f'nullif("{column}", {NOTHING})'
        if column in columns_of_names():
            shown = name_of_code(column, model.words[column])
        listed.append(f'{shown} as "{column}"')
    connection.register(f"summed_{name}", table.columns)
    connection.execute(
        f"create temp table {name} as select {', '.join(listed)} from summed_{name} order by all"
    )
    connection.unregister(f"summed_{name}")


def all_rows(connection: duckdb.DuckDBPyConnection, table: str) -> list[Row]:
    """All rows of a table that `create_sums` made, in order: an engine's own order differs from run
    to run.
    """
    return connection.execute(f"select * from {table}").fetchall()
