"""How long an NCCL kernel was running: unions of intervals, so that operations of one fused launch,
which share their times, do not count twice.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.selection import Selection, mask
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
    """Keys that occur, in order, and the length of the union of each one's intervals.

    Starts and ends are sorted apart from each other: nothing runs between the i-th end and the
    next start if that start is later, whichever intervals they belong to.
    """
    if not len(key):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    origin = int(start.min())
    bits = max((int(end.max()) - origin).bit_length(), 1)
    coarser = max(bits + int(key.max()).bit_length() - 63, 0)  # give up resolution, not truth
    bits -= coarser
    with ThreadPoolExecutor(2) as pool:  # numpy sorts without the interpreter's lock
        starts, ends = pool.map(
            lambda times: np.sort((key << bits) | ((times - origin) >> coarser)), (start, end)
        )
    keys = starts >> bits
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    last = np.concatenate([first[1:], [len(keys)]]) - 1
    gaps = np.zeros(len(keys), np.int64)
    gaps[1:] = np.maximum(starts[1:] - ends[:-1], 0)
    gaps[first] = 0
    lengths = ends[last] - starts[first] - np.add.reduceat(gaps, first)
    return keys[first], lengths << coarser


def _gpu_timed(model: Model, chosen: Selection) -> Ints:
    """Rows of operations with GPU times."""
    ops, sources = model.tables["operations"], model.words["source"]
    timed = np.zeros(max(len(sources), 1) + 1, np.bool_)  # the last place: no source
    timed[:-1][[code for code, name in enumerate(sources) if name in GPU_SOURCES]] = True
    keep = mask(model, chosen)
    keep &= timed[ops["source"]] & (ops["start_ns"] != NONE) & (ops["end_ns"] >= ops["start_ns"])
    return np.flatnonzero(keep)


def _rank_ids(rank: npt.NDArray[np.int32], process: npt.NDArray[np.int32]) -> tuple[Ints, int]:
    """A number for each rank: the global rank, or one behind all of them for its process."""
    known = int(rank.max(initial=NONE)) + 1
    return np.where(rank >= 0, rank, known + process.astype(np.int64)), known


def busy_times(model: Model, chosen: Selection) -> Busy:
    """Time with a kernel running, by rank, and by communicator and function."""
    ops, names = model.tables["operations"], model.words["function"]
    rows = _gpu_timed(model, chosen)
    if not len(rows):
        return Busy({}, {}, {})
    start, end = ops["start_ns"][rows], ops["end_ns"][rows]
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
