"""The tables of a report, made from a summary: the job, its communicators, its traffic."""

from datetime import datetime

from ncclscope.analysis.ranks import TrafficRow
from ncclscope.analysis.summary import CommunicatorRow, SizeRow, Summary
from ncclscope.humanize import AMOUNTS, NOTHING, amount, duration, percent, plural
from ncclscope.report.estimates import (
    ESTIMATED,
    bandwidth_cell,
    is_at_most,
    legend,
    marked,
    run_cell,
    total_cell,
)
from ncclscope.report.operation_sections import wait_cell
from ncclscope.report.sample_sections import share_with_interval
from ncclscope.report.tables import Bar, Cell, Column, Spark, Table, without_empty
from ncclscope.report.units import size

_MAY_BE_MISSING = ("counted", "wait", "run", "bytes over time")
_MOSTLY_KNOWN = 0.9  # of the time of kernels: what is known of less says how much that is


def needs_trace(summary: Summary) -> str:
    """Why parts of a report are missing."""
    if summary.completeness.paused_processes:
        return "needs trace: --since 0 reports on the calls that are on record one by one"
    return "needs trace: this capture has totals only; record with --mode trace"


def identity(summary: Summary) -> list[str]:
    """Which job this is: capture, NCCL, ranks, when, how long."""
    model = summary.model
    releases = sorted({row.nccl_version for row in model.processes if row.nccl_version})
    hosts = len({row.host for row in model.processes if row.host})
    words = [str(model.path)]
    if releases:
        words.append(f"NCCL {', '.join(releases)}")
    where = f" on {plural(hosts, 'host')}" if hosts else ""  # imports may not have them
    words.append(f"{plural(summary.ranks_seen, 'rank')}{where}")
    if summary.began_ns is not None and model.realtime_offset_ns:  # 0: not known
        wall = (summary.began_ns + model.realtime_offset_ns) / 1e9
        began = datetime.fromtimestamp(wall).astimezone()
        words.append(f"{began:%Y-%m-%d %H:%M:%S}")
    if summary.span_ns:
        words.append(duration(summary.span_ns))
    return words


def headline(summary: Summary) -> str:
    """How much was moved, and how busy the GPUs were with it."""
    total = summary.total
    words = [f"{amount(total.bytes)} in {plural(total.operations, 'operation')}"]
    sample = total.sample
    if total.run_share is not None:
        interval = sample.run_share if sample else None
        share = share_with_interval(total.run_share, interval, is_at_most(total))
        words.append(f"NCCL kernels ran {share} of the time")
    known = total.wait_known_share
    if total.wait_share is not None and known is not None:
        share = share_with_interval(total.wait_share, sample.wait_share if sample else None)
        if known >= _MOSTLY_KNOWN:
            words.append(f"{share} of that waiting for other ranks")
        else:
            words.append(
                f"waiting for other ranks is known of {percent(known)} of that: {share} of it"
            )
    if sample:
        words.append(f"timed {sample.timed:,} of {total.operations:,}")
    return ", ".join(words)


def communicators(summary: Summary, most: int) -> Table:
    """Communicators, those with most GPU time first."""
    shown = summary.communicators[:most]
    columns = (
        Column("communicator", right=False), Column("ranks"), Column("nodes"), Column("calls"),
        Column("counted"), Column("bytes"), Column("GPU time", drop=3), Column("busbw", drop=2),
        Column("wait", drop=1), Column("run"), Column("bytes over time", right=False, drop=4),
    )  # fmt: skip
    notes = []
    if any(row.total.run_share is not None for row in shown):
        of = "time on record" if summary.completeness.paused_processes else "run"
        notes.append(f"run: share of the {of} with a kernel of it running, mean over its ranks")
    if any(row.name_inferred for row in shown):
        notes.append("*: name inferred from membership")
    notes += legend(row.total for row in shown)
    if len(summary.communicators) > most:
        more = plural(len(summary.communicators) - most, "more communicator")
        notes.append(f"{more}: --by communicator, --comm and --csv show them")
    rows = tuple(_communicator_row(row) for row in shown)
    table = Table("communicators", columns, rows, tuple(notes))
    return without_empty([table], _MAY_BE_MISSING)[0]


def roles(summary: Summary) -> Table | None:
    """Communicators pooled by role; None where there are few."""
    if not summary.roles:
        return None
    columns = (
        Column("role", right=False), Column("communicators"), Column("ranks"), Column("nodes"),
        Column("calls"), Column("bytes"), Column("GPU time"), Column("busbw"), Column("wait"),
    )  # fmt: skip
    rows = tuple(
        (
            row.role, f"{row.communicators:,}", _range(row.ranks), _range(row.nodes),
            f"{row.total.calls:,}", amount(row.total.bytes), total_cell(row.total),
            bandwidth_cell(row.total, row.total.busbw_gbs), wait_cell(row.total),
        )
        for row in summary.roles
    )  # fmt: skip
    note = "ranks, nodes: of one communicator; --comm 'tp*' reports those of one role"
    return Table("communicators by role", columns, rows, (note,))


def _range(ends: tuple[int, int]) -> str:
    if not ends[1]:
        return NOTHING
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"


def _communicator_row(row: CommunicatorRow) -> tuple[Cell, ...]:
    total = row.total
    return (
        row.name + ("*" if row.name_inferred else ""),
        NOTHING if row.ranks is None else str(row.ranks),
        NOTHING if row.nodes is None else str(row.nodes),
        f"{total.calls:,}",
        NOTHING if total.calls_counted is None else f"{total.calls_counted:,}",
        amount(total.bytes),
        total_cell(total),
        bandwidth_cell(total, total.busbw_gbs),
        wait_cell(total),
        run_cell(total),
        Spark(row.slices) if row.slices else NOTHING,
    )


def scopes(summary: Summary) -> Table | None:
    """Within nodes against across nodes; None where there is only one of them."""
    if len(summary.scopes) < 2:
        return None
    columns = (
        Column("", right=False), Column("communicators"), Column("calls"), Column("bytes"),
        Column("GPU time"), Column("busbw"), Column("wait"),
    )  # fmt: skip
    rows = tuple(
        (
            row.scope, str(row.communicators), f"{row.total.calls:,}", amount(row.total.bytes),
            total_cell(row.total), bandwidth_cell(row.total, row.total.busbw_gbs),
            wait_cell(row.total),
        )
        for row in summary.scopes
    )  # fmt: skip
    return Table("within and across nodes", columns, rows)


def _matrix(rows: tuple[TrafficRow, ...], ranks: list[int]) -> Table:
    """Rank by rank, all in the unit of the largest."""
    sums = {(row.source, row.destination): row.bytes for row in rows}
    unit = amount(max(sums.values())).split(" ")[1]
    divisor = 1000 ** AMOUNTS.index(unit)
    cells: list[tuple[Cell, ...]] = []
    for source in ranks:
        line = [sums.get((source, to)) for to in ranks]
        texts = ["·" if n is None else f"{n / divisor:.3g}" for n in line]
        cells.append((str(source), *texts))
    columns = (Column("from \\ to"), *(Column(str(rank)) for rank in ranks))
    return Table(f"sends from rank to rank, {unit}", columns, tuple(cells))


def traffic(summary: Summary, most: int, most_ranks: int) -> Table | None:
    """Rank by rank where they are few, else the pairs with most bytes; None without any."""
    if not summary.traffic:
        return None
    ends = {row.source for row in summary.traffic} | {row.destination for row in summary.traffic}
    if None not in ends and len(ends) <= most_ranks:
        return _matrix(summary.traffic, sorted(end for end in ends if end is not None))
    largest = summary.traffic[0].bytes
    columns = (
        Column("from"), Column("to"), Column("messages"), Column("bytes"), Column("", right=False),
        Column("", right=False, drop=1),
    )  # fmt: skip
    places = {None: "", True: "across nodes", False: "within a node"}
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            "?" if row.source is None else str(row.source),
            "?" if row.destination is None else str(row.destination),
            f"{row.messages:,}", amount(row.bytes), Bar(row.bytes / largest if largest else 0),
            places[row.crosses_nodes],
        )
        for row in summary.traffic[:most]
    )  # fmt: skip
    left = len(summary.traffic) - most
    notes = (f"{plural(left, 'more pair')} not shown",) if left > 0 else ()
    return Table("sends from rank to rank", columns, rows, notes)


def sizes(summary: Summary) -> Table | None:
    """A histogram of message sizes."""
    if not summary.sizes:
        return None
    most = max(row.operations for row in summary.sizes)
    time = sum(row.gpu_ns for row in summary.sizes)
    columns = (
        Column("size from"), Column("operations"), Column("", right=False), Column("bytes"),
        Column("of GPU time"),
    )  # fmt: skip
    rows = tuple(
        (
            size(row.low_bytes), f"{row.operations:,}",
            Bar(row.operations / most if most else 0.0), amount(row.bytes),
            _time_share(row, time),
        )
        for row in summary.sizes
    )  # fmt: skip
    notes = []
    if any(row.estimate_ns for row in summary.sizes):
        notes.append("≈: estimated from a sample; --json has intervals of the times")
        if is_at_most(summary.total):
            notes.append("some of the times are upper bounds: shares can be more or less")
    return Table("message sizes", columns, rows, tuple(notes))


def _time_share(row: SizeRow, whole_ns: int) -> str:
    share = row.gpu_ns / whole_ns if whole_ns else None
    return marked(ESTIMATED if row.estimate_ns else "", percent(share))


def untimed(summary: Summary) -> Table | None:
    """Why operations have no GPU time."""
    if not summary.untimed:
        return None
    rows = tuple((f"{count:,}", reason) for reason, count in summary.untimed.items())
    columns = (Column("operations"), Column("reason", right=False))
    return Table("without a GPU time", columns, rows)
