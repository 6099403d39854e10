"""Names of the operations that `ncclscope bench` measures, for `--help`."""

OPERATION_NAMES = (
    "allreduce",
    "allgather",
    "reducescatter",
    "broadcast",
    "reduce",
    "alltoall",
    "gather",
    "scatter",
    "sendrecv",
    "pairs",
)
