"""Places of keys among others, and columns by places, by the compiled loops of native/arrays."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays import _abi
from ncclscope.arrays.library import address, empty_array, length_arg, library, pointer
from ncclscope.arrays.types import Ints

NONE = -1


def positions_of(among: Ints, keys: Ints) -> Ints:
    """Place of each key in a sorted array, NONE where it is not there."""
    among, keys = np.ascontiguousarray(among, np.int64), np.ascontiguousarray(keys, np.int64)
    out = empty_array(len(keys), np.int64)
    library().ncclscope_positions_of(
        pointer(among), length_arg(among), pointer(keys), length_arg(keys), pointer(out)
    )
    return out


@dataclass(frozen=True, slots=True)
class ChildEvents:
    """Events by their keys, with the keys of their parents."""

    keys: Ints
    parents: Ints  # keys; NONE: not known
    comms: npt.NDArray[np.int32]

    def for_c(self) -> _abi.Children:
        """For the compiled loop; it must not outlive these."""
        return _abi.Children(
            len(self.keys), address(self.keys), address(self.parents), address(self.comms)
        )


def sibling_before(among: ChildEvents, others: ChildEvents) -> Ints:
    """For each of `others` the place of the last event of `among` before it, where both are of one
    stream, parent and communicator; NONE elsewhere. `among` is in the order of keys.
    """
    out = empty_array(len(others.keys), np.int64)
    library().ncclscope_sibling_before(
        ctypes.byref(among.for_c()), ctypes.byref(others.for_c()), pointer(out)
    )
    return out


def coalesce(
    *parts: tuple[npt.NDArray[Any], Ints], otherwise: int = NONE, dtype: Any = None
) -> npt.NDArray[Any]:
    """`values[places]` of the first (values, places) whose place is not NONE, row by row. Where the
    result equals the first values, a read-only view of them.

    Example: coalesce(([10, 20], [1, NONE, NONE]), ([7], [0, 0, NONE])) is [20, 7, NONE].
    """
    dtype = np.dtype(parts[0][0].dtype if dtype is None else dtype)
    kept = [
        (np.ascontiguousarray(values, dtype), np.ascontiguousarray(places, np.int64))
        for values, places in parts
    ]
    rows = len(kept[0][1])
    if any(len(places) != rows for _, places in kept):
        raise ValueError("parts of different lengths")
    if rows <= len(kept[0][0]) and is_identity(kept[0][1]):
        return read_only_view(kept[0][0][:rows])
    out = empty_array(rows, dtype)
    part = _abi.ColumnPart
    for_c = (part * len(kept))(
        *(part(address(values), address(places), len(values)) for values, places in kept)
    )
    library().ncclscope_coalesce(
        pointer(out),
        ctypes.c_int64(rows),
        ctypes.c_int64(dtype.itemsize),
        for_c,
        ctypes.c_int64(len(kept)),
        ctypes.c_int64(otherwise),
    )
    return out


def read_only_view(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written to."""
    view: npt.NDArray[Any] = values.view()
    view.flags.writeable = False
    return view


def is_identity(places: Ints) -> bool:
    """Whether each place is its own number."""
    return bool(library().ncclscope_is_identity(pointer(places), length_arg(places)))


def take(values: npt.NDArray[Any], places: Ints, otherwise: int = NONE) -> npt.NDArray[Any]:
    """values[places], `otherwise` where the place is NONE."""
    return coalesce((values, places), otherwise=otherwise)


def running_count(keys: Ints) -> Ints:
    """How often each key occurred before, by place."""
    keys = np.ascontiguousarray(keys, np.int64)
    out = empty_array(len(keys), np.int64)
    if library().ncclscope_running_count(pointer(keys), length_arg(keys), pointer(out)):
        raise MemoryError
    return out


def factorize(keys: Ints) -> tuple[npt.NDArray[np.int32], int]:
    """Numbers the distinct keys in the order of first occurrence: the number of each key (NONE for
    NONE), and how many distinct keys there are.
    """
    keys = np.ascontiguousarray(keys, np.int64)
    out = empty_array(len(keys), np.int32)
    distinct = library().ncclscope_factorize(pointer(keys), length_arg(keys), pointer(out))
    if distinct < 0:
        raise MemoryError
    return out, distinct


def take_small(
    table: npt.NDArray[Any], places: npt.NDArray[Any], otherwise: int = NONE
) -> npt.NDArray[Any]:
    """table[places] of a small table, `otherwise` for places outside of it. Places are int8, int16
    or int32.
    """
    table, places = np.ascontiguousarray(table), np.ascontiguousarray(places)
    if places.dtype not in (np.int8, np.int16, np.int32) or table.dtype.itemsize not in (1, 4, 8):
        raise TypeError(f"{places.dtype} places in {table.dtype}")
    out = empty_array(len(places), table.dtype)
    library().ncclscope_take_small(
        pointer(out),
        ctypes.c_int64(table.dtype.itemsize),
        pointer(table),
        length_arg(table),
        pointer(places),
        ctypes.c_int64(places.dtype.itemsize),
        length_arg(places),
        ctypes.c_int64(otherwise),
    )
    return out


def mask_of(places: Ints, size: int) -> npt.NDArray[np.bool_]:
    """Which of the places below `size` occur."""
    places = np.ascontiguousarray(places, np.int64)
    out = np.zeros(size, np.bool_)
    library().ncclscope_mask_of(
        pointer(places), length_arg(places), pointer(out), ctypes.c_int64(size)
    )
    return out
