"""A job of a history against equal ones, as text and JSON."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from ncclscope.history.difference import WAITING, JobDifference, MeasureChange
from ncclscope.history.trend import NS, SHARE
from ncclscope.humanize import duration, plural, printable, wrapped
from ncclscope.json_answers import VERSION
from ncclscope.report.history import job_as_json, left_out, number, start, table_lines
from ncclscope.report.tables import Cell, Column, Table

_MOST_KINDS = 10


def difference_lines(changed: JobDifference, not_whole: int, width: int) -> Iterator[str]:
    """Whether a job differs from equal ones, and in what."""
    count = plural(len(changed.equal), "equal job")
    label = printable(changed.job.row.label)
    yield f"{label}, started {start(changed.job)} UTC, against the last {count}: {changed.verdict}"
    if changed.reason:
        yield from wrapped(f"Not judged: {changed.reason}.", width)
    if changed.measures:
        yield ""
        yield from table_lines(_changes("the job", changed.measures), width)
    if changed.kinds:
        yield ""
        shown = changed.kinds[:_MOST_KINDS]
        yield from table_lines(_changes("median of a call", shown), width)
        more = len(changed.kinds) - len(shown)
        if more:
            yield f"and {plural(more, 'kind')} that changed less"
    yield from left_out(not_whole)


def _changes(title: str, changes: Sequence[MeasureChange]) -> Table:
    columns = (
        Column(title, right=False), Column("this job"), Column("equal jobs"),
        Column("from"), Column("to"), Column("change"), Column("99 % interval", drop=1),
        Column("", right=False),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for change in changes:
        unit = SHARE if change.name == WAITING else NS
        judged = change.verdict != "not judged"
        if unit == SHARE:
            numbers = (
                f"{100 * change.change:+.0f} %",
                f"{100 * change.low:+.0f} … {100 * change.high:+.0f} %",
            )
        else:
            numbers = f"{change.change:.3f}", f"{change.low:.3f} … {change.high:.3f}"
        rows.append(
            (
                change.name, number(change.value, unit), number(mean(change.equal), unit),
                number(min(change.equal), unit), number(max(change.equal), unit), numbers[0],
                numbers[1] if judged else duration(None), change.verdict,
            )
        )  # fmt: skip
    return Table("", columns, tuple(rows))


def difference_as_json(changed: JobDifference) -> dict[str, Any]:
    """A difference; times in ns."""
    return {
        "version": VERSION,
        "job": job_as_json(changed.job),
        "equal_jobs": [str(job.name) for job in changed.equal],
        "verdict": changed.verdict,
        "reason": changed.reason,
        "bounds_loss": changed.bounds_loss,
        "measures": [_change_as_json(change) for change in changed.measures],
        "kinds": [_change_as_json(change) for change in changed.kinds],
    }


def _change_as_json(change: MeasureChange) -> dict[str, Any]:
    judged = change.verdict != "not judged"
    return {
        "name": change.name,
        "value": change.value,
        "equal": list(change.equal),
        "change": change.change,
        "interval": [change.low, change.high] if judged else None,
        "verdict": change.verdict,
    }
