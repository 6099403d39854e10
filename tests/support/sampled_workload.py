"""Calls of a job whose launches are sampled, on the simulated NCCL.

Started once a rank: `python sampled_workload.py CASE[:N] …`. What a rank did is printed as JSON,
where a test needs it.
"""

import ctypes as c
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ncclscope.native import simulated_nccl_path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FLOAT32, SUM = 7, 0
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
NOT_READY = 600
LIBRARY = c.CDLL(str(simulated_nccl_path()))


class Id(c.Structure):
    """ncclUniqueId."""

    _fields_ = (("bytes", c.c_char * 128),)


LIBRARY.ncclCommInitRank.argtypes = (c.POINTER(c.c_void_p), c.c_int, Id, c.c_int)


def do(name: str, *arguments: Any) -> None:
    """Calls a function that must succeed."""
    code = getattr(LIBRARY, name)(*arguments)
    assert code == 0, f"{name} returned {code}"


def made(name: str, *arguments: Any) -> c.c_void_p:
    """What a function stores through its first argument."""
    out = c.c_void_p()
    do(name, c.byref(out), *arguments)
    return out


do("cudaSetDevice", 0)
COMM = made("ncclCommInitRank", WORLD, Id.from_buffer_copy(bytes.fromhex(os.environ["ID"])), RANK)
SEND, RECV = (made("cudaMalloc", c.c_size_t(1 << 20)) for _ in range(2))
STREAM = made("cudaStreamCreate")


def all_reduce(count: int, stream: c.c_void_p = STREAM) -> None:
    do("ncclAllReduce", SEND, RECV, c.c_size_t(count), FLOAT32, SUM, COMM, stream)


def eager(calls: int) -> None:
    """One size, synchronised now and then."""
    for number in range(calls):
        all_reduce(4096)
        if number % 16 == 15:
            do("cudaStreamSynchronize", STREAM)
    do("cudaStreamSynchronize", STREAM)


def driver_calls_until_now(calls: int) -> None:
    """Prints how often the functions with faults were called, by the communicator's init; then as
    many calls.
    """
    count = LIBRARY.ncclSimDriverCalls
    count.restype = c.c_long
    words = os.environ.get("NCCLSCOPE_SIM_CUDA_FAULTS", "").split(",")
    names = {word.split("@")[0] for word in words}
    print(json.dumps({name: count(name.encode()) for name in sorted(names)}), flush=True)
    eager(calls)


def backlog(calls: int) -> None:
    """Everything is queued before anything is waited for."""
    for _ in range(calls):
        all_reduce(4096)
    do("cudaStreamSynchronize", STREAM)


def sizes(calls: int) -> None:
    """Different sizes, once each."""
    for number in range(calls):
        all_reduce(64 + number)
    do("cudaStreamSynchronize", STREAM)


def default_streams(calls: int) -> None:
    """The legacy default stream by both of its names, and the thread's own."""
    for number in range(calls):
        all_reduce(4096, c.c_void_p(number % 3))
    do("cudaDeviceSynchronize")


def messages(calls: int) -> None:
    """A Send and a Recv in a group: one launch."""
    for _ in range(calls):
        do("ncclGroupStart")
        do("ncclSend", SEND, c.c_size_t(2048), FLOAT32, (RANK + 1) % WORLD, COMM, STREAM)
        do("ncclRecv", RECV, c.c_size_t(2048), FLOAT32, (RANK - 1) % WORLD, COMM, STREAM)
        do("ncclGroupEnd")
    do("cudaStreamSynchronize", STREAM)


def broadcast(calls: int) -> None:
    for _ in range(calls):
        do("ncclBroadcast", SEND, RECV, c.c_size_t(4096), FLOAT32, 0, COMM, STREAM)
    do("cudaStreamSynchronize", STREAM)


def short_lived_streams(calls: int) -> None:
    """Streams that are destroyed before anybody reads the events recorded on them."""
    for _ in range(calls):
        stream = made("cudaStreamCreate")
        all_reduce(4096, stream)
        do("cudaStreamSynchronize", stream)
        do("cudaStreamDestroy", stream)


def devices(calls: int) -> None:
    """A communicator on a second device, and calls while a third one is current, which no
    communicator was made on.
    """
    do("cudaSetDevice", 1)
    part = c.c_void_p()
    do("ncclCommSplit", COMM, 0, RANK, c.byref(part), None)
    stream = made("cudaStreamCreate")
    for _ in range(calls):
        do("ncclAllReduce", SEND, RECV, c.c_size_t(512), FLOAT32, SUM, part, stream)
    do("cudaStreamSynchronize", stream)
    do("cudaSetDevice", 0)
    eager(calls)
    do("cudaSetDevice", 2)
    sizes(calls)
    do("cudaSetDevice", 0)
    do("ncclCommDestroy", part)


def device_reset(calls: int) -> None:
    """All events are of a context that is gone."""
    eager(8)
    do("cudaDeviceReset")
    eager(calls)


def end_capture(stream: c.c_void_p) -> c.c_void_p:
    graph = c.c_void_p()
    do("cudaStreamEndCapture", stream, c.byref(graph))
    return graph


def graph_of(mode: int, calls: int, stream: c.c_void_p) -> c.c_void_p:
    """So many captured calls."""
    do("cudaStreamBeginCapture", stream, mode)
    for _ in range(calls):
        all_reduce(1024, stream)
    return end_capture(stream)


def instantiated(graph: c.c_void_p) -> c.c_void_p:
    """The graph, ready to be launched; it is destroyed."""
    ready = made("cudaGraphInstantiate", graph, c.c_ulonglong(0))
    do("cudaGraphDestroy", graph)
    return ready


def captured(mode: int, calls: int, stream: c.c_void_p) -> c.c_void_p:
    """A graph of so many calls, ready to be launched."""
    return instantiated(graph_of(mode, calls, stream))


def wait_for(stream: c.c_void_p, other: c.c_void_p) -> None:
    """What comes to a stream now is behind what the other one has."""
    event = made("cudaEventCreate")
    do("cudaEventRecord", event, other)
    do("cudaStreamWaitEvent", stream, event, 0)
    do("cudaEventDestroy", event)


def forked_captures(replays: int) -> None:
    """Captures over two streams: the second joins the first by an event, and is joined to it again.
    The first captured call is one of the second stream, then one of the first.
    """
    branch = made("cudaStreamCreate")
    for more, streams in enumerate(((branch, STREAM, branch), (STREAM, branch, STREAM))):
        eager(4)
        do("cudaStreamBeginCapture", STREAM, GLOBAL)
        wait_for(branch, STREAM)
        for stream in streams:
            all_reduce(1024, stream)
        wait_for(STREAM, branch)
        all_reduce(1024, STREAM)
        graph = instantiated(end_capture(STREAM))
        for _ in range(replays + more):
            do("cudaGraphLaunch", graph, STREAM)
            all_reduce(4096)
        do("cudaStreamSynchronize", STREAM)
        all_reduce(4096, branch)
        do("cudaStreamSynchronize", branch)
        do("cudaGraphExecDestroy", graph)


def simultaneous_captures(replays: int) -> None:
    """Two threads with a communicator each capture at the same time, with timed calls before and
    after: one in a mode in which nobody, the other in one in which this thread may do nothing unsafe.
    """
    parts = [c.c_void_p() for _ in range(2)]
    for part in parts:
        do("ncclCommSplit", COMM, 0, RANK, c.byref(part), None)
    meet = threading.Barrier(2, timeout=20)
    done = []

    def work(number: int) -> None:
        stream, graph = made("cudaStreamCreate"), c.c_void_p()

        def call() -> None:
            do("ncclAllReduce", SEND, RECV, c.c_size_t(512), FLOAT32, SUM, parts[number], stream)

        for _ in range(8):
            call()
        meet.wait()
        do("cudaStreamBeginCapture", stream, (GLOBAL, THREAD_LOCAL)[number])
        meet.wait()
        for _ in range(3 + number):
            call()
        meet.wait()
        code = LIBRARY.cudaStreamEndCapture(stream, c.byref(graph))
        ready = instantiated(graph)
        for _ in range(replays + number):
            do("cudaGraphLaunch", ready, stream)
            call()
        do("cudaStreamSynchronize", stream)
        do("cudaGraphExecDestroy", ready)
        done.append(code)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps({"end_capture": done}), flush=True)
    for part in parts:
        do("ncclCommDestroy", part)


def invalidated_captures(replays: int) -> None:
    """Captures that the program spoils: it waits for the stream that it captures, or does not join
    another one again. Eager and captured calls follow.
    """
    branch, codes = made("cudaStreamCreate"), []
    for spoils in ("waits", "forks"):
        eager(2)
        graph = c.c_void_p()
        do("cudaStreamBeginCapture", STREAM, GLOBAL)
        all_reduce(1024)
        if spoils == "waits":
            codes.append(LIBRARY.cudaStreamSynchronize(STREAM))
            arguments = (SEND, RECV, c.c_size_t(1024), FLOAT32, SUM, COMM, STREAM)
            codes += [LIBRARY.ncclAllReduce(*arguments) for _ in range(2)]
        else:
            wait_for(branch, STREAM)
            all_reduce(1024, branch)
        codes.append(LIBRARY.cudaStreamEndCapture(STREAM, c.byref(graph)))
        codes.append(int(graph.value is None))
        codes += [LIBRARY.cudaGetLastError(), LIBRARY.cudaGetLastError()]
        eager(20)
        all_reduce(4096, branch)
        again = captured(GLOBAL, 2, STREAM)
        for _ in range(replays):
            do("cudaGraphLaunch", again, STREAM)
        do("cudaStreamSynchronize", STREAM)
        do("cudaStreamSynchronize", branch)
        do("cudaGraphExecDestroy", again)
    print(json.dumps({"codes": codes}), flush=True)


def graphs(replays: int) -> None:
    """A graph in each capture mode, replayed, with eager calls between them."""
    for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
        graph = captured(mode, 3, STREAM)
        for _ in range(replays + mode):
            do("cudaGraphLaunch", graph, STREAM)
            all_reduce(4096)
        do("cudaStreamSynchronize", STREAM)
        do("cudaGraphExecDestroy", graph)


def updated_graph(replays: int) -> None:
    """An executable that becomes another graph, and one that cannot."""
    first, second, longer = (graph_of(THREAD_LOCAL, calls, STREAM) for calls in (3, 3, 4))
    ready = made("cudaGraphInstantiate", first, c.c_ulonglong(0))
    for times, graph in ((replays, second), (replays + 1, longer), (replays + 2, None)):
        for _ in range(times):
            do("cudaGraphLaunch", ready, STREAM)
        do("cudaStreamSynchronize", STREAM)
        if graph:
            print(json.dumps({"update": LIBRARY.cudaGraphExecUpdate(ready, graph, None)}))
    for graph in (first, second, longer, ready):
        do("cudaGraphDestroy", graph)


def child_graph(replays: int) -> None:
    """A captured graph that is a node of another one, twice."""
    child, parent = graph_of(THREAD_LOCAL, 3, STREAM), made("cudaGraphCreate", 0)
    node = c.c_void_p()
    for _ in range(2):
        do("cudaGraphAddChildGraphNode", c.byref(node), parent, None, c.c_size_t(0), child)
    ready = made("cudaGraphInstantiate", parent, c.c_ulonglong(0))
    do("cudaGraphDestroy", child)
    do("cudaGraphDestroy", parent)
    for _ in range(replays):
        do("cudaGraphLaunch", ready, STREAM)
    do("cudaStreamSynchronize", STREAM)
    do("cudaGraphExecDestroy", ready)


def destroyed_graph(replays: int) -> None:
    """Destroyed while all of its replays are queued behind other work."""
    graph = captured(THREAD_LOCAL, 3, STREAM)
    nap = c.CFUNCTYPE(None, c.c_void_p)(lambda _: time.sleep(0.2))
    do("cudaLaunchHostFunc", STREAM, nap, None)
    for _ in range(replays):
        do("cudaGraphLaunch", graph, STREAM)
    assert LIBRARY.cudaStreamQuery(STREAM) == NOT_READY
    do("cudaGraphExecDestroy", graph)
    do("cudaStreamSynchronize", STREAM)


def driver(name: str, *arguments: Any) -> None:
    """Calls a function of the driver that must succeed."""
    LIBRARY.ncclscopeSimulatedDriver.restype = c.c_void_p
    address = LIBRARY.ncclscopeSimulatedDriver(name.encode())
    code = c.CFUNCTYPE(c.c_int)(address)(*arguments)
    assert code == 0, f"{name} returned {code}"


def destroyed_context(calls: int) -> None:
    """Calls and a graph in a context that the program has made, on the device of the other one. It
    is destroyed with its stream while the communicator stays open.
    """
    own, part = c.c_void_p(), c.c_void_p()
    driver("cuCtxCreate_v2", c.byref(own), 0, 0)
    do("ncclCommSplit", COMM, 0, RANK, c.byref(part), None)
    stream = made("cudaStreamCreate")
    do("cudaStreamBeginCapture", stream, THREAD_LOCAL)
    do("ncclAllReduce", SEND, RECV, c.c_size_t(512), FLOAT32, SUM, part, stream)
    graph = c.c_void_p()
    do("cudaStreamEndCapture", stream, c.byref(graph))
    do("cudaGraphLaunch", graph, stream)
    for _ in range(calls):
        do("ncclAllReduce", SEND, RECV, c.c_size_t(512), FLOAT32, SUM, part, stream)
    do("cudaStreamSynchronize", stream)
    do("cudaGraphDestroy", graph)
    do("cudaStreamDestroy", stream)
    driver("cuCtxDestroy_v2", own)
    do("cudaSetDevice", 0)
    eager(calls)


def reset_and_leave(_: int) -> None:
    """The last call of CUDA is a reset; the communicator stays open."""
    do("cudaDeviceReset")
    sys.exit(0)


def capture_in_another_thread(calls: int) -> None:
    """This thread goes on with eager calls while another one captures in global mode: nobody may
    invalidate that capture.
    """
    begun, may_end = threading.Event(), threading.Event()
    codes = []

    def capture() -> None:
        stream = made("cudaStreamCreate")
        do("cudaStreamBeginCapture", stream, GLOBAL)
        begun.set()
        may_end.wait()
        graph = c.c_void_p()
        codes.append(LIBRARY.cudaStreamEndCapture(stream, c.byref(graph)))

    thread = threading.Thread(target=capture)
    thread.start()
    begun.wait()
    eager(calls)
    may_end.set()
    thread.join()
    print(json.dumps({"end_capture": codes[0]}), flush=True)


def threads(calls: int) -> None:
    """Two threads with a communicator each share the pool of one context."""

    def work(comm: c.c_void_p) -> None:
        stream = made("cudaStreamCreate")
        for _ in range(calls):
            do("ncclAllReduce", SEND, RECV, c.c_size_t(512), FLOAT32, SUM, comm, stream)
        do("cudaStreamSynchronize", stream)

    parts = [c.c_void_p() for _ in range(2)]
    for part in parts:
        do("ncclCommSplit", COMM, 0, RANK, c.byref(part), None)
    workers = [threading.Thread(target=work, args=(part,)) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for part in parts:
        do("ncclCommDestroy", part)


def fork(calls: int) -> None:
    """Children that inherit everything, call NCCL and exit, one of them with its exit functions; the
    parent goes on. Nothing of theirs may come to CUDA.
    """
    for end in (os._exit, sys.exit):
        eager(1)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            all_reduce(4096)
            end(0)
        assert os.waitpid(child, 0)[1] == 0
    eager(calls)


def delete_metadata(come_back: int) -> None:
    """Deletes this process's metadata once the recorder has written of graphs; with 1 it waits until
    the recorder has begun it anew.
    """
    path = _own_metadata()
    while not {"GraphReplays", "GraphCall"} <= set(_kinds_in(path)):
        time.sleep(0.05)
    path.unlink()
    while come_back and not path.exists():
        time.sleep(0.05)


def _own_metadata() -> Path:
    """This process's metadata, once the recorder's thread has made it."""
    while True:
        for path in Path(os.environ["NCCLSCOPE_DIR"]).glob(f"*.{os.getpid()}.*/meta"):
            return path
        time.sleep(0.01)


def _kinds_in(path: Path) -> list[str]:
    from ncclscope.capture.metadata import by_kind, read_meta_file  # numpy: only where needed
    from ncclscope.capture.segment import Damage

    _, slots = read_meta_file(path, Damage())
    return [kind for kind in ("GraphReplays", "GraphCall") if len(by_kind(slots).of(kind))]


def mode_changes_in_groups(calls: int) -> None:
    """The mode changes to trace inside of a group, and back to profile inside of another one; calls
    before, between and after.
    """
    eager(calls)
    for changes, mode in enumerate(("trace", "profile"), 1):
        do("ncclGroupStart")
        all_reduce(4096)
        _change_mode(mode, changes)
        all_reduce(4096)
        do("ncclGroupEnd")
        eager(calls)


def switched_off(calls: int) -> None:
    """Sampling is switched off after so many calls, and goes on after as many more; then the same
    once more.
    """
    eager(calls)
    for changes, timing in enumerate(("off", "sampled"), 1):
        _ask_all(f"gpu-timing {timing}", changes)
        eager(calls)


def _change_mode(mode: str, changes: int) -> None:
    _ask_all(f"mode {mode}", changes)


def _ask_all(line: str, changes: int) -> None:
    """Once all ranks have come here, the first one asks all for it; each waits for its own recorder.
    `changes`: with this one.
    """
    from ncclscope.capture.control import request
    from ncclscope.capture.metadata import by_kind, read_meta_file
    from ncclscope.capture.segment import Damage

    capture = Path(os.environ["NCCLSCOPE_DIR"])
    (capture / f"{changes}.{RANK}.here").touch()
    while len(list(capture.glob(f"{changes}.*.here"))) < WORLD:
        time.sleep(0.01)
    if RANK == 0:
        request(capture, line)
    path = _own_metadata()
    while len(by_kind(read_meta_file(path, Damage())[1]).of("Zoom")) < changes:
        time.sleep(0.01)


def leave(calls: int) -> None:
    """Ends without destroying the communicator, events pending."""
    for _ in range(calls):
        all_reduce(4096)
    sys.stdout.flush()
    sys.exit(0)


def die(_: int) -> None:
    """As a job that runs out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


for word in sys.argv[1:]:
    case, _, number = word.partition(":")
    globals()[case](int(number or 8))
do("ncclCommDestroy", COMM)
