"""A comparison of training runs as an HTML page: figure 4 of the ncclsee paper, and tables."""

from html import escape

from ncclscope.bench.profilers.comparison_page import RangeBar, bars_svg, legend_html, table_html
from ncclscope.bench.training.comparison import TrainingRow
from ncclscope.bench.training.files import TrainingRun
from ncclscope.humanize import printable
from ncclscope.report.html import page

_WIDTH, _BAR, _NAME, _GAP = 760, 14, 130, 6
_COLOURS = 8  # classes c0 … c7 in the page's style
_ROUNDING = 5  # the axis ends at a multiple of so many ms


def _recorded_bar(row: TrainingRow) -> RangeBar | None:
    if not row.calls_made:
        return None
    share = (row.calls_recorded or 0) / row.calls_made
    drawn = min(share, 1.0)
    return RangeBar(share, drawn, drawn, f"{row.profiler}: {100 * share:.1f} % of calls")


def recorded_svg(rows: list[TrainingRow]) -> str:
    """Figure 4a: calls recorded by calls made."""
    bars = {"calls recorded": [_recorded_bar(row) for row in rows]}
    return bars_svg([row.profiler for row in rows], bars, legend=False)


def reported_svg(rows: list[TrainingRow]) -> str:
    """Figure 4b: communication of a step as reported; a line where the same steps end."""
    known = [value for row in rows for value in (row.reported_ms, row.mean_step_ms) if value]
    most = _ROUNDING * (int(max(known, default=1) / _ROUNDING) + 1)
    scale = (_WIDTH - _NAME - 20) / most
    height = len(rows) * (_BAR + _GAP)
    parts = [
        f'<line class="grid" x1="{_NAME + mark * scale:.1f}" x2="{_NAME + mark * scale:.1f}" '
        f'y1="0" y2="{height}"/><text x="{_NAME + mark * scale:.1f}" y="{height + 14}" '
        f'text-anchor="middle">{mark:g} ms</text>'
        for mark in (most * part / 5 for part in range(6))
    ]
    for place, row in enumerate(rows):
        parts.append(_reported_bar(row, place, scale))
    size = f"0 0 {_WIDTH} {height + 20}"
    return f'<svg class="plot" viewBox="{size}" role="img">{"".join(parts)}</svg>'


def _reported_bar(row: TrainingRow, place: int, scale: float) -> str:
    top = place * (_BAR + _GAP)
    text = f'<text x="{_NAME - 6}" y="{top + _BAR - 2}" text-anchor="end">{escape(row.profiler)}'
    parts = [f"{text}</text>"]
    if row.reported_ms is None:
        parts.append(f'<text x="{_NAME + 6}" y="{top + _BAR - 2}">no share</text>')
    else:
        step = f" of {row.mean_step_ms:.2f} ms" if row.mean_step_ms else ""
        title = f"{row.profiler}: {row.reported_ms:.2f}{step} a step"
        parts.append(
            f'<rect class="c{place % _COLOURS}" x="{_NAME}" y="{top}" height="{_BAR}" '
            f'width="{row.reported_ms * scale:.1f}"><title>{escape(title)}</title></rect>'
        )
    if row.mean_step_ms:
        x = _NAME + row.mean_step_ms * scale
        parts.append(
            f'<line class="median" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 2}" y2="{top + _BAR + 2}"/>'
        )
    return "".join(parts)


def _figures(rows: list[TrainingRow]) -> str:
    recording = [row for row in rows if row.calls_recorded is not None]
    return (
        recorded_svg(recording)
        + "<p>communication of a step, as reported; line: the mean of the same steps</p>"
        + reported_svg(recording)
        + legend_html([row.profiler for row in recording])
    )


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
        _figures(rows),
        *map(table_html, run.tables),
        f"<h2>what cannot be compared</h2><ul>{limits}</ul>",
    ]
    return page("NCCL profilers in training", "\n".join(body))
