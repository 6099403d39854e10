"""The critical path: the chain of edges that a run, or a span of it, is as long as.

From the last end each event leads to the one that it followed. The lengths of these edges sum to
the span, so a shorter edge of the path can make the run shorter, and no other edge can.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.dependencies import Dependencies
from ncclscope.arrays.library import library, pointer
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
    events = np.empty(len(time_ns), np.int64)
    count = library().ncclscope_path_back(
        pointer(time_ns), pointer(dependencies.before), int(ends[np.argmax(time_ns[ends])]), first,
        len(events), pointer(events),
    )  # fmt: skip
    events = events[:count].copy()
    before = dependencies.before[events]
    begins = np.maximum(np.where(before >= 0, time_ns[before], first), first)
    return CriticalPath(events, np.maximum(time_ns[events] - begins, 0))
