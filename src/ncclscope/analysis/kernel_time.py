"""How long an NCCL kernel was running: unions of intervals, so that operations of one fused launch,
which share their times, do not count twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.sum_columns import SumTable
from ncclscope.arrays import intervals
from ncclscope.arrays.joins import factorize, take_small
from ncclscope.arrays.types import Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, MOST_RANKS, NONE, Columns

KERNEL_TABLES = ("busy_ranks", "busy_functions", "busy_communicators")
_CHUNK_ROWS = 1 << 17  # some columns of these fit into caches
_EXACT = 1 << 53  # doubles are whole numbers up to here
_RANK_WIDTH = 2 * MOST_RANKS  # more than any number of a rank, or of a process without one


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
    """The same, of intervals that come in chunks: those of one key most often in order. And the sum
    of each one's lengths.
    """

    def __init__(self) -> None:
        self._number: dict[int, int] = {}  # by key
        self._unions = intervals.Unions()
        self._sums = np.zeros(0, np.int64)

    def add(self, key: Ints, start: Ints, end: Ints) -> None:
        """Takes a chunk."""
        group, groups = factorize(key)
        keys = np.empty(groups, np.int64)
        keys[group] = key
        numbers = [self._number.setdefault(value, len(self._number)) for value in keys.tolist()]
        numbered = np.array(numbers, np.int32)
        self._unions.add(take_small(numbered, group), len(self._number), start, end)
        self._sums = np.pad(self._sums, (0, len(self._number) - len(self._sums)))
        self._sums[numbered] += _sums(group, groups, end - start)

    def lengths(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Keys in order, lengths of their unions, sums of their lengths, and the keys whose
        intervals were not in order.
        """
        keys = np.fromiter(self._number, np.int64, len(self._number))
        order = np.argsort(keys)
        lengths, disordered = self._unions.length, self._unions.disordered
        return keys[order], lengths[order], self._sums[order], keys[disordered]


def _sums(group: npt.NDArray[np.int32], groups: int, values: Ints) -> Ints:
    """By group the sum of its values, to the last digit."""
    if len(values) and int(values.max()) * len(values) < _EXACT:
        return np.bincount(group, values, groups).astype(np.int64)
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, group, values)
    return sums


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Some operations with GPU times: keys and intervals."""

    rank: Ints  # from MOST_RANKS on: processes whose rank is not known
    communicator: Ints  # from 0 on; 0: not known
    function: Ints  # likewise
    start_ns: Ints
    end_ns: Ints


def _chunks(
    model: Model, selection: Selection, parts: Sequence[tuple[int, int]]
) -> Iterator[_Intervals]:
    """The selected operations with GPU times, as many at once as caches hold. `parts`: rows."""
    ops, sources = model.tables["operations"], model.words["source"]
    timed = np.array([name in GPU_SOURCES for name in sources], np.bool_)
    for rows in _cut(parts):
        names = ("start_ns", "end_ns", "global_rank", "process", "communicator", "function")
        start, end, rank, process, communicator, function = (
            np.asarray(ops[name][rows]) for name in names
        )
        keep = selection.rows(model, rows)
        keep &= np.asarray(ops["part_of"][rows]) == NONE
        keep &= take_small(timed, np.asarray(ops["source"][rows]), 0)
        keep &= (start != NONE) & (end >= start)
        columns = (
            np.where(rank >= 0, rank, MOST_RANKS + process.astype(np.int64)),
            communicator.astype(np.int64) + 1,
            function.astype(np.int64) + 1,
            start,
            end,
        )
        if keep.all():
            yield _Intervals(*columns)
        elif keep.any():
            yield _Intervals(*(column[keep] for column in columns))


def _cut(parts: Sequence[tuple[int, int]]) -> Iterator[slice]:
    """All of these rows, some thousand at a time."""
    for first, last in parts:
        for start in range(first, last, _CHUNK_ROWS):
            yield slice(start, min(start + _CHUNK_ROWS, last))


class _Busy:
    """Time with a kernel running, and durations, by communicator, function and rank, as far as
    asked for.
    """

    def __init__(self, functions: int, by_communicator: bool, by_function: bool) -> None:
        self._functions, self._by = functions, (by_communicator, by_function)
        self._unions = _Unions()

    def _key(self, chunk: _Intervals) -> Ints:
        group = chunk.communicator * self._by[0] * self._functions + chunk.function * self._by[1]
        return group * _RANK_WIDTH + chunk.rank

    def add(self, chunk: _Intervals) -> None:
        """Takes a chunk."""
        self._unions.add(self._key(chunk), chunk.start_ns, chunk.end_ns)

    def table(self, chunks: Iterator[_Intervals]) -> SumTable:
        """The sums of all chunks, which may be read again."""
        keys, lengths, sums = _lengths_of(self._unions, ((self._key(c), c) for c in chunks))
        group, rank = np.divmod(keys, _RANK_WIDTH)
        communicator, function = np.divmod(group, self._functions)
        columns = {
            "communicator": communicator,
            "function": function,
            "rank": rank,
            "running_ns": lengths,
            "duration_ns": sums,
        }
        return SumTable(("communicator", "function", "rank"), columns)


def kernel_sums(
    model: Model, selection: Selection, by: Sequence[str], parts: Sequence[tuple[int, int]]
) -> dict[str, SumTable]:
    """What `kernel_time` needs of some rows, which have all operations of their ranks: by rank, by
    those of communicator and function that are in `by`, and by communicator.
    """
    functions = len(model.words["function"]) + 1
    asked = ((False, False), ("communicator" in by, "function" in by), (True, False))
    busy = {
        name: _Busy(functions, *which) for name, which in zip(KERNEL_TABLES, asked, strict=True)
    }
    for chunk in _chunks(model, selection, parts):
        for one in busy.values():
            one.add(chunk)
    return {name: one.table(_chunks(model, selection, parts)) for name, one in busy.items()}


def kernel_time(tables: Mapping[str, SumTable], names: list[str], by: Sequence[str]) -> KernelTime:
    """Time with a kernel running, by rank, by communicator, and by those of communicator and
    function that are in `by`. `tables`: of all rows; `names`: of functions.
    """
    of_rank, of_function, of_communicator = (tables[name].columns for name in KERNEL_TABLES)
    ranks, lengths = of_rank["rank"].tolist(), of_rank["running_ns"].tolist()
    ranks_of: dict[int, list[int]] = {}
    columns = (of_communicator[name].tolist() for name in ("communicator", "rank"))
    for communicator, rank in sorted(zip(*columns, strict=True)):
        if communicator:  # else it is not known
            ranks_of.setdefault(communicator - 1, []).append(_rank_of(rank))
    return KernelTime(
        {_rank_of(rank): length for rank, length in zip(ranks, lengths, strict=True)},
        Overlaps(_shares(of_function, names), "communicator" in by, "function" in by),
        Overlaps(_shares(of_communicator, names), by_communicator=True, by_function=False),
        ranks_of,
    )


def _rank_of(number: int) -> int:
    return number if number < MOST_RANKS else MOST_RANKS - number - 1


def _shares(table: Columns, names: list[str]) -> dict[tuple[int, str], float]:
    """By communicator and function the share of durations that is left without overlaps."""
    sums: dict[tuple[int, str], list[int]] = {}
    columns = (table[n].tolist() for n in ("communicator", "function", "running_ns", "duration_ns"))
    for communicator, function, running, duration in zip(*columns, strict=True):
        key = (communicator - 1, names[function - 1] if function else "")
        own = sums.setdefault(key, [0, 0])
        own[0] += running
        own[1] += duration
    return {key: own[0] / own[1] if own[1] else 1.0 for key, own in sums.items()}


def _lengths_of(
    unions: _Unions, chunks: Iterator[tuple[Ints, _Intervals]]
) -> tuple[Ints, Ints, Ints]:
    """Keys in order, lengths of their unions, and sums of their lengths. Intervals that were not in
    order are read again, with their keys, and sorted by their starts.
    """
    keys, lengths, sums, disordered = unions.lengths()
    if len(disordered):
        parts = []
        for key, chunk in chunks:
            own = np.isin(key, disordered)
            parts.append((key[own], chunk.start_ns[own], chunk.end_ns[own]))
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        sorted_keys, sorted_lengths = union_lengths(*columns)
        lengths[np.searchsorted(keys, sorted_keys)] = sorted_lengths
    return keys, lengths, sums


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
