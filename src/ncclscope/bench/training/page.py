"""A comparison of training runs as an HTML page: figure 4 of the ncclsee paper, and tables."""

from html import escape

from ncclscope.bench.profilers.comparison_page import RangeBar, bars_svg, table_html
from ncclscope.bench.training.comparison import TrainingRow
from ncclscope.bench.training.files import TrainingRun
from ncclscope.humanize import printable
from ncclscope.report.html import page


def _bar(row: TrainingRow, share: float | None, what: str) -> RangeBar | None:
    if share is None:
        return None
    return RangeBar(
        share, min(share, 1.0), min(share, 1.0), f"{row.profiler}: {100 * share:.1f} % {what}"
    )


def _recorded_share(row: TrainingRow) -> float | None:
    return (row.calls_recorded or 0) / row.calls_made if row.calls_made else None


def _figure(rows: list[TrainingRow]) -> str:
    """Figure 4: calls recorded, and communication's share of the steps, by profiler."""
    recording = [row for row in rows if row.calls_recorded is not None]
    recorded = [_bar(row, _recorded_share(row), "of calls") for row in recording]
    communication = [
        _bar(row, row.communication_share, "of the time recorded") for row in recording
    ]
    groups = {
        "calls recorded": recorded,
        "communication, share of the time recorded": communication,
    }
    return bars_svg([row.profiler for row in recording], groups)


def as_html(run: TrainingRun) -> str:
    """The page."""
    rows = run.rows
    limits = "".join(
        f"<li>{escape(own.name)}: {escape('; '.join(own.limits))}</li>"
        for own in run.profilers
        if own.limits
    )
    body = [
        "<h1>NCCL profilers in training</h1>",
        *(f"<p>{escape(line)}</p>" for line in run.heading),
        *(f"<p>left out: {escape(k)}: {escape(printable(v))}</p>" for k, v in run.absent.items()),
        "<h2>Figure 4: calls recorded, and communication as reported</h2>",
        _figure(rows),
        *map(table_html, run.tables),
        f"<h2>what cannot be compared</h2><ul>{limits}</ul>",
    ]
    return page("NCCL profilers in training", "\n".join(body))
