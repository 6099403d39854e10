"""Names that PyTorch's profiler gives to what a collective does, so that tools made for its traces
find them in ours.
"""

# NCCL's name of a function -> c10d's.
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
# Our name of a datatype -> PyTorch's.
DTYPES = {
    "int8": "Char",
    "uint8": "Byte",
    "int32": "Int",
    "uint32": "UInt32",
    "int64": "Long",
    "uint64": "UInt64",
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "bfloat16": "BFloat16",
    "float8e4m3": "Float8_e4m3fn",
    "float8e5m2": "Float8_e5m2",
}
# Functions whose input, or output, holds the elements of all ranks.
WIDE_INPUT = ("ReduceScatter", "AlltoAll", "Scatter")
WIDE_OUTPUT = ("AllGather", "AlltoAll", "Gather")
