"""The compiled loops of native/columns: loading them, and arrays as they take them."""

import ctypes
from collections.abc import Sized
from functools import cache
from typing import Any

import numpy.typing as npt

from ncclscope.native import columns_library_path


@cache
def library() -> ctypes.CDLL:
    """The loops, for those who know their arguments."""
    return ctypes.CDLL(str(columns_library_path()))


def address(array: npt.NDArray[Any] | None) -> int | None:
    """Where an array's numbers are. The array must outlive the call."""
    return None if array is None else int(array.__array_interface__["data"][0])


def pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    """The same as an argument."""
    return ctypes.c_void_p(address(array))


def count(items: Sized) -> ctypes.c_int64:
    """How many there are, as an argument."""
    return ctypes.c_int64(len(items))


class Lines(ctypes.Structure):
    """Straight lines between knots."""

    _fields_ = (("count", ctypes.c_int64), ("x", ctypes.c_void_p), ("y", ctypes.c_void_p))
