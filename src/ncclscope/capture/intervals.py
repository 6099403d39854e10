"""Unions of intervals, in the compiled loops of native/columns."""

import ctypes

import numpy as np
import numpy.typing as npt

from ncclscope.capture.compiled import count, library, pointer

Ints = npt.NDArray[np.int64]
Groups = npt.NDArray[np.int32]


def union_lengths(group: Groups, groups: int, start: Ints, end: Ints) -> Ints:
    """By group, numbered from 0, how long at least one of its intervals lasts."""
    length, disordered = _in_order(group, groups, start, end)
    if disordered.any():
        mine = np.flatnonzero(disordered[group])
        mine = mine[np.argsort(start[mine], kind="stable")]
        again, _ = _in_order(group[mine], groups, start[mine], end[mine])
        length[disordered] = again[disordered]
    return length


def _in_order(
    group: Groups, groups: int, start: Ints, end: Ints
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The lengths of groups whose starts are in order, and which groups are not."""
    group = np.ascontiguousarray(group, np.int32)
    start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
    if not len(group) == len(start) == len(end):
        raise ValueError("columns of different lengths")
    length, disordered = np.empty(groups, np.int64), np.empty(groups, np.bool_)
    if library().ncclscope_unions(
        pointer(group),
        pointer(start),
        pointer(end),
        count(group),
        ctypes.c_int64(groups),
        pointer(length),
        pointer(disordered),
    ):
        raise MemoryError
    return length, disordered
