"""How long an NCCL kernel was running: unions of intervals, so that operations of one fused launch,
which share their times, do not count twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.arrays import intervals
from ncclscope.arrays.joins import factorize, take_small
from ncclscope.arrays.types import Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE

_CHUNK_ROWS = 1 << 17  # some columns of these fit into caches


@dataclass(frozen=True, slots=True)
class Overlaps:
    """By communicator and function the share of durations that is left when operations that ran at
    the same time count once. Send and Recv of a group are one kernel: by communicator they count
    once, by function each. What is not asked for is -1 or "".
    """

    shares: dict[tuple[int, str], float]
    by_communicator: bool = True
    by_function: bool = True

    def share(self, communicator: int, function: str) -> float:
        """The share that is left of a communicator's operations of one function."""
        key = (
            communicator if self.by_communicator else -1,
            function if self.by_function else "",
        )
        return self.shares.get(key, 1.0)


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Time with a kernel running, summed over ranks."""

    by_rank_ns: dict[int, int]  # by global rank, or below zero where that is not known
    by_function: Overlaps  # by communicator and function, as far as these are asked for
    by_communicator: Overlaps
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
    communicator: Ints  # from 0 on; 0: not known
    function: Ints  # likewise
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
        columns = (
            ranks,
            communicator.astype(np.int64) + 1,
            function.astype(np.int64) + 1,
            start,
            end,
        )
        if keep.all():
            yield _Intervals(*columns)
        elif keep.any():
            yield _Intervals(*(column[keep] for column in columns))


def _rank_of(number: int, ranks: int) -> int:
    return number if number < ranks else ranks - number - 1


class _GroupTimes:
    """Time with a kernel running, by communicator, function and rank, as far as asked for."""

    def __init__(self, numbering: _Numbering, by_communicator: bool, by_function: bool) -> None:
        self.numbering, self.by = numbering, (by_communicator, by_function)
        self._unions, self._durations = _Unions(), np.zeros(0)

    def _group(self, chunk: _Intervals) -> Ints:
        communicator = chunk.communicator * self.by[0]
        return communicator * self.numbering.functions + chunk.function * self.by[1]

    def add(self, chunk: _Intervals) -> None:
        """Takes a chunk."""
        group = self._group(chunk)
        key = group * self.numbering.width + chunk.rank
        self._unions.add(key, chunk.start_ns, chunk.end_ns)
        more = np.bincount(group, (chunk.end_ns - chunk.start_ns).astype(np.float64))
        durations = np.pad(self._durations, (0, max(len(more) - len(self._durations), 0)))
        durations[: len(more)] += more
        self._durations = durations

    def lengths(self, chunks: Iterator[_Intervals]) -> tuple[Ints, Ints]:
        """Groups with their ranks as keys, and how long kernels of each ran."""
        keys = ((self._group(c) * self.numbering.width + c.rank, c) for c in chunks)
        return _lengths_of(self._unions, keys)

    def overlaps(self, keys: Ints, lengths: Ints, names: list[str]) -> Overlaps:
        """The share of durations that is left without overlaps."""
        functions = self.numbering.functions
        groups = keys // self.numbering.width
        running = np.bincount(groups, weights=lengths.astype(np.float64))
        shares = {}
        for group in np.unique(groups).tolist():
            name = names[group % functions - 1] if group % functions else ""
            total = self._durations[group]
            share = float(running[group] / total) if total else 1.0
            shares[group // functions - 1, name] = share
        return Overlaps(shares, *self.by)


def kernel_times(model: Model, selection: Selection, by: Sequence[str]) -> KernelTime:
    """Time with a kernel running, by rank, by communicator, and by those of communicator and
    function that are in `by`.
    """
    names, numbering = model.words["function"], _numbering(model)
    of_rank = _Unions()
    of_function = _GroupTimes(numbering, "communicator" in by, "function" in by)
    of_communicator = _GroupTimes(numbering, by_communicator=True, by_function=False)
    for chunk in _chunks(model, selection, numbering):
        of_rank.add(chunk.rank, chunk.start_ns, chunk.end_ns)
        of_function.add(chunk)
        of_communicator.add(chunk)

    def again() -> Iterator[_Intervals]:
        return _chunks(model, selection, numbering)

    ranks, width = numbering.ranks, numbering.width
    ids, lengths = _lengths_of(of_rank, ((chunk.rank, chunk) for chunk in again()))
    by_rank = {_rank_of(i, ranks): n for i, n in zip(ids.tolist(), lengths.tolist(), strict=True)}
    keys, lengths = of_communicator.lengths(again())
    pairs = np.unique((keys // width // numbering.functions - 1) * width + keys % width)
    ranks_of: dict[int, list[int]] = {}
    for pair in pairs[pairs >= 0].tolist():  # below: no communicator is known
        ranks_of.setdefault(pair // width, []).append(_rank_of(pair % width, ranks))
    return KernelTime(
        by_rank,
        of_function.overlaps(*of_function.lengths(again()), names),
        of_communicator.overlaps(keys, lengths, names),
        ranks_of,
    )


def _lengths_of(unions: _Unions, chunks: Iterator[tuple[Ints, _Intervals]]) -> tuple[Ints, Ints]:
    """Keys in order and their lengths. Intervals that were not in order are read again, with their
    keys, and sorted by their starts.
    """
    keys, lengths, disordered = unions.lengths()
    if len(disordered):
        parts = []
        for key, chunk in chunks:
            own = np.isin(key, disordered)
            parts.append((key[own], chunk.start_ns[own], chunk.end_ns[own]))
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        sorted_keys, sorted_lengths = union_lengths(*columns)
        lengths[np.searchsorted(keys, sorted_keys)] = sorted_lengths
    return keys, lengths


def share_in_nccl(run: Run) -> float | None:
    """The share of the run that the average rank spent in operations; None without times."""
    operations = run.operations
    rows = np.flatnonzero(run.timed & (operations["global_rank"] != NONE))
    ranks, group = np.unique(operations["global_rank"][rows], return_inverse=True)
    if not len(ranks):
        return None
    start, end = run.column("start_ns", rows), run.column("end_ns", rows)
    lengths = intervals.union_lengths(group.astype(np.int32), len(ranks), start, end)
    return int(lengths.sum()) / len(ranks) / run.span_ns
