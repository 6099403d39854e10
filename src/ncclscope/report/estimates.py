"""Cells with numbers for all operations where a sample of them was timed: they are marked.

`≈` is an estimate, `≤` an upper bound: operations that share a launch all get its whole time. Both
stand in front of one number where an upper bound was estimated. The table `from a sample` has the
intervals.
"""

from collections.abc import Iterable

from ncclscope.analysis.groups import Group
from ncclscope.humanize import NOTHING, duration, percent
from ncclscope.report.units import gigabytes

ESTIMATED = "≈"
AT_MOST = "≤"
LEGEND = (
    "≈: an estimate for all operations, from those that were timed; its interval is under 'from a "
    "sample'"
)
AT_MOST_LEGEND = (
    "≤: at most: some operations share their launch, and each counts with its whole time, or the "
    "excess of their CUDA events is not known"
)


def marked(mark: str, text: str) -> str:
    """The text behind its mark; what is not known has none."""
    return text if text == NOTHING else mark + text


def is_estimated(group: Group) -> bool:
    """Whether the group's times are numbers for all its operations, from a sample."""
    return bool(group.sample and group.durations and group.durations.grade == "gpu")


def is_at_most(group: Group) -> bool:
    """Whether the group's total time is an upper bound."""
    times = group.durations
    return bool(times and times.grade == "gpu" and times.upper_bound)


def time_mark(group: Group) -> str:
    """The mark of sums and shares of the group's times."""
    return (AT_MOST if is_at_most(group) else "") + (ESTIMATED if is_estimated(group) else "")


def total_cell(group: Group) -> str:
    """The group's time on the GPU."""
    times = group.durations
    known = times.total_ns if times and times.grade == "gpu" else None
    return marked(time_mark(group), duration(known))


def run_cell(group: Group) -> str:
    """The share of the run in which its kernels ran."""
    return marked(time_mark(group), percent(group.run_share))


def bandwidth_cell(group: Group, bandwidth_gbs: float | None) -> str:
    """A bandwidth: upper bounds of times do not count for it."""
    return marked(ESTIMATED if group.sample else "", gigabytes(bandwidth_gbs))


def legend(groups: Iterable[Group]) -> list[str]:
    """What the marks mean that occur in cells of these groups."""
    shown = list(groups)
    notes = [LEGEND] if any(group.sample for group in shown) else []
    return [*notes, *([AT_MOST_LEGEND] if any(map(is_at_most, shown)) else [])]
