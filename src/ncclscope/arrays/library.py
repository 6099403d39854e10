"""The compiled loops of native/columns: loading them, and arrays as they take them.

Large arrays lie in unlinked files, where somebody said which folder to use: the kernel can take
their memory back, so that a long process needs no more of it than a short one.
"""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.native import arrays_library_path

_LARGE_BYTES = 16 << 20
_scratch: ContextVar[Path | None] = ContextVar("scratch", default=None)


@contextmanager
def spill_large_arrays_to(folder: Path) -> Iterator[None]:
    """Large arrays that `room` makes lie in files of this folder, which nobody sees."""
    token = _scratch.set(folder)
    try:
        yield
    finally:
        _scratch.reset(token)


def empty_array(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array to be filled."""
    folder, size = _scratch.get(), count * np.dtype(dtype).itemsize
    if folder is None or size < _LARGE_BYTES:
        return np.empty(count, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)  # a hole on a full disk would be a SIGBUS
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype)


def full_array(count: int, dtype: npt.DTypeLike, value: int) -> npt.NDArray[Any]:
    """An array of one value."""
    made = empty_array(count, dtype)
    made.fill(value)
    return made


@cache
def library() -> ctypes.CDLL:
    """The loops, for those who know their arguments."""
    return ctypes.CDLL(str(arrays_library_path()))


def address(array: npt.NDArray[Any] | None) -> int | None:
    """Where an array's numbers are. The array must outlive the call."""
    return None if array is None else int(array.__array_interface__["data"][0])


def pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    """The same as an argument."""
    return ctypes.c_void_p(address(array))


def length_arg(items: Sized) -> ctypes.c_int64:
    """How many there are, as an argument."""
    return ctypes.c_int64(len(items))


class Lines(ctypes.Structure):
    """Straight lines between knots."""

    _fields_ = (("count", ctypes.c_int64), ("x", ctypes.c_void_p), ("y", ctypes.c_void_p))
