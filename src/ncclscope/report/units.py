"""Cells of reports: sizes, times, bandwidths, bars and sparklines. humanize.py has messages."""

import math

from ncclscope.humanize import NOTHING, scaled, three_digits

_BARS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"


def size(count: int | None) -> str:
    """A message size as nccl-tests write it: powers of 1024. 33554432 -> 32M"""
    if count is None:
        return NOTHING
    value, unit = scaled(count, ("", "K", "M", "G", "T"), 1024)
    return f"{value:.3g}{unit}" if value < 999.5 else f"{value:.0f}{unit}"


def microseconds(time_ns: float | None) -> str:
    """A time in µs; from a second on with its unit."""
    if time_ns is None:
        return NOTHING
    if time_ns >= 1e9:
        return f"{three_digits(time_ns / 1e9)} s"
    return three_digits(time_ns / 1e3)


def gigabytes(bandwidth_gbs: float | None) -> str:
    """A bandwidth in GB/s; two places behind the point, as nccl-tests have them."""
    return NOTHING if bandwidth_gbs is None else three_digits(bandwidth_gbs)


def bar(share: float, width: int) -> str:
    """A horizontal bar, exact to an eighth of a character; more than 0 is always visible."""
    eighths = math.ceil(min(max(share, 0.0), 1.0) * width * 8 - 1e-9)
    return "█" * (eighths // 8) + (_BARS[eighths % 8] if eighths % 8 else "")


def sparkline(values: tuple[int, ...], width: int) -> str:
    """Values over time, in at most `width` characters; a slice without anything is blank."""
    pieces = [
        values[len(values) * i // width : len(values) * (i + 1) // width] for i in range(width)
    ]
    sums = [sum(piece) for piece in pieces if piece] if len(values) > width else list(values)
    most = max(sums, default=0)
    if not most:
        return ""
    return "".join(_SPARKS[math.ceil(v / most * 8) - 1] if v else " " for v in sums)
