"""What can be measured: how much each operation sends and receives, and what it is called.

Sizes are those of nccl-tests: of AllGather the gathered whole, of ReduceScatter and AlltoAll what
one rank puts in, of Gather and Scatter what the root has.
"""

from dataclasses import dataclass

from ncclscope.errors import UsageError


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation that can be asked for."""

    name: str  # on the command line
    title: str
    function: str  # as reports and bandwidth formulas call it
    needs: tuple[str, ...]  # functions of libnccl
    shared: bool = False  # the size is that of all ranks' shares together
    reduces: bool = False
    rooted: bool = False
    in_place: bool = True  # whether it can be


_PAIR = ("ncclSend", "ncclRecv", "ncclGroupStart", "ncclGroupEnd")
_OPERATIONS = (
    Operation("allreduce", "AllReduce", "AllReduce", ("ncclAllReduce",), reduces=True),
    Operation("allgather", "AllGather", "AllGather", ("ncclAllGather",), shared=True),
    Operation(
        "reducescatter", "ReduceScatter", "ReduceScatter", ("ncclReduceScatter",),
        shared=True, reduces=True,
    ),
    Operation("broadcast", "Broadcast", "Broadcast", ("ncclBroadcast",), rooted=True),
    Operation("reduce", "Reduce", "Reduce", ("ncclReduce",), reduces=True, rooted=True),
    Operation("alltoall", "AlltoAll", "AlltoAll", _PAIR, shared=True, in_place=False),
    Operation("gather", "Gather", "Gather", _PAIR, shared=True, rooted=True),
    Operation("scatter", "Scatter", "Scatter", _PAIR, shared=True, rooted=True),
    Operation("sendrecv", "SendRecv, ring", "SendRecv", _PAIR, in_place=False),
    Operation("pairs", "SendRecv, pairs", "SendRecv", _PAIR, in_place=False),
)  # fmt: skip
OPERATIONS = {operation.name: operation for operation in _OPERATIONS}
# What NCCL offers from 2.28 on as one function, and what nccl-tests make of sends and receives.
NATIVE = {"alltoall": "ncclAlltoAll", "gather": "ncclGather", "scatter": "ncclScatter"}
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """An operation's elements on each rank: what NCCL is told, and the two buffers."""

    count: int
    send: int
    receive: int


def operations_named(names: list[str]) -> tuple[Operation, ...]:
    """The operations that a user means, each once."""
    found: dict[str, Operation] = {}
    for name in names:
        known = name.casefold().replace("_", "").replace("-", "")
        if known == "all":
            found |= OPERATIONS
        elif known in OPERATIONS:
            found[known] = OPERATIONS[known]
        else:
            message = f"cannot measure {name}: there is no such operation"
            raise UsageError(message, f"Operations are {', '.join(OPERATIONS)}, all")
    return tuple(found.values())


def shape_of(operation: Operation, size_bytes: int, element_bytes: int, ranks: int) -> Shape | None:
    """The elements that a size comes to; None where there are fewer than ranks.

    Shares are whole multiples of 16 bytes, as in nccl-tests, where they are that large.
    """
    count = size_bytes // element_bytes
    if not operation.shared:
        return Shape(count, count, count) if count else None
    share = count // ranks
    step = max(_ALIGNMENT // element_bytes, 1)
    share = share // step * step or share
    if not share:
        return None
    whole = share * ranks
    send = share if operation.name in ("allgather", "gather") else whole
    receive = share if operation.name in ("reducescatter", "scatter") else whole
    return Shape(share, send, receive)


def moved_bytes(operation: Operation, shape: Shape, element_bytes: int, ranks: int) -> int:
    """The size column: what algbw divides by time."""
    return shape.count * element_bytes * (ranks if operation.shared else 1)


def pair_of(operation: Operation, rank: int, ranks: int) -> tuple[int, int]:
    """Whom a rank sends to and receives from."""
    if operation.name == "pairs":
        return rank ^ 1, rank ^ 1
    return (rank + 1) % ranks, (rank - 1) % ranks
