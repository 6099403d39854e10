"""Kinds of kernels: which do the same, so that their lengths and places can be compared.

A kernel's kind is made of the shapes and sizes of its operations; what a shape is, the caller says.
Transfers of sends and receives are compared with those up to twice as large. Where a call stands in
a step is told by fewer kinds: sizes that lie close together are one, because those of experts vary
from step to step.

    sizes in MB           1.6  1.7  1.9  2.0  2.3  2.6    16  16
    powers of two          0    0    0    1    1    1     4   4
    that lie together      0    0    0    0    0    0     1   1
"""

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Ints

Kinds = npt.NDArray[np.int32]

_MANY_SIZES = 16  # operations of a kind on average: with fewer, sizes count by powers of two
_APART = 1.5  # times as large as the next smaller size: another class
_ODD = np.uint64(0x9E3779B97F4A7C15)


def kernel_kinds(
    shape: Ints, shape_of_call: Ints, size_bytes: Ints, is_pair: Bools, first: Ints
) -> tuple[Kinds, Kinds]:
    """By kernel the kind of its transfer, and that of its call, which have shapes of their own.
    `first`: by kernel the first of its operations; `is_pair`: which of these are sends and
    receives.
    """
    size_bytes = np.maximum(size_bytes, 0)  # damaged captures have others, which are no numbers
    part, of_call = _parts(shape, size_bytes, is_pair)
    if not np.array_equal(shape, shape_of_call):
        of_call = _parts(shape_of_call, size_bytes, is_pair)[1]
    return _of_groups(part, first), _of_groups(of_call, first)


def _parts(shape: Ints, size_bytes: Ints, is_pair: Bools) -> tuple[Ints, Ints]:
    """By operation the kind of its transfer, and that of its call."""
    size, _ = factorize(size_bytes)
    exact, kinds = factorize(shape << 28 | size)
    power = np.floor(np.log2(np.maximum(size_bytes, 1))).astype(np.int64)
    coarse, coarse_kinds = factorize(shape << 28 | 1 << 27 | power)
    coarser = is_pair | (kinds * _MANY_SIZES > len(shape))
    part = np.where(coarser, coarse.astype(np.int64) + kinds, exact)
    together = _that_lie_together(shape, size_bytes, exact, kinds)
    return part, np.where(is_pair, together + kinds + coarse_kinds, part)


def _that_lie_together(shape: Ints, size_bytes: Ints, exact: Kinds, kinds: int) -> Ints:
    """By operation the class of its size, within its shape."""
    shape_of, size_of = np.zeros(kinds, np.int64), np.zeros(kinds, np.int64)
    shape_of[exact], size_of[exact] = shape, size_bytes
    order = np.lexsort((size_of, shape_of))
    sizes, shapes = size_of[order], shape_of[order]
    begins = (np.diff(shapes, prepend=-1) != 0) | (sizes > _APART * np.roll(sizes, 1))
    number = np.empty(kinds, np.int64)
    number[order] = np.cumsum(begins)
    return number[exact]


def _of_groups(part: Ints, first: Ints) -> Kinds:
    """By kernel a number for its parts, in any order: the sum of what each is scattered to. Sums of
    the numbers themselves would be alike for parts 1 and 4, and 2 and 3.
    """
    scattered = (part + 1).astype(np.uint64) * _ODD
    scattered = (scattered ^ scattered >> np.uint64(29)) * _ODD
    whole = np.add.reduceat(scattered, first) >> np.uint64(1)
    return factorize(whole.astype(np.int64))[0]
