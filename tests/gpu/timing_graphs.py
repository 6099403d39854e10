"""One rank that captures calls of real NCCL into graphs in every way, and says how often each was
replayed: `timing_graphs.py` with RANK, WORLD_SIZE, RDV, NCCL_LIB and CUDART in the environment.

The last line printed is JSON: replays by capture, in the order of capturing, and CUDA's results of
what may fail.
"""

import json
import os
import threading
import time
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_char,
    c_int,
    c_size_t,
    c_ulonglong,
    c_void_p,
    create_string_buffer,
)
from pathlib import Path
from typing import Any

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FLOAT32, SUM = 7, 0
GLOBAL, THREAD_LOCAL, RELAXED = range(3)


class UniqueId(Structure):
    """ncclUniqueId."""

    _fields_ = [("bytes", c_char * 128)]


cuda = CDLL(os.environ["CUDART"])
nccl = CDLL(os.environ["NCCL_LIB"])
nccl.ncclCommInitRank.argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int]


def do(function: Any, *arguments: Any) -> None:
    """Calls a function that must succeed."""
    code = function(*arguments)
    if code:
        raise RuntimeError(f"{function.__name__} returned {code}")


def made(function: Any, *arguments: Any) -> c_void_p:
    """What a function stores through its first argument."""
    out = c_void_p()
    do(function, byref(out), *arguments)
    return out


def communicator() -> c_void_p:
    """All ranks."""
    path, unique = Path(os.environ["RDV"]), UniqueId()
    if RANK == 0:
        do(nccl.ncclGetUniqueId, byref(unique))
        path.with_suffix(".new").write_bytes(bytes(unique))
        path.with_suffix(".new").rename(path)
    while not path.exists():
        time.sleep(0.01)
    return made(nccl.ncclCommInitRank, WORLD, UniqueId.from_buffer_copy(path.read_bytes()), RANK)


do(cuda.cudaSetDevice, 0)
send, receive = (made(cuda.cudaMalloc, c_size_t(1 << 20)) for _ in range(2))
stream, other = (made(cuda.cudaStreamCreateWithFlags, 1) for _ in range(2))
comm = communicator()
replays: list[int] = []  # of each capture
graphs: list[c_void_p] = []  # and executables, to destroy: CommDestroy waits for that
executables: list[c_void_p] = []
notes: dict[str, int] = {}  # CUDA's result of what may fail without our doing


def all_reduce(on: c_void_p, count: int = 4096) -> None:
    do(nccl.ncclAllReduce, send, receive, c_size_t(count), FLOAT32, SUM, comm, on)


def capture(mode: int, operations: int, on: c_void_p = stream) -> tuple[c_void_p, int]:
    """A graph, and its place in `replays`."""
    do(cuda.cudaStreamBeginCapture, on, mode)
    for _ in range(operations):
        all_reduce(on)
    graph = c_void_p()
    do(cuda.cudaStreamEndCapture, on, byref(graph))
    graphs.append(graph)
    replays.append(0)
    return graph, len(replays) - 1


def instantiate(graph: c_void_p) -> c_void_p:
    executables.append(made(cuda.cudaGraphInstantiateWithFlags, graph, c_ulonglong(0)))
    return executables[-1]


def launch(executable: c_void_p, place: int, times: int, on: c_void_p = stream) -> None:
    """Replays with eager calls between, so that both kinds of launches are mixed."""
    for number in range(times):
        do(cuda.cudaGraphLaunch, executable, on)
        replays[place] += 1
        if number % 3 == 0:
            all_reduce(on)
    do(cuda.cudaStreamSynchronize, on)


def destroy(executable: c_void_p | None, graph: c_void_p | None) -> None:
    if executable is not None:
        executables.remove(executable)
        do(cuda.cudaGraphExecDestroy, executable)
    if graph is not None:
        graphs.remove(graph)
        do(cuda.cudaGraphDestroy, graph)


def every_mode() -> None:
    for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
        graph, place = capture(mode, 5)
        launch(instantiate(graph), place, 10 + mode)


def several_graphs_and_streams() -> None:
    pairs = [capture(THREAD_LOCAL, 3, on) for on in (stream, other, stream)]
    own = [instantiate(graph) for graph, _ in pairs]
    for executable, (_, place) in zip(own, pairs, strict=True):
        launch(executable, place, 7)
    for executable, (graph, _) in zip(own, pairs, strict=True):
        destroy(executable, graph)


def destroyed_without_replay() -> None:
    graph, _ = capture(THREAD_LOCAL, 2)
    destroy(None, graph)


def two_instances() -> None:
    """Of one graph: both count for its capture."""
    graph, place = capture(THREAD_LOCAL, 2)
    launch(instantiate(graph), place, 4)
    launch(instantiate(graph), place, 5)


def update() -> None:
    """An executable that becomes another graph counts for that one from then on."""
    before, first = capture(THREAD_LOCAL, 4)
    executable = instantiate(before)
    launch(executable, first, 6)
    after, second = capture(THREAD_LOCAL, 4)
    code = cuda.cudaGraphExecUpdate(executable, after, create_string_buffer(64))
    notes["update"] = code  # some releases put nodes into the graph that cannot be updated
    if code == 0:
        launch(executable, second, 9)
    else:
        cuda.cudaGetLastError()


def child() -> None:
    """A captured graph as a node of another one, twice."""
    graph, place = capture(THREAD_LOCAL, 3)
    parent = made(cuda.cudaGraphCreate, 0)
    graphs.append(parent)  # it holds copies of the captured calls
    first = c_void_p()
    do(cuda.cudaGraphAddChildGraphNode, byref(first), parent, None, c_size_t(0), graph)
    second = c_void_p()
    do(cuda.cudaGraphAddChildGraphNode, byref(second), parent, byref(first), c_size_t(1), graph)
    executable = instantiate(parent)
    for _ in range(5):
        do(cuda.cudaGraphLaunch, executable, stream)
    replays[place] += 10
    do(cuda.cudaStreamSynchronize, stream)


def capture_by_another_thread() -> None:
    """Eager calls while another thread captures in global mode. What the capture then ends with is
    a note: NCCL itself may disturb it, which a job without the plugin shows.
    """
    begun, may_end = threading.Event(), threading.Event()
    codes: list[int] = []

    def work() -> None:
        do(cuda.cudaSetDevice, 0)
        do(cuda.cudaStreamBeginCapture, other, GLOBAL)
        begun.set()
        may_end.wait()
        graph = c_void_p()
        codes.append(cuda.cudaStreamEndCapture(other, byref(graph)))

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    for _ in range(200):
        all_reduce(stream, 1000)
    may_end.set()
    thread.join()
    do(cuda.cudaStreamSynchronize, stream)
    notes["capture by another thread"] = codes[0]


def capture_that_fails() -> None:
    """A call that is forbidden while a stream captures makes the capture invalid; then another
    capture and eager calls, of the same communicator. CUDA's results are notes.
    """
    do(cuda.cudaStreamBeginCapture, stream, THREAD_LOCAL)
    for _ in range(3):
        all_reduce(stream)
    notes["forbidden call"] = cuda.cudaStreamSynchronize(stream)
    graph = c_void_p()
    notes["end of its capture"] = cuda.cudaStreamEndCapture(stream, byref(graph))
    cuda.cudaGetLastError()
    replays.append(0)
    all_reduce(stream)
    after, place = capture(THREAD_LOCAL, 3)
    launch(instantiate(after), place, 6)


def update_that_fails() -> None:
    """An executable cannot become a graph of another shape: it stays what it was."""
    short, place = capture(THREAD_LOCAL, 2)
    executable = instantiate(short)
    launch(executable, place, 4)
    long, _ = capture(THREAD_LOCAL, 6)
    notes["update to another shape"] = cuda.cudaGraphExecUpdate(
        executable, long, create_string_buffer(64)
    )
    cuda.cudaGetLastError()
    launch(executable, place, 5)


all_reduce(stream)
do(cuda.cudaStreamSynchronize, stream)
every_mode()
several_graphs_and_streams()
destroyed_without_replay()
two_instances()
if not os.environ.get("NCCLSCOPE_SIM_RELEASE"):
    update()
    child()
    capture_that_fails()
    update_that_fails()
capture_by_another_thread()
for left in list(executables):
    destroy(left, None)
for left in list(graphs):
    destroy(None, left)
time.sleep(1.5)  # the recorder reads its counters once a second
do(nccl.ncclCommDestroy, comm)
print(json.dumps({"rank": RANK, "replays": replays, "notes": notes}), flush=True)
