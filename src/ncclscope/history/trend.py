"""A host, a link, a role of communicators or a module over the last jobs."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from ncclscope.history.reader import History, Job
from ncclscope.history.tables import COMMUNICATORS, HOSTS, LINKS, MODULES
from ncclscope.humanize import binary_size

SHARE, TIMES, NS, GBS = "share", "times", "ns", "GB/s"  # units
_MOST_KINDS = 5  # of a role, those with most time


@dataclass(frozen=True, slots=True)
class Point:
    """One job."""

    job: Job
    values: tuple[float | None, ...]  # by measure


@dataclass(frozen=True, slots=True)
class Trend:
    """One thing over jobs, the oldest first."""

    subject: str
    measures: tuple[tuple[str, str], ...]  # names and units; the first is summed up
    points: tuple[Point, ...]

    @property
    def usual(self) -> float | None:
        """The median of the first measure over all jobs but the last; None with fewer than two."""
        values = [point.values[0] for point in self.points[:-1]]
        given = [value for value in values if value is not None]
        return median(given) if given else None

    @property
    def last(self) -> float | None:
        """The first measure in the last job."""
        return self.points[-1].values[0] if self.points else None


Values = Callable[[Job, tuple[Any, ...]], tuple[float | None, ...]]


def _trend(
    history: History,
    subject: str,
    measures: tuple[tuple[str, str], ...],
    rows: list[tuple[Any, ...]],
    values: Values,
) -> Trend:
    """The trend of rows that begin with a job's name."""
    by_name = {row[0]: row[1:] for row in rows}
    points = [
        Point(job, values(job, by_name[str(job.name)]))
        for job in history.jobs
        if str(job.name) in by_name
    ]
    return Trend(subject, measures, tuple(points))


def host_trend(history: History, host: str) -> Trend:
    """A host: waiting that began on it, and its own, as shares of the time of all ranks and of its
    own ones.
    """
    columns = ("ranks", "origin_ns", "waited_ns")
    rows = history.rows(HOSTS, columns, "host = ? and origin_ns is not null", [host])

    def values(job: Job, row: tuple[Any, ...]) -> tuple[float, ...]:
        ranks, origin_ns, waited_ns = row
        span_ns = max(job.row.span_ns, 1)
        return origin_ns / (job.row.ranks * span_ns), waited_ns / (ranks * span_ns)

    measures = (("others wait because of it", SHARE), ("it waits", SHARE))
    return _trend(history, f"host {host}", measures, rows, values)


def link_trend(history: History, source: str, destination: str) -> Trend:
    """A link from one host to another."""
    rows = history.rows(
        LINKS, ("slowness", "busy_ns"), "source = ? and destination = ?", [source, destination]
    )
    measures = (("time, of usual links", TIMES), ("transfers together", NS))
    subject = f"link from {source} to {destination}"
    return _trend(history, subject, measures, rows, lambda _, row: row)


def module_trend(history: History, module: str) -> Trend:
    """A module: time and waiting of one of its operations, in the mean."""
    rows = history.rows(
        MODULES, ("timed", "total_ns", "wait_ns"), "module = ? and timed > 0", [module]
    )

    def values(_: Job, row: tuple[Any, ...]) -> tuple[float, ...]:
        timed, total_ns, wait_ns = row
        return total_ns / timed, wait_ns / max(total_ns, 1)

    measures = (("an operation", NS), ("of it waiting", SHARE))
    return _trend(history, f"module {module}", measures, rows, values)


def role_trends(history: History, role: str) -> list[Trend]:
    """Communicators of one role: the kinds of calls that take the most time."""
    kind = ("ranks", "function", "size_bytes", "datatype")
    columns = (*kind, "median_ns", "busbw_gbs", "total_ns")
    by_kind: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    total_ns: dict[tuple[Any, ...], float] = {}
    where = "role = ? and median_ns is not null"
    for name, *key, median_ns, busbw, total in history.rows(COMMUNICATORS, columns, where, [role]):
        by_kind.setdefault(tuple(key), []).append((name, median_ns, busbw))
        total_ns[tuple(key)] = total_ns.get(tuple(key), 0.0) + total
    largest = sorted(by_kind, key=lambda key: -total_ns[key])[:_MOST_KINDS]
    measures = (("median", NS), ("busbw", GBS))
    return [
        _trend(history, _in_words(role, *key), measures, by_kind[key], lambda _, row: row)
        for key in largest
    ]


def _in_words(role: str, ranks: int, function: str, size_bytes: int, datatype: str) -> str:
    return f"{role} of {ranks} ranks, {function} {binary_size(max(size_bytes, 0))} {datatype}"


def names_of(history: History, table: str, column: str) -> list[str]:
    """All names in a column, for messages."""
    return sorted({str(row[1]) for row in history.rows(table, (column,))})
