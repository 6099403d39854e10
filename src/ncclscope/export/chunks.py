"""A table's chosen rows piece by piece, as queries: no export holds more than a piece in memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from ncclscope.analysis.selection import Selection
from ncclscope.model.model import Model
from ncclscope.model.sql_views import raw_columns, rows_of_table, select_list


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a table. The query holds until the next chunk is asked for."""

    query: str
    rows: int
    done: int  # rows of the table up to here, chosen or not
    of: int
    restricted: bool  # False: they are all rows, up to `done`


def chunks(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    chosen: Selection,
    rows: int,
) -> Iterator[Chunk]:
    """The chosen rows in their order; at least one chunk, even if it is empty."""
    restricted = table in ("operations", "instances") and chosen != Selection()
    where = chosen.sql(model, table) if restricted else "true"
    query = f"select {select_list(model, table)} from raw where {where}"
    total, first, kept, given = rows_of_table(model, table), 0, 0, False
    for begin in range(0, total, rows):
        end = min(begin + rows, total)
        kept += _count(connection, model, table, begin, end, where) if restricted else end - begin
        # Few chosen rows: go on, so that files are not small and many.
        if kept and (2 * kept >= rows or end == total):
            connection.register("raw", raw_columns(model, table, first, end))
            yield Chunk(query, kept, end, total, restricted)
            first, kept, given = end, 0, True
    if not given:
        connection.register("raw", raw_columns(model, table, 0, 0))
        yield Chunk(query, 0, total, total, restricted)


def _count(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    first: int,
    last: int,
    where: str,
) -> int:
    """How many of these rows are chosen."""
    connection.register("raw", raw_columns(model, table, first, last))
    return int(connection.execute(f"select count(*) from raw where {where}").fetchall()[0][0])
