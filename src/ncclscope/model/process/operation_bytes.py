"""Bytes of whole columns of operations, by the rule of `nccl.operation_bytes`."""

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ncclscope.arrays import _abi
from ncclscope.arrays.library import address, empty_array, length_arg, library, pointer
from ncclscope.arrays.types import Ints
from ncclscope.model.schema import NONE
from ncclscope.nccl.datatypes import element_bits
from ncclscope.nccl.functions import COUNTS_ONE_RANK
from ncclscope.nccl.limits import LARGEST_BYTES

Codes = npt.NDArray[np.int8]

_CODES = 128  # of names, at most
IN_BYTES = np.int8(_CODES - 1)  # in place of a datatype: the count is in bytes already


def size_bytes(
    counts: Ints,
    datatype: Codes,
    function: Codes,
    communicator: npt.NDArray[np.int32],
    datatypes: Sequence[str],
    functions: Sequence[str],
    ranks: Ints,
) -> Ints:
    """Bytes of operations; NONE for an unknown count or datatype, and for an impossible size.
    `datatypes`, `functions`: names by code; `ranks`: by communicator.
    """
    bits, counts_one_rank = np.zeros(_CODES, np.int64), np.zeros(_CODES, np.int8)
    bits[: len(datatypes)] = [element_bits(name) or 0 for name in datatypes]
    bits[IN_BYTES] = 8
    counts_one_rank[: len(functions)] = [name in COUNTS_ONE_RANK for name in functions]
    ranks = np.maximum(ranks, 1)
    out = empty_array(len(counts), np.int64)
    measures = _abi.Measures(
        address(bits), address(counts_one_rank), address(ranks), len(ranks), LARGEST_BYTES
    )
    library().ncclscope_sizes(
        ctypes.byref(measures),
        pointer(counts),
        pointer(datatype),
        pointer(function),
        pointer(communicator),
        length_arg(counts),
        pointer(out),
    )
    return out


def total_bytes(counts: Ints, factor: Ints | int) -> Ints:
    """counts x factor; NONE for an unknown or impossible count."""
    factor = np.maximum(factor, 1)
    possible = (counts >= 0) & (counts <= LARGEST_BYTES // factor)
    return np.where(possible, counts * np.where(possible, factor, 0), NONE)
