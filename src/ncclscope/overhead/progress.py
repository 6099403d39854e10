"""How far a job is, seen from outside: calls counted by the plugin, over time.

The empty plugin counts in a mapped file for each process (NCCLSCOPE_EMPTY_COUNTS). Ours writes its
tally file once a second; when it was written is the moment of its counts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.capture.contents import contents_of_process

Sample = tuple[float, int]  # seconds, calls


@dataclass(slots=True)
class Counts:
    """Samples by process."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, process: str, seconds: float, calls: int) -> None:
        """One look; the same moment again is no news."""
        found = self.samples.setdefault(process, [])
        if calls and (not found or found[-1][0] < seconds):
            found.append((seconds, calls))

    @property
    def began(self) -> float | None:
        """When every process that is known had made a call."""
        firsts = [found[0][0] for found in self.samples.values() if found]
        return max(firsts) if firsts and len(firsts) == len(self.samples) else None

    def rate(self, skip_s: float) -> float | None:
        """Calls a second, mean of processes, without the first `skip_s`; None: too little seen."""
        began, rates = self.began, []
        if began is None:
            return None
        for found in self.samples.values():
            steady = [sample for sample in found if sample[0] >= began + skip_s]
            if len(steady) < 2 or steady[-1][0] <= steady[0][0]:
                return None
            (first_s, first), (last_s, last) = steady[0], steady[-1]
            rates.append((last - first) / (last_s - first_s))
        mean = sum(rates) / len(rates)
        return mean if mean > 0 else None


Look = Callable[[Counts], None]


def look_at_empty(directory: Path) -> Look:
    """Reads the empty plugin's counters."""

    def look(counts: Counts) -> None:
        for path in directory.iterdir() if directory.is_dir() else ():
            now = time.time()
            try:
                counts.add(path.name, now, int.from_bytes(path.read_bytes()[:8], "little"))
            except OSError:
                continue

    return look


def look_at_capture(capture: Path) -> Look:
    """Reads the tally files of a capture that is being written."""

    def look(counts: Counts) -> None:
        for folder in capture.iterdir() if capture.is_dir() else ():
            try:
                written = (folder / "tally").stat().st_mtime
            except OSError:
                continue
            found = counts.samples.get(folder.name)
            if found and found[-1][0] >= written:
                continue
            calls = tally_calls(folder)
            if calls is not None:
                counts.add(folder.name, written, calls)

    return look


def tally_calls(folder: Path) -> int | None:
    """The calls of a process by its tally; None where it is being rewritten."""
    before = (folder / "tally").stat().st_mtime_ns
    calls = contents_of_process(folder).calls
    return calls if (folder / "tally").stat().st_mtime_ns == before else None
