"""The operations that can be measured: how much each sends and receives, and NCCL's functions.

Sizes are those of nccl-tests: for AllGather what is gathered, for ReduceScatter and AlltoAll one
rank's input, for Gather and Scatter the root's data.
"""

from dataclasses import dataclass

from ncclscope.errors import UsageError
from ncclscope.nccl.functions import FUNCTIONS, Function


@dataclass(frozen=True, slots=True)
class BenchOperation:
    """One operation that can be measured."""

    name: str  # on the command line
    title: str
    function: str  # as reports and bandwidth formulas call it
    needs: tuple[str, ...]  # functions of NCCL's library
    reduces: bool = False
    in_place: bool = True  # whether it can be done in place

    @property
    def facts(self) -> Function:
        """The function's row in `nccl`."""
        return FUNCTIONS[self.function]

    @property
    def shared(self) -> bool:
        """Whether the size is that of all ranks' shares together."""
        return self.facts.counts_one_rank

    @property
    def sends_share(self) -> bool:
        """Whether a rank sends its share alone."""
        return self.shared and not self.facts.wide_input

    @property
    def receives_share(self) -> bool:
        """Whether a rank receives its share alone."""
        return self.shared and not self.facts.wide_output


_SEND_RECV = ("ncclSend", "ncclRecv", "ncclGroupStart", "ncclGroupEnd")
_OPERATIONS = (
    BenchOperation("allreduce", "AllReduce", "AllReduce", ("ncclAllReduce",), reduces=True),
    BenchOperation("allgather", "AllGather", "AllGather", ("ncclAllGather",)),
    BenchOperation(
        "reducescatter", "ReduceScatter", "ReduceScatter", ("ncclReduceScatter",), reduces=True
    ),
    BenchOperation("broadcast", "Broadcast", "Broadcast", ("ncclBroadcast",)),
    BenchOperation("reduce", "Reduce", "Reduce", ("ncclReduce",), reduces=True),
    BenchOperation("alltoall", "AlltoAll", "AlltoAll", _SEND_RECV, in_place=False),
    BenchOperation("gather", "Gather", "Gather", _SEND_RECV),
    BenchOperation("scatter", "Scatter", "Scatter", _SEND_RECV),
    BenchOperation("sendrecv", "SendRecv, ring", "SendRecv", _SEND_RECV, in_place=False),
    BenchOperation("pairs", "SendRecv, pairs", "SendRecv", _SEND_RECV, in_place=False),
)
OPERATIONS = {operation.name: operation for operation in _OPERATIONS}
# NCCL has these functions from 2.28 on; before, sends and receives are used, as by nccl-tests.
NATIVE = {"alltoall": "ncclAlltoAll", "gather": "ncclGather", "scatter": "ncclScatter"}
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Elements of an operation on each rank: NCCL's count, and the lengths of both buffers."""

    count: int
    send: int
    receive: int


def find_operations(names: list[str]) -> tuple[BenchOperation, ...]:
    """The operations that a user names, each once."""
    operations: dict[str, BenchOperation] = {}
    for name in names:
        key = name.casefold().replace("_", "").replace("-", "")
        if key == "all":
            operations |= OPERATIONS
        elif key in OPERATIONS:
            operations[key] = OPERATIONS[key]
        else:
            message = f"cannot measure {name}: there is no such operation"
            raise UsageError(message, f"Operations are {', '.join(OPERATIONS)}, all")
    return tuple(operations.values())


def shape_of(
    operation: BenchOperation, size_bytes: int, element_bytes: int, ranks: int
) -> Shape | None:
    """The elements of an operation of that size; None if ranks would get none.

    Shares are multiples of 16 bytes if they are at least that large, as in nccl-tests.
    """
    count = size_bytes // element_bytes
    if not operation.shared:
        return Shape(count, count, count) if count else None
    share = count // ranks
    step = max(_ALIGNMENT // element_bytes, 1)
    share = share // step * step or share
    if not share:
        return None
    send = share if operation.sends_share else share * ranks
    receive = share if operation.receives_share else share * ranks
    return Shape(share, send, receive)


def peers_of(operation: BenchOperation, rank: int, ranks: int) -> tuple[int, int]:
    """The ranks that a rank sends to and receives from."""
    if operation.name == "pairs":
        return rank ^ 1, rank ^ 1
    return (rank + 1) % ranks, (rank - 1) % ranks
