"""NCCL's functions: what their counts mean, who waits for whom, and how nccl-tests rate them."""

from dataclasses import dataclass

# Who must have arrived when an operation of the function ends on a rank: nobody in particular,
# every rank, the root on every rank, every rank on the root.
NOBODY, EVERYBODY, ROOT_FIRST, ROOT_LAST = range(4)


@dataclass(frozen=True, slots=True)
class Function:
    """One function of NCCL's API."""

    name: str
    # busbw / algbw in nccl-tests: 1 for "whole", (n-1)/n for "shares", twice that for "twice".
    bus: str
    waits_for: int = NOBODY
    counts_one_rank: bool = False  # its count is one rank's share, its bytes are those of all ranks
    coll_counts_bytes: bool = False  # in Coll events its count is in bytes
    has_root: bool = False
    wide_input: bool = False  # the input holds the elements of all ranks
    wide_output: bool = False  # the output does


_FUNCTIONS = (
    Function("AllReduce", "twice", EVERYBODY),
    Function(
        "AllGather", "shares", EVERYBODY,
        counts_one_rank=True, coll_counts_bytes=True, wide_output=True,
    ),
    Function("ReduceScatter", "shares", EVERYBODY, counts_one_rank=True, wide_input=True),
    Function("Broadcast", "whole", ROOT_FIRST, coll_counts_bytes=True, has_root=True),
    Function("Reduce", "whole", ROOT_LAST, has_root=True),
    Function("Send", "whole"),
    Function("Recv", "whole"),
    Function("AlltoAll", "shares", counts_one_rank=True, wide_input=True, wide_output=True),
    Function("Gather", "shares", counts_one_rank=True, has_root=True, wide_output=True),
    Function("Scatter", "shares", counts_one_rank=True, has_root=True, wide_input=True),
    Function("SendRecv", "whole"),
)  # fmt: skip
FUNCTIONS = {function.name: function for function in _FUNCTIONS}
# Interface v1 gives numbers instead of names.
NUMBERED_FUNCTIONS = (
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv",
)  # fmt: skip

COUNTS_ONE_RANK = tuple(f.name for f in _FUNCTIONS if f.counts_one_rank)
INSPECTOR_ONE_RANK = ("AllGather", "ReduceScatter")  # the inspector plugin gives one rank's bytes
COLL_COUNTS_BYTES = tuple(f.name for f in _FUNCTIONS if f.coll_counts_bytes)
WITH_ROOT = tuple(f.name for f in _FUNCTIONS if f.has_root)
ALL_WAIT = tuple(f.name for f in _FUNCTIONS if f.waits_for == EVERYBODY)
SEND_OR_RECV = ("Send", "Recv")
POINT_TO_POINT = (*SEND_OR_RECV, "SendRecv")  # functions between two ranks


def waits_for(function: str) -> int:
    """Who must have arrived when an operation of this function ends; NOBODY for unknown ones."""
    known = FUNCTIONS.get(function)
    return known.waits_for if known else NOBODY
