"""The stages that put times by CUDA events of one node's ranks on one clock: align/event_clocks.py.

find   operations of each rank by which its clock is tied to others'
move   these times, and those of all other operations timed by events
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.align.event_clocks import EventTimes, RankClock
from ncclscope.model.engine import ProcessOperations
from ncclscope.model.schema import NONE, SOURCES
from ncclscope.model.stages import Bundle, Stage, chunks_of
from ncclscope.model.streams import MEETS_NEEDED, NEEDED, Rules, Streams, distinct, meets_of
from ncclscope.nccl.functions import EVERYBODY

_BY_EVENTS = [SOURCES.index(name) for name in ("gpu-event", "gpu-event-rough", "gpu-event-upper")]
_READ = tuple(dict.fromkeys((*NEEDED, *MEETS_NEEDED, "global_rank")))
# Bounds of this many operations are as tight as those of all: docs/measurements/scale.md has it for
# nodes. Calls are sampled by blocks, of which some are left out on all ranks alike.
_MOST_TIMES, _BLOCK = 4096, 64


def _is_by_events(source: Ints) -> Bools:
    timed: Bools = np.isin(source, _BY_EVENTS)
    return timed


@dataclass(frozen=True, slots=True)
class FindEventTimes(Stage):
    """Operations timed by events in which all ranks wait for all, by rank."""

    streams: Streams
    rules: Rules
    excess_ns: Mapping[int, int]  # by process, of those that timed by events

    def __call__(self, bundle: Bundle) -> list[EventTimes]:
        return [
            times
            for process in bundle
            if process.process in self.excess_ns
            for times in self._of_process(process)
        ]

    def _of_process(self, process: ProcessOperations) -> Iterator[EventTimes]:
        none = np.empty(0, np.int64)
        parts = [(none, none, none, none)]
        for _, rows in chunks_of([process]):
            columns = self.operations.of(rows, _READ)
            timed = np.flatnonzero(_is_by_events(columns["source"]))
            columns = {name: values[timed] for name, values in columns.items()}
            _, row = self.streams.find(columns)
            use = (row != NONE) & (meets_of(columns, self.rules, rough=True) == EVERYBODY)
            start, end = (columns[name][use].astype(np.int64) for name in ("start_ns", "end_ns"))
            rank = columns["global_rank"][use].astype(np.int64)
            # The first event: what was taken off may be more than it was before this kernel.
            parts.append((rank, row[use], start - self.excess_ns[process.process], end))
        rank, row, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
        for own_rank in np.unique(rank).tolist():
            _, first = np.unique(row[rank == own_rank], return_index=True)
            own = _thinned(np.flatnonzero(rank == own_rank)[first], row)
            yield EventTimes(
                process.process, own_rank, process.node, process.width_ns,
                row[own], start[own], end[own],
            )  # fmt: skip


def _thinned(places: Ints, row: Ints) -> Ints:
    """At most _MOST_TIMES of them. Ranks that have more or fewer keep the same ones still, because
    blocks are left out by powers of two.
    """
    step = 1
    while np.count_nonzero(row[places] // _BLOCK % step == 0) > _MOST_TIMES:
        step *= 2
    kept: Ints = places[row[places] // _BLOCK % step == 0]
    return kept


@dataclass(frozen=True, slots=True)
class MoveEventTimes(Stage):
    """Moves times by events."""

    clocks: Mapping[tuple[int, int], RankClock]  # by process and rank

    def __call__(self, bundle: Bundle) -> None:
        names = ("source", "global_rank", "start_ns", "end_ns")
        for process, rows in chunks_of(bundle):
            source, rank, start, end = self.operations.of(rows, names).values()
            moved = {"start_ns": start.copy(), "end_ns": end.copy()}
            timed = np.flatnonzero(_is_by_events(source))
            for own_rank in distinct(rank[timed].astype(np.int64)).tolist():
                known = self.clocks.get((process.process, own_rank))
                if known is None:
                    continue
                own = timed[rank[timed] == own_rank]
                for values in moved.values():
                    values[own] = known.clock.to_reference(values[own])
            self.operations.replace(rows, moved)
