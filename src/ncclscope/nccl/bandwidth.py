"""Algorithm and bus bandwidth, as nccl-tests define them.

algbw = bytes / time, with bytes as nccl-tests count them; busbw = algbw x a factor that makes
functions and numbers of ranks comparable. Sums of bytes are divided by sums of times: means of
bandwidths would give small operations the weight of large ones. Bytes per ns are GB/s (1e9).
"""

from ncclscope.nccl.functions import FUNCTIONS

_BUS = {name.casefold(): function.bus for name, function in FUNCTIONS.items()}


def bus_factor(function: str, ranks: int) -> float | None:
    """busbw / algbw of a function on `ranks` ranks; None where nccl-tests define none.

    Every byte but a rank's own share crosses the bus: (n-1)/n. AllReduce moves it twice.

    >>> bus_factor("AllReduce", 4)
    1.5
    """
    bus = _BUS.get(function.casefold())
    if bus == "whole":
        return 1.0
    if bus is None or ranks < 1:
        return None
    share = (ranks - 1) / ranks
    return 2 * (ranks - 1) / ranks if bus == "twice" else share


def bandwidth_gbs(size_bytes: float, time_ns: float) -> float | None:
    """Bytes by time in GB/s; None where no time passed."""
    return size_bytes / time_ns if time_ns > 0 else None


def bus_bytes(function: str, ranks: int, size_bytes: int) -> float | None:
    """What busbw divides by time: bytes x the function's factor."""
    factor = bus_factor(function, ranks)
    return None if factor is None else size_bytes * factor
