"""A job's progress, seen from outside: the calls that the plugin counts, over time.

The empty plugin counts in a mapped file for each process (NCCLSCOPE_EMPTY_COUNTS). The recorder
writes its tally file once a second; the file's time of writing is the time of its counts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.capture.contents import contents_of_process

Sample = tuple[float, int]  # seconds, calls


@dataclass(slots=True)
class CallProgress:
    """Numbers of calls at several moments, by process."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, process: str, seconds: float, calls: int) -> None:
        """Adds a sample, unless it is of the same moment as the last one."""
        samples = self.samples.setdefault(process, [])
        if calls and (not samples or samples[-1][0] < seconds):
            samples.append((seconds, calls))

    @property
    def began(self) -> float | None:
        """When every process had made a call; None before that."""
        firsts = [samples[0][0] for samples in self.samples.values() if samples]
        return max(firsts) if firsts and len(firsts) == len(self.samples) else None

    def rate(self, skip_s: float) -> float | None:
        """Calls a second, the mean of processes, without the first `skip_s`; None if there are too
        few samples.
        """
        began, rates = self.began, []
        if began is None:
            return None
        for samples in self.samples.values():
            steady = [sample for sample in samples if sample[0] >= began + skip_s]
            if len(steady) < 2 or steady[-1][0] <= steady[0][0]:
                return None
            (first_s, first), (last_s, last) = steady[0], steady[-1]
            rates.append((last - first) / (last_s - first_s))
        mean = sum(rates) / len(rates)
        return mean if mean > 0 else None


ReadProgress = Callable[[CallProgress], None]


def empty_plugin_reader(directory: Path) -> ReadProgress:
    """A function that adds what the empty plugin counts now."""

    def read(progress: CallProgress) -> None:
        for path in directory.iterdir() if directory.is_dir() else ():
            now = time.time()
            try:
                progress.add(path.name, now, int.from_bytes(path.read_bytes()[:8], "little"))
            except OSError:
                continue

    return read


def capture_reader(capture: Path) -> ReadProgress:
    """A function that adds the counters of a capture that is being written."""

    def read(progress: CallProgress) -> None:
        for folder in capture.iterdir() if capture.is_dir() else ():
            try:
                written = (folder / "tally").stat().st_mtime
            except OSError:
                continue
            samples = progress.samples.get(folder.name)
            if samples and samples[-1][0] >= written:
                continue
            calls = counted_calls(folder)
            if calls is not None:
                progress.add(folder.name, written, calls)

    return read


def counted_calls(folder: Path) -> int | None:
    """The calls that a process has counted; None if it is writing the file right now."""
    before = (folder / "tally").stat().st_mtime_ns
    calls = contents_of_process(folder).calls
    return calls if (folder / "tally").stat().st_mtime_ns == before else None
