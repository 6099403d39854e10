"""Tables as files, one per column: plain numbers, one after the other.

Several processes may write rows of one table at the same time, each to its own place.
"""

import mmap
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ncclscope.model.late_files import wait_for_size
from ncclscope.model.schema import NONE, OPTIONAL_COLUMNS, TABLES, Column, Columns


def column_file(folder: Path, table: str, column: str, version: int = 0) -> Path:
    """The file of one column. `version`: above 0 while a model is made, of values that replace
    those of the file before.
    """
    return folder / (f"{table}.{column}.{version}" if version else f"{table}.{column}")


def write_columns(
    folder: Path,
    table: str,
    first_row: int,
    columns: Columns,
    chosen: Sequence[Column] | None = None,
    versions: Mapping[str, int] = {},
) -> None:
    """Writes rows of a table, from `first_row` on. Optional columns may be missing; `chosen`:
    these columns alone; `versions`: of their files.
    """
    for column in TABLES[table] if chosen is None else chosen:
        if column.name in OPTIONAL_COLUMNS.get(table, ()) and column.name not in columns:
            continue
        values = np.ascontiguousarray(columns[column.name], column.dtype)
        path = column_file(folder, table, column.name, versions.get(column.name, 0))
        target = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            place, left = first_row * values.itemsize, values.data.cast("B")
            while left:
                written = os.pwrite(target, left, place)
                place, left = place + written, left[written:]
        finally:
            os.close(target)


def absent_column(rows: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A column of which nothing is known: one NONE in memory that stands for every row."""
    return np.broadcast_to(np.array(NONE, dtype), (rows,))


def is_absent(values: npt.NDArray[Any]) -> bool:
    """Whether a column is one of `absent_column`."""
    return values.strides == (0,) and len(values) > 0


def absent_columns(folder: Path, table: str) -> frozenset[str]:
    """Optional columns of a table that have no file."""
    names = OPTIONAL_COLUMNS.get(table, ())
    return frozenset(name for name in names if not column_file(folder, table, name).exists())


def map_columns(
    folder: Path,
    table: str,
    rows: int,
    mode: Literal["r", "r+"],
    versions: Mapping[str, int] = {},
    absent: Collection[str] | None = None,
) -> Columns:
    """A table's columns as mapped arrays; with `r+` they can be written to. `versions`: of their
    files; `absent`: optional columns without a file, instead of looking for it.
    """
    columns: Columns = {}
    if absent is None:
        absent = absent_columns(folder, table)
    for column in TABLES[table]:
        path = column_file(folder, table, column.name, versions.get(column.name, 0))
        if rows and column.name in absent:
            columns[column.name] = absent_column(rows, column.dtype)
        elif rows:
            columns[column.name] = map_file(path, column.dtype, rows, mode)
        else:
            columns[column.name] = np.empty(0, column.dtype)
    return columns


def map_file(
    path: Path, dtype: npt.DTypeLike, rows: int, mode: Literal["r", "r+"]
) -> npt.NDArray[Any]:
    """A mapped file as a plain array. numpy's own class takes five times as long to make, and a
    model has hundreds of columns; slices of it take ten times as long.
    """
    access = mmap.ACCESS_READ if mode == "r" else mmap.ACCESS_WRITE
    size_bytes = rows * np.dtype(dtype).itemsize
    wait_for_size(path, size_bytes)
    file = os.open(path, os.O_RDONLY if mode == "r" else os.O_RDWR)
    try:
        return np.frombuffer(mmap.mmap(file, size_bytes, access=access), dtype)
    finally:
        os.close(file)
