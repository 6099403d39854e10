"""When a process recorded single events, and when it only counted: `ctl` may change that."""

from dataclasses import dataclass

import numpy as np

from ncclscope.capture.process import Process

_MODES = ("profile", "trace", "full")  # by how much is recorded


@dataclass(frozen=True, slots=True)
class Windows:
    """Times in ns on the clock of the process's host."""

    began_ns: int
    ended_ns: int  # when it was last heard of
    recorded: tuple[tuple[int, int], ...]  # from, to; in order and apart
    fullest_mode: str  # of those it was in

    @property
    def lived_ns(self) -> int:
        """How long the process was there."""
        return self.ended_ns - self.began_ns

    @property
    def recorded_ns(self) -> int:
        """How long of that it recorded single events."""
        return sum(end - begin for begin, end in self.recorded)


def windows_of(process: Process) -> Windows:
    """From what the process says of its mode at the start, and of every change."""
    began = min(process.header.start_monotonic_ns, int(process.clock.monotonic_ns[0]))
    ended = max(int(process.clock.monotonic_ns[-1]), began)
    ticks = np.array([zoom.ticks for zoom in process.zooms], np.uint64)
    times = np.clip(process.clock.to_ns(ticks), began, ended).tolist()
    recorded: list[tuple[int, int]] = []
    since = None if process.identity.get("mode") == "profile" else began
    for zoom, now in zip(process.zooms, times, strict=True):
        if since is None and zoom.writes:
            since = max(now, recorded[-1][1] if recorded else began)
        elif since is not None and not zoom.writes:
            recorded.append((since, max(now, since)))
            since = None
    if since is not None:
        recorded.append((since, max(ended, since)))
    modes = {process.identity.get("mode", ""), *(zoom.mode for zoom in process.zooms)}
    fullest = max(modes, key=lambda mode: _MODES.index(mode) if mode in _MODES else -1)
    return Windows(began, ended, tuple(recorded), fullest)
