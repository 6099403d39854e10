"""PyTorch's names of collectives, as its profiler and its Flight Recorder write them."""

# NCCL's function -> c10d's name, as PyTorch's profiler writes it into traces.
COLLECTIVE_NAMES = {
    "AllReduce": "allreduce",
    "AllGather": "_allgather_base",
    "ReduceScatter": "_reduce_scatter_base",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AlltoAll": "all_to_all",
    "Gather": "gather",
    "Scatter": "scatter",
    "Send": "send",
    "Recv": "recv",
}
# PyTorch's names in lower case without underscores -> the NCCL function that carries them out.
# Names that are NCCL's own in another spelling are not listed.
FUNCTIONS_OF_TORCH = {
    "allgatherbase": "AllGather", "allgatherintotensorcoalesced": "AllGather",
    "allgathercoalesced": "AllGather", "reducescatterbase": "ReduceScatter",
    "reducescattertensorcoalesced": "ReduceScatter", "allreducecoalesced": "AllReduce",
    "allreducesparse": "AllReduce", "allreducebarrier": "AllReduce", "barrier": "AllReduce",
    "broadcastoop": "Broadcast", "reduceoop": "Reduce", "alltoallbase": "AlltoAll",
    "alltoallv": "AlltoAll",
}  # fmt: skip
