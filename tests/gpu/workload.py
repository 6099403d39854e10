"""One rank of a job over raw NCCL through ctypes, which says what it called and when.

RANK, WORLD_SIZE, NCCL_LIB and RDV (a file name for unique ids) come from the environment, the
cases from the command line. PyTorch only holds memory and streams. The last line printed is JSON:
per case its first and last moment (CLOCK_MONOTONIC, ns) and the calls it made.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from ctypes import CDLL, POINTER, Structure, byref, c_char, c_int, c_size_t, c_void_p
from pathlib import Path

import torch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ITERATIONS = int(os.environ.get("ITERATIONS", "3"))
SIZES = [int(size) for size in os.environ.get("SIZES", "1024,32768,1048576").split(",")]
LATE_MS = float(os.environ.get("LATE_MS", "0"))  # of the last rank, in each step of `steps`
FLOAT32, SUM = 7, 0
PATIENCE_S = float(
    os.environ.get("PATIENCE_S", "3")
)  # how long a rank that cannot go on is left alone before it is killed


class UniqueId(Structure):
    """ncclUniqueId."""

    _fields_ = [("bytes", c_char * 128)]


nccl = CDLL(os.environ.get("NCCL_LIB", "libnccl.so.2"))
nccl.ncclCommInitRank.argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int]


def check(result: int) -> None:
    """Raises for an NCCL error."""
    if result:
        raise RuntimeError(f"NCCL error {result}")


def new_id() -> UniqueId:
    """A fresh unique id."""
    unique = UniqueId()
    check(nccl.ncclGetUniqueId(byref(unique)))
    return unique


def agreed_id(tag: str) -> UniqueId:
    """An id made by rank 0 and handed on through a file."""
    path = Path(f"{os.environ['RDV']}.{tag}")
    if RANK == 0:
        path.with_suffix(".new").write_bytes(bytes(new_id()))
        path.with_suffix(".new").rename(path)
    while not path.exists():
        time.sleep(0.01)
    return UniqueId.from_buffer_copy(path.read_bytes())


def communicator(unique: UniqueId, ranks: int, rank: int) -> c_void_p:
    """A new communicator."""
    comm = c_void_p()
    check(nccl.ncclCommInitRank(byref(comm), ranks, unique, rank))
    return comm


torch.cuda.set_device(0)
world = communicator(agreed_id("world"), WORLD, RANK)
stream = c_void_p(torch.cuda.current_stream().cuda_stream)
source = torch.ones((1 << 20) * max(WORLD, 1), device="cuda")
target = torch.empty_like(source)
made: Counter[str] = Counter()
sync = torch.cuda.synchronize


def pointer(tensor: torch.Tensor) -> c_void_p:
    """A tensor's memory."""
    return c_void_p(tensor.data_ptr())


def call(function: str, *arguments: object, count_as: str | None = None) -> None:
    """Calls nccl<Function>(source, target, …) and counts it."""
    check(getattr(nccl, f"nccl{function}")(pointer(source), pointer(target), *arguments))
    made[count_as or function] += 1


def all_reduce(
    count: int, comm: c_void_p = world, on: c_void_p = stream, as_: str | None = None
) -> None:
    """ncclAllReduce."""
    call("AllReduce", c_size_t(count), FLOAT32, SUM, comm, on, count_as=as_)


def collective(function: str, count: int) -> None:
    """One of the five collectives, on the world."""
    n = c_size_t(count)
    if function in ("AllReduce", "ReduceScatter"):
        call(function, n, FLOAT32, SUM, world, stream)
    elif function == "AllGather":
        call(function, n, FLOAT32, world, stream)
    elif function == "Broadcast":
        call(function, n, FLOAT32, 0, world, stream)
    else:
        call("Reduce", n, FLOAT32, SUM, 0, world, stream)


FIVE = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")


def colls() -> None:
    """Five collectives, every size, one after the other."""
    for function in FIVE:
        for size in SIZES:
            share = WORLD if function in ("AllGather", "ReduceScatter") else 1
            for _ in range(ITERATIONS):
                collective(function, max(size // 4 // share, 1))
                sync()


def many() -> None:
    """AllReduces without waiting in between."""
    for size in SIZES:
        for _ in range(ITERATIONS * 20):
            all_reduce(size // 4)
        sync()


def group() -> None:
    """Groups of all five."""
    for _ in range(ITERATIONS):
        check(nccl.ncclGroupStart())
        for function in FIVE:
            collective(function, 2048)
        check(nccl.ncclGroupEnd())
        sync()


def p2p() -> None:
    """Send to the next rank, receive from the one before."""
    for _ in range(ITERATIONS):
        check(nccl.ncclGroupStart())
        for function, tensor, peer in (("Send", source, RANK + 1), ("Recv", target, RANK - 1)):
            count = c_size_t(4096)
            check(
                getattr(nccl, f"nccl{function}")(
                    pointer(tensor), count, FLOAT32, peer % WORLD, world, stream
                )
            )
            made[function] += 1
        check(nccl.ncclGroupEnd())
        sync()


def a2a() -> None:
    """AlltoAll, which NCCL reports as sends and receives. Releases before 2.28 have none."""
    for _ in range(ITERATIONS if hasattr(nccl, "ncclAlltoAll") else 0):
        call("AlltoAll", c_size_t(4096), FLOAT32, world, stream)
        sync()


def graph() -> None:
    """Two AllReduces captured in a CUDA graph and replayed."""
    recorded, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    on = c_void_p(side.cuda_stream)
    with torch.cuda.stream(side):
        all_reduce(4096, on=on)
        sync()
        recorded.capture_begin()
        all_reduce(65536, on=on, as_="captured AllReduce")
        all_reduce(1024, on=on, as_="captured AllReduce")
        recorded.capture_end()
    for _ in range(ITERATIONS):
        recorded.replay()
        sync()
        made["replayed AllReduce"] += 2
    del recorded


def split() -> None:
    """AllReduces on halves of the world; of one rank each when the world has two."""
    half = c_void_p()
    check(nccl.ncclCommSplit(world, RANK % 2, RANK, byref(half), None))
    name = None if WORLD > 2 else "AllReduce of one rank"
    for _ in range(ITERATIONS):
        all_reduce(4096, half, as_=name)
        sync()
    check(nccl.ncclCommDestroy(half))


def one() -> None:
    """AllReduces on a communicator of one rank."""
    alone = communicator(new_id(), 1, 0)
    for _ in range(ITERATIONS):
        all_reduce(4096, alone, as_="AllReduce of one rank")
        sync()
    check(nccl.ncclCommDestroy(alone))


def straggler() -> None:
    """The last rank comes 20 ms late to each AllReduce."""
    for _ in range(ITERATIONS * 4):
        if RANK == WORLD - 1:
            time.sleep(0.02)
        all_reduce(262144)
        sync()


def steps() -> None:
    """Steps as of sharded training: parameters gathered twice, gradients scattered, a sum. The last
    rank begins each of them LATE_MS later than the others.
    """
    layers, count = 4, (1 << 20) // 4 // WORLD
    for _ in range(ITERATIONS):
        if RANK == WORLD - 1:
            time.sleep(LATE_MS / 1e3)
        for _ in range(layers):
            collective("AllGather", count)
        for _ in range(layers):
            collective("AllGather", count)
            collective("ReduceScatter", count)
        all_reduce(1)
        sync()


def steady() -> None:
    """Small AllReduces for a while, at a pace that leaves time to look."""
    for _ in range(ITERATIONS * 1000):
        all_reduce(256)
        sync()
        time.sleep(0.002)


def _say_and_die(case: str, began: int) -> None:
    """Prints what was called and kills this rank when it has waited long enough."""
    say({case: {"from_ns": began, "to_ns": time.monotonic_ns() + 10**12, "calls": dict(made)}})
    threading.Timer(PATIENCE_S, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    sync()
    time.sleep(3600)


def hang() -> None:
    """After some AllReduces the last rank does not come to the next one. Nobody survives this."""
    began = time.monotonic_ns()
    for _ in range(ITERATIONS):
        all_reduce(65536)
        sync()
    if RANK != WORLD - 1:
        all_reduce(65536)
    _say_and_die("hang", began)


def mismatch() -> None:
    """The last rank calls AllGather where the others call AllReduce. Nobody survives this."""
    began = time.monotonic_ns()
    for _ in range(ITERATIONS):
        all_reduce(65536)
        # NCCL connects on first use, and that call would wait for the other ranks itself.
        collective("AllGather", 65536)
        sync()
    collective("AllGather" if RANK == WORLD - 1 else "AllReduce", 65536)
    _say_and_die("mismatch", began)


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (
        *(colls, many, group, p2p, a2a, graph, split, one, straggler, steps, steady),
        *(hang, mismatch),
    )
}


def say(cases: dict[str, dict[str, object]]) -> None:
    """What this rank called, as the last line of its output."""
    version = c_int()
    check(nccl.ncclGetVersion(byref(version)))
    print(json.dumps({"rank": RANK, "nccl": version.value, "cases": cases}), flush=True)


def main() -> None:
    """Runs the cases named on the command line."""
    cases: dict[str, dict[str, object]] = {}
    for name in sys.argv[1:]:
        made.clear()
        began = time.monotonic_ns()
        CASES[name]()
        sync()
        cases[name] = {"from_ns": began, "to_ns": time.monotonic_ns(), "calls": dict(made)}
        time.sleep(0.05)  # what a proxy thread reports late still falls into its case
    check(nccl.ncclCommDestroy(world))
    say(cases)


main()
