"""Lanes for slices that overlap: viewers draw, and trace processors pair, only what does not."""

import heapq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Track:
    """Lanes in use: until when, and those that were in use and are free. Both are heaps."""

    taken: list[tuple[int, int]] = field(default_factory=list)  # (until, lane)
    free: list[int] = field(default_factory=list)

    def take(self, start: int, end: int) -> int:
        """The lowest lane that is free, taken until `end`."""
        while self.taken and self.taken[0][0] <= start:
            heapq.heappush(self.free, heapq.heappop(self.taken)[1])
        lane = heapq.heappop(self.free) if self.free else len(self.taken)
        heapq.heappush(self.taken, (end, lane))
        return lane

    def take_all(self, start: Ints, end: Ints) -> list[int]:
        """Lanes of slices in the order of their starts."""
        return [self.take(*span) for span in zip(start.tolist(), end.tolist(), strict=True)]


class Lanes:
    """Places slices of many tracks, hand by hand, in the order of their starts."""

    def __init__(self) -> None:
        self._tracks: dict[int, _Track] = {}

    def place(self, track: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
        """The lane of each slice, from 0. What has no length takes no room."""
        lane = np.zeros(len(track), np.int64)
        long = np.flatnonzero(end_ns > start_ns)
        order = long[np.argsort(track[long], kind="stable")]
        tracks, first = np.unique(track[order], return_index=True)
        bounds = [*first.tolist(), len(order)]
        for number, one in enumerate(tracks.tolist()):
            places = order[bounds[number] : bounds[number + 1]]
            lane[places] = self._on_track(one, start_ns[places], end_ns[places])
        return lane

    def _on_track(self, number: int, start: Ints, end: Ints) -> Ints:
        """Lanes on one track. Slices fall into clusters: nothing lasts from one into the next."""
        track = self._tracks.setdefault(number, _Track())
        latest = max((until for until, _ in track.taken), default=0)
        running = np.maximum.accumulate(np.concatenate([[latest], end]))[:-1]
        first = np.flatnonzero(start >= running)
        head = int(first[0]) if len(first) else len(start)
        lane = np.empty(len(start), np.int64)
        lane[:head] = track.take_all(start[:head], end[:head])  # they overlap the hand before
        if not len(first):
            return lane
        count = np.diff(np.append(first, len(start)))
        lane[head:] = np.arange(head, len(start)) - np.repeat(first, count)
        # Where all slices of a cluster overlap each other, as in a fused launch, that is it.
        together = start[first + count - 1] < np.minimum.reduceat(end, first)
        for place in np.flatnonzero(~together).tolist():
            some = slice(int(first[place]), int(first[place] + count[place]))
            lane[some] = _Track().take_all(start[some], end[some])
        last = int(first[-1])
        self._tracks[number] = track = _Track()
        track.take_all(start[last:], end[last:])
        return lane
