"""Unions of intervals, in the compiled loops of native/columns."""

import ctypes

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.library import length_arg, library, pointer

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.int32]
_NEVER = np.iinfo(np.int64).min
_NOTHING = np.array([_NEVER, _NEVER, 0, 0])  # last start, end of the union, its length, disordered


class Unions:
    """By group, numbered from 0, how long at least one of its intervals lasts. Intervals come piece
    by piece, those of a group in the order of their starts.
    """

    def __init__(self) -> None:
        self._open: Ints = np.empty((0, len(_NOTHING)), np.int64)

    def add(self, group: Groups, groups: int, start: Ints, end: Ints) -> None:
        """A piece; `groups`: how many there are by now."""
        group = np.ascontiguousarray(group, np.int32)
        start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
        if not len(group) == len(start) == len(end):
            raise ValueError("columns of different lengths")
        if groups > len(self._open):
            fresh = np.tile(_NOTHING, (groups - len(self._open), 1))
            self._open = np.concatenate([self._open, fresh])
        library().ncclscope_unions(
            pointer(group),
            pointer(start),
            pointer(end),
            length_arg(group),
            pointer(self._open),
            ctypes.c_int64(len(self._open)),
        )

    @property
    def length(self) -> Ints:
        """By group, where its starts came in order."""
        length: Ints = self._open[:, 2].copy()
        return length

    @property
    def disordered(self) -> Bools:
        """Groups whose starts did not."""
        return np.asarray(self._open[:, 3] != 0)


def union_lengths(group: Groups, groups: int, start: Ints, end: Ints) -> Ints:
    """The same of intervals in any order."""
    found = Unions()
    found.add(group, groups, start, end)
    length, disordered = found.length, found.disordered
    if disordered.any():
        mine = np.flatnonzero(disordered[group])
        mine = mine[np.argsort(start[mine], kind="stable")]
        again = Unions()
        again.add(group[mine], groups, start[mine], end[mine])
        length[disordered] = again.length[disordered]
    return length
