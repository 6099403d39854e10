"""Jobs of a history. What is not whole is left out and counted, never guessed at."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.history.tables import JOBS, TABLES, JobRow, column_names
from ncclscope.history.writer import SUFFIX, JobName, parse_name
from ncclscope.model.sql_views import literal, open_connection

_MAGIC = b"PAR1"
_LEAST_BYTES = 12  # the magic twice, and the length of the footer


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a history."""

    name: JobName
    row: JobRow


class History:
    """A directory of jobs, the oldest first.

    names      of jobs, at most the last so many; all of one shape where that is given
    jobs       what is kept of them; read when first asked for
    left_out   files that are there and not whole
    """

    def __init__(self, directory: Path, last: int | None = None, shape: str | None = None) -> None:
        self.directory = directory
        self.left_out = 0
        names = job_names(directory)
        if shape is not None:
            names = [name for name in names if name.shape == shape]
        self.names = names if last is None else names[-last:]
        self._connection = open_connection()

    @cached_property
    def jobs(self) -> list[Job]:
        """Jobs that are whole."""
        by_name = {str(name): name for name in self.names}
        rows = self.query(JOBS, f"select name, {', '.join(column_names(JobRow))} from rows")
        jobs = [Job(by_name[name], JobRow(*values)) for name, *values in rows]
        return sorted(jobs, key=lambda job: job.name)

    def rows(
        self, table: str, columns: Sequence[str], where: str = "true", values: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Rows of a table of all jobs: the job's name, then these columns."""
        return self.query(
            table, f"select name, {', '.join(columns)} from rows where {where}", values
        )

    def query(self, table: str, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The answer to a query over `rows`, which stands for the files of a table."""
        folder = self.directory / table
        present = set(os.listdir(folder)) if folder.is_dir() else set()
        files = [f"{name}{SUFFIX}" for name in self.names]
        paths = [folder / file for file in files if file in present]
        whole = [path for path in paths if is_whole(path)]
        self.left_out += len(paths) - len(whole)
        if not whole:
            return []
        try:
            return self._run(whole, query, values)
        except duckdb.Error:
            whole = self._readable(whole)
            return self._run(whole, query, values) if whole else []

    def _run(self, paths: list[Path], query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        listed = ", ".join(literal(str(path)) for path in paths)
        source = f"with rows as (from read_parquet([{listed}], hive_partitioning = false)) "
        return self._connection.execute(source + query, list(values)).fetchall()

    def _readable(self, paths: list[Path]) -> list[Path]:
        """Those of these files that can be read and have the table's columns."""
        columns = ", ".join(["name", *column_names(TABLES[paths[0].parent.name])])
        readable = []
        for path in paths:
            try:
                self._run([path], f"select {columns} from rows", ())
                readable.append(path)
            except duckdb.Error:
                self.left_out += 1
        return readable


def job_names(directory: Path) -> list[JobName]:
    """Names of jobs, the oldest first; of one capture the latest writing."""
    folder = directory / JOBS
    if not folder.is_dir():
        message = f"there is no history in {directory}"
        raise UsageError(message, f"Add a job: ncclscope history add {directory} CAPTURE")
    latest: dict[tuple[str, str], JobName] = {}
    try:
        files = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise NcclscopeError(f"cannot read {folder}: {error.strerror}") from None
    for file in files:
        name = parse_name(file.removesuffix(SUFFIX)) if file.endswith(SUFFIX) else None
        if name is None:
            continue
        key = name.start, name.identity
        if key not in latest or latest[key].writing < name.writing:
            latest[key] = name
    return sorted(latest.values())


def is_whole(path: Path) -> bool:
    """Whether a file begins and ends as Parquet does, with a footer that fits into it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < _LEAST_BYTES:
                return False
            file.seek(-8, 2)
            footer, end = file.read(4), file.read(4)
            file.seek(0)
            begin = file.read(4)
    except OSError:
        return False
    return begin == end == _MAGIC and int.from_bytes(footer, "little") <= size - _LEAST_BYTES
