"""The simulated NCCL really moves and reduces bytes: every datatype, operator and function."""

import ctypes as c
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ncclscope.native import simulated_nccl_path
from ncclscope.nccl.datatypes import DATATYPES

RANKS = 3
OPERATORS = ("sum", "prod", "max", "min", "avg")  # in NCCL's order
PLAIN = {
    "int8": np.int8, "uint8": np.uint8, "int32": np.int32, "uint32": np.uint32, "int64": np.int64,
    "uint64": np.uint64, "float16": np.float16, "float32": np.float32, "float64": np.float64,
}  # fmt: skip
# Bits of exponent and mantissa of what numpy does not have.
SMALL = {"bfloat16": (8, 7), "float8e4m3": (4, 3), "float8e5m2": (5, 2)}
COUNT = 1000
Array = npt.NDArray[Any]


class Id(c.Structure):
    """ncclUniqueId."""

    _fields_ = (("bytes", c.c_char * 128),)


@pytest.fixture(scope="module")
def nccl() -> c.CDLL:
    library = c.CDLL(str(simulated_nccl_path()))
    library.ncclCommInitRank.argtypes = (c.POINTER(c.c_void_p), c.c_int, Id, c.c_int)
    library.ncclGetLastError.restype = c.c_char_p
    return library


def at(array: Array, offset: int = 0) -> c.c_void_p:
    """Device memory is host memory."""
    return c.c_void_p(array.ctypes.data + int(offset))


def on_all_ranks(nccl: c.CDLL, work: Callable[[int, c.c_void_p, c.c_void_p], None]) -> None:
    """Runs work(rank, communicator, stream) in a thread for each rank."""
    whole = Id()
    assert nccl.ncclGetUniqueId(c.byref(whole)) == 0
    problems: list[BaseException] = []

    def be(rank: int) -> None:
        try:
            comm, stream = c.c_void_p(), c.c_void_p()
            assert nccl.ncclCommInitRank(c.byref(comm), RANKS, whole, rank) == 0
            assert nccl.cudaStreamCreate(c.byref(stream)) == 0
            work(rank, comm, stream)
            assert nccl.cudaStreamSynchronize(stream) == 0
            assert nccl.ncclCommDestroy(comm) == 0
            assert nccl.cudaStreamDestroy(stream) == 0
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=be, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert not any(thread.is_alive() for thread in threads)


def encoded(datatype: str, values: Array) -> Array:
    """Small whole numbers, and halves of them, as a datatype stores them."""
    if datatype in PLAIN:
        return values.astype(PLAIN[datatype])
    exponent_bits, mantissa_bits = SMALL[datatype]
    bias = (1 << (exponent_bits - 1)) - 1
    mantissa, exponent = np.frexp(values)
    fraction = np.rint((mantissa * 2 - 1) * (1 << mantissa_bits)).astype(np.int64)
    bits = (exponent - 1 + bias).astype(np.int64) << mantissa_bits | fraction
    width = np.uint16 if datatype == "bfloat16" else np.uint8
    return np.where(values == 0, 0, bits).astype(width)


def expected(operator: str, inputs: list[Array]) -> Array:
    stacked = np.stack(inputs)
    return {
        "sum": stacked.sum(axis=0),
        "prod": stacked.prod(axis=0),
        "max": stacked.max(axis=0),
        "min": stacked.min(axis=0),
        "avg": stacked.sum(axis=0) / RANKS,
    }[operator]


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_reduce(nccl: c.CDLL, operator: str, datatype: str) -> None:
    choices = np.array([1.0, 2.0, 3.0] if operator != "avg" else [1.0, 4.0, 1.0])
    values = [choices[(np.arange(COUNT) + rank) % 3] for rank in range(RANKS)]
    received = [encoded(datatype, np.zeros(COUNT)) for _ in range(RANKS)]
    sent = [encoded(datatype, one) for one in values]
    number = DATATYPES[datatype].number

    def work(rank: int, comm: c.c_void_p, stream: c.c_void_p) -> None:
        arguments = c.c_size_t(COUNT), number, OPERATORS.index(operator), comm, stream
        assert nccl.ncclAllReduce(at(sent[rank]), at(received[rank]), *arguments) == 0

    on_all_ranks(nccl, work)
    for result in received:
        np.testing.assert_array_equal(result, encoded(datatype, expected(operator, values)))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("count", [1, 777, 400_000])
def test_every_function(nccl: c.CDLL, count: int, in_place: bool) -> None:
    rng = np.random.default_rng(count)
    float32, total, root = 7, 0, 1
    size = c.c_size_t(count)
    whole = [rng.integers(0, 100, count * RANKS).astype(np.float32) for _ in range(RANKS)]
    seen: dict[tuple[str, int], Array] = {}

    def work(rank: int, comm: c.c_void_p, stream: c.c_void_p) -> None:
        def run(name: str, call: Callable[[c.c_void_p, c.c_void_p], int], offset: int = 0) -> None:
            send = whole[rank].copy()
            recv = send if in_place else np.zeros_like(send)
            given = at(send, offset) if in_place else at(send)
            assert call(given, at(recv)) == 0
            assert nccl.cudaStreamSynchronize(stream) == 0
            seen[name, rank] = recv

        tail = comm, stream
        offset = rank * count * 4
        run("reduce", lambda s, r: nccl.ncclReduce(s, r, size, float32, total, root, *tail))
        run("broadcast", lambda s, r: nccl.ncclBroadcast(s, r, size, float32, root, *tail))
        run("gathered", lambda s, r: nccl.ncclAllGather(s, r, size, float32, *tail), offset)
        run("scattered", lambda s, r: nccl.ncclReduceScatter(s, r, size, float32, total, *tail))
        if in_place:
            return
        run("all to all", lambda s, r: nccl.ncclAlltoAll(s, r, size, float32, *tail))
        run("gather", lambda s, r: nccl.ncclGather(s, r, size, float32, root, *tail))
        run("scatter", lambda s, r: nccl.ncclScatter(s, r, size, float32, root, *tail))

    on_all_ranks(nccl, work)
    parts = [one.reshape(RANKS, count) for one in whole]
    sums = np.sum(whole, axis=0, dtype=np.float32)
    np.testing.assert_array_equal(seen["reduce", root][:count], sums[:count])
    for rank in range(RANKS):
        np.testing.assert_array_equal(seen["broadcast", rank][:count], parts[root][0])
        gathered = [parts[r][r] if in_place else parts[r][0] for r in range(RANKS)]
        np.testing.assert_array_equal(seen["gathered", rank], np.concatenate(gathered))
        share = slice(rank * count, (rank + 1) * count)
        np.testing.assert_array_equal(seen["scattered", rank][:count], sums[share])
        if not in_place:
            swapped = np.concatenate([parts[r][rank] for r in range(RANKS)])
            np.testing.assert_array_equal(seen["all to all", rank], swapped)
            np.testing.assert_array_equal(seen["scatter", rank][:count], parts[root][rank])
    if not in_place:
        first = np.concatenate([one[0] for one in parts])
        np.testing.assert_array_equal(seen["gather", root], first)


def test_many_messages_in_one_group(nccl: c.CDLL) -> None:
    """More than anybody keeps places for, of sizes from nothing to several letters."""
    counts = [(7919 * number) % 50_000 if number % 10 else 0 for number in range(150)]
    starts = np.concatenate([[0], np.cumsum(counts)])
    received = [np.zeros(starts[-1], np.float32) for _ in range(RANKS)]
    sent = [np.arange(starts[-1], dtype=np.float32) + rank for rank in range(RANKS)]

    def work(rank: int, comm: c.c_void_p, stream: c.c_void_p) -> None:
        after, before = (rank + 1) % RANKS, (rank - 1) % RANKS
        nccl.ncclGroupStart()
        for start, count in zip(starts * 4, counts, strict=False):
            more = c.c_size_t(count), 7
            assert nccl.ncclSend(at(sent[rank], start), *more, after, comm, stream) == 0
            assert nccl.ncclRecv(at(received[rank], start), *more, before, comm, stream) == 0
        assert nccl.ncclGroupEnd() == 0

    on_all_ranks(nccl, work)
    for rank in range(RANKS):
        np.testing.assert_array_equal(received[rank], sent[(rank - 1) % RANKS])


def test_wrong_arguments(nccl: c.CDLL) -> None:
    codes = {}

    def work(rank: int, comm: c.c_void_p, stream: c.c_void_p) -> None:
        memory, one = c.c_void_p(), c.c_size_t(1)
        tail = comm, stream
        codes["root"] = nccl.ncclBroadcast(memory, memory, one, 7, RANKS, *tail)
        codes["datatype"] = nccl.ncclAllReduce(memory, memory, one, 12, 0, *tail)
        codes["operator"] = nccl.ncclAllReduce(memory, memory, one, 7, 5, *tail)
        codes["peer"] = nccl.ncclSend(memory, one, 7, -1, *tail)
        codes["comm"] = nccl.ncclAllReduce(memory, memory, one, 7, 0, None, stream)
        codes["group"] = nccl.ncclGroupEnd()
        assert nccl.ncclGetLastError(None) == b"ncclGroupEnd without ncclGroupStart"

    on_all_ranks(nccl, work)
    assert codes == {"root": 4, "datatype": 4, "operator": 4, "peer": 4, "comm": 4, "group": 5}
    comm = c.c_void_p()
    assert nccl.ncclCommInitRank(c.byref(comm), 1, Id(), 0) == 4  # an id that nobody made
    memory = c.c_void_p()
    assert nccl.cudaMalloc(c.byref(memory), c.c_size_t(1 << 50)) == 2
    assert nccl.cudaSetDevice(99) == 101


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"NCCLSCOPE_SIM_RELEASE": "2.19"}, "releases are 2.26, 2.27, 2.28, 2.30, 2.31 and 2.32"),
        ({"NCCLSCOPE_SIM_SCENARIO": "/nowhere"}, "No such file or directory: /nowhere"),
    ],
)
def test_wrong_settings(variables: dict[str, str], complaint: str) -> None:
    program = """if 1:
        import ctypes as c, sys
        class Id(c.Structure): _fields_ = (("bytes", c.c_char * 128),)
        nccl, one, comm = c.CDLL(sys.argv[1]), Id(), c.c_void_p()
        nccl.ncclCommInitRank.argtypes = (c.POINTER(c.c_void_p), c.c_int, Id, c.c_int)
        nccl.ncclGetLastError.restype = c.c_char_p
        nccl.ncclGetUniqueId(c.byref(one))
        print(nccl.ncclCommInitRank(c.byref(comm), 1, one, 0), nccl.ncclGetLastError(None).decode())
    """
    command = [sys.executable, "-c", program, str(simulated_nccl_path())]
    ran = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.startswith("5 ")
    assert complaint in ran.stdout


@pytest.mark.parametrize("drop", ["bandwidth_drop = 0 8", "bandwidth_drop = factor=8 at_ms=0"])
def test_both_forms_of_a_scenario_s_lines(drop: str, tmp_path: Path) -> None:
    """The library reads the same text as the launcher: an AllReduce of 2 ranks, 8 times as long."""
    program = """if 1:
        import ctypes as c, sys, threading
        class Id(c.Structure): _fields_ = (("bytes", c.c_char * 128),)
        nccl, whole, taken = c.CDLL(sys.argv[1]), Id(), {}
        nccl.ncclCommInitRank.argtypes = (c.POINTER(c.c_void_p), c.c_int, Id, c.c_int)
        nccl.ncclGetUniqueId(c.byref(whole))
        def be(rank):
            comm, stream, memory, begin, end = (c.c_void_p() for _ in range(5))
            nccl.ncclCommInitRank(c.byref(comm), 2, whole, rank)
            nccl.cudaStreamCreate(c.byref(stream))
            nccl.cudaMalloc(c.byref(memory), c.c_size_t(1 << 20))
            for event in (begin, end):
                nccl.cudaEventCreate(c.byref(event))
            nccl.cudaEventRecord(begin, stream)
            nccl.ncclAllReduce(memory, memory, c.c_size_t(1 << 20), 0, 0, comm, stream)
            nccl.cudaEventRecord(end, stream)
            nccl.cudaStreamSynchronize(stream)
            ms = c.c_float()
            nccl.cudaEventElapsedTime(c.byref(ms), begin, end)
            taken[rank] = ms.value
        threads = [threading.Thread(target=be, args=(rank,)) for rank in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(min(taken.values()))
    """
    file = tmp_path / "scenario"
    file.write_text(f"bandwidth_gb_s = 1\n{drop}\n")
    command = [sys.executable, "-c", program, str(simulated_nccl_path())]
    environment = os.environ | {"NCCLSCOPE_SIM_SCENARIO": str(file)}
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert float(ran.stdout) > 8 * (1 << 20) / 1e6  # ms
