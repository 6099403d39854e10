"""The benchmark's pure parts: sizes, stopping, shapes, data and results that are known, forms."""

import ctypes
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from xml.etree import ElementTree

import numpy as np
import pytest

from ncclscope.analysis.baseline import read_baseline
from ncclscope.bench import datatypes
from ncclscope.bench.cuda import Cuda, ReferenceWork
from ncclscope.bench.datatypes import DATATYPES, REDUCTIONS, find_datatype, find_reduction
from ncclscope.bench.json_results import BenchRun, as_json, as_nccl_tests
from ncclscope.bench.measure import REFERENCE_LAUNCHES, Batch, Stopwatch
from ncclscope.bench.messages import Message, MessageError, decode, encode
from ncclscope.bench.nccl import receives_of, sends_of
from ncclscope.bench.operations import OPERATIONS, Shape, find_operations, shape_of
from ncclscope.bench.plan import (
    Case,
    Plan,
    cases,
    check_plan,
    next_batch,
    omission_notes,
    parse_size,
    plan_from_json,
    sizes_between,
    worlds_up_to,
)
from ncclscope.bench.plots import html, svg, text_lines
from ncclscope.bench.rank_placement import (
    first_host,
    parse_address,
    placement_from_hosts,
    placement_from_launcher,
)
from ncclscope.bench.reference_kernel import reference_kernel
from ncclscope.bench.results import BenchDevice, Loop, RankTimes, Result, Session, time_statistics
from ncclscope.bench.table import (
    SIMULATED,
    closing_lines,
    column_lines,
    heading_lines,
    row_line,
    rows_of,
    scaling_groups,
)
from ncclscope.bench.test_data import PERIOD, expected_output, input_of, repeat, wrong_elements
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.native import simulated_nccl_path
from ncclscope.nccl.releases import release_of_code

SIZES = {"8": 8, "1K": 1024, "32M": 32 << 20, "1g": 1 << 30, "2KiB": 2048, "4kb": 4096}


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_sizes_as_nccl_tests_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "1X", "1 M", "0x10"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="no size"):
        parse_size(text)


def test_sizes_between() -> None:
    assert sizes_between(8, 64, None, None) == (8, 16, 32, 64)
    assert sizes_between(1, 1000, 10, None) == (1, 10, 100, 1000)
    assert sizes_between(10, 35, None, 10) == (10, 20, 30)
    assert sizes_between(1, 4, 1.01, None) == (1, 2, 3, 4), "they grow, however small the factor"
    for bad in ((8, 4, None, None), (0, 4, None, None), (1, 4, 1.0, None), (1, 4, None, 0)):
        with pytest.raises(UsageError):
            sizes_between(*bad)
    with pytest.raises(UsageError, match="more than 1000"):
        sizes_between(1, 1 << 30, None, 1)


def plan(**changes: object) -> Plan:
    return replace(Plan(("allreduce",), (1024,)), **changes)  # type: ignore[arg-type]


def test_a_plan_survives_its_way_to_other_ranks() -> None:
    made = plan(worlds=(2, 4), seconds=0.5, calls=None)
    assert plan_from_json({**json.loads(json.dumps(made.as_json())), "unknown": 1}) == made


def test_runs_end_after_calls() -> None:
    made = plan(calls=2500)
    assert next_batch(made, 0, 0, 1000) == 1000, "not more than anybody should wait for"
    assert next_batch(made, 2000, 0, 1000) == 500
    assert next_batch(made, 2500, 0, 1000) == 0
    assert next_batch(made, 0, 0, 4e8) == 2, "a batch of slow calls is short, too"
    assert next_batch(made, 0, 0, 1e12) == 1


def test_runs_end_after_seconds() -> None:
    made = plan(calls=None, seconds=1.0)
    assert next_batch(made, 0, 0, 1e6) == 1000
    assert next_batch(made, 900, 0.9e9, 1e6) == 100
    assert next_batch(made, 900, 1.1e9, 1e6) == 0
    assert next_batch(made, 0, 2e9, 1e6) == 1, "one call at least"
    both = plan(calls=30, seconds=1.0)
    assert next_batch(both, 0, 0, 1e6) == 30
    assert next_batch(both, 20, 1.5e9, 1e6) == 0, "what comes first"


def test_shapes_are_those_of_nccl_tests() -> None:
    def of(name: str, size: int, ranks: int, element: int = 4) -> Shape | None:
        return shape_of(OPERATIONS[name], size, element, ranks)

    assert of("allreduce", 1024, 4) == Shape(256, 256, 256)
    assert of("allgather", 1024, 4) == Shape(64, 64, 256)
    assert of("reducescatter", 1024, 4) == Shape(64, 256, 64)
    assert of("alltoall", 1024, 4) == Shape(64, 256, 256)
    assert of("gather", 1024, 4) == Shape(64, 64, 256)
    assert of("scatter", 1024, 4) == Shape(64, 256, 64)
    assert of("allgather", 1000, 3) == Shape(80, 80, 240), "shares are multiples of 16 bytes"
    assert of("allgather", 32, 4) == Shape(2, 2, 8), "unless they are smaller"
    assert of("allgather", 8, 4) is None
    assert of("allreduce", 2, 2) is None


def test_cases() -> None:
    made = plan(
        operations=("allreduce", "broadcast", "alltoall"), roots=(-1,), reductions=("sum", "max")
    )
    found = list(cases(made, 2))
    assert [(c.operation, c.reduction, c.root, c.place) for c in found] == [
        ("allreduce", "sum", -1, "out-of-place"),
        ("allreduce", "sum", -1, "in-place"),
        ("allreduce", "max", -1, "out-of-place"),
        ("allreduce", "max", -1, "in-place"),
        ("broadcast", "none", 0, "out-of-place"),
        ("broadcast", "none", 0, "in-place"),
        ("broadcast", "none", 1, "out-of-place"),
        ("broadcast", "none", 1, "in-place"),
        ("alltoall", "none", -1, "out-of-place"),
    ]


def test_what_cannot_be_measured_is_said() -> None:
    odd = plan(operations=("allreduce", "pairs"))
    assert [case.operation for case in cases(odd, 3)] == ["allreduce", "allreduce"]
    assert omission_notes(odd, 3) == ["SendRecv, pairs is left out: 3 ranks cannot be paired"]
    small = plan(operations=("allgather",), sizes=(8, 64))
    assert omission_notes(small, 4) == [
        "AllGather leaves out 8 bytes: no element of float for each rank"
    ]
    for bad, ranks in (
        (plan(operations=("pairs",)), 3),
        (plan(roots=(4,)), 4),
        (plan(operations=("sendrecv",), places=("in-place",)), 2),
        (plan(sizes=(2,)), 2),
    ):
        with pytest.raises(UsageError):
            check_plan(bad, ranks)
    check_plan(plan(roots=(3,)), 4)


def test_names() -> None:
    assert [o.name for o in find_operations(["AllReduce", "all_gather"])] == [
        "allreduce",
        "allgather",
    ]
    assert len(find_operations(["all"])) == len(OPERATIONS)
    assert find_datatype("float32") == "float"
    assert find_reduction("SUM") == "sum"
    for wrong in (
        lambda: find_operations(["allreduced"]),
        lambda: find_datatype("float31"),
        lambda: find_reduction("xor"),
    ):
        with pytest.raises(UsageError):
            wrong()
    assert release_of_code(22809) == (2, 28, 9)
    assert release_of_code(2708) == (2, 7, 8)
    assert worlds_up_to(8) == (2, 4, 8)
    assert worlds_up_to(6) == (2, 4, 6)
    assert worlds_up_to(1) == (1,)


@pytest.mark.parametrize("name", DATATYPES)
def test_whole_numbers_survive_every_datatype(name: str) -> None:
    datatype = DATATYPES[name]
    values = np.arange(min(datatype.largest_exact, 300) + 1)
    assert (datatypes.decode(datatype, datatypes.encode(datatype, values)) == values).all()


def test_floats_that_numpy_does_not_know() -> None:
    brain = DATATYPES["bfloat16"]
    assert datatypes.encode(brain, np.array([0, 1, 3])).tolist() == [0, 0x3F80, 0x4040]
    assert datatypes.decode(brain, np.array([0xBF80, 0x7F80], "u2")).tolist() == [-1.0, np.inf]
    assert datatypes.encode(DATATYPES["f8e4m3"], np.array([1, 16])).tolist() == [0x38, 0x58]
    assert datatypes.encode(DATATYPES["f8e5m2"], np.array([1, 8])).tolist() == [0x3C, 0x48]
    assert np.isnan(datatypes.decode(DATATYPES["f8e4m3"], np.array([0x7F], "u1")))[0]
    assert datatypes.decode(DATATYPES["f8e4m3"], np.array([0x01], "u1"))[0] == 2.0**-9


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 300])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["int8", "float", "half", "bfloat16", "f8e5m2"])
def test_reductions_are_exact(name: str, reduction: str, ranks: int) -> None:
    """Nothing in the data may round or run over: else a right result would look wrong."""
    datatype = DATATYPES[name]
    sent = [
        datatypes.decode(
            datatype, input_of(OPERATIONS["allreduce"], datatype, reduction, rank, ranks)
        )
        for rank in range(ranks)
    ]
    whole = np.sum(sent, axis=0, dtype=np.float64)
    if reduction in ("sum", "avg"):
        assert whole.max() <= datatype.largest_exact
        assert whole.max() > 0
    if reduction == "prod":
        assert np.prod(sent, axis=0, dtype=np.float64).max() <= 8


def test_ranks_and_neighbours_differ() -> None:
    """Data from the wrong rank or from a block further must be noticed."""
    allgather, single = OPERATIONS["allgather"], DATATYPES["float"]
    first, second = (input_of(allgather, single, "none", rank, 4) for rank in (0, 1))
    assert np.count_nonzero(first == second) < PERIOD / 10
    for shift in (1, 4, 256, 1024, 4096, 1 << 20):
        moved = repeat(first, shift, PERIOD)
        assert np.count_nonzero(moved == first) < PERIOD / 4, shift


def carried_out(case: Case, shape: Shape, sent: list[np.ndarray], rank: int) -> np.ndarray:
    """What an operation must give, worked out with all data in one place."""
    n = shape.count
    if case.operation in ("allreduce", "reduce"):
        return np.sum(sent, axis=0)
    if case.operation == "reducescatter":
        return np.sum(sent, axis=0)[rank * n : (rank + 1) * n]
    if case.operation == "broadcast":
        return sent[case.root]
    if case.operation in ("allgather", "gather"):
        return np.concatenate(sent)
    received = []
    for sender, _ in sorted(receives_of(case, rank), key=lambda pair: pair[1]):
        (place,) = [place for to, place in sends_of(case, sender) if to == rank]
        received.append(sent[sender][place * n : (place + 1) * n])
    return np.concatenate(received)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_must_come_out(name: str, ranks: int) -> None:
    if name == "pairs" and ranks == 1:
        return
    operation, single = OPERATIONS[name], DATATYPES["float"]
    shape = shape_of(operation, 50_000, 4, ranks)
    assert shape
    root = ranks - 1
    reduction = "sum" if operation.reduces else "none"
    case = Case(name, "float", reduction, root, 50_000, "out-of-place", ranks)
    sent = [
        repeat(input_of(operation, single, reduction, rank, ranks), 0, shape.send)
        for rank in range(ranks)
    ]
    for rank in range(ranks):
        pieces = expected_output(operation, single, reduction, root, rank, ranks, shape)
        if operation.facts.has_root and name in ("reduce", "gather") and rank != root:
            assert pieces == []
            continue
        expected = np.concatenate([repeat(p, first, count) for count, first, p in pieces])
        assert len(expected) == shape.receive
        assert (expected == carried_out(case, shape, sent, rank)).all()


def test_wrong_elements_are_counted() -> None:
    single = DATATYPES["float"]
    expected = np.arange(100)
    found = expected.astype("f4")
    assert wrong_elements(single, "sum", 2, found, expected) == 0
    found[[3, 50]] = 7.5, np.nan
    assert wrong_elements(single, "sum", 2, found, expected) == 2
    assert wrong_elements(single, "avg", 2, found, expected) == 2
    near = (expected * (1 + 1e-7)).astype("f4")
    assert wrong_elements(single, "avg", 4, near, expected) == 0, "averages are rounded"


# ---- results ----


def result(place: str = "out-of-place", gpu_us: float = 10, **changes: object) -> Result:
    case = Case("allreduce", "float", "sum", -1, 1 << 20, place, 2)
    times = tuple(
        RankTimes(
            rank,
            np.array([gpu_us * 1e3 + rank * 100 + call for call in range(10)], np.int64),
            np.full(10, 3000, np.int64),
            np.full(10, -1, np.int64),
            (Loop(0, 4, 50_000, 20_000, 60_000), Loop(1, 6, 70_000, 20_000, 60_000)),
            0,
        )
        for rank in range(2)
    )
    made = Result(case, 1 << 20, 1 << 18, 1, times)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_what_a_result_comes_to() -> None:
    one = result()
    assert one.slowest_ns.tolist() == [10_100 + call for call in range(10)]
    assert one.time_ns == 12_000, "of the loops, gaps included, as nccl-tests measure"
    assert one.algbw_gbs == pytest.approx((1 << 20) / 12_000)
    assert one.busbw_gbs == one.algbw_gbs, "two ranks"
    assert [len(run) for run in one.runs] == [4, 6]
    assert one.gap_share == pytest.approx(1 - (100_045 + 101_045) / 240_000)
    assert not one.host_bound
    assert not one.blocking
    assert one.wrong == 0
    spread = time_statistics(one.slowest_ns)
    assert (spread.min_ns, spread.median_ns, spread.p99_ns, spread.max_ns) == (
        10_100,
        10_104,
        10_109,
        10_109,
    )
    assert result(grouped=2).time_ns == 6_000


def session(simulation: str = "") -> Session:
    devices = (
        BenchDevice(0, "a", 1, 0, "H200", "0000:04:00.0", "kernel", 900, 100),
        BenchDevice(1, "b", 2, 0, "<b>", "0000:04:00.0", "kernel", 900, 100),
    )
    return Session(devices, 22809, 12080, simulation)


def test_the_table_has_nccl_tests_columns_in_their_order() -> None:
    both = [result(), result("in-place", gpu_us=20)]
    (row,) = rows_of(both, plan())
    fields = row_line(row).split()
    assert fields[:5] == ["1048576", "262144", "float", "sum", "-1"]
    assert fields[5:13] == ["12.00", "87.38", "87.38", "0"] * 2
    assert fields[13:] == [
        "10.10", "10.11", "10.10", "10.11", "20.10", "20.11", "20.10", "20.11",
    ]  # fmt: skip
    names = column_lines()[1].split()
    assert names[1:10] == [
        "size",
        "count",
        "type",
        "redop",
        "root",
        "time",
        "algbw",
        "busbw",
        "#wrong",
    ]
    assert len(names) == 1 + len(fields)
    widths = {len(line) for line in (row_line(row), *column_lines()[1:])}
    assert len(widths) == 1, "columns stand below their names"


def test_a_place_that_is_not_measured_is_na() -> None:
    (row,) = rows_of([result()], plan(places=("out-of-place",)))
    assert row[1] is None
    assert row_line(row).split()[9:13] == ["N/A"] * 4


def test_wrong_results_and_simulations_are_said() -> None:
    bad = replace(result(), ranks=tuple(replace(t, wrong=3) for t in result().ranks))
    assert "6 FAILED" in closing_lines([bad], session())[0]
    unchecked = replace(result(), ranks=tuple(replace(t, wrong=None) for t in result().ranks))
    assert "not checked" in closing_lines([unchecked], session())[0]
    assert any(SIMULATED in line for line in heading_lines(session("simulated"), plan()))
    assert SIMULATED in closing_lines([result()], session("simulated"))[-1]
    assert not any("SIMUL" in line for line in heading_lines(session(), plan()))


def finished(simulation: str = "") -> BenchRun:
    both = (result(), result("in-place"))
    return BenchRun(plan(), session(simulation), both, ("ncclscope", "bench"), 0.0, 5.0)


def test_json_is_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(as_json(finished())))
    baseline = read_baseline(path)
    assert not baseline.simulated
    first = baseline.expected[0]
    assert (first.function, first.size_bytes) == ("allreduce", 1 << 20)
    assert first.busbw_gbs == pytest.approx(result().busbw_gbs)
    assert read_baseline(_written(tmp_path, as_json(finished("x")))).simulated


def _written(folder: Path, said: object) -> Path:
    path = folder / "other.json"
    path.write_text(json.dumps(said))
    return path


def test_what_is_no_baseline(tmp_path: Path) -> None:
    good = as_json(finished())
    for bad in (
        [],
        {"form": "other"},
        {**good, "version": 2},
        {**good, "results": [{}]},
        {**good, "results": [{**good["results"][0], "size_bytes": "1"}]},
        {**good, "results": 5},
    ):
        with pytest.raises(NcclscopeError, match=r"cannot (read|use)"):
            read_baseline(_written(tmp_path, bad))
    with pytest.raises(NcclscopeError, match="cannot read"):
        read_baseline(tmp_path / "missing")
    (tmp_path / "text").write_text("{")
    with pytest.raises(NcclscopeError, match="not JSON"):
        read_baseline(tmp_path / "text")


def test_nccl_tests_form_has_its_keys() -> None:
    """The keys that nccl-tests' -J writes (JSON_FILE_VERSION 2), and no secret of the user's."""
    said = as_nccl_tests(finished(), {"NCCL_DEBUG": "INFO", "TOKEN": "secret"})
    assert list(said) == [
        "version", "start_time", "args", "env", "nccl_version", "config", "results",
        "out_of_bounds", "average_bus_bandwidth", "errors", "end_time",
    ]  # fmt: skip
    assert said["env"] == ["NCCL_DEBUG=INFO"]
    assert {"nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_factor", "warmup_iters",
            "iterations", "aggregated_iterations", "validation", "graph", "blocking_collectives",
            "per_iter_timing", "parallel_init", "devices"} == set(said["config"])  # fmt: skip
    (line,) = said["results"]
    assert list(line) == [
        "size", "count", "type", "redop", "root", "out_of_place", "out_of_place_per_iter",
        "in_place", "in_place_per_iter", "actual_iterations", "experiment_name",
    ]  # fmt: skip
    assert line["out_of_place"] == {
        "time": 12.0,
        "alg_bw": pytest.approx(87.38, abs=0.01),
        "bus_bw": pytest.approx(87.38, abs=0.01),
        "nwrong": 0.0,
    }
    assert len(line["out_of_place_per_iter"]["times_us"]) == 10
    assert said["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert "simulation" in as_nccl_tests(finished("x"), {})


def test_efficiency_is_against_the_fewest_ranks() -> None:
    two, four = result(), result(gpu_us=20)
    four = replace(
        four,
        case=replace(four.case, ranks=4),
        ranks=tuple(replace(t, loops=(Loop(0, 10, 240_000, 1, 2),)) for t in four.ranks),
    )
    ((_, first), (_, second)) = next(iter(scaling_groups([two, four]).values()))
    assert first == 1.0
    assert second == pytest.approx(0.75), "half the algorithm bandwidth, 1.5 times the factor"


def test_plots_say_simulation_and_escape_names() -> None:
    results = [result(), result("in-place", gpu_us=100)]
    page = html(results, session("simulated"))
    assert SIMULATED in page
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "http" not in page.replace("http-equiv", ""), "nothing is fetched"
    alone = svg(results, session("simulated"), standalone=True)
    assert alone.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert SIMULATED in alone
    assert alone.count("<polygon") == 2
    assert ElementTree.fromstring(alone).tag.endswith("svg"), "well-formed"
    lines = text_lines(results, session())
    assert "median 10.1" in lines[1]
    same = replace(results[0], ranks=(results[0].ranks[0],))
    assert svg([same], session(), standalone=False), "one value only"


# ---- where ranks are ----


def test_inside_torchrun() -> None:
    env = {
        "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "node1",
        "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
    }  # fmt: skip
    found = placement_from_launcher(env, None)
    assert found
    assert (found.ranks, found.local_ranks, found.host, found.port) == (8, (3,), "node1", 29501)
    assert not found.leads
    assert found.device(3, None, env) == 1
    assert found.device(3, 1, env) == 0, "a launcher that shows each rank its own GPU only"
    again = placement_from_launcher({**env, "RANK": "0", "LOCAL_RANK": "0"}, None)
    assert again
    assert again.leads
    assert again.token == found.token
    with pytest.raises(UsageError, match="MASTER_PORT=x is no port"):
        placement_from_launcher({**env, "MASTER_PORT": "x"}, None)


def test_inside_mpirun_and_srun() -> None:
    mpi = {
        "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    }  # fmt: skip
    found = placement_from_launcher(mpi, None)
    assert found
    assert (found.host, found.port, found.device(1, None, mpi)) == ("127.0.0.1", 29477, 1)
    far = {**mpi, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    with pytest.raises(UsageError, match="where rank 0 is"):
        placement_from_launcher(far, None)
    named = placement_from_launcher(far, "node7:1234")
    assert named
    assert (named.host, named.port) == ("node7", 1234)
    slurm = {
        "SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1",
        "SLURM_STEP_NODELIST": "gpu[003-004]",
    }  # fmt: skip
    found = placement_from_launcher(slurm, None)
    assert found
    assert (found.ranks, found.local_ranks, found.host) == (16, (5,), "gpu003")
    assert placement_from_launcher({}, None) is None
    with pytest.raises(UsageError):
        placement_from_launcher({"RANK": "2", "WORLD_SIZE": "2"}, None)


def test_slurm_node_lists() -> None:
    assert first_host("a1,b2") == "a1"
    assert first_host("gpu[003-007,9],x1") == "gpu003"
    assert first_host("r[1-2]n") == "r1n"
    assert first_host("single") == "single"


def test_host_lists() -> None:
    found = placement_from_hosts(["10.0.0.1", "10.0.0.2:5000"], 1, 4, "t")
    assert (found.ranks, found.local_ranks, found.host, found.port) == (
        8,
        (4, 5, 6, 7),
        "10.0.0.1",
        29477,
    )
    assert placement_from_hosts(["127.0.0.1", "no.such.host.invalid"], None, 1, "t").leads
    with pytest.raises(UsageError, match="which of"):
        placement_from_hosts(["no.such.host.invalid"], None, 1, "t")
    with pytest.raises(UsageError, match="no host 2"):
        placement_from_hosts(["a", "b"], 2, 1, "t")
    assert parse_address("[fe80::1]:80") == ("fe80::1", 80)
    for bad in ("", "a:b", "a:99999", "[fe80::1"):
        with pytest.raises(UsageError):
            parse_address(bad)


# ---- messages ----


def test_messages() -> None:
    buffer = bytearray(encode(Message({"a": 1}, b"xyz")) + encode(Message()))
    assert decode(buffer) == Message({"a": 1}, b"xyz")
    assert decode(buffer) == Message()
    assert decode(buffer) is None
    part = bytearray(encode(Message({"a": 1}, b"xyz"))[:-1])
    assert decode(part) is None
    for bad in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"nsb1" + b"\xff" * 12,
        encode(Message())[:16] + b"[]",
        encode(Message())[:16] + b"{x",
    ):
        with pytest.raises(MessageError):
            decode(bytearray(bad))


def test_the_reference_kernel_needs_a_driver() -> None:
    """A runtime without a way to its driver, and one whose driver refuses, have none."""
    stream = ctypes.c_void_p()
    assert reference_kernel(cast("ctypes.CDLL", SimpleNamespace()), stream, 0, 1) is None

    def no_driver(name: bytes, *_: object) -> int:
        return 35  # the driver is older than the runtime

    for name in ("cudaGetDriverEntryPointByVersion", "cudaGetDriverEntryPoint"):
        refusing = SimpleNamespace(**{name: no_driver})
        assert reference_kernel(cast("ctypes.CDLL", refusing), stream, 0, 1) is None


def test_each_launch_of_the_reference_kernel_leaves_its_own_time() -> None:
    runtime = ctypes.CDLL(str(simulated_nccl_path()))
    stream = ctypes.c_void_p()
    assert runtime.cudaStreamCreate(ctypes.byref(stream)) == 0
    own_ns = (ctypes.c_int64 * 4)()
    run = reference_kernel(runtime, stream, ctypes.addressof(own_ns), 3)
    assert run is not None
    for launches in (3, 3):  # the second time over the first one's
        own_ns[:] = (0, 0, 0, 0)
        for _ in range(launches):
            run()
        assert runtime.cudaStreamSynchronize(stream) == 0
        assert all(ns > 0 for ns in own_ns[:3]), list(own_ns)
    assert own_ns[3] == 0, "no place behind the last"


def test_what_events_show_beyond_a_kernels_own_time() -> None:
    own_ns = (ctypes.c_int64 * REFERENCE_LAUNCHES)(*range(REFERENCE_LAUNCHES))
    times = np.arange(REFERENCE_LAUNCHES, dtype=np.int64)

    def measure(_: Callable[[], None], count: int) -> Batch:
        return Batch(times[:count] + 4_000, times[:count] * 0 + 900, times, 0, 0, 0)

    stopwatch = Stopwatch(cast("Cuda", SimpleNamespace(events=lambda _: [])))
    reference = ReferenceWork("kernel", lambda: None, own_ns)
    assert stopwatch.event_overhead_ns(measure, reference) == (4_000, 900)
