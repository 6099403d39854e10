"""Long columns in chunks of rows, so that temporary arrays stay small."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from ncclscope.arrays.library import empty_array

_CHUNK_ROWS = 1 << 15  # of which some columns fit into the nearest caches


def row_chunks(rows: int) -> Iterator[slice]:
    """Slices that cover all rows in order, some thousands each: temporary arrays stay small."""
    for first in range(0, rows, _CHUNK_ROWS):
        yield slice(first, min(first + _CHUNK_ROWS, rows))


def map_chunks(
    make: Callable[..., npt.NDArray[Any]], dtype: npt.DTypeLike, *columns: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """`make(*columns)` for a function that works row by row, chunk by chunk: its temporary arrays
    need the memory of a chunk, and stay in the cache.
    """
    rows = len(columns[0])
    if rows <= _CHUNK_ROWS:
        return make(*columns)
    out = empty_array(rows, dtype)
    for chunk in row_chunks(rows):
        out[chunk] = make(*(values[chunk] for values in columns))
    return out
