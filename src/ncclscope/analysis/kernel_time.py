"""How long an NCCL kernel was running: unions of intervals, so that operations of one fused launch,
which share their times, do not count twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.selection import Selection
from ncclscope.arrays import intervals
from ncclscope.arrays.joins import factorize, take_small
from ncclscope.arrays.types import Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE

_CHUNK_ROWS = 1 << 17  # some columns of these fit into caches


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Time with a kernel running, summed over ranks."""

    by_rank_ns: dict[int, int]  # by global rank, or below zero where that is not known
    # By communicator and function: time with a kernel running, and the sum of durations.
    by_function_ns: dict[tuple[int, str], tuple[int, int]]
    ranks_of: dict[int, list[int]]  # by communicator: ranks with GPU times, as in `by_rank_ns`


def union_lengths(key: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Keys that occur, in order, and the length of the union of each one's intervals."""
    group, groups = factorize(key)
    lengths = intervals.union_lengths(group, groups, start, end)
    keys = np.empty(groups, np.int64)
    keys[group] = key
    order = np.argsort(keys)
    return keys[order], lengths[order]


class _Unions:
    """The same, of intervals that come in chunks: those of one key most often in order."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}  # by key
        self._unions = intervals.Unions()

    def add(self, key: Ints, start: Ints, end: Ints) -> None:
        """Takes a chunk."""
        group, groups = factorize(key)
        keys = np.empty(groups, np.int64)
        keys[group] = key
        numbers = [self._number.setdefault(value, len(self._number)) for value in keys.tolist()]
        group = take_small(np.array(numbers, np.int32), group)
        self._unions.add(group, len(self._number), start, end)

    def lengths(self) -> tuple[Ints, Ints, Ints]:
        """Keys in order, lengths, and the keys whose intervals were not in order."""
        keys = np.fromiter(self._number, np.int64, len(self._number))
        order = np.argsort(keys)
        lengths, disordered = self._unions.length, self._unions.disordered
        return keys[order], lengths[order], keys[disordered]


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Some operations with GPU times: keys and intervals."""

    rank: Ints
    function: Ints  # and communicator
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True, slots=True)
class _Numbering:
    """How ranks, communicators and functions become keys."""

    ranks: int  # numbers from here on are processes whose rank is not known
    width: int  # more than any number of a rank
    functions: int  # more than any function

    def rank(self, rank: npt.NDArray[np.int32], process: npt.NDArray[np.int32]) -> Ints:
        """A number for each rank: the global rank, or one behind all of them for its process."""
        return np.where(rank >= 0, rank, self.ranks + process.astype(np.int64))


def _numbering(model: Model) -> _Numbering:
    ops = model.tables["operations"]
    ranks = int(ops["global_rank"].max(initial=NONE)) + 1
    return _Numbering(ranks, ranks + len(model.processes) + 1, len(model.words["function"]) + 1)


def _chunks(model: Model, selection: Selection, numbering: _Numbering) -> Iterator[_Intervals]:
    """The selected operations with GPU times, as many at once as caches hold."""
    ops, sources = model.tables["operations"], model.words["source"]
    timed = np.array([name in GPU_SOURCES for name in sources], np.bool_)
    for first in range(0, len(ops["event"]), _CHUNK_ROWS):
        rows = slice(first, first + _CHUNK_ROWS)
        names = ("start_ns", "end_ns", "global_rank", "process", "communicator", "function")
        start, end, rank, process, communicator, function = (
            np.asarray(ops[name][rows]) for name in names
        )
        keep = selection.rows(model, rows)
        keep &= np.asarray(ops["part_of"][rows]) == NONE
        keep &= take_small(timed, np.asarray(ops["source"][rows]), 0)
        keep &= (start != NONE) & (end >= start)
        ranks = numbering.rank(rank, process)
        functions = (communicator.astype(np.int64) + 1) * numbering.functions + function + 1
        if keep.all():
            yield _Intervals(ranks, functions, start, end)
        elif keep.any():
            yield _Intervals(ranks[keep], functions[keep], start[keep], end[keep])


def _rank_of(number: int, ranks: int) -> int:
    return number if number < ranks else ranks - number - 1


def kernel_times(model: Model, selection: Selection) -> KernelTime:
    """Time with a kernel running, by rank, and by communicator and function."""
    names, numbering = model.words["function"], _numbering(model)
    ranks, width, functions = numbering.ranks, numbering.width, numbering.functions
    of_rank, of_function, durations = _Unions(), _Unions(), np.zeros(0)
    for chunk in _chunks(model, selection, numbering):
        of_rank.add(chunk.rank, chunk.start_ns, chunk.end_ns)
        of_function.add(chunk.function * width + chunk.rank, chunk.start_ns, chunk.end_ns)
        more = np.bincount(chunk.function, (chunk.end_ns - chunk.start_ns).astype(np.float64))
        durations = np.pad(durations, (0, max(len(more) - len(durations), 0)))
        durations[: len(more)] += more
    ids, lengths = _lengths_of(of_rank, _chunks(model, selection, numbering), 0)
    by_rank = {_rank_of(i, ranks): n for i, n in zip(ids.tolist(), lengths.tolist(), strict=True)}
    ids, lengths = _lengths_of(of_function, _chunks(model, selection, numbering), width)
    unions = np.bincount(ids // width, weights=lengths.astype(np.float64))
    by_function = {
        (int(g) // functions - 1, names[int(g) % functions - 1] if g % functions else ""): (
            round(float(unions[g])),
            round(float(durations[g])),
        )
        for g in np.unique(ids // width)
    }
    pairs = np.unique((ids // width // functions - 1) * width + ids % width)
    ranks_of: dict[int, list[int]] = {}
    for pair in pairs[pairs >= 0].tolist():  # below: no communicator is known
        ranks_of.setdefault(pair // width, []).append(_rank_of(pair % width, ranks))
    return KernelTime(by_rank, by_function, ranks_of)


def _lengths_of(unions: _Unions, chunks: Iterator[_Intervals], width: int) -> tuple[Ints, Ints]:
    """Keys in order and their lengths. Intervals that were not in order are read again and sorted
    by their starts. `width`: of a rank in the key, 0 where the key is the rank.
    """
    keys, lengths, disordered = unions.lengths()
    if len(disordered):
        parts = []
        for chunk in chunks:
            key = chunk.function * width + chunk.rank
            own = np.isin(key, disordered)
            parts.append((key[own], chunk.start_ns[own], chunk.end_ns[own]))
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        sorted_keys, sorted_lengths = union_lengths(*columns)
        lengths[np.searchsorted(keys, sorted_keys)] = sorted_lengths
    return keys, lengths
