"""NCCL's datatypes: one row each, with number, bits, and names in NCCL, nccl-tests and PyTorch.

A datatype that is not in the list has no size. Callers say so; they never take it for one byte.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Datatype:
    """One of ncclDataType_t."""

    name: str
    number: int  # in ncclDataType_t
    bits: int  # of one element
    nccl_tests: str
    torch: str
    is_float: bool
    largest_exact: int  # whole numbers up to this one are exact
    since: tuple[int, int] = (2, 0)  # the NCCL release that added it
    exponent_bits: int = 0  # of the floats that numpy does not have
    mantissa_bits: int = 0
    aliases: tuple[str, ...] = ()  # other names that users type


_DATATYPES = (
    Datatype("int8", 0, 8, "int8", "Char", False, 127, aliases=("char",)),
    Datatype("uint8", 1, 8, "uint8", "Byte", False, 255),
    Datatype("int32", 2, 32, "int32", "Int", False, 1 << 30, aliases=("int",)),
    Datatype("uint32", 3, 32, "uint32", "UInt32", False, 1 << 30),
    Datatype("int64", 4, 64, "int64", "Long", False, 1 << 30),
    Datatype("uint64", 5, 64, "uint64", "UInt64", False, 1 << 30),
    Datatype("float16", 6, 16, "half", "Half", True, 2048, aliases=("fp16",)),
    Datatype("float32", 7, 32, "float", "Float", True, 1 << 24, aliases=("fp32",)),
    Datatype("float64", 8, 64, "double", "Double", True, 1 << 30),
    Datatype("bfloat16", 9, 16, "bfloat16", "BFloat16", True, 256, (2, 10), 8, 7, ("bf16",)),
    Datatype(
        "float8e4m3", 10, 8, "f8e4m3", "Float8_e4m3fn", True, 16, (2, 24), 4, 3, ("fp8_e4m3",)
    ),
    Datatype("float8e5m2", 11, 8, "f8e5m2", "Float8_e5m2", True, 8, (2, 24), 5, 2, ("fp8_e5m2",)),
)
DATATYPES = {datatype.name: datatype for datatype in _DATATYPES}
NUMBERED_DATATYPES = tuple(datatype.name for datatype in _DATATYPES)
# Interface v1 ends before the 8-bit floats.
DATATYPES_OF_V1 = NUMBERED_DATATYPES[:10]
# ncclUint8 has no name in NCCL's profiler: every release calls it "Unknown".
_NAMES_IN_EVENTS = {"Unknown": "uint8"}
_NAMES_IN_EVENTS |= {f"nccl{name.capitalize()}": name for name in DATATYPES}
_OF_NCCL_TESTS = {datatype.nccl_tests: datatype.name for datatype in _DATATYPES}
# PyTorch's complex numbers travel as pairs of floats, its booleans as bytes.
_OF_TORCH = {datatype.torch: datatype.name for datatype in _DATATYPES}
_OF_TORCH |= {"Bool": "uint8", "ComplexFloat": "float32", "ComplexDouble": "float64"}


def datatype_name(text: str) -> str:
    """Our name of a datatype that an event of NCCL names; an unknown one keeps its own."""
    return _NAMES_IN_EVENTS.get(text, text.removeprefix("nccl").lower())


def from_event_name(text: str) -> str | None:
    """Our name of a datatype that an event of NCCL names; None for an unknown one."""
    return _NAMES_IN_EVENTS.get(text)


def from_nccl_tests(text: str) -> str:
    """Our name of a datatype that nccl-tests name; an unknown one keeps its own."""
    return _OF_NCCL_TESTS.get(text, text)


def from_torch(text: str) -> str | None:
    """Our name of a datatype that PyTorch's profiler names; None for an unknown one."""
    return _OF_TORCH.get(text)


def element_bits(datatype: str) -> int | None:
    """Bits of one element; None for an unknown datatype."""
    known = DATATYPES.get(datatype)
    return known.bits if known else None
