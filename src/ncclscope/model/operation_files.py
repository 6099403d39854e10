"""The operations of a model that is being made, as tasks on any machine see them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.model.column_files import (
    absent_columns,
    column_file,
    map_columns,
    write_columns,
)
from ncclscope.model.schema import OPERATIONS, Columns

_BY_NAME = {column.name: column for column in OPERATIONS}


class OperationFiles:
    """Columns of operations. A task that gets them maps their files itself.

    Values that replace others are set in place on one machine. Where tasks may be repeated they go
    into new files, which count when the stage has ended: `adopt`. Two versions of a column never
    have the same name, so that no machine takes one for the other.
    """

    def __init__(
        self,
        folder: Path,
        rows: int,
        aside: bool,
        versions: Mapping[str, int] | None = None,
        absent: frozenset[str] | None = None,
    ) -> None:
        self.folder, self.rows, self._aside = folder, rows, aside
        # Asked once, by the command: a task may see a file late.
        self._absent = absent_columns(folder, "operations") if absent is None else absent
        self.versions = dict(versions or {})
        self._mapped: Columns | None = None

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return OperationFiles, (
            self.folder, self.rows, self._aside, self.versions, self._absent,
        )  # fmt: skip

    @property
    def columns(self) -> Columns:
        """All columns, mapped."""
        if self._mapped is None:
            mode: Any = "r" if self._aside else "r+"
            self._mapped = map_columns(
                self.folder, "operations", self.rows, mode, self.versions, self._absent
            )
        return self._mapped

    def of(self, rows: slice, names: Sequence[str] | None = None) -> Columns:
        """Some rows, in place."""
        columns = self.columns
        return {name: np.asarray(columns[name][rows]) for name in names or columns}

    def write(self, rows: slice, values: Columns) -> None:
        """Writes columns that no task of this stage reads."""
        if self._aside:
            self._write(rows, values, self.versions)
        else:
            for name, column in values.items():
                self.columns[name][rows] = column

    def replace(self, rows: slice, values: Columns) -> None:
        """Writes columns that tasks of this stage read; all rows of them have to be written."""
        if self._aside:
            after = {name: self.versions.get(name, 0) + 1 for name in values}
            self._write(rows, values, after)
        else:
            self.write(rows, values)

    def _write(self, rows: slice, values: Columns, versions: Mapping[str, int]) -> None:
        chosen = [_BY_NAME[name] for name in values]
        write_columns(self.folder, "operations", rows.start, values, chosen, versions)

    def adopt(self, *names: str) -> None:
        """Makes replaced columns count."""
        if self._aside and self.rows:
            self.versions |= {name: self.versions.get(name, 0) + 1 for name in names}
            self._mapped = None

    def editable(self, names: Sequence[str]) -> Columns:
        """All columns for the command itself, which may change those with these names."""
        if not self._aside:
            return self.columns
        return {**self.columns, **{name: self.columns[name].copy() for name in names}}

    def save(self, columns: Columns, names: Sequence[str]) -> None:
        """Has changes to the columns of `editable` count."""
        if self._aside:
            self.replace(slice(0, self.rows), {name: columns[name] for name in names})
            self.adopt(*names)

    def settle(self) -> None:
        """Gives the columns their own names again; tasks have ended by then."""
        self._mapped = None
        for name, version in self.versions.items():
            for number in range(version):
                column_file(self.folder, "operations", name, number).unlink()
            last = column_file(self.folder, "operations", name, version)
            last.rename(column_file(self.folder, "operations", name))
        self.versions = {}
        for column in OPERATIONS:  # a killed command may have left more
            path = column_file(self.folder, "operations", column.name)
            if path.exists():
                os.truncate(path, self.rows * np.dtype(column.dtype).itemsize)
