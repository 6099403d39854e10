"""CPU time of tests and of what they start, by file: what to shorten when `make test` takes long.

Wall time says little, as lanes of tests share the cores.
"""

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.support.player import seconds_of_commands
from tests.support.torch_jobs import seconds_of_torch

_MOST_FILES = 25


class CpuClock:
    """CPU seconds of this process, of children that have ended, and of forks of servers."""

    def __init__(self) -> None:
        self._last_s = self._now_s()

    def lap_s(self) -> float:
        """Seconds since the last lap."""
        last_s, self._last_s = self._last_s, self._now_s()
        return self._last_s - last_s

    def _now_s(self) -> float:
        return sum(os.times()[:4]) + seconds_of_commands() + seconds_of_torch()


def lines_by_file(reports: Iterable[Any]) -> list[str]:
    """The files that take most, and the sum of all."""
    by_file = Counter[str]()
    for report in reports:
        by_file[report.nodeid.partition("::")[0]] += getattr(report, "cpu_s", 0.0)
    rows = [*by_file.most_common(_MOST_FILES), ("all files", sum(by_file.values()))]
    return [f"{seconds:8.1f} s {name}" for name, seconds in rows]


def calls_above(most_s: float, reports: Iterable[Any]) -> dict[str, float]:
    """Tests that take more, the longest first, without what fixtures take."""
    by_test = Counter[str]()
    for report in reports:
        if getattr(report, "when", None) == "call":
            by_test[report.nodeid] += getattr(report, "cpu_s", 0.0)
    return {name: cpu_s for name, cpu_s in by_test.most_common() if cpu_s > most_s}
