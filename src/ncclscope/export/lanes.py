"""Lanes for slices that overlap: viewers and trace processors want none that do on one track."""

import heapq
from dataclasses import dataclass, field

import numpy as np

from ncclscope.arrays.types import Ints


@dataclass(slots=True)
class _Track:
    """The lanes of one track: those in use with their end, and those that are free again."""

    taken: list[tuple[int, int]] = field(default_factory=list)  # (until, lane); a heap
    free: list[int] = field(default_factory=list)  # a heap

    def take(self, start: int, end: int) -> int:
        """The lowest free lane; it is taken until `end`."""
        while self.taken and self.taken[0][0] <= start:
            heapq.heappush(self.free, heapq.heappop(self.taken)[1])
        lane = heapq.heappop(self.free) if self.free else len(self.taken)
        heapq.heappush(self.taken, (end, lane))
        return lane

    def take_all(self, start: Ints, end: Ints) -> list[int]:
        """Lanes of slices that are sorted by start."""
        return [self.take(*span) for span in zip(start.tolist(), end.tolist(), strict=True)]


class Lanes:
    """Lanes of slices of many tracks, batch by batch, in the order of starts."""

    def __init__(self) -> None:
        self._tracks: dict[int, _Track] = {}

    def place(self, track: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
        """The lane of each slice, from 0. A slice without length takes no lane from others."""
        lane = np.zeros(len(track), np.int64)
        long = np.flatnonzero(end_ns > start_ns)
        order = long[np.argsort(track[long], kind="stable")]
        tracks, first = np.unique(track[order], return_index=True)
        bounds = [*first.tolist(), len(order)]
        for place, number in enumerate(tracks.tolist()):
            places = order[bounds[place] : bounds[place + 1]]
            lane[places] = self._on_track(number, start_ns[places], end_ns[places])
        return lane

    def _on_track(self, number: int, start: Ints, end: Ints) -> Ints:
        """Lanes on one track, cluster by cluster: no slice lasts from one cluster into the next."""
        track = self._tracks.setdefault(number, _Track())
        latest = max((until for until, _ in track.taken), default=0)
        running = np.maximum.accumulate(np.concatenate([[latest], end]))[:-1]
        first = np.flatnonzero(start >= running)
        head = int(first[0]) if len(first) else len(start)
        lane = np.empty(len(start), np.int64)
        lane[:head] = track.take_all(start[:head], end[:head])  # they overlap the batch before
        if not len(first):
            return lane
        count = np.diff(np.append(first, len(start)))
        lane[head:] = np.arange(head, len(start)) - np.repeat(first, count)
        # That is right where all slices of a cluster overlap each other, as in a fused launch.
        all_overlap = start[first + count - 1] < np.minimum.reduceat(end, first)
        for place in np.flatnonzero(~all_overlap).tolist():
            some = slice(int(first[place]), int(first[place] + count[place]))
            lane[some] = _Track().take_all(start[some], end[some])
        last = int(first[-1])
        self._tracks[number] = track = _Track()
        track.take_all(start[last:], end[last:])
        return lane
