"""A rank's own time: how long it was outside of NCCL's operations before each of them.

Both measures are differences within one clock, so they need no alignment of hosts.

    operation          #1 tp         #2 dp       #3 tp
    rank      ────────[█████]────────[███]──────[█████]────► time
    gap                      <──b──>       <─c─>
    own time of #3 (since #1, its last one on the same communicator) = b + c
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows, rows_by_place
from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Bools, Floats, Ints

_LARGEST_KEY = 1 << 62


@dataclass(frozen=True, slots=True)
class OwnTimes:
    """By operation of a run; NaN where it is not known."""

    # Since the rank's operations before it ended. Not known for the first of a rank, and where an
    # operation without times, or a pause of the recording, lies in between.
    gap_ns: Floats
    # Sum of the gaps since the rank's last operation on the same communicator. Not known for its
    # first there, and where one of the gaps is not known.
    own_ns: Floats


def own_times(run: Run) -> OwnTimes:
    """The own times of all ranks of a run."""
    rows, first = _by_rank(run)
    gap = _gaps(run, rows, first)
    own = _since_last_on_communicator(run, rows, gap)
    by_operation = np.full((2, len(run.timed)), np.nan)
    by_operation[:, rows] = gap, own
    return OwnTimes(*by_operation)


def unknown_own_times(run: Run) -> OwnTimes:
    """No own times, for what needs durations alone: of a long run they take most memory."""
    unknown = np.broadcast_to(np.nan, len(run.current))
    return OwnTimes(unknown, unknown)


def _by_rank(run: Run) -> tuple[Ints, Bools]:
    """Rows with times in the order of process, rank and start; which are the first of a rank."""
    rows = np.flatnonzero(run.timed)
    names = ("start_ns", "global_rank", "process")
    start, rank, process = (run.column(name, rows) for name in names)
    order = order_of(process, rank, start)
    first = np.ones(len(rows), bool)
    first[1:] = (np.diff(rank[order]) != 0) | (np.diff(process[order]) != 0)
    return rows[order], first


def order_of(process: Ints, rank: Ints, start: Ints) -> Ints:
    """The order of process, rank and start. Operations of a process lie together, nearly in that
    order: one sort of all three in one number takes a tenth of the time of three sorts.
    """
    keys = [values - values.min(initial=0) for values in (process, rank, start)]
    widths = [int(key.max(initial=0)) + 1 for key in keys]
    if widths[0] * widths[1] * widths[2] >= _LARGEST_KEY:
        # Ranks by process: most have one.
        owner = distinct_rows(keys[:2])[1]
        if (int(owner.max(initial=0)) + 1) * widths[2] >= _LARGEST_KEY:
            return np.lexsort((start, rank, process))
        return np.argsort(owner * widths[2] + keys[2], kind="stable")
    key = (keys[0] * widths[1] + keys[1]) * widths[2] + keys[2]
    return np.argsort(key, kind="stable")


def _gaps(run: Run, rows: Ints, first: Bools) -> Floats:
    if not len(rows):
        return np.empty(0)
    start, end = run.column("start_ns", rows), run.column("end_ns", rows)
    # The latest end so far of each rank: ranks are put one after the other, `width` apart.
    group = np.cumsum(first) - 1
    origin = int(start.min())
    width = int(end.max()) - origin + 1
    latest = np.maximum.accumulate(end - origin + group * width) - group * width
    before = np.concatenate([[0], latest[:-1]])
    gap: Floats = np.maximum(start - origin - before, 0).astype(np.float64)
    # Rows of a process are in the order of calls.
    untimed = np.cumsum(run.current & ~run.timed)[rows]
    for interruptions in (untimed, window_edges(run, rows)):
        gap[np.diff(interruptions, prepend=interruptions[0]) != 0] = np.nan
    gap[first] = np.nan
    return gap


def window_edges(run: Run, rows: Ints) -> Ints:
    """By operation how often its process had begun or stopped recording single calls before it."""
    edges_before = np.zeros(len(rows), np.int64)
    windows = run.model.tables["windows"]
    process, start = run.column("process", rows), run.column("start_ns", rows)
    if not len(windows["process"]):
        return edges_before
    count = len(run.model.processes)
    of_windows = rows_by_place(np.asarray(windows["process"]), count)
    for own, inside in zip(of_windows, rows_by_place(process, count), strict=True):
        edges = np.sort(np.concatenate([windows[name][own] for name in ("start_ns", "end_ns")]))
        edges_before[inside] = np.searchsorted(edges, start[inside], "right")
    return edges_before


def _since_last_on_communicator(run: Run, rows: Ints, gap: Floats) -> Floats:
    if not len(rows):
        return np.empty(0)
    total, unknown = np.cumsum(np.nan_to_num(gap)), np.cumsum(np.isnan(gap))
    keys = [run.column(name, rows) for name in ("communicator", "global_rank", "process")]
    order = np.lexsort((np.arange(len(rows)), *keys))
    same = np.zeros(len(rows), bool)
    same[1:] = np.logical_and.reduce([np.diff(key[order]) == 0 for key in keys])
    same[1:] &= np.diff(unknown[order]) == 0
    since = np.concatenate([[0.0], np.diff(total[order])])
    own = np.empty(len(rows))
    own[order] = np.where(same, since, np.nan)
    return own
