"""Jobs written into a history, by any number of writers at once and without a server.

    HISTORY/jobs/NAME.parquet            written last: a job without it does not exist
    HISTORY/hosts/NAME.parquet           and communicators, links, modules; none without rows

Every file is written aside under a name that nobody else has, and renamed once it is on disk.
NAME is start-identity-shape-writing: it sorts by time, and tells equal jobs without opening a file.
If one capture is added again, the latest writing replaces the others. A later layout would have
names of other parts, so that no reader takes it for this one.
"""

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb

from ncclscope.history.tables import (
    COMMUNICATORS,
    HOSTS,
    JOBS,
    LINKS,
    MODULES,
    TABLES,
    JobSums,
    columns_of,
)
from ncclscope.model.sql_views import copy_to_file, literal, open_connection
from ncclscope.private_directory import make_private_directory, new_path

SUFFIX = ".parquet"
COLLECTED = "collected"  # a folder of readers: the rows of many jobs in one file a table


@dataclass(frozen=True, slots=True, order=True)
class JobName:
    """The parts of a job's name, in the order in which names sort."""

    start: str  # 20261116T162900Z
    identity: str  # of the capture
    shape: str
    writing: str  # of this writer; later ones sort behind

    def __str__(self) -> str:
        return f"{self.start}-{self.identity}-{self.shape}-{self.writing}"


def parse_name(text: str) -> JobName | None:
    """The parts of a name; None where it is not one."""
    parts = text.split("-")
    return JobName(*parts) if len(parts) == 4 and all(parts) else None


def write_job(
    directory: Path, sums: JobSums, connection: duckdb.DuckDBPyConnection | None = None
) -> JobName:
    """Adds a job and returns its name. `connection`: to write many without opening as many."""
    if connection is None:
        with open_connection() as own_connection:
            return write_job(directory, sums, own_connection)
    name = new_name(sums)
    tables: dict[str, Sequence[Any]] = {
        HOSTS: sums.hosts,
        COMMUNICATORS: sums.communicators,
        LINKS: sums.links,
        MODULES: sums.modules,
    }
    for table, rows in tables.items():
        if rows:
            _write_table(connection, directory / table, name, TABLES[table], rows)
    _write_table(connection, directory / JOBS, name, TABLES[JOBS], [sums.job])
    _delete_earlier(directory, name)
    return name


def new_name(sums: JobSums) -> JobName:
    """A name that no other job and no other writing has."""
    start = datetime.fromtimestamp(sums.job.started_ns / 1e9, timezone.utc)
    writing = f"{time.time_ns():016x}{secrets.token_hex(4)}"
    return JobName(f"{start:%Y%m%dT%H%M%SZ}", sums.identity, sums.shape, writing)


def _write_table(
    connection: duckdb.DuckDBPyConnection,
    directory: Path,
    name: JobName,
    row_type: type,
    rows: Sequence[Any],
) -> None:
    """Writes one file, which has its name once all of it is on disk."""
    columns = columns_of(row_type, rows)
    make_private_directory(directory)
    selected = [f"unnest(?::{sql_type}[]) as {column}" for column, (sql_type, _) in columns.items()]
    connection.execute(
        f"create or replace temp table rows as select {literal(str(name))} as name, "
        f"{', '.join(selected)}",
        [values for _, values in columns.values()],
    )
    try:
        with new_path(directory / f"{name}{SUFFIX}") as new:
            copy_to_file(
                connection,
                f"copy rows to {literal(str(new))} (format parquet, compression zstd)",
            )
    except OSError as error:
        error.filename = error.filename or str(directory)
        raise


def _delete_earlier(directory: Path, name: JobName) -> None:
    """Deletes what was written of the same capture before. The latest of several writers never
    deletes its own, and nobody deletes the latest.
    """
    for file in earlier_writings(os.listdir(directory / JOBS), name):
        delete_job(directory, file.removesuffix(SUFFIX))


def earlier_writings(files: Iterable[str], name: JobName) -> list[str]:
    """Those of these files of `jobs` that were written of the same capture before."""
    names = [(file, parse_name(file.removesuffix(SUFFIX))) for file in files]
    return [
        file
        for file, other in names
        if other is not None
        and (other.start, other.identity) == (name.start, name.identity)
        and other.writing < name.writing
    ]


def delete_job(directory: Path, name: str) -> int:
    """Deletes a job's files, that of `jobs` first; returns their bytes."""
    freed = 0
    for table in TABLES:
        path = directory / table / f"{name}{SUFFIX}"
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            continue
        freed += size
    return freed
