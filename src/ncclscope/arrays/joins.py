"""Places of keys among others, and columns by places, in the compiled loops of native/columns."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.library import address, empty_array, length_arg, library, pointer

Ints = npt.NDArray[np.int64]
NONE = -1


def positions_of(among: Ints, keys: Ints) -> Ints:
    """Place of each key in a sorted array, NONE where it is not there."""
    among, keys = np.ascontiguousarray(among, np.int64), np.ascontiguousarray(keys, np.int64)
    out = empty_array(len(keys), np.int64)
    library().ncclscope_find(
        pointer(among), length_arg(among), pointer(keys), length_arg(keys), pointer(out)
    )
    return out


@dataclass(frozen=True, slots=True)
class Children:
    """Events by their keys."""

    keys: Ints
    parents: Ints  # keys; NONE: not known
    comms: npt.NDArray[np.int32]

    def for_c(self) -> "_Children":
        """For the compiled loop; it must not outlive these."""
        return _Children(
            len(self.keys), address(self.keys), address(self.parents), address(self.comms)
        )


class _Children(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int64),
        ("key", ctypes.c_void_p),
        ("parent", ctypes.c_void_p),
        ("comm", ctypes.c_void_p),
    )


def sibling_before(among: Children, others: Children) -> Ints:
    """Place of the last event, of some in the order of keys, before each of others, where both are
    in one stream, of one parent and communicator; NONE elsewhere.
    """
    out = empty_array(len(others.keys), np.int64)
    library().ncclscope_sibling_before(
        ctypes.byref(among.for_c()), ctypes.byref(others.for_c()), pointer(out)
    )
    return out


class _Part(ctypes.Structure):
    _fields_ = (
        ("values", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )


def coalesce(
    *parts: tuple[npt.NDArray[Any], Ints], otherwise: int = NONE, dtype: Any = None
) -> npt.NDArray[Any]:
    """`values[places]` of the first (values, places) whose place is not NONE, row by row. Where
    that is the values as they are, a view of them, which cannot be written to.
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
    for_c = (_Part * len(kept))(
        *(_Part(address(values), address(places), len(values)) for values, places in kept)
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
    same: npt.NDArray[Any] = values.view()
    same.flags.writeable = False
    return same


def is_identity(places: Ints) -> bool:
    """Whether each place is its own number."""
    return bool(library().ncclscope_is_same(pointer(places), length_arg(places)))


def take(values: npt.NDArray[Any], places: Ints, otherwise: int = NONE) -> npt.NDArray[Any]:
    """values[places], `otherwise` where the place is NONE."""
    return coalesce((values, places), otherwise=otherwise)


def running_count(keys: Ints) -> Ints:
    """How often each key occurred before, by place."""
    keys = np.ascontiguousarray(keys, np.int64)
    out = empty_array(len(keys), np.int64)
    if library().ncclscope_number(pointer(keys), length_arg(keys), pointer(out)):
        raise MemoryError
    return out


def factorize(keys: Ints) -> tuple[npt.NDArray[np.int32], int]:
    """A number for each different key, in the order of first occurrence, and how many there are;
    NONE for NONE.
    """
    keys = np.ascontiguousarray(keys, np.int64)
    out = empty_array(len(keys), np.int32)
    library().ncclscope_group.restype = ctypes.c_int64
    found = library().ncclscope_group(pointer(keys), length_arg(keys), pointer(out))
    if found < 0:
        raise MemoryError
    return out, found


def take_small(
    table: npt.NDArray[Any], places: npt.NDArray[Any], otherwise: int = NONE
) -> npt.NDArray[Any]:
    """table[places] of a small table; `otherwise` for places outside of it. Places are int8, int16
    or int32.
    """
    table, places = np.ascontiguousarray(table), np.ascontiguousarray(places)
    if places.dtype not in (np.int8, np.int16, np.int32) or table.dtype.itemsize not in (1, 4, 8):
        raise TypeError(f"{places.dtype} places in {table.dtype}")
    out = empty_array(len(places), table.dtype)
    library().ncclscope_look_up(
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
    """Which of so many places occur."""
    places = np.ascontiguousarray(places, np.int64)
    out = np.zeros(size, np.bool_)
    library().ncclscope_mark(
        pointer(places), length_arg(places), pointer(out), ctypes.c_int64(size)
    )
    return out
