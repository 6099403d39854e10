"""NCCL's names and numbers of datatypes, functions and algorithms, what counts count, and whose
stamps are exact.
"""

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.library import address, empty_array, length_arg, library, pointer
from ncclscope.model.schema import NONE

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]

# NCCL's names of datatypes; ncclUint8 has none and is called "Unknown" in every release.
DATATYPES = {
    "ncclInt8": "int8",
    "ncclUint8": "uint8",
    "Unknown": "uint8",
    "ncclInt32": "int32",
    "ncclUint32": "uint32",
    "ncclInt64": "int64",
    "ncclUint64": "uint64",
    "ncclFloat16": "float16",
    "ncclFloat32": "float32",
    "ncclFloat64": "float64",
    "ncclBfloat16": "bfloat16",
    "ncclFloat8e4m3": "float8e4m3",
    "ncclFloat8e5m2": "float8e5m2",
}
ELEMENT_BYTES = {
    "int8": 1,
    "uint8": 1,
    "float8e4m3": 1,
    "float8e5m2": 1,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
# Interface v1 gives numbers instead of names.
NUMBERED_FUNCTIONS = (
    "Broadcast",
    "Reduce",
    "AllGather",
    "ReduceScatter",
    "AllReduce",
    "SendRecv",
    "Send",
    "Recv",
)
NUMBERED_DATATYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
)
NUMBERED_ALGORITHMS = (
    "TREE",
    "RING",
    "COLLNET_DIRECT",
    "COLLNET_CHAIN",
    "NVLS",
    "NVLS_TREE",
    "PAT",
)
NUMBERED_PROTOCOLS = ("LL", "LL128", "SIMPLE")

# Thread 0 of these kernels leaves last; of all others its stop stamp is a lower bound.
SOUND_ALGORITHMS = ("RING", "PAT")
# Functions whose count is one rank's share, and whose bytes are those of all ranks together.
PER_RANK = ("AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter")
# In Coll events the count of these is bytes already.
COUNTED_IN_BYTES = ("AllGather", "Broadcast")
ROOTED = ("Broadcast", "Reduce", "Gather", "Scatter")
_CODES = 128  # of names, at most
_LARGEST_BYTES = 1 << 42  # of one operation; more is damage, and would not add up


class _Measures(ctypes.Structure):
    _fields_ = (
        ("element_bytes", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("ranks", ctypes.c_void_p),
        ("communicators", ctypes.c_int64),
        ("most_bytes", ctypes.c_int64),
    )


def size_bytes(
    counts: Ints,
    datatype: Codes,
    function: Codes,
    communicator: npt.NDArray[np.int32],
    datatypes: Sequence[str],
    functions: Sequence[str],
    ranks: Ints,
) -> Ints:
    """Bytes of operations, NONE where the count is not known or cannot be. `datatypes` and
    `functions` are the names behind codes, `ranks` by communicator.
    """
    element, shared = np.ones(_CODES, np.int64), np.zeros(_CODES, np.int8)
    element[: len(datatypes)] = [ELEMENT_BYTES.get(name, 1) for name in datatypes]
    shared[: len(functions)] = [name in PER_RANK for name in functions]
    ranks = np.maximum(ranks, 1)
    out = empty_array(len(counts), np.int64)
    library().ncclscope_sizes(
        ctypes.byref(
            _Measures(address(element), address(shared), address(ranks), len(ranks), _LARGEST_BYTES)
        ),
        pointer(counts),
        pointer(datatype),
        pointer(function),
        pointer(communicator),
        length_arg(counts),
        pointer(out),
    )
    return out


def total_bytes(counts: Ints, factor: Ints | int) -> Ints:
    """counts x factor; NONE where the count is not known or cannot be."""
    factor = np.maximum(factor, 1)
    possible = (counts >= 0) & (counts <= _LARGEST_BYTES // factor)
    return np.where(possible, counts * np.where(possible, factor, 0), NONE)
