"""A capture in Python: `ncclscope.open`. Tables are DuckDB relations, made on first use."""

import html
import importlib
import importlib.util
import os
import re
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from ncclscope.analysis.counted_completeness import completeness_with_counts
from ncclscope.capture.reader import is_dataset, resolve_capture
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import printable
from ncclscope.ingest.nccl_log_topology import topology_of
from ncclscope.model.build import open_model
from ncclscope.model.completeness import Completeness
from ncclscope.model.detail_tables import details_of
from ncclscope.model.model import Model
from ncclscope.model.schema import DETAILS, TABLES
from ncclscope.model.sql_views import (
    SHOWN,
    create_small_tables,
    create_system_table,
    open_connection,
    raw_columns,
    rows_of_table,
    select_list,
)
from ncclscope.model.topology import Topology

if TYPE_CHECKING:
    import polars
    import pyarrow

Relation = duckdb.DuckDBPyRelation
_MISSING = re.compile(r"Table with name (\w+) does not exist")
_OVERVIEW_ROWS = 10
_NOTES = 3
_OVERVIEW = f"""
select communicator_name as communicator, "function", count(*) as operations,
    sum(size_bytes) as bytes, round(quantile_disc(duration_ns, 0.5) / 1e3, 1) as median_us
from operations where part_of is null and state <> 'captured'
group by communicator_name, "function" order by sum(duration_ns) desc nulls last, 1, 2
limit {_OVERVIEW_ROWS}
"""


def open_capture(path: "str | os.PathLike[str] | None" = None) -> "Capture":
    """The capture in a directory, or the newest one that a glob matches; without a path, the newest
    one here.
    """
    return Capture(resolve_capture(None if path is None else os.fspath(path)))


def connect(model: Model) -> duckdb.DuckDBPyConnection:
    """A connection with the saved tables of a model as they are shown."""
    connection = open_connection()
    connection.execute("set python_scan_all_frames = true")  # users' own tables can be joined
    connection.execute("set temp_directory = ?", [str(Path(tempfile.gettempdir(), "ncclscope"))])
    for table in TABLES:
        raw = raw_columns(model, table, 0, rows_of_table(model, table))
        connection.register(f"raw_{table}", raw)
        connection.execute(
            f"create temp view {table} as select {select_list(model, table)} from raw_{table}"
        )
    create_small_tables(connection, model)
    return connection


def add_details(connection: duckdb.DuckDBPyConnection, model: Model, table: str) -> None:
    """Makes a detail table from the capture's events, process by process."""
    if is_dataset(model.path):
        message = f"cannot make {table} of {model.path}: a dataset has no events"
        raise NcclscopeError(message, "Open the capture that it was made of")
    exists = False
    for columns in details_of(model, table):
        connection.register("raw_details", columns)
        query = f"select {select_list(model, table)} from raw_details"
        statement = f"insert into {table}" if exists else f"create temp table {table} as"
        connection.execute(f"{statement} {query}")
        connection.unregister("raw_details")
        exists = True
    if not exists:
        message = f"cannot make {table} of {model.path}: none of its processes can be read"
        raise NcclscopeError(message, "Its files have gone since the model was made")


class Capture:
    """The capture of one run.

    Tables are DuckDB relations: filter, join and print them, or turn them into a data frame with
    `.df()`, `.pl()` or `.fetchnumpy()`. docs/schema.md describes every column. Times are ns on the
    capture's one clock; wall clock is time + `realtime_offset_ns`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: set[str] = set()

    @cached_property
    def model(self) -> Model:
        """The tables as numpy columns; made on first use and saved in the capture."""
        return open_model(self.path)

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return connect(self.model)

    @property
    def operations(self) -> Relation:
        """One row for each collective, send or receive on each rank, and for each replay."""
        return self.table("operations")

    @property
    def instances(self) -> Relation:
        """One row for the operations of all ranks that belong together."""
        return self.table("instances")

    @property
    def communicators(self) -> Relation:
        """One row for each communicator, with its name."""
        return self.table("communicators")

    @property
    def members(self) -> Relation:
        """One row for each rank of each communicator."""
        return self.table("members")

    @property
    def processes(self) -> Relation:
        """One row for each recorded process."""
        return self.table("processes")

    @property
    def gpus(self) -> Relation:
        """One row for each GPU that a process used, with the rank that ran on it."""
        return self.table("gpus")

    @property
    def counters(self) -> Relation:
        """One row for each key that a process counted calls or works by: exact in every mode."""
        return self.table("counters")

    @property
    def counter_histograms(self) -> Relation:
        """One row for each range of times that works of a counter fell into."""
        return self.table("counter_histograms")

    @property
    def windows(self) -> Relation:
        """One row for each time in which a process that paused recorded single calls."""
        return self.table("windows")

    @property
    def nodes(self) -> Relation:
        """One row for each host, or exactly: for each clock."""
        return self.table("nodes")

    @property
    def channels(self) -> Relation:
        """One row for each channel of each operation, made on first use."""
        return self.table("channels")

    @property
    def launches(self) -> Relation:
        """One row for each kernel launch, made on first use."""
        return self.table("launches")

    @property
    def proxy_ops(self) -> Relation:
        """One row for each channel and direction of network work, made on first use."""
        return self.table("proxy_ops")

    @property
    def proxy_steps(self) -> Relation:
        """One row for each step of a proxy op, made on first use. Only mode full records them."""
        return self.table("proxy_steps")

    @property
    def steps(self) -> Relation:
        """One row for each training step of each process, of jobs that recorded ranges."""
        return self.table("steps")

    @property
    def phases(self) -> Relation:
        """One row for each stretch of a phase of the training loop."""
        return self.table("phases")

    @property
    def modules(self) -> Relation:
        """One row for each module of the user's model that operations move data of."""
        return self.table("modules")

    @property
    def ranges(self) -> Relation:
        """One row for each range and mark of the job's program, made on first use."""
        return self.table("ranges")

    @property
    def system(self) -> Relation:
        """One row for each counter of the machine at each sample, made on first use.

        `ncclscope run --system` samples; without it there are no rows.
        """
        return self.table("system")

    @property
    def realtime_offset_ns(self) -> int:
        """What to add to a time to have ns since 1970."""
        return self.model.realtime_offset_ns

    def completeness(self) -> Completeness:
        """What is on record against what must exist. Printed, it is one line of text."""
        return completeness_with_counts(self.model)

    def topology(self) -> Topology:
        """How ranks are connected, from NCCL's log; false where there is none.

        `ncclscope run --nccl-debug INFO` writes NCCL's log into the capture.
        """
        return topology_of(self.path)

    def table(self, name: str) -> Relation:
        """A table by its name."""
        if name not in SHOWN:
            raise UsageError(f"there is no table {name}", f"Tables are {', '.join(SHOWN)}")
        self._make(name)
        return self._connection.table(name)

    def sql(self, query: str) -> Relation:
        """The result of a query in DuckDB's SQL. It can use all tables, and data frames of the
        caller by their names.
        """
        while True:
            try:
                return self._connection.sql(query)
            except duckdb.CatalogException as error:
                missing = _MISSING.search(str(error))
                if not missing or not self._make(missing[1]):
                    raise

    def to_polars(self, table: str = "operations") -> "polars.DataFrame":
        """A table as a Polars data frame."""
        package = _extra("polars")
        # By way of pyarrow where it is: DuckDB 2.0 complains of leaks at exit otherwise.
        arrow = importlib.util.find_spec("pyarrow") is not None
        frame: polars.DataFrame = package.DataFrame(
            self.to_arrow(table) if arrow else self.table(table)
        )
        return frame

    def to_arrow(self, table: str = "operations") -> "pyarrow.Table":
        """A table as an Arrow table."""
        return _extra("pyarrow").RecordBatchReader.from_stream(self.table(table)).read_all()

    def _make(self, name: str) -> bool:
        """Makes a table that is made on first use; False where there is nothing to make."""
        if name not in (*DETAILS, "system") or name in self._made:
            return False
        if name == "system":
            create_system_table(self._connection, self.model)
        else:
            add_details(self._connection, self.model, name)
        self._made.add(name)
        return True

    def _overview(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Headings and rows of the functions that took the most time."""
        result = self._connection.execute(_OVERVIEW)
        return [column[0] for column in result.description or []], result.fetchall()

    def __repr__(self) -> str:
        headings, rows = self._overview()
        table = [headings, *([_cell(value) for value in row] for row in rows)]
        widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
        lines = [f"ncclscope capture {printable(str(self.path))}", self.completeness().line()]
        lines += [printable(note) for note in self.completeness().notes[:_NOTES]]
        for row in table if rows else []:
            cells = [
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        headings, rows = self._overview()
        lines = [str(self.path), self.completeness().line(), *self.completeness().notes[:_NOTES]]
        text = "<br>".join(html.escape(printable(line)) for line in lines)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in headings)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row) + "</tr>"
            for row in rows
        )
        return (
            f"<div>{text}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def _extra(module: str) -> Any:
    """An optional package; NcclscopeError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        message = f"cannot hand a table over: {module} is not installed"
        raise NcclscopeError(message, f"Install it with `pip install {module}`") from None


def _cell(value: Any) -> str:
    """A value as text."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, (int, float)) else printable(str(value))
