"""Jobs of a history, trends and late hosts, as text and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from ncclscope.history.late_hosts import LEAST_JOBS, HostRecord
from ncclscope.history.reader import History, Job
from ncclscope.history.trend import GBS, NS, SHARE, TIMES, Trend
from ncclscope.humanize import duration, percent, plural, printable, three_digits, wrapped
from ncclscope.json_answers import VERSION
from ncclscope.report.tables import Bar, Cell, Column, Table, plain_lines

_MOST_HOSTS = 10


def table_lines(table: Table, width: int) -> Iterator[str]:
    """A table with its notes."""
    heading, rows, _ = plain_lines(table, width)
    yield heading
    yield from rows
    for note in table.notes:
        yield from wrapped(note, width)


def left_out(count: int) -> tuple[str, ...]:
    """A line for files that are not whole, if there are any."""
    if not count:
        return ()
    return (f"{plural(count, 'file')} that {'is' if count == 1 else 'are'} not whole: left out.",)


def start(job: Job) -> str:
    """When a job began."""
    moment = datetime.fromtimestamp(job.row.started_ns / 1e9, timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M}"


def number(value: float | None, unit: str) -> str:
    """A number in its unit."""
    if value is None:
        return duration(None)
    if unit == SHARE:
        return percent(value)
    if unit == NS:
        return duration(value)
    return {TIMES: f"{value:.2f}", GBS: f"{three_digits(value)} GB/s"}[unit]


# ---- jobs ----
def job_lines(history: History, width: int) -> Iterator[str]:
    """The jobs, the newest first."""
    columns = (
        Column("started (UTC)", right=False), Column("job", right=False), Column("ranks"),
        Column("hosts"), Column("took"), Column("a step", drop=2), Column("a round", drop=1),
        Column("waiting"), Column("equal jobs", right=False, drop=3),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for job in reversed(history.jobs):
        row = job.row
        rows.append(
            (
                start(job), row.label, f"{row.ranks:,}", f"{row.hosts:,}", duration(row.span_ns),
                duration(row.step_ns), duration(row.round_ns), percent(_waiting(job)),
                job.name.shape,
            )
        )  # fmt: skip
    notes = ("waiting: of the time of all ranks. Equal jobs have the same last column.",)
    yield from table_lines(
        Table("", columns, tuple(rows), notes + left_out(history.left_out)), width
    )


def _waiting(job: Job) -> float | None:
    row = job.row
    return None if row.waiting_ns is None else row.waiting_ns / max(row.ranks * row.span_ns, 1)


def job_as_json(job: Job) -> dict[str, Any]:
    """All that is kept of a job itself."""
    return {"name": str(job.name), "shape": job.name.shape, **asdict(job.row)}


def jobs_as_json(history: History) -> dict[str, Any]:
    """The jobs, the newest first."""
    jobs = [job_as_json(job) for job in reversed(history.jobs)]
    return {"version": VERSION, "jobs": jobs, "left_out": history.left_out}


# ---- hosts ----
def host_lines(history: History, records: Sequence[HostRecord], width: int) -> Iterator[str]:
    """Which hosts are late again and again, and the hosts that come next."""
    late = [record for record in records if record.is_late]
    jobs = plural(len(history.names), "job")
    if not records:
        yield f"the last {jobs} have no waiting between hosts on record: record in mode trace"
        return
    if not late:
        yield f"no host is late again and again in the last {jobs}"
        if max(record.jobs for record in records) < LEAST_JOBS:
            yield f"It takes {LEAST_JOBS} jobs of a host to say so."
    for record in late:
        yield (
            f"host {printable(record.host)} is late again and again: waiting began on it in "
            f"{record.origin_in:,} of {record.jobs:,} jobs, where chance gives "
            f"{record.expected:.1f}; {percent(record.share)} of the time of all ranks"
        )
        if record.one_place:
            yield "  It always had the same ranks: its place in the job may be the cause."
    yield ""
    columns = (
        Column("host", right=False), Column("jobs"), Column("origin in"), Column("by chance"),
        Column("", right=False, drop=1), Column("others wait because of it"),
        Column("probability"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            record.host, f"{record.jobs:,}", f"{record.origin_in:,}", f"{record.expected:.1f}",
            Bar(record.origin_in / record.jobs), percent(record.share),
            "1" if record.probability >= 1 else f"{record.probability:.1g}",
        )
        for record in records[:_MOST_HOSTS]
    ]  # fmt: skip
    notes = (
        "probability: at most so likely is it that chance alone makes any host an origin so often.",
    )
    yield from table_lines(
        Table("", columns, tuple(rows), notes + left_out(history.left_out)), width
    )


def hosts_as_json(history: History, records: Sequence[HostRecord]) -> dict[str, Any]:
    """All hosts, the least probable first."""
    return {
        "version": VERSION,
        "jobs": len(history.names),
        "late_hosts": [record.host for record in records if record.is_late],
        "hosts": [asdict(record) for record in records],
        "left_out": history.left_out,
    }


# ---- trends ----
def trend_lines(history: History, trends: Sequence[Trend], width: int) -> Iterator[str]:
    """Each trend as a table of jobs, the newest last."""
    for place, trend in enumerate(trends):
        if place:
            yield ""
        name, unit = trend.measures[0]
        yield f"{printable(trend.subject)}: {plural(len(trend.points), 'job')}"
        if trend.usual is not None:
            last, usual = number(trend.last, unit), number(trend.usual, unit)
            yield f"{name}: {last} in the last job, {usual} in the median of those before"
        yield from table_lines(_trend_table(trend), width)
    yield from left_out(history.left_out)


def _trend_table(trend: Trend) -> Table:
    columns = [Column("started (UTC)", right=False), Column("job", right=False)]
    columns += [Column(name) for name, _ in trend.measures]
    columns.append(Column("", right=False, drop=1))
    most = max((point.values[0] or 0.0 for point in trend.points), default=0.0)
    rows: list[tuple[Cell, ...]] = []
    for point in trend.points:
        numbers = [
            number(value, unit)
            for value, (_, unit) in zip(point.values, trend.measures, strict=True)
        ]
        share = (point.values[0] or 0.0) / most if most > 0 else 0.0
        rows.append((start(point.job), point.job.row.label, *numbers, Bar(share)))
    return Table("", tuple(columns), tuple(rows))


def trends_as_json(history: History, trends: Sequence[Trend]) -> dict[str, Any]:
    """Trends, the oldest job first."""
    return {
        "version": VERSION,
        "trends": [
            {
                "subject": trend.subject,
                "measures": [{"name": name, "unit": unit} for name, unit in trend.measures],
                "usual": trend.usual,
                "points": [
                    {
                        "name": str(point.job.name),
                        "label": point.job.row.label,
                        "started_ns": point.job.row.started_ns,
                        "values": list(point.values),
                    }
                    for point in trend.points
                ],
            }
            for trend in trends
        ],
        "left_out": history.left_out,
    }
