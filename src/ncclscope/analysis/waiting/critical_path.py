"""The critical path: the chain of edges that a run, or a span of it, is as long as.

From the last end each event leads to the one that it followed. The lengths of these edges sum to
the span, so a shorter edge of the path can make the run shorter, and no other edge can.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.dependencies import Dependencies
from ncclscope.arrays.types import Ints


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Edges from the last one back to the first; `events` are the events at their ends."""

    events: Ints
    length_ns: Ints  # of each edge, what lies within the span

    @property
    def total_ns(self) -> int:
        """The length of the path."""
        return int(self.length_ns.sum())


def critical_path(
    time_ns: Ints, dependencies: Dependencies, since_ns: int | None, until_ns: int | None
) -> CriticalPath:
    """The path to the last end before `until_ns`, back to `since_ns`; `time_ns`: by event."""
    ends = np.arange(2, len(time_ns), 3)
    if until_ns is not None:
        ends = ends[time_ns[ends] <= until_ns]
    if not len(ends):
        return CriticalPath(np.empty(0, np.int64), np.empty(0, np.int64))
    first = int(time_ns.min()) if since_ns is None else since_ns
    event = int(ends[np.argmax(time_ns[ends])])
    events: list[int] = []
    lengths: list[int] = []
    while event >= 0 and time_ns[event] > first and len(events) < len(time_ns):
        before = int(dependencies.before[event])
        begins = max(int(time_ns[before]) if before >= 0 else first, first)
        events.append(event)
        lengths.append(max(int(time_ns[event]) - begins, 0))
        event = before
    return CriticalPath(np.array(events, np.int64), np.array(lengths, np.int64))
