"""How numpy holds values of the datatypes of nccl/datatypes.py, and reduction operators.

numpy has no bfloat16 and no 8-bit floats. Test data are small whole numbers, which are converted
through the bits of float32.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.errors import UsageError
from ncclscope.nccl.datatypes import DATATYPES as NCCL_DATATYPES
from ncclscope.nccl.datatypes import Datatype

Array = npt.NDArray[Any]

# By nccl-tests' name. Elements that are no whole bytes cannot be addressed.
DATATYPES = {d.nccl_tests: d for d in NCCL_DATATYPES.values() if d.bits % 8 == 0}
_ALIASES = {alias: d.nccl_tests for d in DATATYPES.values() for alias in (d.name, *d.aliases)}

# ncclRedOp_t, and the release that added an operator
REDUCTIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
REDUCTIONS_SINCE = {"avg": (2, 10)}


def element_bytes(datatype: Datatype) -> int:
    """Bytes of one element."""
    return datatype.bits // 8


def storage(datatype: Datatype) -> "np.dtype[Any]":
    """The numpy type with the same bytes; floats that numpy does not have are unsigned integers."""
    kind = "f" if datatype.is_float else "u" if datatype.name.startswith("u") else "i"
    return np.dtype(f"{'u' if datatype.exponent_bits else kind}{element_bytes(datatype)}")


def encode(datatype: Datatype, values: Array) -> Array:
    """Whole numbers up to `largest_exact`, as they are stored in memory."""
    if not datatype.exponent_bits:
        return values.astype(storage(datatype))
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    exponent = (bits >> 23 & 0xFF) - 127 + (1 << datatype.exponent_bits - 1) - 1
    mantissa = bits >> 23 - datatype.mantissa_bits & (1 << datatype.mantissa_bits) - 1
    encoded = np.where(values == 0, 0, exponent << datatype.mantissa_bits | mantissa)
    return encoded.astype(storage(datatype))


def decode(datatype: Datatype, stored: Array) -> Array:
    """The numbers that are stored in memory, NaN and infinity included."""
    if not datatype.exponent_bits:
        return stored
    bits = stored.astype(np.int64)
    largest = (1 << datatype.exponent_bits) - 1
    exponent = bits >> datatype.mantissa_bits & largest
    mantissa = bits & (1 << datatype.mantissa_bits) - 1
    bias = (1 << datatype.exponent_bits - 1) - 1
    unit = 2.0**-datatype.mantissa_bits
    normal = (1 + mantissa * unit) * np.exp2(exponent.astype(np.float64) - bias)
    subnormal = mantissa * unit * 2.0 ** (1 - bias)
    value = np.where(exponent == 0, subnormal, normal)
    if datatype.name == "float8e4m3":  # has no infinity, and one NaN
        value = np.where((exponent == largest) & (mantissa == 7), np.nan, value)
    else:
        value = np.where(exponent == largest, np.where(mantissa == 0, np.inf, np.nan), value)
    negative = bits >> datatype.exponent_bits + datatype.mantissa_bits & 1 == 1
    return np.where(negative, -value, value)


def find_datatype(name: str) -> str:
    """nccl-tests' name of the datatype that a user names, by that or by NCCL's name."""
    key = _ALIASES.get(name.casefold(), name.casefold())
    if key not in DATATYPES:
        raise UsageError(f"NCCL has no datatype {name}", f"Datatypes are {', '.join(DATATYPES)}")
    return key


def find_reduction(name: str) -> str:
    """The reduction operator that a user names."""
    if name.casefold() not in REDUCTIONS:
        raise UsageError(f"NCCL has no operator {name}", f"Operators are {', '.join(REDUCTIONS)}")
    return name.casefold()
