"""The comparison as tables: for the terminal, and for the page."""

from collections.abc import Iterable, Iterator, Sequence

from ncclscope.bench.operations import OPERATIONS
from ncclscope.bench.profilers.comparison import LossRow, ProfilerComparison, TimesRow
from ncclscope.bench.profilers.cost import CostRow
from ncclscope.bench.profilers.intervals import ResampledValue, label_of
from ncclscope.bench.profilers.profiler_table import NONE
from ncclscope.bench.profilers.selection import AGAIN
from ncclscope.humanize import NOTHING, amount, wrapped
from ncclscope.report.tables import Column, Table, plain_lines
from ncclscope.report.units import microseconds, size

_LEFT = Column("profiler", right=False)
_CASE = (_LEFT, Column("operation", right=False), Column("size"))
ROUNDS_NOTE = (
    "brackets: from six rounds on the 95 % interval by resampling rounds, below that the range of "
    "rounds; a single round has none"
)


def share_text(share: float | None) -> str:
    """A share in percent that says 100 and 0 of whole numbers only. 0.99996 -> 99.9 %"""
    if share is None:
        return NOTHING
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    return f"{min(max(100 * share, 0.1), 99.9):.1f} %"


def ratio_text(ratio: ResampledValue | None) -> str:
    """A ratio with its interval. 0.900 [0.899, 0.901]"""
    if ratio is None:
        return NOTHING
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def change_text(ratio: ResampledValue) -> str:
    """A ratio as a change in percent, with its brackets. +2.1 % [+1.0, +3.4]

    One round has none.
    """
    low, value, high = (100 * (part - 1) for part in (ratio.low, ratio.value, ratio.high))
    interval = f" [{low:+.1f}, {high:+.1f}]" if low < high else ""
    return f"{value:+.1f} %{interval}"


def added_text(added: ResampledValue) -> str:
    """Time added to a call in µs, with its interval. +4.22 [+1.96, +4.41]"""
    interval = f" [{added.low:+.2f}, {added.high:+.2f}]" if added.low < added.high else ""
    return f"{added.value:+.2f}{interval}"


def recording_profilers(comparison: ProfilerComparison) -> list[str]:
    """The profilers that are meant to record calls."""
    return [profiler.name for profiler in comparison.profilers if profiler.reader]


def operations_of(comparison: ProfilerComparison) -> list[str]:
    """The operations that were called, in order."""
    return list(dict.fromkeys(row.operation for row in comparison.coverage))


def coverage_table(comparison: ProfilerComparison) -> Table:
    """Calls on record by profiler and operation, and on which ranks and sizes calls are missing."""
    operations = operations_of(comparison)
    rows = []
    for name in recording_profilers(comparison):
        made, recorded = comparison.coverage_of(name)
        if not made:
            cells = [NOTHING] * (len(operations) + 3)
            rows.append((name, *cells, "no run came to its end"))
            continue
        shares = []
        for operation in operations:
            own_made, own_recorded = comparison.coverage_of(name, operation)
            shares.append(share_text(own_recorded / own_made if own_made else None))
        counts = f"{made:,}", f"{recorded:,.0f}", share_text(recorded / made)
        rows.append((name, *counts, *shares, _missing(comparison, name)))
    titles = [OPERATIONS[operation].title for operation in operations]
    columns = (
        _LEFT, Column("calls made"), Column("recorded"), Column("share"),
        *(Column(title) for title in titles), Column("missing on", right=False, drop=1),
    )  # fmt: skip
    note = "calls on all ranks, warm-up and checks included, in all runs that came to their end"
    return Table("calls recorded against calls made", columns, tuple(rows), (note,))


def _missing(comparison: ProfilerComparison, profiler: str) -> str:
    """The ranks and sizes with the lowest share: rank 1: 62.0 %; 1K: 40.1 %"""
    own = [row for row in comparison.coverage if row.profiler == profiler]
    parts = []
    for title, key in (("rank {}", "rank"), ("{}", "size_bytes")):
        shares = {}
        for value in dict.fromkeys(getattr(row, key) for row in own):
            rows = [row for row in own if getattr(row, key) == value]
            shares[value] = sum(row.recorded for row in rows) / sum(row.made for row in rows)
        lowest = min(shares, key=lambda value: shares[value])
        if shares[lowest] < 1:
            name = size(lowest) if key == "size_bytes" else lowest
            parts.append(f"{title.format(name)}: {share_text(shares[lowest])}")
    return "; ".join(parts)


def times_table(comparison: ProfilerComparison) -> Table:
    """Reported times beside the benchmark's own."""
    columns = (
        *_CASE, Column("calls"), Column("bench µs"), Column("5 %–95 %", drop=2),
        Column("reported µs"), Column("5 %–95 %", drop=2), Column("reported / bench [95 %]"),
        Column("remark", right=False, drop=1),
    )  # fmt: skip
    notes = (
        "medians over calls and ranks; bench: CUDA events around each call of the same run, "
        "queued before the GPU begins, less what events show around a kernel",
        "[ ]: 95 % interval, by resampling calls",
    )
    rows = tuple(map(_times_cells, comparison.times))
    return Table("times reported, beside the benchmark's own", columns, rows, notes)


def _times_cells(row: TimesRow) -> tuple[str, ...]:
    cells = [row.profiler, OPERATIONS[row.operation].title, size(row.size_bytes), f"{row.calls:,}"]
    for times in (row.own, row.reported):
        if times is None:
            cells += [NOTHING, NOTHING]
        else:
            cells.append(microseconds(times.median_ns))
            cells.append(f"{microseconds(times.p5_ns)}–{microseconds(times.p95_ns)}")
    return (*cells, ratio_text(row.ratio), row.remark)


def with_label(title: str, rounds: Iterable[int]) -> str:
    """A column's title that says what its brackets hold. against none [range of 3 rounds]"""
    label = label_of(list(rounds))
    return f"{title} [{label}]" if label else title


def cost_table(comparison: ProfilerComparison, every_case: bool) -> Table:
    """Wall and CPU time against no plugin: the mean of all cases, or case by case."""
    rows = [row for row in comparison.cost if bool(row.operation) == every_case]
    wall, added, cpu, added_cpu = (
        with_label(title, (row.rounds for row in rows))
        for title in ("wall against none", "added µs", "CPU against none", "added CPU µs")
    )
    columns = (
        *(_CASE if every_case else (_LEFT,)), Column("wall µs"), Column(wall),
        Column(added, drop=1), Column("CPU µs"), Column(cpu), Column(added_cpu, drop=2),
    )  # fmt: skip
    notes = (
        "of a call, back to back: wall time on the slowest rank, CPU time of all threads of a rank",
        f"none: the mean of no plugin and `{AGAIN}` in the same round, where both are there; "
        f"`{AGAIN}`: no plugin, measured a second time, and against the first; what is not beyond "
        "it is noise",
        ROUNDS_NOTE,
    )
    title = "cost, case by case" if every_case else "cost, geometric mean of all cases"
    return Table(title, columns, tuple(_cost_cells(row) for row in rows), notes)


def _cost_cells(row: CostRow) -> tuple[str, ...]:
    case = (OPERATIONS[row.operation].title, size(row.size_bytes)) if row.operation else ()
    return (
        row.profiler, *case, f"{row.wall_us:.2f}", change_text(row.wall_ratio),
        added_text(row.added_us), f"{row.cpu_us:.2f}", change_text(row.cpu_ratio),
        added_text(row.added_cpu_us),
    )  # fmt: skip


def loss_table(comparison: ProfilerComparison) -> Table:
    """Bytes written, calls on record after a SIGKILL, and runs that failed."""
    columns = (
        _LEFT, Column("bytes a call"), Column("files"), Column("after SIGKILL: calls made"),
        Column("recorded"), Column("lost"), Column("runs failed"), Column("remark", right=False),
    )  # fmt: skip
    rows = tuple(_loss_cells(row) for row in comparison.loss if row.profiler not in (NONE, AGAIN))
    notes = (
        "ranks end by SIGKILL right after their last call ended on the GPU; calls that a profiler "
        "never records count as lost",
    )
    return Table("files, and what SIGKILL takes", columns, rows, notes)


def _loss_cells(row: LossRow) -> tuple[str, ...]:
    ended, killed = row.bytes_per_call is not None, row.records and row.killed_made
    lost = row.killed_made - row.killed_recorded
    return (
        row.profiler,
        amount(round(row.bytes_per_call)) if row.bytes_per_call is not None else NOTHING,
        f"{row.files}" if ended else NOTHING,
        f"{row.killed_made:,}" if killed else NOTHING,
        f"{row.killed_recorded:,.0f}" if killed else NOTHING,
        f"{lost:,.0f} ({share_text(lost / row.killed_made)})" if killed else NOTHING,
        f"{row.failed} of {row.runs}",
        "; ".join((*row.failures[:1], *row.problems[:1])) or _remark(row),
    )


def _remark(row: LossRow) -> str:
    return "wrote nothing" if row.bytes_per_call == 0 else ""


def limit_lines(comparison: ProfilerComparison) -> list[str]:
    """What cannot be compared, by profiler."""
    return [
        f"{profiler.name}: {'; '.join(profiler.limits)}"
        for profiler in comparison.profilers
        if profiler.limits
    ]


def tables_of(comparison: ProfilerComparison) -> list[Table]:
    """All tables in the order in which they are shown."""
    return [
        coverage_table(comparison),
        times_table(comparison),
        cost_table(comparison, every_case=False),
        cost_table(comparison, every_case=True),
        loss_table(comparison),
    ]


def text_lines(
    comparison: ProfilerComparison, heading: Sequence[str], absent: dict[str, str], width: int
) -> Iterator[str]:
    """The comparison for the terminal."""
    yield from heading
    for name, reason in absent.items():
        yield f"left out: {name}: {reason}"
    for table in tables_of(comparison):
        if not table.rows:
            continue
        titles, lines, _ = plain_lines(table, width)
        yield from ("", table.title, titles, *lines)
        for note in table.notes:
            yield from wrapped(note, width, "  ")
    yield from ("", "what cannot be compared")
    for line in limit_lines(comparison):
        yield from wrapped(line, width, "  ")
