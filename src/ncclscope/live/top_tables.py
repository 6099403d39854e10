"""What `ncclscope top` shows, as text: pure, within 80 columns, safe for a terminal."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ncclscope.capture.liveness import ALIVE
from ncclscope.humanize import (
    NOTHING,
    binary_size,
    plural,
    printable,
    seconds,
    three_digits,
    wrapped,
)
from ncclscope.live.recent_operations import RecentOperation
from ncclscope.live.top_model import CommunicatorRow, JobLine, Overview, RankRow, Rates
from ncclscope.nccl.releases import release_of_code, text_of
from ncclscope.report.status import line as verdict_line
from ncclscope.snapshot.types import OperationInFlight

WIDTH = 80
_MOST_VERDICTS = 3
_MOST_JOBS = 4
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column: how a row looks in it, and what rows are sorted by."""

    title: str
    width: int  # with the space behind it
    cell: Callable[[T], str]
    key: Callable[[T], float | str]
    left: bool = False

    def shown(self, text: str) -> str:
        """As wide as the column, what is too long cut in the middle."""
        room = self.width - 1
        if len(text) > room:
            head = (room - 1) * 2 // 3
            text = text[:head] + "…" + text[len(text) - (room - 1 - head) :]
        return (text.ljust(room) if self.left else text.rjust(room)) + " "


def _number(value: float | None) -> str:
    return NOTHING if value is None else three_digits(value) if value else "0"


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.0f}%"


def _or_none(value: float | None) -> float:
    return -1.0 if value is None else value


def _seen(row: CommunicatorRow) -> str:
    """8, or 6/8 where some are not on record."""
    alive = sum(one.life == ALIVE for one in row.rows)
    return f"{alive}/{row.ranks}" if alive != row.ranks else str(row.ranks)


def _measured(
    title: str,
    width: int,
    value: Callable[[T], float | None],
    show: Callable[[float | None], str] = _number,
) -> Column[T]:
    """A number that may not be known."""
    return Column(title, width, lambda row: show(value(row)), lambda row: _or_none(value(row)))


COMMUNICATOR_COLUMNS: tuple[Column[CommunicatorRow], ...] = (
    Column(
        "communicator",
        19,
        lambda r: printable(r.label or r.name),
        lambda r: r.label or r.name,
        True,
    ),
    Column("ranks", 8, _seen, lambda r: r.ranks),
    Column("nodes", 6, lambda r: str(r.nodes or NOTHING), lambda r: r.nodes),
    _measured("op/s", 8, lambda r: r.operations_per_s),
    _measured("algbw", 7, lambda r: r.rates.algbw_gb_s),
    _measured("busbw", 7, lambda r: r.rates.busbw_gb_s),
    _measured("gpu", 5, lambda r: r.rates.gpu_share, _percent),
    _measured("wait", 5, lambda r: r.wait_share, _percent),
    _measured("late", 5, lambda r: r.late, lambda rank: NOTHING if rank is None else f"{rank:.0f}"),
    Column("open", 5, lambda r: str(r.in_flight), lambda r: r.in_flight),
    Column("age", 5, lambda r: _short(r.oldest_ns), lambda r: r.oldest_ns),
)
RANK_COLUMNS: tuple[Column[RankRow], ...] = (
    Column("rank", 6, lambda r: str(r.rank), lambda r: r.rank),
    Column("host", 14, lambda r: printable(r.host), lambda r: r.host, left=True),
    Column("gpu#", 6, lambda r: printable(r.gpu) or NOTHING, lambda r: r.gpu),
    Column("pid", 9, lambda r: str(r.pid), lambda r: r.pid),
    Column("life", 8, lambda r: r.life, lambda r: r.life, left=True),
    _measured("op/s", 8, lambda r: r.rates.operations_per_s),
    _measured("busbw", 7, lambda r: r.rates.busbw_gb_s),
    _measured("excess", 7, lambda r: r.excess, _percent),
    Column("open", 5, lambda r: str(len(r.in_flight)), lambda r: len(r.in_flight)),
    Column("age", 5, lambda r: _short(r.oldest_ns), lambda r: r.oldest_ns),
    Column("drop", 5, lambda r: _short_count(r.dropped), lambda r: r.dropped),
)
OPERATION_COLUMNS: tuple[Column[RecentOperation], ...] = (
    Column("called", 13, lambda o: _clock(o.called_unix_ns), lambda o: o.called_unix_ns, left=True),
    Column("operation", 16, lambda o: printable(o.function), lambda o: o.function, left=True),
    Column("size", 11, lambda o: binary_size(o.size_bytes), lambda o: o.size_bytes),
    Column("type", 10, lambda o: printable(o.datatype), lambda o: o.datatype, left=True),
    Column("algorithm", 13, lambda o: _algorithm(o), lambda o: o.algorithm, left=True),
    Column("took", 9, lambda o: _took(o.duration_ns), lambda o: _or_none(o.duration_ns)),
    Column("by", 8, lambda o: o.source if o.state == "done" else o.state, lambda o: o.source, True),
)


def _algorithm(operation: RecentOperation) -> str:
    return printable(f"{operation.algorithm} {operation.protocol}".strip())


def _short(time_ns: int) -> str:
    """4ms, 0.2s, 41s, 12m, 3h: four characters."""
    if not time_ns:
        return NOTHING
    value = time_ns / 1e9
    if value < 0.0995:
        return f"{value * 1e3:.0f}ms"
    if value < 9.95:
        return f"{value:.1f}s"
    for limit, divisor, unit in ((99.5, 1, "s"), (5970, 60, "m")):
        if value < limit:
            return f"{value / divisor:.0f}{unit}"
    return f"{min(value / 3600, 999):.0f}h"


def _short_count(count: int) -> str:
    return str(count) if count < 1000 else f"{min(count // 1000, 999)}k"


def _took(duration_ns: int | None) -> str:
    if duration_ns is None:
        return NOTHING
    value = duration_ns / 1e3
    return f"{three_digits(value)}µs" if value < 1e3 else f"{three_digits(value / 1e3)}ms"


def _clock(unix_ns: int) -> str:
    at = time.localtime(unix_ns // 1_000_000_000)
    return time.strftime("%H:%M:%S", at) + f".{unix_ns // 1_000_000 % 1000:03d}"


# ---- above the table ----
def job_lines(overview: Overview) -> list[str]:
    """One line a job: who lives, how fast it is inside nodes and between them, what was lost."""
    if not overview.jobs:
        return ["no running job"]
    lines = [printable(_job(job)) for job in overview.jobs[:_MOST_JOBS]]
    more = len(overview.jobs) - _MOST_JOBS
    return lines + ([f"and {plural(more, 'job')} more"] if more > 0 else [])


def _job(job: JobLine) -> str:
    expected = max(job.expected, job.processes)
    parts = [f"{job.run}: {job.alive} of {plural(expected, 'process', 'processes')} alive"]
    if job.simulation:
        parts[0] = f"SIMULATION {parts[0]}"
    if job.hosts > 1:
        parts[0] += f" on {job.hosts} hosts"
    for name, rates in (("intra", job.intra), ("inter", job.inter)):
        if rates.busbw_gb_s is not None:
            parts.append(_bandwidth(name, rates))
    if job.dropped:
        parts.append(f"{plural(job.dropped, 'event')} DROPPED")
    if job.unreadable:
        parts.append(f"{plural(job.unreadable, 'process', 'processes')} unreadable")
    release = text_of(release_of_code(job.nccl_version)) if job.nccl_version else "unknown"
    parts.append(f"{release} {job.mode}".strip())
    return " · ".join(parts)


def _bandwidth(name: str, rates: Rates) -> str:
    return f"{name} {_number(rates.algbw_gb_s)}/{_number(rates.busbw_gb_s)} GB/s"


def verdict_lines(overview: Overview, width: int = WIDTH) -> list[str]:
    """What `status` says about communicators that are not fine; hangs first, and at most three."""
    bad = [(job, verdict) for job in overview.jobs for verdict in job.verdicts]
    bad.sort(key=lambda one: (not one[0].alive, not one[1].hung))
    lines = []
    for job, verdict in bad[:_MOST_VERDICTS]:
        text = verdict_line(verdict, post_mortem=not job.alive)
        if len(overview.jobs) > 1:
            text = printable(f"{job.run}: {text}")
        lines += wrapped(text, width - 1, "  ")[:3]
    if len(bad) > _MOST_VERDICTS:
        more = plural(len(bad) - _MOST_VERDICTS, "communicator")
        lines.append(f"and {more} more: ncclscope status")
    return lines


def rank_lines(row: RankRow, width: int = WIDTH) -> list[str]:
    """What one rank does now: operations in flight, oldest first, and its last call."""
    lines = [
        printable(f"rank {row.rank} on {row.host}, GPU {row.gpu or '?'}, pid {row.pid}: {row.life}")
    ]
    oldest = sorted(row.in_flight, key=lambda operation: -operation.since_ns)
    lines += [f"  in flight: {_operation_in_flight(operation)}" for operation in oldest[:4]]
    if len(oldest) > 4:
        lines.append(f"  and {len(oldest) - 4} more in flight")
    if row.last and not oldest:
        what = f"{row.last.function} of {row.last.count:,} {row.last.datatype}"
        lines.append(
            printable(f"  nothing in flight; last call {what}, {seconds(row.last.since_ns)} ago")
        )
    return [line[: width - 1] for line in lines]


def _operation_in_flight(operation: OperationInFlight) -> str:
    peer = f" with rank {operation.peer}" if operation.peer is not None else ""
    graph = ", of a graph" if operation.replay else ""
    channels = (
        f"{operation.started} of {operation.channels} channels started, {operation.stopped} ended"
    )
    size = f"{operation.count:,} {operation.datatype}".strip()
    what = f"{operation.function} #{operation.order} of {size}{peer}{graph}"
    return printable(f"{what}, {seconds(operation.since_ns)}, {channels}")


# ---- tables ----
def chosen(
    rows: Sequence[T], columns: Sequence[Column[T]], sort: int, reverse: bool, text: str
) -> list[T]:
    """Rows in which a text occurs, sorted by a column; numbers largest first."""
    wanted = text.lower()
    found = [r for r in rows if not wanted or any(wanted in c.cell(r).lower() for c in columns)]
    column = columns[sort % len(columns)]
    largest_first = bool(found) and not isinstance(column.key(found[0]), str)
    return sorted(found, key=column.key, reverse=largest_first != reverse)


def plain_table(rows: Sequence[T], columns: Sequence[Column[T]]) -> list[str]:
    """The table as lines."""
    lines = ["".join(column.shown(column.title) for column in columns)]
    lines += ["".join(column.shown(column.cell(row)) for column in columns) for row in rows]
    return [line.rstrip() for line in lines]


def plain(overview: Overview) -> list[str]:
    """The first screen as lines, for those who have no terminal."""
    lines = [*verdict_lines(overview), *job_lines(overview)]
    runs = [job.run for job in overview.jobs]
    for job in overview.jobs:
        mine = [replace(row, label=row.name) for row in overview.communicators]
        mine = [row for row in mine if row.key.startswith(f"{job.capture}\0")]
        if len(runs) > 1:
            lines += ["", printable(f"{job.run if runs.count(job.run) == 1 else job.capture}:")]
        rows = chosen(mine, COMMUNICATOR_COLUMNS, 6, False, "")
        lines += plain_table(rows, COMMUNICATOR_COLUMNS) if rows else []
    return lines
