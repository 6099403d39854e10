"""Algorithm and bus bandwidth, as nccl-tests define them.

algbw = bytes / time, with bytes as nccl-tests count them; busbw = algbw x a factor that makes
functions and numbers of ranks comparable. Sums of bytes are divided by sums of times: means of
bandwidths would give small operations the weight of large ones. Bytes per ns are GB/s (1e9).
"""

# Functions that move every byte but a rank's own share: AllReduce does so twice.
_SHARES = ("allgather", "reducescatter", "alltoall", "gather", "scatter")
_WHOLE = ("broadcast", "reduce", "send", "recv", "sendrecv")


def bus_factor(function: str, ranks: int) -> float | None:
    """busbw / algbw of a function on so many ranks; None where nccl-tests know no such function."""
    name = function.casefold()
    if name in _WHOLE:
        return 1.0
    if ranks < 1:
        return None
    if name == "allreduce":
        return 2 * (ranks - 1) / ranks
    if name in _SHARES:
        return (ranks - 1) / ranks
    return None


def bandwidth_gbs(size_bytes: float, time_ns: float) -> float | None:
    """Bytes by time in GB/s; None where no time passed."""
    return size_bytes / time_ns if time_ns > 0 else None


def bus_bytes(function: str, ranks: int, size_bytes: int) -> float | None:
    """What busbw divides by time: bytes x the function's factor."""
    factor = bus_factor(function, ranks)
    return None if factor is None else size_bytes * factor
