"""How long an NCCL kernel was running: unions of intervals, so that operations of one fused launch,
which share their times, do not count twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.selection import Selection, mask
from ncclscope.arrays import intervals
from ncclscope.arrays.joins import factorize, take_small
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE

Ints = npt.NDArray[np.int64]
_PIECE = 1 << 17


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
    """The same, of intervals that come piece by piece: those of one key most often in order."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}  # by key
        self._unions = intervals.Unions()

    def add(self, key: Ints, start: Ints, end: Ints) -> None:
        """A piece."""
        group, groups = factorize(key)
        keys = np.empty(groups, np.int64)
        keys[group] = key
        numbers = [self._number.setdefault(one, len(self._number)) for one in keys.tolist()]
        group = take_small(np.array(numbers, np.int32), group)
        self._unions.add(group, len(self._number), start, end)

    def lengths(self) -> tuple[Ints, Ints, Ints]:
        """Keys in order, lengths, and the keys whose intervals were not in order."""
        keys = np.fromiter(self._number, np.int64, len(self._number))
        order = np.argsort(keys)
        lengths, disordered = self._unions.length, self._unions.disordered
        return keys[order], lengths[order], keys[disordered]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some operations with GPU times: keys and intervals."""

    rank: Ints
    function: Ints  # and communicator
    start: Ints
    end: Ints


@dataclass(frozen=True, slots=True)
class _Numbering:
    """How ranks, communicators and functions become keys."""

    known: int  # ranks from here on are processes of which nobody knows the rank
    width: int  # more than any rank
    kinds: int  # more than any function

    def rank(self, rank: npt.NDArray[np.int32], process: npt.NDArray[np.int32]) -> Ints:
        """A number for each rank: the global rank, or one behind all of them for its process."""
        return np.where(rank >= 0, rank, self.known + process.astype(np.int64))


def _numbering(model: Model) -> _Numbering:
    ops = model.tables["operations"]
    known = int(ops["global_rank"].max(initial=NONE)) + 1
    return _Numbering(known, known + len(model.processes) + 1, len(model.words["function"]) + 1)


def _pieces(model: Model, chosen: Selection, numbering: _Numbering) -> Iterator[_Piece]:
    """The chosen operations with GPU times, so many at once as caches hold."""
    ops, sources = model.tables["operations"], model.words["source"]
    timed = np.array([name in GPU_SOURCES for name in sources], np.bool_)
    for first in range(0, len(ops["event"]), _PIECE):
        rows = slice(first, first + _PIECE)
        names = ("start_ns", "end_ns", "global_rank", "process", "communicator", "function")
        start, end, rank, process, communicator, function = (
            np.asarray(ops[name][rows]) for name in names
        )
        keep = mask(model, chosen, rows)
        keep &= take_small(timed, np.asarray(ops["source"][rows]), 0)
        keep &= (start != NONE) & (end >= start)
        ranks = numbering.rank(rank, process)
        functions = (communicator.astype(np.int64) + 1) * numbering.kinds + function + 1
        if keep.all():
            yield _Piece(ranks, functions, start, end)
        elif keep.any():
            yield _Piece(ranks[keep], functions[keep], start[keep], end[keep])


def _shown(number: int, known: int) -> int:
    return number if number < known else known - number - 1


def kernel_times(model: Model, chosen: Selection) -> KernelTime:
    """Time with a kernel running, by rank, and by communicator and function."""
    names, numbering = model.words["function"], _numbering(model)
    known, width, kinds = numbering.known, numbering.width, numbering.kinds
    of_rank, of_function, durations = _Unions(), _Unions(), np.zeros(0)
    for piece in _pieces(model, chosen, numbering):
        of_rank.add(piece.rank, piece.start, piece.end)
        of_function.add(piece.function * width + piece.rank, piece.start, piece.end)
        more = np.bincount(piece.function, (piece.end - piece.start).astype(np.float64))
        durations = np.pad(durations, (0, max(len(more) - len(durations), 0)))
        durations[: len(more)] += more
    ids, lengths = _settled(of_rank, _pieces(model, chosen, numbering), 0)
    by_rank = {_shown(i, known): n for i, n in zip(ids.tolist(), lengths.tolist(), strict=True)}
    ids, lengths = _settled(of_function, _pieces(model, chosen, numbering), width)
    unions = np.bincount(ids // width, weights=lengths.astype(np.float64))
    by_function = {
        (int(g) // kinds - 1, names[int(g) % kinds - 1] if g % kinds else ""): (
            round(float(unions[g])),
            round(float(durations[g])),
        )
        for g in np.unique(ids // width)
    }
    pairs = np.unique((ids // width // kinds - 1) * width + ids % width)
    ranks_of: dict[int, list[int]] = {}
    for pair in pairs[pairs >= 0].tolist():  # below: no communicator is known
        ranks_of.setdefault(pair // width, []).append(_shown(pair % width, known))
    return KernelTime(by_rank, by_function, ranks_of)


def _settled(unions: _Unions, pieces: Iterator[_Piece], width: int) -> tuple[Ints, Ints]:
    """Keys in order and their lengths. Intervals that were not in order are looked at again, sorted
    by their starts. `width`: of a rank in the key, 0 where the key is the rank.
    """
    keys, lengths, disordered = unions.lengths()
    if len(disordered):
        found = []
        for piece in pieces:
            key = piece.function * width + piece.rank
            mine = np.isin(key, disordered)
            found.append((key[mine], piece.start[mine], piece.end[mine]))
        again, right = union_lengths(*(np.concatenate(one) for one in zip(*found, strict=True)))
        lengths[np.searchsorted(keys, again)] = right
    return keys, lengths
