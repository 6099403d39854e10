"""The text that `ncclscope top` shows: within 80 columns, and safe for a terminal."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

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
from ncclscope.live.top_model import Rates, TopCommunicator, TopData, TopJob, TopRank
from ncclscope.live.top_ranks import TopRankTotal
from ncclscope.live.top_roles import MANY, TopRole, role_totals
from ncclscope.nccl.releases import release_of_code, text_of
from ncclscope.report.status import line as verdict_line
from ncclscope.snapshot.types import OperationInFlight

WIDTH = 80
_MOST_VERDICTS = 3
_MOST_JOBS = 4
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopColumn(Generic[T]):
    """A column of a table: a row's text in it, and the key to sort rows by it."""

    title: str
    width: int  # with the space after it
    text: Callable[[T], str]
    key: Callable[[T], float | str]
    left: bool = False
    grows: bool = False  # takes room that a wide screen has left

    def fit(self, text: str) -> str:
        """The text padded to the column's width, or cut in the middle."""
        width = self.width - 1
        if len(text) > width:
            head = (width - 1) * 2 // 3
            text = text[:head] + "…" + text[len(text) - (width - 1 - head) :]
        return (text.ljust(width) if self.left else text.rjust(width)) + " "


def _number(value: float | None) -> str:
    return NOTHING if value is None else three_digits(value) if value else "0"


def _percentage(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.0f}%"


def _rank(rank: float | None) -> str:
    return NOTHING if rank is None else f"{rank:.0f}"


def _sort_key(value: float | None) -> float:
    return -1.0 if value is None else value


def _rank_count(row: TopCommunicator) -> str:
    """Ranks of a communicator: 8, or 6/8 if only six are alive."""
    alive = sum(rank.life == ALIVE for rank in row.rows)
    return f"{alive}/{row.ranks}" if alive != row.ranks else str(row.ranks)


def _range(least_and_most: tuple[int, int]) -> str:
    """2, or 2-4 if communicators differ."""
    least, most = least_and_most
    return f"{least}-{most}" if least != most else str(most or NOTHING)


def _number_column(
    title: str,
    width: int,
    value: Callable[[T], float | None],
    show: Callable[[float | None], str] = _number,
) -> TopColumn[T]:
    """A column of numbers that may be unknown."""
    return TopColumn(title, width, lambda row: show(value(row)), lambda row: _sort_key(value(row)))


def _place(columns: Sequence[TopColumn[Any]], title: str) -> int:
    """The number of the column with this title."""
    return [column.title for column in columns].index(title)


COMMUNICATOR_COLUMNS: tuple[TopColumn[TopCommunicator], ...] = (
    TopColumn(
        "communicator",
        19,
        lambda r: printable(r.label or r.name),
        lambda r: r.label or r.name,
        True,
        True,
    ),
    TopColumn("ranks", 8, _rank_count, lambda r: r.ranks),
    TopColumn("nodes", 6, lambda r: str(r.nodes or NOTHING), lambda r: r.nodes),
    _number_column("op/s", 8, lambda r: r.operations_per_s),
    _number_column("algbw", 7, lambda r: r.rates.algbw_gb_s),
    _number_column("busbw", 7, lambda r: r.rates.busbw_gb_s),
    _number_column("gpu", 5, lambda r: r.rates.gpu_share, _percentage),
    _number_column("wait", 5, lambda r: r.wait_share, _percentage),
    _number_column("late", 5, lambda r: r.late, _rank),
    TopColumn("open", 5, lambda r: str(r.in_flight), lambda r: r.in_flight),
    TopColumn("age", 5, lambda r: _short(r.oldest_ns), lambda r: r.oldest_ns),
)
GPU_COLUMN = _place(COMMUNICATOR_COLUMNS, "gpu")  # the share of time in NCCL's kernels
ROLE_COLUMNS: tuple[TopColumn[TopRole], ...] = (
    TopColumn("role", 13, lambda r: printable(r.label), lambda r: r.label, True, True),
    TopColumn("number", 7, lambda r: str(r.communicators), lambda r: r.communicators),
    TopColumn("ranks", 8, lambda r: _range(r.ranks), lambda r: r.ranks[1]),
    TopColumn("nodes", 6, lambda r: _range(r.nodes), lambda r: r.nodes[1]),
    _number_column("op/s", 7, lambda r: r.rates.operations_per_s),
    _number_column("algbw", 7, lambda r: r.rates.algbw_gb_s),
    _number_column("busbw", 7, lambda r: r.rates.busbw_gb_s),
    _number_column("gpu", 5, lambda r: r.rates.gpu_share, _percentage),
    _number_column("wait", 5, lambda r: r.wait_share, _percentage),
    _number_column("late", 5, lambda r: r.late, _rank),
    TopColumn("open", 5, lambda r: str(r.in_flight), lambda r: r.in_flight),
    TopColumn("age", 5, lambda r: _short(r.oldest_ns), lambda r: r.oldest_ns),
)
ROLE_GPU_COLUMN = _place(ROLE_COLUMNS, "gpu")
RANK_COLUMNS: tuple[TopColumn[TopRank], ...] = (
    TopColumn("rank", 6, lambda r: str(r.rank), lambda r: r.rank),
    TopColumn("host", 14, lambda r: printable(r.host), lambda r: r.host, left=True, grows=True),
    TopColumn("gpu#", 6, lambda r: printable(r.gpu) or NOTHING, lambda r: r.gpu),
    TopColumn("pid", 9, lambda r: str(r.pid), lambda r: r.pid),
    TopColumn("life", 8, lambda r: r.life, lambda r: r.life, left=True),
    _number_column("op/s", 8, lambda r: r.rates.operations_per_s),
    _number_column("busbw", 7, lambda r: r.rates.busbw_gb_s),
    _number_column("excess", 7, lambda r: r.excess, _percentage),
    TopColumn("open", 5, lambda r: str(len(r.in_flight)), lambda r: len(r.in_flight)),
    TopColumn("age", 5, lambda r: _short(r.oldest_ns), lambda r: r.oldest_ns),
    TopColumn("drop", 5, lambda r: _short_count(r.dropped), lambda r: r.dropped),
)
TOTAL_COLUMNS: tuple[TopColumn[TopRankTotal], ...] = (
    TopColumn("rank", 6, lambda r: str(r.rank), lambda r: r.rank),
    TopColumn("host", 12, lambda r: printable(r.host), lambda r: r.host, left=True, grows=True),
    TopColumn("gpu#", 5, lambda r: printable(r.gpu) or NOTHING, lambda r: r.gpu),
    TopColumn("pid", 8, lambda r: str(r.pid), lambda r: r.pid),
    TopColumn("life", 8, lambda r: r.life, lambda r: r.life, left=True),
    _number_column("op/s", 7, lambda r: r.rates.operations_per_s),
    _number_column("waits", 6, lambda r: r.waits, _percentage),
    _number_column("blamed", 7, lambda r: r.blamed, _percentage),
    TopColumn("in", 6, lambda r: printable(r.communicator), lambda r: r.communicator, True, True),
    TopColumn("open", 5, lambda r: str(r.open), lambda r: r.open),
    TopColumn("age", 5, lambda r: _short(r.oldest_ns), lambda r: r.oldest_ns),
    TopColumn("drop", 5, lambda r: _short_count(r.dropped), lambda r: r.dropped),
)
BLAMED_COLUMN = _place(TOTAL_COLUMNS, "blamed")
# What help says about columns whose titles do not speak for themselves. It fits 80 x 24 without
# broken lines if a text has at most 58 characters.
COLUMN_HELP = {
    "op/s": "operations a second of one rank",
    "algbw, busbw": "GB/s over the last 5 s, as nccl-tests define them",
    "gpu": "share of time that NCCL kernels run, with their waiting",
    "wait": "of that, share beyond the least of all ranks: waiting",
    "late": "the rank for which all others wait",
    "excess, waits": "share of its time that a rank waits for others",
    "blamed": "share of others' time that they wait, begun on this rank",
    "open, age": "operations in flight, and the age of the oldest",
    "drop": "events that are not on record",
    "by": "where a time comes from; or what the operation does",
}
OPERATION_COLUMNS: tuple[TopColumn[RecentOperation], ...] = (
    TopColumn(
        "called", 13, lambda o: _clock(o.called_unix_ns), lambda o: o.called_unix_ns, left=True
    ),
    TopColumn("operation", 16, lambda o: printable(o.function), lambda o: o.function, True, True),
    TopColumn("size", 11, lambda o: binary_size(o.size_bytes), lambda o: o.size_bytes),
    TopColumn("type", 10, lambda o: printable(o.datatype), lambda o: o.datatype, left=True),
    TopColumn("algorithm", 13, lambda o: _algorithm(o), lambda o: o.algorithm, left=True),
    TopColumn("took", 9, lambda o: _took(o.duration_ns), lambda o: _sort_key(o.duration_ns)),
    TopColumn(
        "by", 8, lambda o: o.source if o.state == "done" else o.state, lambda o: o.source, True
    ),
)


def _algorithm(operation: RecentOperation) -> str:
    return printable(f"{operation.algorithm} {operation.protocol}".strip())


def _short(time_ns: int) -> str:
    """A time in at most four characters: 4ms, 0.2s, 41s, 12m, 3h."""
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
    local = time.localtime(unix_ns // 1_000_000_000)
    return time.strftime("%H:%M:%S", local) + f".{unix_ns // 1_000_000 % 1000:03d}"


# ---- above the table ----
def job_lines(data: TopData) -> list[str]:
    """A line for each job: running processes, bandwidth within and between nodes, drops."""
    if not data.jobs:
        return ["no running job"]
    lines = [printable(_job_line(job)) for job in data.jobs[:_MOST_JOBS]]
    more = len(data.jobs) - _MOST_JOBS
    return lines + ([f"and {plural(more, 'job')} more"] if more > 0 else [])


def _job_line(job: TopJob) -> str:
    expected = max(job.expected, job.processes)
    parts = [f"{job.run}: {job.running} of {plural(expected, 'process', 'processes')} alive"]
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


def verdict_lines(data: TopData, width: int = WIDTH) -> list[str]:
    """What `status` says about communicators that are not ok: at most three, hangs first."""
    bad = [(job, verdict) for job in data.jobs for verdict in job.verdicts]
    bad.sort(key=lambda pair: (not pair[0].running, not pair[1].hung))
    lines = []
    for job, verdict in bad[:_MOST_VERDICTS]:
        text = verdict_line(verdict, post_mortem=not job.running)
        if len(data.jobs) > 1:
            text = printable(f"{job.run}: {text}")
        lines += wrapped(text, width - 1, "  ")[:3]
    if len(bad) > _MOST_VERDICTS:
        more = plural(len(bad) - _MOST_VERDICTS, "communicator")
        lines.append(f"and {more} more: ncclscope status")
    return lines


def rank_lines(row: TopRank, width: int = WIDTH) -> list[str]:
    """What one rank is doing: operations in flight, oldest first, or its last call."""
    lines = [
        printable(f"rank {row.rank} on {row.host}, GPU {row.gpu or '?'}, pid {row.pid}: {row.life}")
    ]
    oldest = sorted(row.in_flight, key=lambda operation: -operation.since_ns)
    lines += [f"  in flight: {_in_flight_text(operation)}" for operation in oldest[:4]]
    if len(oldest) > 4:
        lines.append(f"  and {len(oldest) - 4} more in flight")
    if row.last and not oldest:
        what = f"{row.last.function} of {row.last.count:,} {row.last.datatype}"
        lines.append(
            printable(f"  nothing in flight; last call {what}, {seconds(row.last.since_ns)} ago")
        )
    return [line[: width - 1] for line in lines]


def _in_flight_text(operation: OperationInFlight) -> str:
    peer = f" with rank {operation.peer}" if operation.peer is not None else ""
    graph = ", of a graph" if operation.replay else ""
    channels = (
        f"{operation.started} of {operation.channels} channels started, {operation.stopped} ended"
    )
    size = f"{operation.count:,} {operation.datatype}".strip()
    what = f"{operation.function} #{operation.order} of {size}{peer}{graph}"
    return printable(f"{what}, {seconds(operation.since_ns)}, {channels}")


# ---- tables ----
def fitted_columns(
    columns: Sequence[TopColumn[T]], rows: Sequence[T], width: int
) -> tuple[TopColumn[T], ...]:
    """The columns on a screen of this width: room that is left goes to texts that were cut."""
    room = width - sum(column.width for column in columns)
    fitted = []
    for column in columns:
        longest = max((len(column.text(row)) + 1 for row in rows), default=0)
        more = min(max(longest - column.width, 0), max(room, 0)) if column.grows else 0
        room -= more
        fitted.append(replace(column, width=column.width + more))
    return tuple(fitted)


def filter_and_sort(
    rows: Sequence[T], columns: Sequence[TopColumn[T]], sort: int, reverse: bool, text: str
) -> list[T]:
    """The rows that contain a text, sorted by a column; the largest number first."""
    lower = text.lower()
    matching = [r for r in rows if not lower or any(lower in c.text(r).lower() for c in columns)]
    column = columns[sort % len(columns)]
    largest_first = bool(matching) and not isinstance(column.key(matching[0]), str)
    return sorted(matching, key=column.key, reverse=largest_first != reverse)


def table_lines(rows: Sequence[T], columns: Sequence[TopColumn[T]]) -> list[str]:
    """The lines of a table."""
    lines = ["".join(column.fit(column.title) for column in columns)]
    lines += ["".join(column.fit(column.text(row)) for column in columns) for row in rows]
    return [line.rstrip() for line in lines]


def screen_lines(data: TopData) -> list[str]:
    """The first screen as lines of text, for `top --once`."""
    lines = [*verdict_lines(data), *job_lines(data)]
    runs = [job.run for job in data.jobs]
    roles = role_totals(data)
    if len(roles) < len(data.communicators) > MANY:
        lines += table_lines(
            filter_and_sort(roles, ROLE_COLUMNS, ROLE_GPU_COLUMN, False, ""), ROLE_COLUMNS
        )
        lines.append("")
    for job in data.jobs:
        prefix = f"{job.capture}\0"
        communicators = [row for row in data.communicators if row.key.startswith(prefix)]
        if len(runs) > 1:
            lines += ["", printable(f"{job.run if runs.count(job.run) == 1 else job.capture}:")]
        unlabelled = [replace(row, label=row.name) for row in communicators]
        rows = filter_and_sort(unlabelled, COMMUNICATOR_COLUMNS, GPU_COLUMN, False, "")
        lines += table_lines(rows, COMMUNICATOR_COLUMNS) if rows else []
    return lines
