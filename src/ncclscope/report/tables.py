"""Tables as data, and how they look in plain text; html.py shows the same ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ncclscope.humanize import NOTHING, printable
from ncclscope.report.units import bar, sparkline

_BAR_WIDTH, _SPARK_WIDTH, _GAP = 10, 20, "  "


@dataclass(frozen=True, slots=True)
class Bar:
    """A share to be drawn, 0 to 1."""

    share: float


@dataclass(frozen=True, slots=True)
class Spark:
    """Values over time to be drawn."""

    values: tuple[int, ...]


Cell = str | Bar | Spark


@dataclass(frozen=True, slots=True)
class Column:
    """A heading. `drop`: 0 always stays; the highest goes first where the table is too wide.
    `least`: characters that it has at least.
    """

    title: str
    right: bool = True
    drop: int = 0
    least: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, rows of cells, and notes on how to read them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


# In µs and bytes: numbers without a unit are times in µs, counts or GB/s.
_UNITS = {
    "ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6, "min": 6e7, "h": 3.6e9, "%": 1.0,
    "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
    "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40,
}  # fmt: skip
_NUMBER = re.compile(r"[~≈≥≤<±]*(-?\d[\d,]*\.?\d*) ?([A-Za-zµ%]*)\+?(?: ± .*)?")


def sort_value(cell: Cell) -> float | None:
    """The number that a cell shows, for sorting within its column; None for text.

    sort_value("1.07 s") -> 1070000.0, sort_value("22,001") -> 22001.0, sort_value("dp:0") -> None
    """
    if isinstance(cell, Bar):
        return cell.share
    if isinstance(cell, Spark):
        return float(sum(cell.values))
    match = _NUMBER.fullmatch(cell)
    if not match or (match[2] and match[2] not in _UNITS):
        return None
    return float(match[1].replace(",", "")) * _UNITS.get(match[2], 1.0)


def without_empty(tables: Sequence[Table], titles: tuple[str, ...]) -> list[Table]:
    """Tables of equal columns without those of the named ones that have nothing in any row."""
    rows = [row for table in tables for row in table.rows]
    empty = [
        column.title
        for place, column in enumerate(tables[0].columns if tables else ())
        if column.title in titles and all(row[place] == NOTHING for row in rows)
    ]
    return [without_columns(table, empty) for table in tables]


def _plain(cell: Cell) -> str:
    if isinstance(cell, Bar):
        return bar(cell.share, _BAR_WIDTH)
    if isinstance(cell, Spark):
        return sparkline(cell.values, _SPARK_WIDTH)
    return printable(cell)


def _widths(table: Table) -> list[int]:
    """Characters that each column needs."""
    least = [max(len(column.title), column.least) for column in table.columns]
    texts = [[len(_plain(cell)) for cell in row] for row in table.rows]
    return [max(column) for column in zip(least, *texts, strict=True)]


def without_columns(table: Table, titles: Sequence[str]) -> Table:
    """The table without the named columns."""
    kept = [place for place, column in enumerate(table.columns) if column.title not in titles]
    columns = tuple(table.columns[place] for place in kept)
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return replace(table, columns=columns, rows=rows)


def align(tables: Sequence[Table], width: int) -> tuple[list[Table], list[str]]:
    """Tables of equal columns with the columns that fit in all of them, equally wide in each, so
    that they can be compared by eye; and the titles of those that did not fit.
    """
    if not tables:
        return [], []
    least = [max(column) for column in zip(*map(_widths, tables), strict=True)]
    kept = _fitting(tables[0], least, width)
    titles = [column.title for place, column in enumerate(tables[0].columns) if place not in kept]
    aligned = []
    for table in tables:
        wide = [replace(c, least=chars) for c, chars in zip(table.columns, least, strict=True)]
        aligned.append(without_columns(replace(table, columns=tuple(wide)), titles))
    return aligned, titles


def _fitting(table: Table, widths: Sequence[int], width: int) -> list[int]:
    """Places of the columns that fit into the width."""
    kept = list(range(len(widths)))
    while sum(widths[place] for place in kept) + len(_GAP) * (len(kept) - 1) > width:
        droppable = [place for place in kept if table.columns[place].drop]
        if not droppable:
            break
        kept.remove(max(droppable, key=lambda place: table.columns[place].drop))
    return kept


def _line(columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        text.rjust(width) if column.right else text.ljust(width)
        for column, text, width in zip(columns, texts, widths, strict=True)
    ]
    return _GAP.join(cells).rstrip()


def plain_lines(table: Table, width: int) -> tuple[str, list[str], list[str]]:
    """The line of headings, the rows, and the titles of columns that did not fit."""
    rows = [[_plain(cell) for cell in row] for row in table.rows]
    titles = [column.title for column in table.columns]
    widths = _widths(table)
    kept = _fitting(table, widths, width)
    columns = [table.columns[place] for place in kept]
    inner = [widths[place] for place in kept]
    heading = _line(columns, [column.title for column in columns], inner)
    lines = [_line(columns, [row[place] for place in kept], inner) for row in rows]
    left_out = [title for place, title in enumerate(titles) if place not in kept and title]
    return heading, lines, left_out
