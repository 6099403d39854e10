"""Plots as inline SVG: text in, text out, everything from outside escaped."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ncclscope.humanize import three_digits
from ncclscope.report.units import size

_WIDTH, _HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 34
_LETTER = 7.5  # pixels of a wide one
_COLOURS = 8  # classes c0 … c7 in the page's style


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """Points of one name."""

    name: str
    points: tuple[tuple[float, float], ...]


def spark(values: Sequence[int]) -> str:
    """A small area over time."""
    most = max(values, default=0)
    if not most:
        return ""
    step = 120 / max(len(values) - 1, 1)
    line = " ".join(f"{i * step:.1f},{20 - 18 * v / most:.1f}" for i, v in enumerate(values))
    return (
        '<svg class="spark" viewBox="0 0 120 20" preserveAspectRatio="none">'
        f'<polygon points="0,20 {line} 120,20"/></svg>'
    )


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _below(share: float, text: str) -> str:
    """A mark of the x axis: centred, unless that would cut it off."""
    x, room = _x(share), len(text) * _LETTER / 2
    at_edge = x + room > _WIDTH
    return _text(_WIDTH if at_edge else x, _HEIGHT - 18, text, "end" if at_edge else "middle")


def _frame(inside: list[str], y_marks: list[tuple[float, str]], labels: tuple[str, str]) -> str:
    lines = [
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_y(at):.1f}" '
        f'y2="{_y(at):.1f}"/>{_text(_LEFT - 6, _y(at) + 4, text, "end")}'
        for at, text in y_marks
    ]
    names = _text(_x(0.5), _HEIGHT - 2, labels[0]) + _text(2, _TOP, labels[1], "start")
    body = "".join([*lines, *inside, names])
    return f'<svg class="plot" viewBox="0 -8 {_WIDTH} {_HEIGHT + 14}" role="img">{body}</svg>'


def _marks(most: float) -> list[tuple[float, str]]:
    """Up to five round numbers between nothing and the most."""
    if most <= 0:
        return []
    step = 10 ** math.floor(math.log10(most))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if most / s <= 5)
    return [(i * step / most, f"{i * step:g}") for i in range(int(most / step + 1e-9) + 1)]


def _legend(series: Sequence[PlotSeries]) -> str:
    items = "".join(
        f'<span><i class="c{place % _COLOURS}"></i>{escape(line.name)}</span>'
        for place, line in enumerate(series)
    )
    return f'<p class="legend">{items}</p>'


def areas(series: Sequence[PlotSeries], span_s: float, unit: str) -> str:
    """Stacked areas over time; all series have the same x."""
    if not series or not series[0].points:
        return ""
    width = len(series[0].points)
    tops = [sum(line.points[i][1] for line in series) for i in range(width)]
    most = max(tops) or 1.0
    below, shapes = [0.0] * width, []
    for place, line in enumerate(series):
        above = [below[i] + line.points[i][1] for i in range(width)]
        edge = [f"{_x(i / max(width - 1, 1)):.1f},{_y(v / most):.1f}" for i, v in enumerate(above)]
        floor = [f"{_x(i / max(width - 1, 1)):.1f},{_y(v / most):.1f}" for i, v in enumerate(below)]
        points = " ".join(edge + floor[::-1])
        title = f"<title>{escape(line.name)}</title>"
        shapes.append(f'<polygon class="c{place % _COLOURS}" points="{points}">{title}</polygon>')
        below = above
    times = [_below(share, text) for share, text in _marks(span_s)]
    return _frame(shapes + times, _marks(most), ("seconds", unit)) + _legend(series)


def dots(series: Sequence[PlotSeries], unit: str) -> str:
    """Points over sizes, which are drawn by their logarithm."""
    points = [point for line in series for point in line.points]
    if not points:
        return ""
    low = math.log2(min(max(x, 1) for x, _ in points))
    high = max(math.log2(max(max(x, 1) for x, _ in points)), low + 1)
    most = max(y for _, y in points) or 1.0
    inside = []
    for place, line in enumerate(series):
        for x, y in line.points:
            at = (math.log2(max(x, 1)) - low) / (high - low)
            title = f"{line.name}, {size(int(x))}: {three_digits(y)} {unit}"
            inside.append(
                f'<circle class="c{place % _COLOURS}" cx="{_x(at):.1f}" cy="{_y(y / most):.1f}" '
                f'r="4"><title>{escape(title)}</title></circle>'
            )
    first, last = math.ceil(low), math.floor(high)
    step = max((last - first) // 8, 1)
    for power in range(first, last + 1, step):
        at = (power - low) / (high - low)
        inside.append(_below(at, size(1 << max(power, 0))))
    return _frame(inside, _marks(most), ("message size", unit)) + _legend(series)
