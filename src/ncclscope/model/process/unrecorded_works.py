"""Works that a process counted and did not record. NCCL's host side may have missed some of them:
then stamps lag from there on, and nothing on record shows it.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import layout
from ncclscope.capture.process import Process
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.capture.recording_windows import windows_of
from ncclscope.model.process.stamp_repair import FAR_FUTURE, FAR_PAST
from ncclscope.model.process.works import Works
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.releases import loses_kernel_events_after

_MOST = 1 << 40  # damage may say more
_SELF_COPY_CHANNELS = 1  # such a send uses the first channel


@dataclass(frozen=True, slots=True)
class UnrecordedWorks:
    """How many works may be missing, and when and where that can make stamps lag."""

    edges_ns: Ints  # begin and end of each window; empty where the process never paused
    known_until_ns: int  # before it, every work is on record
    at_most: dict[int, int]  # by communicator: works that may make stamps lag
    channels: dict[int, int]  # by communicator: only on channels below this one

    @property
    def ends_ns(self) -> Ints:
        """When windows ended."""
        return self.edges_ns[1::2]

    def window(self, when_ns: Ints) -> Ints:
        """A number for each moment: odd within a window, even between windows."""
        return np.searchsorted(self.edges_ns, when_ns, side="right")

    def outside(self, when_ns: Ints) -> Bools:
        """Whether each moment lies in no window: of such times the memory that a dead process left
        has some events, and nothing says which.
        """
        if not len(self.edges_ns):
            return np.zeros(len(when_ns), bool)
        return np.asarray(self.window(when_ns) % 2 == 0)

    def before(self, comm: int, channel: int, when_ns: Ints) -> Ints:
        """How many unrecorded works a channel may have had before each moment."""
        most = self.at_most.get(comm, 0) if channel < self.channels.get(comm, 0) else 0
        return np.where(when_ns > self.known_until_ns, most, 0)


def unrecorded_works_of(process: Process, works: Works, words: Vocabulary) -> UnrecordedWorks:
    """Works in the process's counters, less those on record."""
    windows = windows_of(process).recorded
    paused = not windows or not all(change.writes for change in process.mode_changes)
    paused |= process.identity.get("mode") == "profile"
    edges = [edge for window in windows for edge in window] or [FAR_FUTURE, FAR_FUTURE]
    edges_ns = np.array(edges if paused else (), np.int64)
    known = UnrecordedWorks(edges_ns, _known_until_ns(process, paused), {}, {})
    versions = {comm.number: comm.version for comm in process.communicators}
    left, texts = Counter[int](), ProcessStrings(process.strings)
    for entry in process.call_counts:
        version = versions.get(entry.key.communicator, 0)
        if entry.key.level == layout.LEVEL_WORK and version:
            function = texts.function(entry.key.function, version == 1)
            left[entry.key.communicator] += entry.calls * (
                function == loses_kernel_events_after(version)
            )
    for name in {
        loses_kernel_events_after(versions[comm]) for comm, count in left.items() if count
    }:
        of_function = words.among("function", (name,), works.function)
        on_record = np.bincount(works.comm[of_function & ~known.outside(works.enqueue_ns)])
        for comm, count in enumerate(on_record.tolist()):
            left[comm] -= count * (loses_kernel_events_after(versions.get(comm, 0)) == name)
    at_most = {comm: min(count, _MOST) for comm, count in left.items() if count > 0}
    channels = {
        comm: _SELF_COPY_CHANNELS
        if loses_kernel_events_after(versions[comm]) == "Send"
        else FAR_FUTURE
        for comm in at_most
    }
    return replace(known, at_most=at_most, channels=channels)


def _known_until_ns(process: Process, paused: bool) -> int:
    if process.gave_up_events() or process.dropped():
        return FAR_PAST
    windows = windows_of(process)
    if not windows.recorded or windows.recorded[0][0] > windows.began_ns:
        return FAR_PAST
    return windows.recorded[0][1] if paused else FAR_FUTURE
