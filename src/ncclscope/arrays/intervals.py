"""Unions of intervals, by the compiled loops of native/arrays."""

import ctypes

import numpy as np
import numpy.typing as npt

from ncclscope.arrays import _abi
from ncclscope.arrays.library import length_arg, library, pointer
from ncclscope.arrays.types import Bools, Ints

Groups = npt.NDArray[np.int32]
_NEVER = np.iinfo(np.int64).min
_NOTHING = np.array([_NEVER, _NEVER, 0, 0])  # an interval_union without intervals
_FIELDS = [name for name, *_ in _abi.IntervalUnion._fields_]
_LENGTH, _DISORDERED = _FIELDS.index("length"), _FIELDS.index("disordered")


class Unions:
    """By group, numbered from 0, how long at least one of its intervals lasts. Intervals are added
    in pieces, those of a group in the order of their starts.

    Example: the intervals (0, 4), (2, 6) and (8, 9) of one group have the union length 7.
    """

    def __init__(self) -> None:
        self._open: Ints = np.empty((0, len(_NOTHING)), np.int64)

    def add(self, group: Groups, groups: int, start: Ints, end: Ints) -> None:
        """Adds intervals; `groups` is the number of groups so far."""
        group = np.ascontiguousarray(group, np.int32)
        start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
        if not len(group) == len(start) == len(end):
            raise ValueError("columns of different lengths")
        if groups > len(self._open):
            fresh = np.tile(_NOTHING, (groups - len(self._open), 1))
            self._open = np.concatenate([self._open, fresh])
        library().ncclscope_union_lengths(
            pointer(group),
            pointer(start),
            pointer(end),
            length_arg(group),
            pointer(self._open),
            ctypes.c_int64(len(self._open)),
        )

    @property
    def length(self) -> Ints:
        """Union length by group, for groups whose starts came in order."""
        length: Ints = self._open[:, _LENGTH].copy()
        return length

    @property
    def disordered(self) -> Bools:
        """Groups whose starts did not come in order."""
        return np.asarray(self._open[:, _DISORDERED] != 0)


def union_lengths(group: Groups, groups: int, start: Ints, end: Ints) -> Ints:
    """Union length by group, of intervals in any order."""
    unions = Unions()
    unions.add(group, groups, start, end)
    length, disordered = unions.length, unions.disordered
    if disordered.any():
        rows = np.flatnonzero(disordered[group])
        rows = rows[np.argsort(start[rows], kind="stable")]
        ordered = Unions()
        ordered.add(group[rows], groups, start[rows], end[rows])
        length[disordered] = ordered.length[disordered]
    return length
