"""The selected rows of a table in chunks, as queries: an export holds one chunk in memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from ncclscope.analysis.selection import Selection
from ncclscope.model.model import Model
from ncclscope.model.sql_views import raw_columns, rows_of_table, select_list


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Some rows of a table. The query is valid until the next chunk is asked for."""

    query: str
    rows: int
    done: int  # rows of the table up to the end of this chunk, selected or not
    of: int  # rows of the table
    restricted: bool  # False: the chunk holds all rows from the chunk before up to `done`


def chunks(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    selection: Selection,
    rows: int,
) -> Iterator[RowChunk]:
    """Chunks of about `rows` selected rows, in their order; at least one, which may be empty."""
    restricted = table in ("operations", "instances") and selection != Selection()
    where = selection.sql(model, table) if restricted else "true"
    query = f"select {select_list(model, table)} from raw where {where}"
    total, first, selected, is_empty = rows_of_table(model, table), 0, 0, True
    for begin in range(0, total, rows):
        end = min(begin + rows, total)
        selected += (
            _count(connection, model, table, begin, end, where) if restricted else end - begin
        )
        # A chunk with few selected rows grows on, so that files are not many and small.
        if selected and (2 * selected >= rows or end == total):
            connection.register("raw", raw_columns(model, table, first, end))
            yield RowChunk(query, selected, end, total, restricted)
            first, selected, is_empty = end, 0, False
    if is_empty:
        connection.register("raw", raw_columns(model, table, 0, 0))
        yield RowChunk(query, 0, total, total, restricted)


def _count(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    first: int,
    last: int,
    where: str,
) -> int:
    """How many of these rows are selected."""
    connection.register("raw", raw_columns(model, table, first, last))
    return int(connection.execute(f"select count(*) from raw where {where}").fetchall()[0][0])
