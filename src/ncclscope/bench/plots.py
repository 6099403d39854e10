"""Distributions of call times on a logarithmic scale: as text, as SVG, and as a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from ncclscope.bench.results import Result, Session, time_statistics
from ncclscope.bench.table import SIMULATED
from ncclscope.humanize import duration, plural, printable
from ncclscope.report.html import page
from ncclscope.report.plots import PlotSeries, dots
from ncclscope.report.units import microseconds, size, sparkline

_BINS = 60
_TEXT_BINS = 40
_WIDTH, _LEFT, _RIGHT, _ROW, _TOP, _BOTTOM = 760, 210, 150, 30, 16, 30
_STYLE = (  # of an SVG file; on a page the page's style applies
    "text { font: 11px system-ui, sans-serif; fill: #66707b } .c0 { fill: #2f6fde } "
    ".grid { stroke: #d9dee3 } .median { stroke: #1b1f24 } .p99 { stroke: #c23b5a }"
)


@dataclass(frozen=True, slots=True)
class Distribution:
    """The histogram of one case's calls by time."""

    name: str
    counts: tuple[int, ...]
    median_ns: float
    p99_ns: float
    min_ns: float
    max_ns: float


def _name(result: Result) -> str:
    case = result.case
    place = " in place" if case.in_place else ""
    return f"{case.spec.title} {size(result.size_bytes)}{place}, {plural(case.ranks, 'rank')}"


def _limits(results: Sequence[Result]) -> tuple[float, float]:
    return limits_of([result.slowest_ns for result in results])


def limits_of(times: Sequence[npt.NDArray[np.float64]]) -> tuple[float, float]:
    """The logarithms of the shortest and longest time, not equal."""
    low = min(float(own.min()) for own in times)
    high = max(float(own.max()) for own in times)
    first, last = math.log10(max(low, 1.0)), math.log10(max(high, 1.0))
    return (first, last) if last - first > 0.02 else (first - 0.01, first + 0.01)


def _counts(
    times: npt.NDArray[np.float64], limits: tuple[float, float], bins: int
) -> tuple[int, ...]:
    logs = np.log10(np.maximum(times, 1.0))
    return tuple(int(n) for n in np.histogram(logs, bins, limits)[0])


def distribution(
    name: str, times: npt.NDArray[np.float64], limits: tuple[float, float], bins: int = _BINS
) -> Distribution:
    """The distribution of at least one time."""
    numbers = time_statistics(times)
    return Distribution(
        name, _counts(times, limits, bins), numbers.median_ns, numbers.p99_ns, numbers.min_ns,
        numbers.max_ns,
    )  # fmt: skip


def distributions(
    results: Sequence[Result], limits: tuple[float, float], bins: int = _BINS
) -> list[Distribution]:
    """The distributions of all cases, on one scale."""
    return [distribution(_name(result), result.slowest_ns, limits, bins) for result in results]


def text_lines(results: Sequence[Result], session: Session) -> list[str]:
    """A line for each case, each on its own scale."""
    lines = [SIMULATED] if session.simulation else []
    lines.append("times of single calls, slowest rank, µs; from min to max by logarithm")
    width = max(len(_name(result)) for result in results)
    for result in results:
        (times,) = distributions([result], _limits([result]), _TEXT_BINS)
        line = sparkline(times.counts, _TEXT_BINS)
        lines.append(
            f"{times.name:<{width}}  {microseconds(times.min_ns):>8} │{line:<{_TEXT_BINS}}│ "
            f"{microseconds(times.max_ns):<8}  median {microseconds(times.median_ns)}  "
            f"p99 {microseconds(times.p99_ns)}"
        )
    return lines


def _x(log: float, limits: tuple[float, float]) -> float:
    return _LEFT + (log - limits[0]) / (limits[1] - limits[0]) * (_WIDTH - _LEFT - _RIGHT)


def _grid(limits: tuple[float, float]) -> list[float]:
    """Logarithms of grid lines: 1, 2, 5 of each decade; of many decades, 1 only."""
    steps = (1, 2, 5) if limits[1] - limits[0] < 3 else (1,)
    decades = range(math.floor(limits[0]), math.ceil(limits[1]) + 1)
    logs = [decade + math.log10(step) for decade in decades for step in steps]
    within = [log for log in logs if limits[0] <= log <= limits[1]]
    return within or [limits[0], limits[1]]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _row(times: Distribution, base: float, limits: tuple[float, float]) -> str:
    most = max(times.counts) or 1
    step = (_WIDTH - _LEFT - _RIGHT) / len(times.counts)
    points = [f"{_LEFT:.1f},{base:.1f}"]
    for place, count in enumerate(times.counts):
        y = base - (_ROW - 6) * count / most
        points += [
            f"{_LEFT + place * step:.1f},{y:.1f}",
            f"{_LEFT + (place + 1) * step:.1f},{y:.1f}",
        ]
    points.append(f"{_WIDTH - _RIGHT:.1f},{base:.1f}")
    parts = [_text(_LEFT - 8, base - 4, times.name, "end")]
    parts.append(f'<polygon class="c0" points="{" ".join(points)}"/>')
    for kind, time_ns in (("median", times.median_ns), ("p99", times.p99_ns)):
        x = _x(math.log10(max(time_ns, 1.0)), limits)
        parts.append(
            f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{base:.1f}" '
            f'y2="{base - _ROW + 6:.1f}"><title>{kind} {escape(duration(time_ns))}</title></line>'
        )
    label = f"{duration(times.median_ns)}, p99 {duration(times.p99_ns)}"
    return "".join([*parts, _text(_WIDTH - _RIGHT + 8, base - 4, label, "start")])


def svg(results: Sequence[Result], session: Session, standalone: bool) -> str:
    """All distributions in one picture; a standalone one contains its style."""
    limits = _limits(results)
    rows = distributions(results, limits)
    return distributions_svg(rows, limits, bool(session.simulation), standalone)


def distributions_svg(
    rows: Sequence[Distribution], limits: tuple[float, float], simulated: bool, standalone: bool
) -> str:
    """Distributions below each other, on one scale."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    floor = _TOP + _ROW * len(rows)
    parts = []
    for log in _grid(limits):
        x = _x(log, limits)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{floor}"/>'
            + _text(x, floor + 14, duration(10**log), "middle")
        )
    parts += [_row(times, _TOP + _ROW * (i + 1), limits) for i, times in enumerate(rows)]
    if simulated:
        parts.append(_text(_WIDTH / 2, 11, SIMULATED, "middle"))
    attribute = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ' class="plot"'
    style = f"<style>{_STYLE}</style>" if standalone else ""
    body = "".join(parts)
    return f'<svg{attribute} viewBox="0 0 {_WIDTH} {height}" role="img">{style}{body}</svg>\n'


def html(results: Sequence[Result], session: Session) -> str:
    """A self-contained page: distributions, and bandwidth by size."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        if result.busbw_gbs is not None:
            name = f"{result.case.spec.title} {result.case.place}, {result.case.ranks} ranks"
            lines.setdefault(name, []).append((float(result.size_bytes), result.busbw_gbs))
    series = [PlotSeries(name, tuple(points)) for name, points in lines.items()]
    warning = f'<p class="warning">{escape(SIMULATED)}</p>' if session.simulation else ""
    hosts = sorted({device.host for device in session.devices})
    names = ", ".join(sorted({device.name for device in session.devices if device.name}))
    who = f"{plural(session.ranks, 'rank')} on {', '.join(hosts)}" + (f": {names}" if names else "")
    body = [
        "<h1>NCCL benchmark</h1>",
        warning,
        f"<p>{escape(printable(who))}</p>",
        "<h2>times of single calls, slowest rank; dark: median, red: p99</h2>",
        svg(results, session, standalone=False),
        f"<h2>bus bandwidth by message size</h2>{dots(series, 'GB/s')}" if series else "",
    ]
    return page("NCCL benchmark", "\n".join(body))
