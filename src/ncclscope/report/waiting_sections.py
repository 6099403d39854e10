"""The tables of a report about waiting: where it began, and which ranks caused it."""

from ncclscope.analysis.summary import Summary
from ncclscope.humanize import NOTHING, duration, percent, plural
from ncclscope.report.tables import Bar, Cell, Column, Table

_LEAST_SHOWN = 0.01  # of all waiting: smaller origins are shown together


def origins(summary: Summary, most: int) -> Table | None:
    """Where waiting began; None where it cannot be seen, or there is none."""
    account = summary.waiting
    if account is None or not account.total_ns:
        return None
    names, total = summary.model.communicator_names, account.total_ns
    shown = [o for o in account.origins if o.waiting_ns >= _LEAST_SHOWN * total][:most]
    columns = (
        Column("origin", right=False), Column("", right=False), Column("waiting"), Column("share"),
        Column("", right=False, drop=3), Column("times"), Column("typically"),
        Column("on the path", drop=2),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            names[o.communicator] if o.communicator is not None else f"rank {o.rank}", o.kind,
            duration(o.waiting_ns), percent(o.waiting_ns / total), Bar(o.waiting_ns / total),
            f"{o.times:,}", duration(o.typical_ns), duration(o.on_path_ns),
        )
        for o in shown
    ]  # fmt: skip
    others = sum(o.waiting_ns for o in account.origins) - sum(o.waiting_ns for o in shown)
    parts = (
        ("others", others),
        ("start-up", account.start_up_ns),
        ("structure of the job", account.structure_ns),
        ("below the clock error", account.below_clock_error_ns),
        ("unknown", account.unknown_ns),
        ("all waiting", total),
    )
    rows += [
        (name, "", duration(ns), percent(ns / total), Bar(0.0), "", "", "")
        for name, ns in parts
        if ns
    ]
    return Table("origins of waiting", columns, tuple(rows), tuple(_waiting_notes(summary)))


def _waiting_notes(summary: Summary) -> list[str]:
    account = summary.waiting
    assert account is not None
    notes = ["waiting of all ranks together, by what was longer than usual and where it began"]
    if account.unseen:
        listed = ", ".join(f"{count:,} with {reason}" for reason, count in account.unseen.items())
        notes.append(f"not looked at: operations that show no waiting: {listed}")
    if summary.total.sample and account.unknown_ns and not summary.path:
        notes.append("unknown: began between timed operations, where no critical path shows either")
    return notes


def ranks(summary: Summary, most: int) -> Table | None:
    """Ranks by the waiting that began on them; None where no waiting can be seen."""
    arrivals = summary.arrivals
    rows = [(row, row.waiting) for row in summary.ranks or () if row.waiting is not None]
    if not rows or arrivals is None or not arrivals.compared:
        return None
    worst = max(waiting.origin_ns for _, waiting in rows)
    columns = (
        Column("rank"), Column("host", right=False, drop=1), Column("made others wait"),
        Column("", right=False), Column("came last"), Column("passed on", drop=2),
        Column("waited itself"),
    )  # fmt: skip
    cells = tuple(
        (
            NOTHING if row.rank is None else str(row.rank), row.host, duration(waiting.origin_ns),
            Bar(waiting.origin_ns / worst if worst else 0.0), f"{waiting.times_last:,}",
            duration(waiting.passed_on_ns), duration(waiting.waited_ns),
        )
        for row, waiting in rows[:most]
    )  # fmt: skip
    error = f", clocks agree to ±{duration(arrivals.error_ns)}" if arrivals.error_ns else ""
    notes = [
        "made others wait: what began on the rank; passed on: waiting for it that began elsewhere",
        f"last arriver certain in {arrivals.certain:,} of {arrivals.compared:,} instances{error}",
    ]
    if summary.total.sample:
        notes.append("sums over operations that were timed, a sample: all of them waited longer")
    if len(rows) > most:
        notes.append(f"{plural(len(rows) - most, 'more rank')} not shown")
    return Table("ranks by waiting caused", columns, cells, tuple(notes))
