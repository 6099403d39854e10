"""What ranks did over time: by rank and slice of time, how much of it their NCCL kernels waited for
other ranks or moved data.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ncclscope.analysis.sampling import is_sampled
from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE


@dataclass(frozen=True, slots=True)
class RankSlices:
    """Shares of time, by rank (row) and slice of time (column). What is left, no kernel ran."""

    ranks: tuple[int, ...]  # global, in order
    began_ns: int
    ended_ns: int
    waiting: Floats
    moving: Floats
    either: Floats  # kernels of which it is not known when the last rank arrived


def rank_slices(model: Model, selection: Selection, slices: int) -> RankSlices | None:
    """Shares of the selected operations' time; None where none has a start and an end, or where
    only a sample has: nothing is known of the time between.
    """
    if is_sampled(model):
        return None
    operations = model.tables["operations"]
    keep = selection.rows(model, slice(None)) & (np.asarray(operations["part_of"]) == NONE)
    for name in ("start_ns", "end_ns", "global_rank"):
        keep &= np.asarray(operations[name]) != NONE
    rows = np.flatnonzero(keep)
    if not len(rows):
        return None
    rows = rows[np.argsort(np.asarray(operations["global_rank"])[rows], kind="stable")]
    rank, start, wait, end = (
        np.asarray(operations[name])[rows].astype(np.int64)
        for name in ("global_rank", "start_ns", "wait_ns", "end_ns")
    )
    began, ended = int(start.min()), max(int(end.max()), int(start.min()) + 1)
    ranks = np.unique(rank)
    known = wait != NONE
    arrival = np.where(known, np.minimum(start + wait, end), start)
    places = np.searchsorted(rank, [*ranks, ranks[-1] + 1])
    edges = np.linspace(began, ended, slices + 1)
    waiting, moving, either = (
        _shares(starts, ends, places, edges)
        for starts, ends in (
            (start, arrival),
            (np.where(known, arrival, end), end),
            (np.where(known, end, start), end),
        )
    )
    # Kernels that overlap: together they cannot take more than all of the time.
    whole = np.maximum(waiting + moving + either, 1.0)
    shares = (waiting / whole, moving / whole, either / whole)
    return RankSlices(tuple(ranks.tolist()), began, ended, *shares)


def _shares(starts: Ints, ends: Ints, places: Ints, edges: Floats) -> Floats:
    """By rank and slice the share that spans cover; `places`: where each rank's spans begin."""
    rows = []
    for first, last in pairwise(places.tolist()):
        covered = time_covered(starts[first:last], edges) - time_covered(ends[first:last], edges)
        rows.append(np.diff(covered) / np.diff(edges))
    return np.clip(np.array(rows), 0, None)


def time_covered(moments: Ints, edges: Floats) -> Floats:
    """By edge the time that has passed since those of the moments that are before it, summed up.

    Of starts less that of ends it is the time that spans cover before the edge.
    """
    ordered = np.sort(moments).astype(np.float64) - edges[0]
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    before = np.searchsorted(ordered, edges - edges[0])
    return np.asarray(before * (edges - edges[0]) - sums[before])
