"""The comparison as one HTML page that needs nothing else: figures as in the ncclsee paper, tables.

Figure 1: calls recorded by operation. Figure 2: reported times beside the benchmark's own.
Figure 3: the benchmark's times below each profiler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ncclscope.bench.operations import OPERATIONS
from ncclscope.bench.plots import distribution, distributions_svg, limits_of
from ncclscope.bench.profilers.comparison import ProfilerComparison, compared_calls_of, own_times
from ncclscope.bench.profilers.comparison_files import ComparisonRun
from ncclscope.bench.profilers.comparison_tables import (
    limit_lines,
    operations_of,
    recording_profilers,
    share_text,
    tables_of,
)
from ncclscope.bench.profilers.intervals import Times
from ncclscope.bench.profilers.trials import COST, TIMES, TrialCase
from ncclscope.bench.table import SIMULATED
from ncclscope.humanize import printable
from ncclscope.report.html import page
from ncclscope.report.tables import Table
from ncclscope.report.units import size

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 240, 40, 16, 40
_COLOURS = 8  # classes c0 … c7 in the page's style
_MOST_CASES = 6  # of figures 2 and 3
Case = tuple[str, int]  # operation and bytes


@dataclass(frozen=True, slots=True)
class RangeBar:
    """A share with the lowest and highest of its ranks and sizes."""

    share: float
    low: float
    high: float
    title: str


def _bar(comparison: ProfilerComparison, profiler: str, operation: str) -> RangeBar | None:
    own = [
        row for row in comparison.coverage if (row.profiler, row.operation) == (profiler, operation)
    ]
    if not own:
        return None
    made, recorded = comparison.coverage_of(profiler, operation)
    shares = [row.share for row in own]
    name = OPERATIONS[operation].title
    title = f"{profiler}, {name}: {share_text(recorded / made)} of {made:,} calls"
    return RangeBar(recorded / made, min(shares), max(shares), title)


def coverage_svg(comparison: ProfilerComparison) -> str:
    """Figure 1: bars of recorded shares, grouped by operation; lines: lowest and highest rank and
    size.
    """
    names, operations = recording_profilers(comparison), operations_of(comparison)
    groups = {
        OPERATIONS[operation].title: [_bar(comparison, name, operation) for name in names]
        for operation in operations
    }
    return bars_svg(names, groups)


def bars_svg(
    names: Sequence[str], groups: Mapping[str, Sequence[RangeBar | None]], legend: bool = True
) -> str:
    """Bars of shares in groups, one colour for each name."""
    floor = _HEIGHT - _BOTTOM
    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{_y(mark):.1f}" y2="{_y(mark):.1f}"/>'
        f'<text x="{_LEFT - 4}" y="{_y(mark) + 4:.1f}" text-anchor="end">{100 * mark:.0f} %</text>'
        for mark in (0, 0.25, 0.5, 0.75, 1)
    ]
    group = (_WIDTH - _LEFT) / max(len(groups), 1)
    width = group * 0.8 / max(len(names), 1)
    for number, (title, bars) in enumerate(groups.items()):
        left = _LEFT + number * group + group * 0.1
        text = f'x="{left + group * 0.4:.1f}" y="{floor + 16}" text-anchor="middle"'
        parts.append(f"<text {text}>{escape(title)}</text>")
        for place, bar in enumerate(bars):
            if bar is not None:
                parts.append(_bar_svg(bar, left + place * width, width, place))
    body = "".join(parts)
    svg = f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{body}</svg>'
    return svg + (legend_html(names) if legend else "")


def _y(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _bar_svg(bar: RangeBar, x: float, width: float, place: int) -> str:
    top, floor, middle = _y(min(bar.share, 1.0)), _y(0), x + width / 2
    return (
        f'<rect class="c{place % _COLOURS}" x="{x:.1f}" y="{top:.1f}" width="{width * 0.9:.1f}" '
        f'height="{max(floor - top, 1):.1f}"><title>{escape(bar.title)}</title></rect>'
        f'<line class="median" x1="{middle:.1f}" x2="{middle:.1f}" y1="{_y(bar.low):.1f}" '
        f'y2="{_y(bar.high):.1f}"/>'
    )


def legend_html(names: Sequence[str]) -> str:
    """The colours of names."""
    items = "".join(
        f'<span><i class="c{place % _COLOURS}"></i>{escape(name)}</span>'
        for place, name in enumerate(names)
    )
    return f'<p class="legend">{items}</p>'


def _figure_cases(run: ComparisonRun) -> list[Case]:
    """The cases of figures 2 and 3: small, medium and large sizes of the first two operations."""
    cases = list(
        dict.fromkeys(
            (case.operation, case.size_bytes) for trial in run.trials for case in trial.cases
        )
    )
    chosen: list[Case] = []
    for operation in list(dict.fromkeys(name for name, _ in cases))[:2]:
        sizes = sorted(size_bytes for name, size_bytes in cases if name == operation)
        picked = {sizes[0], sizes[len(sizes) // 2], sizes[-1]}
        chosen += [(operation, size_bytes) for size_bytes in sorted(picked)]
    return chosen[:_MOST_CASES]


def _case_of(cases: Sequence[TrialCase], wanted: Case) -> TrialCase | None:
    return next((case for case in cases if (case.operation, case.size_bytes) == wanted), None)


def _picture(rows: Sequence[tuple[str, Times]], simulated: bool) -> str:
    with_times = [(name, times[times > 0]) for name, times in rows]
    with_times = [(name, times) for name, times in with_times if len(times)]
    if not with_times:
        return ""
    limits = limits_of([times for _, times in with_times])
    drawn = [distribution(name, times, limits) for name, times in with_times]
    return distributions_svg(drawn, limits, simulated, standalone=False)


def times_figures(run: ComparisonRun, names: Sequence[str]) -> list[str]:
    """Figure 2: for each case the benchmark's own times of all runs, and each profiler's."""
    figures = []
    for wanted in _figure_cases(run):
        own: list[Times] = []
        rows: list[tuple[str, Times]] = []
        for profiler in names:
            for trial in run.trials:
                case = _case_of(trial.cases, wanted)
                if trial.profiler != profiler or trial.kind != TIMES or case is None:
                    continue
                own.append(own_times(case))
                reported = compared_calls_of(trial, case)
                if reported is not None:
                    rows.append((profiler, reported[0]))
        if own:
            rows.insert(0, ("the benchmark", np.concatenate(own)))
            figures.append(_titled(wanted, _picture(rows, bool(run.machine["simulated"]))))
    return figures


def cost_figures(run: ComparisonRun) -> list[str]:
    """Figure 3: the benchmark's times of single calls below each profiler."""
    figures = []
    for wanted in _figure_cases(run):
        rows: list[tuple[str, Times]] = []
        for profiler in run.profilers:
            cases = [
                _case_of(trial.cases, wanted)
                for trial in run.trials
                if trial.profiler == profiler.name and trial.kind == COST and not trial.failure
            ]
            times = [own_times(case) for case in cases if case is not None]
            if times:
                rows.append((profiler.name, np.concatenate(times)))
        figures.append(_titled(wanted, _picture(rows, bool(run.machine["simulated"]))))
    return figures


def _titled(wanted: Case, picture: str) -> str:
    return f"<h3>{escape(OPERATIONS[wanted[0]].title)}, {size(wanted[1])}</h3>{picture}"


def table_html(table: Table) -> str:
    """A table of texts as HTML."""
    sides = [' class="right"' if column.right else "" for column in table.columns]

    def cells(kind: str, texts: Sequence[object]) -> str:
        return "".join(
            f"<{kind}{side}>{escape(printable(str(text)))}</{kind}>"
            for side, text in zip(sides, texts, strict=True)
        )

    head = cells("th", [column.title for column in table.columns])
    body = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in table.rows)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><tr>{head}</tr>\n{body}'
        f"</table></div>{notes}\n"
    )


def as_html(run: ComparisonRun) -> str:
    """The page."""
    comparison = run.comparison
    warning = f'<p class="warning">{escape(SIMULATED)}</p>' if run.machine["simulated"] else ""
    absent = "".join(
        f"<p>left out: {escape(name)}: {escape(printable(reason))}</p>"
        for name, reason in run.absent.items()
    )
    limits = "".join(f"<li>{escape(line)}</li>" for line in limit_lines(comparison))
    titles = "".join(
        f"<li><b>{escape(own.name)}</b>: {escape(printable(own.title))}</li>"
        for own in run.profilers
    )
    body = [
        "<h1>NCCL profilers compared</h1>",
        warning,
        *(f"<p>{escape(line)}</p>" for line in run.heading if line != SIMULATED),
        absent,
        f"<ul>{titles}</ul>",
        "<h2>Figure 1: calls recorded; lines: lowest and highest rank and size</h2>",
        coverage_svg(comparison),
        "<h2>Figure 2: times reported, beside the benchmark's own; dark: median, red: p99</h2>",
        *times_figures(run, recording_profilers(comparison)),
        "<h2>Figure 3: the benchmark's times of single calls below each profiler</h2>",
        *cost_figures(run),
        *(table_html(table) for table in tables_of(comparison) if table.rows),
        f"<h2>what cannot be compared</h2><ul>{limits}</ul>",
    ]
    return page("NCCL profilers compared", "\n".join(part for part in body if part))
