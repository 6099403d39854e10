"""The compiled loops of native/arrays: loading them, and arrays as they take them.

Inside `spill_large_arrays_to`, large arrays are unlinked files: the kernel can write them back and
reuse their memory, so that a long process needs no more memory than a short one.
"""

import ctypes
import hashlib
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

from ncclscope.arrays import _abi
from ncclscope.errors import NcclscopeError
from ncclscope.native import arrays_library_path

_LARGE_BYTES = 16 << 20  # smaller arrays are not worth a file
_CHECKOUT = Path(__file__).parents[3]
_scratch: ContextVar[Path | None] = ContextVar("scratch", default=None)


@contextmanager
def spill_large_arrays_to(folder: Path) -> Iterator[None]:
    """Large arrays that are made inside lie in unlinked files of this folder."""
    token = _scratch.set(folder)
    try:
        yield
    finally:
        _scratch.reset(token)


def empty_array(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array whose values are not set yet."""
    folder, size = _scratch.get(), count * np.dtype(dtype).itemsize
    if folder is None or size < _LARGE_BYTES:
        return np.empty(count, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)  # a hole on a full disk would be a SIGBUS
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype)


def full_array(count: int, dtype: npt.DTypeLike, value: int) -> npt.NDArray[Any]:
    """An array of one value."""
    array = empty_array(count, dtype)
    array.fill(value)
    return array


def _is_changed(line: str) -> bool:
    """Whether a source of the library is in this checkout and is not what it was. `line` has its
    path and its hash.
    """
    name, _, sha256 = line.partition(" ")
    try:
        text = (_CHECKOUT / name).read_bytes()
    except OSError:  # no checkout
        return False
    return hashlib.sha256(text).hexdigest() != sha256


def load(path: Path) -> ctypes.CDLL:
    """The library at that path. It must have been built from the lists that `_abi` was made from:
    nothing else checks structs and arguments when its functions are called. In a checkout it must
    have been built from the sources that are there: older loops may give other numbers.
    """
    loops = ctypes.CDLL(str(path))
    version = getattr(loops, "ncclscope_abi_version", None)
    sources = getattr(loops, "ncclscope_sources", None)
    if version is not None:
        version.restype = ctypes.c_uint64
    if sources is not None:
        sources.restype = ctypes.c_char_p
    is_other = version is None or sources is None or version() != _abi.VERSION
    changed = [] if sources is None else list(filter(_is_changed, sources().decode().splitlines()))
    if is_other or changed:
        names = ": " + ", ".join(line.partition(" ")[0] for line in changed) if changed else ""
        raise NcclscopeError(
            f"cannot use {path}: it was built from other sources than this ncclscope{names}",
            "In a checkout run `cmake --build build/editable` and `make generate`; otherwise "
            "install ncclscope again",
        )
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(loops, name)
        function.restype, function.argtypes = result, arguments
    return loops


@cache
def library() -> ctypes.CDLL:
    """The compiled loops. native/arrays/arrays.h lists their arguments."""
    return load(arrays_library_path())


def guard_mapped_files() -> None:
    """From now on what is gone from a file that is mapped reads as zeros, and is counted, instead
    of ending this process and those that it forks. For programs of our own: others may have their
    own way with SIGBUS.
    """
    library().ncclscope_guard_mapped_files()


def pages_lost() -> int:
    """How many pages of mapped files were gone when they were read."""
    return int(library().ncclscope_pages_lost())


def address(array: npt.NDArray[Any] | None) -> int | None:
    """Where an array's numbers are. The array must outlive the call."""
    # Not __array_interface__, which lists the fields of structured arrays each time.
    return None if array is None else int(array.ctypes.data)


def pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    """The same as an argument of a compiled loop."""
    return ctypes.c_void_p(address(array))


def length_arg(items: Sized) -> ctypes.c_int64:
    """The number of items as an argument of a compiled loop."""
    return ctypes.c_int64(len(items))


Lines = _abi.Lines  # straight lines between knots
