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
    """Some rows of a table."""

    parts: tuple[Rows, ...]  # where its selected rows are
    rows: int  # selected ones
    done: int  # rows that were asked for, up to the end of this chunk, selected or not
    of: int  # rows that were asked for


def is_restricted(table: str, selection: Selection) -> bool:
    """Whether an export leaves rows of a table out."""
    return table in ("operations", "instances") and selection != Selection()


def row_query(
    model: Model, table: str, selection: Selection, without: frozenset[str] = frozenset()
) -> str:
    """What shows the selected rows among those of `register_rows`. `without`: columns that are not
    shown. It has all names, so it is made once.
    """
    listed, where = select_list(model, table, without), _where(model, table, selection)
    return f"select {listed} from raw where {where}"


def _where(model: Model, table: str, selection: Selection) -> str:
    return selection.sql(model, table) if is_restricted(table, selection) else "true"


def chunks(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    table: str,
    selection: Selection,
    rows: int,
    within: Sequence[Rows] | None = None,
) -> Iterator[RowChunk]:
    """Chunks of about `rows` selected rows, in their order; at least one, which may be empty.
    `within`: of these rows.
    """
    where = _where(model, table, selection) if is_restricted(table, selection) else None
    asked = [(0, rows_of_table(model, table))] if within is None else within
    total = _length(asked)
    parts, done, selected, is_empty = list[Rows](), 0, 0, True
    for piece in _pieces(asked, rows):
        done += _length(piece)
        parts += piece
        if where is None:
            selected += _length(piece)
        else:
            register_rows(connection, model, table, piece)
            count = f"select count(*) from raw where {where}"
            selected += int(connection.execute(count).fetchall()[0][0])
        # A chunk with few selected rows grows on, so that files are not many and small.
        if selected and (2 * selected >= rows or done == total):
            yield RowChunk(tuple(parts), selected, done, total)
            parts, selected, is_empty = [], 0, False
    if is_empty:
        yield RowChunk(((0, 0),), 0, total, total)


def register_rows(
    connection: duckdb.DuckDBPyConnection, model: Model, table: str, parts: Sequence[Rows]
) -> None:
    """Has `row_query` be about these rows of a table."""
    connection.register("raw", rows_in(model, table, parts))


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
