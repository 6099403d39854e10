"""Jobs of a history. What is not whole is left out and counted, never guessed at."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.history.tables import JOBS, TABLES, JobRow, column_names
from ncclscope.history.writer import COLLECTED, SUFFIX, JobName, parse_name
from ncclscope.model.sql_views import copy_to_file, literal, open_connection
from ncclscope.private_directory import make_private_directory, new_path

_MAGIC = b"PAR1"
_MANY_FILES = 100  # that no reader has put into one yet
_LEAST_BYTES = 12  # the magic twice, and the length of the footer


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a history."""

    name: JobName
    row: JobRow


class History:
    """A directory of jobs, the oldest first.

    names      of jobs, at most the `last` ones; all of one shape where one is given
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
        names = [str(name) for name in self.names]
        before = self.left_out
        collected, inside = self._collected(table)
        files = self._whole_files(table, [name for name in names if name not in inside])
        if len(files) >= _MANY_FILES:
            files = self._readable(files)
            together = self._collect(table, [*collected, *files])
            collected, files = (together, []) if together else (collected, files)
        if not collected and not files:
            return []
        try:
            return self._run([*collected, *files], names, query, values)
        except duckdb.Error:  # a file is damaged inside: those that can be read, one by one
            self.left_out = before
            files = self._readable(self._whole_files(table, names))
            return self._run(files, names, query, values) if files else []

    def _whole_files(self, table: str, names: list[str]) -> list[Path]:
        """Files of these jobs; a job without rows has none."""
        folder = self.directory / table
        present = set(os.listdir(folder)) if names and folder.is_dir() else set()
        paths = [folder / f"{name}{SUFFIX}" for name in names if f"{name}{SUFFIX}" in present]
        whole = [path for path in paths if is_whole(path)]
        self.left_out += len(paths) - len(whole)
        return whole

    def _run(
        self, paths: list[Path], names: list[str], query: str, values: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        # Between the first and the last, because DuckDB then skips parts of the file with all jobs.
        chosen = "name between ? and ? and name in (select unnest(?::varchar[]))"
        source = f"with rows as (from {_scan(paths)} where {chosen}) "
        known = [min(names), max(names), names, *values]
        return self._connection.execute(source + query, known).fetchall()

    def _readable(self, paths: list[Path]) -> list[Path]:
        """Those of these files that can be read and have the table's columns."""
        if not paths:
            return []
        columns = ", ".join(["name", *column_names(TABLES[paths[0].parent.name])])
        try:
            self._connection.execute(f"select {columns} from {_scan(paths)}").fetchall()
            return paths
        except duckdb.Error:
            if len(paths) == 1:
                self.left_out += 1
                return []
        middle = len(paths) // 2
        return self._readable(paths[:middle]) + self._readable(paths[middle:])

    # ---- files of many jobs in one ----
    def _collected(self, table: str) -> tuple[list[Path], set[str]]:
        """The file with rows of many jobs, if it is there and whole, and the jobs in it."""
        path = self.directory / COLLECTED / f"{table}{SUFFIX}"
        if not is_whole(path):
            return [], set()
        try:
            columns = ", ".join(column_names(TABLES[table]))
            self._connection.execute(f"select {columns} from {_scan([path])} limit 0")
            names = self._connection.execute(f"select distinct name from {_scan([path])}")
            return [path], {name for (name,) in names.fetchall()}
        except duckdb.Error:
            return [], set()

    def _collect(self, table: str, paths: list[Path]) -> list[Path]:
        """Writes the rows of these files into one, as far as their jobs exist. Opening a thousand
        files takes a second. Jobs never change, so it does not matter which reader did it when.
        """
        folder = self.directory / COLLECTED
        names = [str(name) for name in job_names(self.directory)]
        path = folder / f"{table}{SUFFIX}"
        try:
            make_private_directory(folder)
            self._connection.execute(
                f"create or replace temp table collected as from {_scan(paths)} "
                "where name in (select unnest(?::varchar[])) order by name",
                [names],
            )
            with new_path(path) as new:
                copy_to_file(
                    self._connection,
                    f"copy collected to {literal(str(new))} (format parquet, compression zstd)",
                )
        except (OSError, duckdb.Error):  # of somebody else, a full disk: single files do as well
            return []
        return [path]


def _scan(paths: list[Path]) -> str:
    listed = ", ".join(literal(str(path)) for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false)"


def job_names(directory: Path) -> list[JobName]:
    """Names of jobs, the oldest first; of one capture the latest writing."""
    folder = directory / JOBS
    if not folder.is_dir():
        message = f"there is no history in {directory}"
        raise UsageError(message, f"Add a job: ncclscope history add {directory} CAPTURE")
    try:
        return latest_names(path.name for path in folder.iterdir())
    except OSError as error:
        raise NcclscopeError(f"cannot read {folder}: {error.strerror}") from None


def latest_names(files: Iterable[str]) -> list[JobName]:
    """Names of the jobs that these files of `jobs` are of, the oldest first; of one capture the
    latest writing.
    """
    latest: dict[tuple[str, str], JobName] = {}
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
