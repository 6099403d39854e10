"""PyTorch's names of datatypes and collectives, as its recorders and profilers write them."""

from ncclscope.ingest.records import function_name

DATATYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Byte": "uint8", "Char": "int8", "Int": "int32", "Long": "int64", "Bool": "uint8",
    "Float8_e4m3fn": "float8e4m3", "Float8_e5m2": "float8e5m2", "UInt32": "uint32",
    "UInt64": "uint64", "ComplexFloat": "float32", "ComplexDouble": "float64",
}  # fmt: skip
# PyTorch's names without signs -> NCCL's function that carries them out.
_FUNCTIONS = {
    "allgatherbase": "AllGather", "allgatherintotensorcoalesced": "AllGather",
    "allgathercoalesced": "AllGather", "reducescatterbase": "ReduceScatter",
    "reducescattertensorcoalesced": "ReduceScatter", "allreducecoalesced": "AllReduce",
    "allreducesparse": "AllReduce", "allreducebarrier": "AllReduce", "barrier": "AllReduce",
    "broadcastoop": "Broadcast", "reduceoop": "Reduce", "alltoallbase": "AlltoAll",
    "alltoallv": "AlltoAll",
}  # fmt: skip


def function_of(name: str) -> str:
    """NCCL's function behind PyTorch's name: `nccl:_all_gather_base`, `nccl:send 0->1`."""
    plain = name.rpartition(":")[2].split(" ")[0]
    known = _FUNCTIONS.get(plain.casefold().replace("_", ""))
    return known or function_name(plain)
