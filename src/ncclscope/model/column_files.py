"""Tables as files, one per column: plain numbers, one after the other.

Several processes may write rows of one table at the same time, each to its own place.
"""

import os
from pathlib import Path
from typing import Literal

import numpy as np

from ncclscope.model.schema import TABLES, Columns


def column_file(folder: Path, table: str, column: str) -> Path:
    """The file of one column."""
    return folder / f"{table}.{column}"


def write_columns(folder: Path, table: str, first_row: int, columns: Columns) -> None:
    """Writes rows of a table, from `first_row` on."""
    for column in TABLES[table]:
        values = np.ascontiguousarray(columns[column.name], column.dtype)
        path = column_file(folder, table, column.name)
        target = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            place, left = first_row * values.itemsize, values.data.cast("B")
            while left:
                written = os.pwrite(target, left, place)
                place, left = place + written, left[written:]
        finally:
            os.close(target)


def map_columns(folder: Path, table: str, rows: int, mode: Literal["r", "r+"]) -> Columns:
    """A table's columns as mapped arrays; with `r+` they can be written to."""
    columns: Columns = {}
    for column in TABLES[table]:
        if rows:
            path = column_file(folder, table, column.name)
            columns[column.name] = np.memmap(path, column.dtype, mode, shape=(rows,))
        else:
            columns[column.name] = np.empty(0, column.dtype)
    return columns
