"""NCCL's datatypes and reduction operators: codes, names as in nccl-tests, and numpy's view.

numpy knows no bfloat16 and no 8-bit floats. Their values here are small whole numbers, which are
made and read by way of float32's bits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.errors import UsageError
from ncclscope.nccl import datatypes

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Datatype:
    """One of ncclDataType_t."""

    name: str
    code: int
    size_bytes: int
    exact: int  # whole numbers up to this one are exact
    is_float: bool  # rounding can happen
    since: tuple[int, int] = (2, 0)  # NCCL release that brought it
    exponent_bits: int = 0  # of the types that numpy does not know
    mantissa_bits: int = 0

    @property
    def storage(self) -> "np.dtype[Any]":
        """What its bytes are in numpy."""
        plain = "f" if self.is_float else "u" if self.name.startswith("u") else "i"
        return np.dtype(f"{'u' if self.exponent_bits else plain}{self.size_bytes}")

    def encode(self, values: Array) -> Array:
        """Whole numbers up to `exact`, as they lie in memory."""
        if not self.exponent_bits:
            return values.astype(self.storage)
        bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
        exponent = (bits >> 23 & 0xFF) - 127 + (1 << self.exponent_bits - 1) - 1
        mantissa = bits >> 23 - self.mantissa_bits & (1 << self.mantissa_bits) - 1
        found = np.where(values == 0, 0, exponent << self.mantissa_bits | mantissa)
        return found.astype(self.storage)

    def decode(self, stored: Array) -> Array:
        """What lies in memory, as numbers; NaN and infinity stay what they are."""
        if not self.exponent_bits:
            return stored
        bits = stored.astype(np.int64)
        most = (1 << self.exponent_bits) - 1
        exponent = bits >> self.mantissa_bits & most
        mantissa = bits & (1 << self.mantissa_bits) - 1
        bias = (1 << self.exponent_bits - 1) - 1
        unit = 2.0**-self.mantissa_bits
        normal = (1 + mantissa * unit) * np.exp2(exponent.astype(np.float64) - bias)
        small = mantissa * unit * 2.0 ** (1 - bias)
        value = np.where(exponent == 0, small, normal)
        if self.name == "f8e4m3":  # no infinity; one NaN
            value = np.where((exponent == most) & (mantissa == 7), np.nan, value)
        else:
            value = np.where(exponent == most, np.where(mantissa == 0, np.inf, np.nan), value)
        negative = bits >> self.exponent_bits + self.mantissa_bits & 1 == 1
        return np.where(negative, -value, value)


_DATATYPES = tuple(
    Datatype(
        one.nccl_tests,
        one.number,
        one.bits // 8,
        one.largest_exact,
        one.is_float,
        one.since,
        one.exponent_bits,
        one.mantissa_bits,
    )
    for one in datatypes.DATATYPES.values()
    if one.bits % 8 == 0
)
DATATYPES = {datatype.name: datatype for datatype in _DATATYPES}
_ALIASES = {
    alias: one.nccl_tests
    for one in datatypes.DATATYPES.values()
    for alias in (one.name, *one.aliases)
}

# ncclRedOp_t, and the release that brought it
REDUCTIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
REDUCTIONS_SINCE = {"avg": (2, 10)}


def datatype_named(name: str) -> Datatype:
    """The datatype that a user means."""
    known = _ALIASES.get(name.casefold(), name.casefold())
    if known not in DATATYPES:
        raise UsageError(f"NCCL has no datatype {name}", f"Datatypes are {', '.join(DATATYPES)}")
    return DATATYPES[known]


def reduction_named(name: str) -> str:
    """The reduction operator that a user means."""
    if name.casefold() not in REDUCTIONS:
        raise UsageError(f"NCCL has no operator {name}", f"Operators are {', '.join(REDUCTIONS)}")
    return name.casefold()
