"""How long an NCCL kernel was running: unions of intervals, so that operations of one fused launch,
which share their times, do not count twice.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.selection import Selection, mask
from ncclscope.capture import intervals
from ncclscope.capture.joins import grouped, look_up
from ncclscope.model.model import Model
from ncclscope.model.tables import GPU_SOURCES, NONE

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Busy:
    """Time with a kernel running, summed over ranks."""

    by_rank_ns: dict[int, int]  # by global rank, or below zero where that is not known
    # By communicator and function: time with a kernel running, and the sum of durations.
    by_function_ns: dict[tuple[int, str], tuple[int, int]]
    ranks_of: dict[int, int]  # by communicator: ranks with GPU times


def union_lengths(key: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Keys that occur, in order, and the length of the union of each one's intervals."""
    group, groups = grouped(key)
    lengths = intervals.union_lengths(group, groups, start, end)
    keys = np.empty(groups, np.int64)
    keys[group] = key
    order = np.argsort(keys)
    return keys[order], lengths[order]


def _gpu_timed(model: Model, chosen: Selection) -> Ints | slice:
    """Rows of operations with GPU times."""
    ops, sources = model.tables["operations"], model.words["source"]
    timed = np.array([name in GPU_SOURCES for name in sources], np.bool_)
    keep = mask(model, chosen)
    keep &= look_up(timed, ops["source"], 0)
    keep &= (ops["start_ns"] != NONE) & (ops["end_ns"] >= ops["start_ns"])
    return slice(None) if keep.all() else np.flatnonzero(keep)


def _rank_ids(rank: npt.NDArray[np.int32], process: npt.NDArray[np.int32]) -> tuple[Ints, int]:
    """A number for each rank: the global rank, or one behind all of them for its process."""
    known = int(rank.max(initial=NONE)) + 1
    return np.where(rank >= 0, rank, known + process.astype(np.int64)), known


def busy_times(model: Model, chosen: Selection) -> Busy:
    """Time with a kernel running, by rank, and by communicator and function."""
    ops, names = model.tables["operations"], model.words["function"]
    rows = _gpu_timed(model, chosen)
    start, end = np.asarray(ops["start_ns"][rows]), np.asarray(ops["end_ns"][rows])
    if not len(start):
        return Busy({}, {}, {})
    rank, known = _rank_ids(ops["global_rank"][rows], ops["process"][rows])
    ids, lengths = union_lengths(rank, start, end)
    by_rank = {
        int(i) if i < known else known - int(i) - 1: int(n)
        for i, n in zip(ids, lengths, strict=True)
    }
    kinds, width = len(names) + 1, int(rank.max()) + 1
    group = (ops["communicator"][rows].astype(np.int64) + 1) * kinds + ops["function"][rows] + 1
    durations = np.bincount(group, weights=(end - start).astype(np.float64))
    ids, lengths = union_lengths(group * width + rank, start, end)
    unions = np.bincount(ids // width, weights=lengths.astype(np.float64))
    by_function = {
        (int(g) // kinds - 1, names[int(g) % kinds - 1] if g % kinds else ""): (
            round(float(unions[g])),
            round(float(durations[g])),
        )
        for g in np.unique(ids // width)
    }
    pairs = np.unique((ids // width // kinds - 1) * width + ids % width)
    ranks = np.bincount(pairs[pairs >= 0] // width)  # below: no communicator is known
    return Busy(by_rank, by_function, {int(c): int(n) for c, n in enumerate(ranks) if n})
