"""Captures of the simulated CUDA over several streams, and what spoils them: with CUDA's errors."""

import ctypes as c

import pytest

from ncclscope.native import simulated_nccl_path

GLOBAL = 0
NONE, ACTIVE, INVALIDATED = range(3)
UNSUPPORTED, INVALID, MERGE, UNMATCHED, UNJOINED, ISOLATION = range(900, 906)
Stream = c.c_void_p


@pytest.fixture(scope="module")
def cuda() -> c.CDLL:
    return c.CDLL(str(simulated_nccl_path()))


def made(cuda: c.CDLL, name: str) -> c.c_void_p:
    out = c.c_void_p()
    assert getattr(cuda, name)(c.byref(out)) == 0
    return out


def streams(cuda: c.CDLL, count: int) -> list[Stream]:
    return [made(cuda, "cudaStreamCreate") for _ in range(count)]


def recorded(cuda: c.CDLL, stream: Stream) -> c.c_void_p:
    event = made(cuda, "cudaEventCreate")
    assert cuda.cudaEventRecord(event, stream) == 0
    return event


def add_work(cuda: c.CDLL, stream: Stream) -> None:
    """Something that only has to be there."""
    assert cuda.cudaEventRecord(made(cuda, "cudaEventCreate"), stream) == 0


def end(cuda: c.CDLL, stream: Stream) -> tuple[int, bool]:
    """The error, and whether there is a graph."""
    graph = c.c_void_p()
    return cuda.cudaStreamEndCapture(stream, c.byref(graph)), graph.value is not None


def status(cuda: c.CDLL, stream: Stream) -> int:
    found = c.c_int()
    assert cuda.cudaStreamIsCapturing(stream, c.byref(found)) == 0
    return found.value


def forked(cuda: c.CDLL) -> tuple[Stream, Stream]:
    """A stream that is captured, and one that has joined it and has work of its own."""
    first, second = streams(cuda, 2)
    assert cuda.cudaStreamBeginCapture(first, GLOBAL) == 0
    assert cuda.cudaStreamWaitEvent(second, recorded(cuda, first), 0) == 0
    add_work(cuda, second)
    assert (status(cuda, first), status(cuda, second)) == (ACTIVE, ACTIVE)
    return first, second


def test_streams_join_a_capture_and_leave_it_with_its_end(cuda: c.CDLL) -> None:
    first, second = forked(cuda)
    assert cuda.cudaStreamWaitEvent(first, recorded(cuda, second), 0) == 0
    assert end(cuda, first) == (0, True)
    assert (status(cuda, first), status(cuda, second)) == (NONE, NONE)
    for stream in (first, second):
        add_work(cuda, stream)
        assert cuda.cudaStreamSynchronize(stream) == 0


@pytest.mark.parametrize("work_after", [False, True])
def test_work_that_nobody_waits_for_spoils_the_capture(cuda: c.CDLL, work_after: bool) -> None:
    first, second = forked(cuda)
    if work_after:
        assert cuda.cudaStreamWaitEvent(first, recorded(cuda, second), 0) == 0
        add_work(cuda, second)
    assert end(cuda, first) == (UNJOINED, False)
    assert (status(cuda, first), status(cuda, second)) == (NONE, NONE)


def test_a_capture_ends_where_it_began(cuda: c.CDLL) -> None:
    first, second = forked(cuda)
    assert end(cuda, second) == (UNMATCHED, False)
    assert end(cuda, first) == (INVALID, False)
    assert status(cuda, second) == NONE


def test_captures_do_not_merge(cuda: c.CDLL) -> None:
    first, second = streams(cuda, 2)
    for stream in (first, second):
        assert cuda.cudaStreamBeginCapture(stream, GLOBAL) == 0
    assert cuda.cudaStreamWaitEvent(second, recorded(cuda, first), 0) == MERGE
    assert [end(cuda, stream) for stream in (first, second)] == [(INVALID, False)] * 2


def test_a_capture_waits_for_nothing_outside_of_it(cuda: c.CDLL) -> None:
    first, other = streams(cuda, 2)
    event = recorded(cuda, other)
    assert cuda.cudaStreamBeginCapture(first, GLOBAL) == 0
    assert cuda.cudaStreamWaitEvent(first, event, 0) == ISOLATION
    assert end(cuda, first) == (INVALID, False)


def test_after_a_forbidden_call_everything_fails_until_the_end(cuda: c.CDLL) -> None:
    (stream,) = streams(cuda, 1)
    assert cuda.cudaStreamBeginCapture(stream, GLOBAL) == 0
    assert cuda.cudaStreamSynchronize(stream) == UNSUPPORTED
    assert status(cuda, stream) == INVALIDATED
    assert cuda.cudaStreamSynchronize(stream) == INVALID
    assert cuda.cudaEventRecord(made(cuda, "cudaEventCreate"), stream) == INVALID
    assert end(cuda, stream) == (INVALID, False)
    add_work(cuda, stream)
    assert cuda.cudaStreamSynchronize(stream) == 0
