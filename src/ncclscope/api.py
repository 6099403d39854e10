"""A capture in Python: `ncclscope.open`. Tables are DuckDB relations, made on first use."""

import html
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb

from ncclscope.analysis.counted_completeness import completeness_with_counts
from ncclscope.capture.reader import resolve_capture
from ncclscope.errors import UsageError
from ncclscope.humanize import printable
from ncclscope.ingest.capture_topology import topology_of
from ncclscope.model.build import open_model
from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model
from ncclscope.model.periodic_steps import with_periodic_steps
from ncclscope.model.topology import Topology
from ncclscope.notebook import frames, questions, views
from ncclscope.notebook.answers import Findings, JobComparison, JobStatus, Report, WhatIfAnswer
from ncclscope.notebook.frames import Relation
from ncclscope.notebook.plots import Plots
from ncclscope.notebook.questions import Moment, Names

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    Runs: TypeAlias = "Capture | PathLike | Sequence[Capture | PathLike]"

PathLike = str | os.PathLike[str]
_MISSING = re.compile(r"Table with name (\w+) does not exist")
_USED = re.compile(r"\b(?:from|join)\s+(\w+)", re.IGNORECASE)
_OVERVIEW_ROWS = 10
_NOTES = 3
_OVERVIEW = f"""
select communicator_name as communicator, "function", count(*) as operations,
    sum(size_bytes) as bytes, round(quantile_disc(duration_ns, 0.5) / 1e3, 1) as median_us
from operations where part_of is null and state <> 'captured'
group by communicator_name, "function" order by sum(duration_ns) desc nulls last, 1, 2
limit {_OVERVIEW_ROWS}
"""


def open_capture(path: PathLike | None = None) -> "Capture":
    """The capture in a directory, or the newest one that a glob matches; without a path, the newest
    one here.
    """
    return Capture(resolve_capture(None if path is None else os.fspath(path)))


def compare(
    a: "Runs",
    b: "Runs",
    *,
    comm: Names = None,
    op: Names = None,
    since: Moment = None,
    until: Moment = None,
) -> JobComparison:
    """Whether job B is slower or faster than job A, and what of it; each may be several runs.
    `comm` and `op` choose the kinds of calls that are listed, `since` and `until` a time of each
    run, as in `Capture.report`.
    """
    models_a, models_b = ([run.model for run in _runs(side)] for side in (a, b))
    return questions.compare(models_a, models_b, comm, op, (since, until))


def _runs(side: "Runs") -> list["Capture"]:
    if isinstance(side, (Capture, str, os.PathLike)):
        side = [side]
    return [run if isinstance(run, Capture) else open_capture(run) for run in side]


class Capture:
    """The capture of one run.

    Tables are DuckDB relations: filter, join and print them, or turn them into a data frame with
    `.df()`, `.pl()` or `.fetchnumpy()`. Times are ns on the capture's one clock; columns that end
    in `_utc` have the wall clock.
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
        return views.connect(with_periodic_steps(self.model))

    @property
    def plot(self) -> Plots:
        """Plots of the capture: `capture.plot.bandwidth_by_size()` …"""
        return Plots(self)

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
    def pairs(self) -> Relation:
        """One row for each rank that sends to another, with its bytes and their bandwidth."""
        return self.table("pairs")

    @property
    def stacks(self) -> Relation:
        """One row for each operation whose call stack is known: imports of Flight Recorder dumps.

        Other captures have no rows.
        """
        return self.table("stacks")

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

    def report(
        self,
        by: str | Sequence[str] = (),
        *,
        comm: Names = None,
        op: Names = None,
        rank: int | Sequence[int] | None = None,
        since: Moment = None,
        until: Moment = None,
        sort: str = "time",
    ) -> Report:
        """What `ncclscope report` shows. `by` are its keys (`"rank"`, `"+host"`); `comm`, `op` and
        `rank` select operations; `since` and `until` are seconds from the start of the run,
        negative ones from its end, or a datetime.
        """
        return questions.report(self.model, by, comm, op, rank, (since, until), sort)

    def diagnose(
        self,
        baseline: PathLike | None = None,
        *,
        comm: Names = None,
        rank: int | Sequence[int] | None = None,
        since: Moment = None,
        until: Moment = None,
    ) -> Findings:
        """What `ncclscope diagnose` finds; `baseline` is a file with bandwidths to expect. `comm`
        and `rank` choose findings that name them; `since` and `until` a time, as in `report`.
        """
        return questions.diagnose(self.model, baseline, comm, rank, (since, until))

    def status(self) -> JobStatus:
        """What `ncclscope status` says of the job at this moment, or at its last one."""
        return questions.status(self.path)

    def whatif(
        self,
        *,
        without_rank: int | Sequence[int] = (),
        without_comm: Names = None,
        links: Sequence[tuple[int, int]] = (),
        free: Names = None,
        bandwidth_gbs: dict[str, float] | None = None,
        since: Moment = None,
        until: Moment = None,
    ) -> WhatIfAnswer:
        """What `ncclscope whatif` predicts: the run without delays of ranks, with transfers of
        communicators or between two ranks as usual, with free transfers, or at some bandwidth.
        `since` and `until` replay a part of the run, as in `report`.
        """
        window = (since, until)
        return questions.whatif(
            self.model, without_rank, without_comm, links, free, bandwidth_gbs or {}, window
        )

    def compare(
        self,
        other: "Runs",
        *,
        comm: Names = None,
        op: Names = None,
        since: Moment = None,
        until: Moment = None,
    ) -> JobComparison:
        """Whether another job is slower or faster than this one, and what of it."""
        return compare(self, other, comm=comm, op=op, since=since, until=until)

    def table(self, name: str) -> Relation:
        """A table by its name."""
        if name not in views.NAMES:
            raise UsageError(f"there is no table {name}", f"Tables are {', '.join(views.NAMES)}")
        self._make(name)
        return self._connection.table(name)

    def sql(self, query: str) -> Relation:
        """The result of a query in DuckDB's SQL. It can use all tables, and data frames of the
        caller by their names.
        """
        # Before the query runs: where a table is not made yet, DuckDB would take a variable of the
        # caller's that has its name.
        for name in _USED.findall(query):
            self._make(name)
        while True:
            try:
                return self._connection.sql(query)
            except duckdb.CatalogException as error:
                missing = _MISSING.search(str(error))
                if not missing or not self._make(missing[1]):
                    raise

    def to_pandas(self, table: str = "operations") -> "pandas.DataFrame":
        """A table as a pandas data frame."""
        return frames.to_pandas(self.table(table))

    def to_polars(self, table: str = "operations") -> "polars.DataFrame":
        """A table as a Polars data frame."""
        return frames.to_polars(self.table(table))

    def to_arrow(self, table: str = "operations") -> "pyarrow.Table":
        """A table as an Arrow table."""
        return frames.to_arrow(self.table(table))

    def _make(self, name: str) -> bool:
        """Makes a table that is made on first use; False where there is nothing to make."""
        if name in self._made or not views.create_on_first_use(self._connection, self.model, name):
            return False
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


def _cell(value: Any) -> str:
    """A value as text."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, (int, float)) else printable(str(value))
