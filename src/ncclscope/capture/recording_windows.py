"""Windows: when a process recorded every event and when it only counted, and when it sampled GPU
times and when it did not. `ctl` changes that.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.capture import layout
from ncclscope.capture.process import Process

_MOST_CHANGES = 1000  # of GPU timing, by hand: more is damage
_MODES = tuple(layout.MODES.values())  # by how much is recorded


@dataclass(frozen=True, slots=True)
class Windows:
    """Times in ns on the clock of the process's host."""

    began_ns: int
    ended_ns: int  # when it wrote its last clock pair
    recorded: tuple[tuple[int, int], ...]  # from, to; in order and apart
    fullest_mode: str  # of those it was in
    timings: tuple[tuple[int, str], ...]  # from when on which GPU timing, where it was changed

    @property
    def lived_ns(self) -> int:
        """How long the process lived."""
        return self.ended_ns - self.began_ns

    @property
    def recorded_ns(self) -> int:
        """How long of that it recorded every event."""
        return sum(end - begin for begin, end in self.recorded)

    @property
    def timing_off(self) -> tuple[tuple[int, int], ...]:
        """When GPU timing was switched off: from, to; in order and apart."""
        ends = (*self.timings[1:], (self.ended_ns, ""))
        return tuple(
            (begin, max(end, begin))
            for (begin, timing), (end, _) in zip(self.timings, ends, strict=False)
            if timing == "off"
        )


def windows_of(process: Process) -> Windows:
    """A process's windows, from its mode at the start and from every change.

    Example: a process of mode profile that `ctl` set to trace from 10 s to 25 s, and that was last
    heard of at 60 s, has one window: (10 s, 25 s).
    """
    began = min(process.header.start_monotonic_ns, int(process.clock.monotonic_ns[0]))
    ended = max(int(process.clock.monotonic_ns[-1]), began)
    ticks = np.array([change.ticks for change in process.mode_changes], np.uint64)
    times = np.clip(process.clock.to_ns(ticks), began, ended).tolist()
    recorded: list[tuple[int, int]] = []
    since = None if process.identity.get("mode") == "profile" else began
    for change, now in zip(process.mode_changes, times, strict=True):
        if since is None and change.writes:
            since = max(now, recorded[-1][1] if recorded else began)
        elif since is not None and not change.writes:
            recorded.append((since, max(now, since)))
            since = None
    if since is not None:
        recorded.append((since, max(ended, since)))
    modes = {process.identity.get("mode", ""), *(change.mode for change in process.mode_changes)}
    fullest = max(modes, key=lambda mode: _MODES.index(mode) if mode in _MODES else -1)
    return Windows(began, ended, tuple(recorded), fullest, _timings(process, times))


def _timings(process: Process, times: list[int]) -> tuple[tuple[int, str], ...]:
    """Changes of the GPU timing, with their times. Other changes repeat what is in force."""
    timing, found = process.identity.get("gpu_timing.in_force", ""), list[tuple[int, str]]()
    for change, now in zip(process.mode_changes, times, strict=True):
        if change.gpu_timing and change.gpu_timing != timing and len(found) < _MOST_CHANGES:
            timing = change.gpu_timing
            found.append((max(now, found[-1][0]) if found else now, timing))
    return tuple(found)
