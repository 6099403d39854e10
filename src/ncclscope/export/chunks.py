"""The selected rows of a table in chunks, as queries: an export holds one chunk in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from ncclscope.analysis.query import Rows
from ncclscope.analysis.selection import Selection
from ncclscope.model.model import Model
from ncclscope.model.schema import Columns
from ncclscope.model.sql_views import raw_columns, row_number, rows_of_table, select_list


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Some rows of a table. The query is valid until the next chunk is asked for."""

    query: str
    rows: int
    done: int  # rows that were asked for, up to the end of this chunk, selected or not
    of: int  # rows that were asked for
    restricted: bool  # False: the chunk holds all rows of `parts`
    parts: tuple[Rows, ...]


def chunks(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    selection: Selection,
    rows: int,
    within: Sequence[Rows] | None = None,
    without: frozenset[str] = frozenset(),
) -> Iterator[RowChunk]:
    """Chunks of about `rows` selected rows, in their order; at least one, which may be empty.
    `within`: of these rows; `without`: columns that are not shown.
    """
    restricted = table in ("operations", "instances") and selection != Selection()
    where = selection.sql(model, table) if restricted else "true"
    query = f"select {select_list(model, table, without)} from raw where {where}"
    asked = [(0, rows_of_table(model, table))] if within is None else within
    total = _length(asked)
    parts, done, selected, is_empty = list[Rows](), 0, 0, True
    for piece in _pieces(asked, rows):
        done += _length(piece)
        selected += _count(connection, model, table, piece, where) if restricted else _length(piece)
        parts += piece
        # A chunk with few selected rows grows on, so that files are not many and small.
        if selected and (2 * selected >= rows or done == total):
            connection.register("raw", rows_in(model, table, parts))
            yield RowChunk(query, selected, done, total, restricted, tuple(parts))
            parts, selected, is_empty = [], 0, False
    if is_empty:
        connection.register("raw", raw_columns(model, table, 0, 0))
        yield RowChunk(query, 0, total, total, restricted, ((0, 0),))


def rows_in(model: Model, table: str, parts: Sequence[Rows]) -> Columns:
    """The raw columns of some rows of a table, with the numbers of the rows."""
    if len(parts) == 1:
        return raw_columns(model, table, *parts[0])
    rows = np.concatenate([np.arange(first, last) for first, last in parts])
    columns = {name: np.asarray(values)[rows] for name, values in model.tables[table].items()}
    number = row_number(table)
    return columns | ({number.name: rows.astype(number.dtype)} if number else {})


def _length(parts: Sequence[Rows]) -> int:
    return sum(last - first for first, last in parts)


def _pieces(asked: Sequence[Rows], rows: int) -> Iterator[list[Rows]]:
    """The asked rows, `rows` of them at a time."""
    piece, room = list[Rows](), rows
    for first, last in asked:
        while first < last:
            end = min(first + room, last)
            piece.append((first, end))
            room -= end - first
            first = end
            if not room:
                yield piece
                piece, room = [], rows
    if piece:
        yield piece


def _count(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    parts: Sequence[Rows],
    where: str,
) -> int:
    """How many of these rows are selected."""
    connection.register("raw", rows_in(model, table, parts))
    return int(connection.execute(f"select count(*) from raw where {where}").fetchall()[0][0])
