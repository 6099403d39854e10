"""Bytes of an operation, as nccl-tests count them: the one place where a count becomes bytes.

`model.process.operation_bytes` applies the same rule to columns.
"""

from ncclscope.nccl.datatypes import element_bits
from ncclscope.nccl.functions import COLL_COUNTS_BYTES, COUNTS_ONE_RANK


def bits_per_count(function: str, datatype: str, ranks: int, *, in_coll: bool) -> int | None:
    """Bits that one unit of an operation's count stands for; None for an unknown datatype.

    `in_coll`: the count is a Coll event's, where AllGather and Broadcast count bytes.

    >>> bits_per_count("AllGather", "float32", 8, in_coll=False)
    256
    >>> bits_per_count("AllGather", "float32", 8, in_coll=True)
    64
    """
    element = 8 if in_coll and function in COLL_COUNTS_BYTES else element_bits(datatype)
    if element is None:
        return None
    return element * (max(ranks, 1) if function in COUNTS_ONE_RANK else 1)


def operation_bytes(
    function: str, datatype: str, count: int, ranks: int, *, in_coll: bool
) -> int | None:
    """Bytes of one operation, rounded up; None for an unknown datatype."""
    bits = bits_per_count(function, datatype, ranks, in_coll=in_coll)
    return None if bits is None else -(-count * bits // 8)
