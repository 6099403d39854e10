"""One rank that times each of its NCCL calls with CUDA events, the truth to hold reports against.

As workload.py, but with one function and many calls of each size: `timed_workload.py FUNCTION
SIZE_BYTES…`. The last line printed is JSON: by size the microseconds of each call, in order, less
what the events themselves show around an empty kernel. SYMMETRIC=1 registers memory of NCCL's, so
that NCCL may use its symmetric kernels.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from ctypes import CDLL, POINTER, Structure, byref, c_char, c_int, c_size_t, c_void_p
from functools import partial
from pathlib import Path

import torch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FLOAT32, SUM = 7, 0
CALLS = int(os.environ.get("CALLS", "40"))


class UniqueId(Structure):
    """ncclUniqueId."""

    _fields_ = [("bytes", c_char * 128)]


nccl = CDLL(os.environ.get("NCCL_LIB", "libnccl.so.2"))
nccl.ncclCommInitRank.argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int]


def check(result: int) -> None:
    """Raises for an NCCL error."""
    if result:
        raise RuntimeError(f"NCCL error {result}")


def communicator() -> c_void_p:
    """All ranks."""
    path, unique = Path(os.environ["RDV"]), UniqueId()
    if RANK == 0:
        check(nccl.ncclGetUniqueId(byref(unique)))
        path.with_suffix(".new").write_bytes(bytes(unique))
        path.with_suffix(".new").rename(path)
    while not path.exists():
        time.sleep(0.01)
    unique = UniqueId.from_buffer_copy(path.read_bytes())
    comm = c_void_p()
    check(nccl.ncclCommInitRank(byref(comm), WORLD, unique, RANK))
    return comm


def symmetric(size_bytes: int, comm: c_void_p) -> c_void_p:
    """Memory that all ranks have registered."""
    memory, window = c_void_p(), c_void_p()
    check(nccl.ncclMemAlloc(byref(memory), c_size_t(size_bytes)))
    check(nccl.ncclCommWindowRegister(comm, memory, c_size_t(size_bytes), byref(window), 1))
    return memory


def call(function: str, size_bytes: int, comm: c_void_p, stream: c_void_p) -> None:
    """One call whose bytes, as nccl-tests count them, are `size_bytes`."""
    share = WORLD if function in ("AllGather", "ReduceScatter") else 1
    count = c_size_t(max(size_bytes // 4 // share, 1))
    if function in ("AllReduce", "ReduceScatter"):
        run = getattr(nccl, f"nccl{function}")
        check(run(send, receive, count, FLOAT32, SUM, comm, stream))
    elif function == "AllGather":
        check(nccl.ncclAllGather(send, receive, count, FLOAT32, comm, stream))
    elif function == "Broadcast":
        check(nccl.ncclBroadcast(send, receive, count, FLOAT32, 0, comm, stream))
    else:
        check(nccl.ncclGroupStart())
        check(nccl.ncclSend(send, count, FLOAT32, (RANK + 1) % WORLD, comm, stream))
        check(nccl.ncclRecv(receive, count, FLOAT32, (RANK - 1) % WORLD, comm, stream))
        check(nccl.ncclGroupEnd())


def between_events_us(work: Callable[[], object]) -> float:
    """Microseconds from an event before to an event behind the work, on an idle stream."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    first.record()
    work()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) * 1e3


torch.cuda.set_device(0)
function, sizes = sys.argv[1], [int(size) for size in sys.argv[2:]]
world = communicator()
if os.environ.get("SYMMETRIC"):
    send, receive = symmetric(max(sizes), world), symmetric(max(sizes), world)
else:
    source = torch.ones(max(sizes) // 4, device="cuda")
    target = torch.empty_like(source)
    send, receive = c_void_p(source.data_ptr()), c_void_p(target.data_ptr())
tiny = torch.zeros(1, device="cuda")
on = c_void_p(torch.cuda.current_stream().cuda_stream)
empty_us = [between_events_us(tiny.zero_) for _ in range(60)][10:]
offset_us = statistics.median(empty_us)
times: dict[int, list[float]] = {}
for size in sizes:
    work = partial(call, function, size, world, on)
    times_us = [between_events_us(work) for _ in range(CALLS)]
    times[size] = [us - offset_us for us in times_us]
check(nccl.ncclCommDestroy(world))
print(json.dumps({"rank": RANK, "offset_us": offset_us, "times_us": times}), flush=True)
