"""Windows: when a process recorded every event, and when it only counted. `ctl` changes that."""

from dataclasses import dataclass

import numpy as np

from ncclscope.capture import layout
from ncclscope.capture.process import Process

_MODES = tuple(layout.MODES.values())  # by how much is recorded


@dataclass(frozen=True, slots=True)
class Windows:
    """Times in ns on the clock of the process's host."""

    began_ns: int
    ended_ns: int  # when it wrote its last clock pair
    recorded: tuple[tuple[int, int], ...]  # from, to; in order and apart
    fullest_mode: str  # of those it was in

    @property
    def lived_ns(self) -> int:
        """How long the process lived."""
        return self.ended_ns - self.began_ns

    @property
    def recorded_ns(self) -> int:
        """How long of that it recorded every event."""
        return sum(end - begin for begin, end in self.recorded)


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
    return Windows(began, ended, tuple(recorded), fullest)
