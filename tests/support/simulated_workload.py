"""The calls that the recorded jobs made (tests/data/transcripts/README.md), on the simulated NCCL.

Started by test_simulation.py, once a rank: `python simulated_workload.py ITERATIONS CASE…`.
"""

import ctypes as c
import os
import signal
import sys
import time
from typing import Any

from ncclscope.native import simulated_nccl_path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FLOAT32, SUM = 7, 0
SIZES = (1024, 32768, 1048576)
BUFFER_BYTES = 1 << 22


class Id(c.Structure):
    """ncclUniqueId."""

    _fields_ = (("bytes", c.c_char * 128),)


class Nccl:
    """Every call that fails raises."""

    def __init__(self) -> None:
        self._library = c.CDLL(str(simulated_nccl_path()))
        self._library.ncclCommInitRank.argtypes = (c.POINTER(c.c_void_p), c.c_int, Id, c.c_int)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> None:
            code = function(*arguments)
            assert code == 0, f"{name} returned {code}"

        return call


def made(make: Any, *arguments: Any) -> c.c_void_p:
    """What a function stores through its first argument."""
    out = c.c_void_p()
    make(c.byref(out), *arguments)
    return out


NCCL = Nccl()
NO_STREAM = c.c_void_p()
NCCL.cudaSetDevice(0)
COMM = made(
    NCCL.ncclCommInitRank, WORLD, Id.from_buffer_copy(bytes.fromhex(os.environ["ID"])), RANK
)
SEND, RECV = (made(NCCL.cudaMalloc, c.c_size_t(BUFFER_BYTES * WORLD)) for _ in range(2))


def collective(
    name: str, count: int, comm: c.c_void_p = COMM, stream: c.c_void_p = NO_STREAM
) -> None:
    """Root 0 where there is one, sum where something is reduced."""
    more = {"AllGather": (), "Broadcast": (0,), "Reduce": (SUM, 0)}.get(name, (SUM,))
    getattr(NCCL, f"nccl{name}")(SEND, RECV, c.c_size_t(count), FLOAT32, *more, comm, stream)


def colls(iterations: int) -> None:
    for name in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"):
        for size in SIZES:
            for _ in range(iterations):
                parts = WORLD if name in ("AllGather", "ReduceScatter") else 1
                collective(name, max(size // 4 // parts, 1))
                NCCL.cudaDeviceSynchronize()


def group(iterations: int) -> None:
    for _ in range(iterations):
        NCCL.ncclGroupStart()
        collective("AllReduce", 4096)
        collective("Broadcast", 8192)
        collective("Reduce", 1024)
        collective("AllGather", 2048)
        collective("ReduceScatter", 512)
        NCCL.ncclGroupEnd()
        NCCL.cudaDeviceSynchronize()


def p2p(iterations: int) -> None:
    for _ in range(iterations):
        after, before = (RANK + 1) % WORLD, (RANK - 1) % WORLD
        NCCL.ncclGroupStart()
        NCCL.ncclSend(SEND, c.c_size_t(4096), FLOAT32, after, COMM, NO_STREAM)
        NCCL.ncclRecv(RECV, c.c_size_t(4096), FLOAT32, before, COMM, NO_STREAM)
        NCCL.ncclGroupEnd()
        NCCL.cudaDeviceSynchronize()


def self(iterations: int) -> None:
    """To and from oneself: reported also where there is but one rank."""
    NCCL.ncclGroupStart()
    NCCL.ncclSend(SEND, c.c_size_t(4096), FLOAT32, RANK, COMM, NO_STREAM)
    NCCL.ncclRecv(RECV, c.c_size_t(4096), FLOAT32, RANK, COMM, NO_STREAM)
    NCCL.ncclGroupEnd()
    NCCL.cudaDeviceSynchronize()


def a2a(iterations: int) -> None:
    for _ in range(iterations):
        NCCL.ncclAlltoAll(SEND, RECV, c.c_size_t(4096), FLOAT32, COMM, NO_STREAM)
        NCCL.cudaDeviceSynchronize()


def rooted(iterations: int) -> None:
    """Roots change; 1 024 floats of each rank."""
    for number in range(iterations):
        for name in ("Gather", "Scatter"):
            call = getattr(NCCL, f"nccl{name}")
            call(SEND, RECV, c.c_size_t(1024), FLOAT32, number % WORLD, COMM, NO_STREAM)
            NCCL.cudaDeviceSynchronize()


def like_gather(iterations: int) -> None:
    """Rank 0 receives from everybody, as in a Gather; the others send something to 1 as well."""
    for _ in range(iterations):
        NCCL.ncclGroupStart()
        NCCL.ncclSend(SEND, c.c_size_t(1024), FLOAT32, 0, COMM, NO_STREAM)
        if RANK > 1:
            NCCL.ncclSend(SEND, c.c_size_t(1024), FLOAT32, 1, COMM, NO_STREAM)
        for rank in {0: range(WORLD), 1: range(2, WORLD)}.get(RANK, ()):
            NCCL.ncclRecv(RECV, c.c_size_t(1024), FLOAT32, rank, COMM, NO_STREAM)
        NCCL.ncclGroupEnd()
        NCCL.cudaDeviceSynchronize()


def graph(iterations: int) -> None:
    stream = made(NCCL.cudaStreamCreate)
    collective("AllReduce", 4096, stream=stream)
    NCCL.cudaDeviceSynchronize()
    NCCL.cudaStreamBeginCapture(stream, 0)
    collective("AllReduce", 65536, stream=stream)
    collective("AllReduce", 1024, stream=stream)
    captured = c.c_void_p()
    NCCL.cudaStreamEndCapture(stream, c.byref(captured))
    ready = made(NCCL.cudaGraphInstantiate, captured, c.c_ulonglong(0))
    for _ in range(iterations):
        NCCL.cudaGraphLaunch(ready, stream)
        NCCL.cudaDeviceSynchronize()
    NCCL.cudaGraphExecDestroy(ready)
    NCCL.cudaGraphDestroy(captured)


def alone(iterations: int, comm: c.c_void_p) -> None:
    """A communicator of one rank: NCCL reports nothing."""
    for _ in range(iterations):
        collective("AllReduce", 4096, comm)
        NCCL.cudaDeviceSynchronize()
    NCCL.ncclCommDestroy(comm)


def split(iterations: int) -> None:
    part = c.c_void_p()
    NCCL.ncclCommSplit(COMM, RANK, RANK, c.byref(part), None)
    alone(iterations, part)


def one(iterations: int) -> None:
    own = Id()
    NCCL.ncclGetUniqueId(c.byref(own))
    alone(iterations, made(NCCL.ncclCommInitRank, 1, own, 0))


def hang(iterations: int) -> None:
    """The last rank never enters the call after these."""
    for number in range(iterations + 1):
        if number == iterations and RANK == WORLD - 1:
            time.sleep(3600)
        collective("AllReduce", 65536)
        NCCL.cudaDeviceSynchronize()


def death(iterations: int) -> None:
    """The last rank dies; the others notice it by NCCL's asynchronous error, and abort."""
    if RANK == WORLD - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    collective("AllReduce", 4096)
    error = c.c_int()
    while error.value == 0:
        time.sleep(0.01)
        NCCL.ncclCommGetAsyncError(COMM, c.byref(error))
    assert error.value == 6, error
    NCCL.ncclCommAbort(COMM)
    os._exit(0)


for case in sys.argv[2:]:
    globals()[case](int(sys.argv[1]))
NCCL.ncclCommDestroy(COMM)
