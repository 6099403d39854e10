"""Files of other tools become imports that open like captures, with what they say and no more."""

import contextlib
import gzip
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import ncclscope as package
from ncclscope.api import Capture
from ncclscope.cli import main
from ncclscope.model.completeness import SIMULATION
from ncclscope.simulation.scenario import Scenario
from tests.support import foreign_samples
from tests.support.foreign_samples import EPOCH_NS
from tests.support.paths import DATA
from tests.support.player import TRANSCRIPTS, ncclscope
from tests.support.writer import from_transcript
from tests.support.writer.scenario import write_scenario

FOREIGN = DATA / "foreign"


def imported(path: Path, *sources: Path | str, options: tuple[str, ...] = ()) -> Capture:
    """An import through the command line, in this process."""
    assert main(["import", *map(str, sources), "-o", str(path), *options]) == 0
    return package.open(path)


def printed(*arguments: str | Path) -> str:
    """What a verb prints, in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*map(str, arguments)]) == 0
    return out.getvalue()


def rows(capture: Capture, columns: str, order: str = "operation") -> list[tuple[Any, ...]]:
    return capture.sql(f"select {columns} from operations order by {order}").fetchall()


def report_of(capture: Capture) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(printed("report", capture.path, "--json"))
    return report


# ---- NCCL Inspector ----
def test_inspector(tmp_path: Path) -> None:
    logs = foreign_samples.inspector_logs(tmp_path / "logs")
    done = ncclscope("import", logs, "-o", tmp_path / "import")
    assert done.returncode == 0, done.stderr
    assert f"ncclscope report {tmp_path / 'import'}\n" in done.stderr.partition("next: ")[2]
    capture = package.open(tmp_path / "import")
    found = rows(
        capture,
        "function, size_bytes, duration_ns, source, sequence, communicator_rank, global_rank",
    )
    assert len(found) == 40
    assert found[0] == ("AllReduce", 1 << 20, 110_000, "gpu", 0, 0, 0)
    completeness = capture.completeness()
    assert (completeness.processes_found, completeness.processes_expected) == (4, 4)
    assert completeness.is_complete
    assert "nothing dropped" not in completeness.line(), "Inspector does not say"
    assert capture.sql("select name, ranks, nodes from communicators").fetchall() == [
        ("world", 4, 2)
    ]
    instances = "select count(*), min(ranks_seen), max(mismatch) from instances"
    assert capture.sql(instances).fetchall() == [(10, 4, 0)]
    report = report_of(capture)
    busbw = 1.5 * (1 << 20) / 111.5e3  # all-reduce on 4 ranks, mean of 110 … 113 µs
    assert report["operations"][0]["busbw_gbs"] == pytest.approx(busbw)
    assert report["total"]["run_share"] is None, "when kernels ran is not known"
    assert report["began"].startswith("2025-06-09T")


def test_inspector_compressed_and_in_pieces(tmp_path: Path) -> None:
    logs = foreign_samples.inspector_logs(tmp_path / "logs")
    plain = imported(tmp_path / "plain", logs)
    for log in sorted(logs.iterdir()):
        lines = log.read_bytes().splitlines(keepends=True)
        (logs / f"{log.name}.1.gz").write_bytes(gzip.compress(b"".join(lines[:3])))
        (logs / f"{log.name}.2").write_bytes(b"".join(lines[3:]))
        log.unlink()
    pieces = imported(tmp_path / "pieces", logs)
    for table in ("operations", "instances", "members", "processes", "nodes"):
        assert pieces.table(table).fetchall() == plain.table(table).fetchall()


def test_inspector_says_what_it_lost(tmp_path: Path) -> None:
    logs = foreign_samples.inspector_logs(tmp_path / "logs")
    for log in sorted(logs.iterdir()):
        kept = [line for n, line in enumerate(log.read_text().splitlines()) if n != 4]
        if log.name.startswith("node1-pid102"):
            kept = kept[:6] + kept[7:]
        log.write_text("\n".join([*kept, '{"header": {"id": "0x9e', ""]))
    completeness = imported(tmp_path / "import", logs).completeness()
    assert completeness.missing_operations == 1
    assert completeness.lost == {
        "operations missing on every rank: gaps in their numbers": 4, "lines cannot be read": 4,
    }  # fmt: skip
    assert not completeness.is_complete


def test_inspector_verbose_point_to_point_and_later_keys(tmp_path: Path) -> None:
    trace = {
        "coll_start_ts": foreign_samples.EPOCH_US, "coll_stop_ts": foreign_samples.EPOCH_US + 7,
        "kernel_events": [
            {"channel_id": n, "kernel_start_ts": foreign_samples.EPOCH_US + 20 + n,
             "kernel_stop_ts": foreign_samples.EPOCH_US + 90, "kernel_record_ts": 0} for n in (5, 6)
        ],
    }  # fmt: skip
    records = [
        foreign_samples.inspector_record(
            0, 0, event_trace_ts=trace, coll_algo="RING", coll_proto="ll128"
        ),
        foreign_samples.inspector_record(
            0, 1, event_trace_ts=trace, coll_timing_source="kernel_cpu", coll_exec_time_us=70
        ),
        foreign_samples.inspector_record(0, 2, coll_timing_source="collective_cpu"),
        foreign_samples.inspector_record(0, 3, coll_msg_size_bytes=18446744073709551584),
        foreign_samples.inspector_p2p(0, 1),
    ]
    log = foreign_samples.write_lines(tmp_path / "a.log", records)
    capture = imported(tmp_path / "import", log)
    columns = "source, call_ns, start_ns, duration_ns, algorithm, protocol, channels, size_bytes"
    gpu, host, queued, odd, send = rows(capture, columns)
    assert gpu == ("gpu", 0, None, 110_000, "RING", "LL128", 2, 1 << 20)
    assert host == ("host", 0, 25_000, 70_000, None, None, 2, 1 << 20)
    assert queued[0] == "enqueue"
    assert odd[-1] is None, "ncclUint8 in Inspector: no memory holds so much"
    assert send[0] == "gpu-early", "its stop stamp may come before the end"
    assert rows(capture, "form, peer_communicator_rank")[-1] == ("send", 1)
    assert capture.realtime_offset_ns == EPOCH_NS
    assert sorted(capture.communicators.project("name").fetchall()) == [("pp",)]


# ---- PyTorch Flight Recorder ----
@pytest.mark.parametrize("kind", ["pickle", "json"])
def test_flight_recorder_of_a_hang(tmp_path: Path, kind: str) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    for rank in range(3):
        dump = foreign_samples.hung_dump(rank)
        data = pickle.dumps(dump, 2) if kind == "pickle" else json.dumps(dump).encode()
        (dumps / f"nccl_trace_rank_{rank}").write_bytes(data)
    capture = imported(tmp_path / "import", dumps)
    found = rows(
        capture,
        "global_rank, communicator_rank, function, count, size_bytes, datatype, state, source",
    )
    assert found[0] == (0, 0, "AllReduce", 1024 * 256, 1 << 20, "float32", "done", "gpu")
    assert [row for row in found if row[6] == "in flight"] == [
        (rank, rank, "AllReduce", 1024 * 256, 1 << 20, "float32", "in flight", "none")
        for rank in (0, 1)
    ]
    assert rows(capture, "reason")[-1 - 5] == ("queued: its kernel had not started",)
    completeness = capture.completeness()
    assert completeness.in_flight == 2
    assert completeness.missing_operations == 1, "rank 2 never called"
    last = "select call_order, ranks_seen, ranks_expected from instances order by 1 desc limit 1"
    assert capture.sql(last).fetchall() == [(6, 2, 3)]
    assert capture.sql("select name, ranks, nodes from communicators").fetchall() == [
        ("default_pg", 3, None)
    ]
    assert capture.sql("select distinct nccl_version from processes").fetchall() == [("2.27.5",)]


@pytest.mark.parametrize("suffix", ["", ".json"])
def test_real_flight_recorder_dumps(tmp_path: Path, suffix: str) -> None:
    """Of PyTorch 2.15, on two ranks without a GPU."""
    dumps = [FOREIGN / f"flight_recorder_2.15_gloo_rank_{rank}{suffix}" for rank in range(2)]
    capture = imported(tmp_path / "import", *dumps)
    columns = (
        "communicator_name, communicator_rank, function, form, count, size_bytes, datatype, "
        "call_order, state"
    )
    found = [row for row in rows(capture, f"global_rank, {columns}") if row[0] == 1]
    reduce = (1, "default_pg", 1, "AllReduce", "collective", 1000, 4000, "float32")
    assert found[:3] == [(*reduce, order, "done") for order in (1, 2, 3)]
    assert {row[3] for row in found} >= {"AllReduce", "AllGather", "Broadcast"}
    assert ("tp", "AllGather") in {(row[1], row[3]) for row in found}
    completeness = capture.completeness()
    assert (completeness.processes_found, completeness.in_flight, completeness.lost) == (2, 0, {})
    assert completeness.missing_operations == 0


def diagnosis_of(capture: Capture) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = json.loads(printed("diagnose", capture.path, "--json"))[
        "findings"
    ]
    return findings


@pytest.mark.parametrize(
    ("states", "kind", "ranks"),
    [
        (["started", "scheduled", None], "never_called", [2]),
        (["started", "scheduled", "started"], "not_started", [1]),
        (["started", "started", "started"], "stalled", []),
    ],
)
def test_diagnose_names_who_hangs(
    tmp_path: Path, states: list[str | None], kind: str, ranks: list[int]
) -> None:
    for rank, state in enumerate(states):
        dump = foreign_samples.hung_dump(2)
        if state:
            last = foreign_samples.flight_recorder_entry(
                5, 6, state=state, duration_ms=None, retired=False
            )
            dump["entries"].append(last | {"time_discovered_completed_ns": None})
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(dump, 2))
    capture = imported(tmp_path / "import", *sorted(tmp_path.glob("dump_*")))
    hang = diagnosis_of(capture)[0]
    assert (hang["family"], hang["kind"], hang["ranks"]) == ("hang", kind, ranks)


def test_stacks_of_a_flight_recorder_survive(tmp_path: Path) -> None:
    torch = {"name": "all_reduce", "filename": "/usr/lib/torch/distributed_c10d.py", "line": 2501}
    frames = [torch, {"name": "train_step", "filename": "train.py", "line": 42}]
    for rank in (1, 0, 2):
        dump = foreign_samples.hung_dump(rank)
        dump["entries"][-1]["frames"] = frames if rank < 2 else [torch, "?", {"line": "x"}]
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(dump))
    capture = imported(tmp_path / "import", *sorted(tmp_path.glob("*.json"), reverse=True))
    stacks = capture.sql("""
        select global_rank, stack from operations join stacks using (operation)
        where call_order = 6 order by 1""").fetchall()
    text = "/usr/lib/torch/distributed_c10d.py:2501 all_reduce\ntrain.py:42 train_step"
    assert stacks == [(0, text), (1, text)]
    assert len(capture.stacks) == len(capture.operations), "every entry has frames"
    evidence = [entry["text"] for entry in diagnosis_of(capture)[0]["evidence"]]
    assert "ranks 0, 1 called it at train.py:42 in train_step" in evidence
    assert any("the last call of rank 2 was AllReduce on default_pg" in text for text in evidence)


def test_flight_recorder_names_sizes_and_the_ring(tmp_path: Path) -> None:
    shapes = {"input_sizes": [[100]], "output_sizes": [[300]], "input_dtypes": ["BFloat16"]}
    wide = {"input_sizes": [[300]], "output_sizes": [[100]], "input_dtypes": ["BFloat16"]}
    entries = [
        foreign_samples.flight_recorder_entry(40, 7, profiling_name="nccl:_all_gather_base", **shapes,
                             output_dtypes=["BFloat16"]),
        foreign_samples.flight_recorder_entry(41, 8, profiling_name="nccl:_reduce_scatter_base", **wide,
                             output_dtypes=["BFloat16"]),
        foreign_samples.flight_recorder_entry(42, 9, profiling_name="nccl:all_reduce_barrier"),
        foreign_samples.flight_recorder_entry(43, 9, profiling_name="nccl:send 1->2", is_p2p=True),
        foreign_samples.flight_recorder_entry(44, 9, profiling_name="nccl:recv 1<-0", is_p2p=True),
        foreign_samples.flight_recorder_entry(45, 10, duration_ms=None),
        foreign_samples.flight_recorder_entry(46, 11, duration_ms=None, time_discovered_started_ns=None),
        foreign_samples.flight_recorder_entry(47, 12, input_sizes="?", output_sizes=[["x"]], input_dtypes=None),
    ]  # fmt: skip
    dump = tmp_path / "rank_1.json"
    dump.write_text(json.dumps(foreign_samples.flight_recorder_dump(entries)))
    capture = imported(tmp_path / "import", dump)
    assert rows(capture, "function, form, count, size_bytes, peer_communicator_rank, source") == [
        ("AllGather", "collective", 100, 600, None, "gpu"),
        ("ReduceScatter", "collective", 100, 600, None, "gpu"),
        ("AllReduce", "collective", 1024 * 256, 1 << 20, None, "gpu"),
        ("Send", "send", 1024 * 256, 1 << 20, 2, "gpu"),
        ("Recv", "recv", 1024 * 256, 1 << 20, 0, "gpu"),
        ("AllReduce", "collective", 1024 * 256, 1 << 20, None, "host"),
        ("AllReduce", "collective", 1024 * 256, 1 << 20, None, "none"),
        ("AllReduce", "collective", None, None, None, "gpu"),
    ]
    lost = capture.completeness().lost
    assert lost == {"older calls overwritten in Flight Recorder's ring": 40}


# ---- nccl-tests ----
def test_nccl_tests(tmp_path: Path) -> None:
    result = tmp_path / "all_reduce.json"
    result.write_text(json.dumps(foreign_samples.nccl_tests_result()))
    capture = imported(tmp_path / "import", result)
    found = rows(capture, "function, datatype, size_bytes, count, variant, duration_ns, source")
    assert len(found) == 80
    assert found[0] == ("AllReduce", "float32", 1024, 256, "out-of-place", 12_500, "gpu")
    assert capture.completeness().processes_found == 4
    assert capture.completeness().missing_operations == 0
    report = json.loads(printed("report", capture.path, "--json", "--by", "+variant"))
    for group in report["operations"]:
        size, microseconds = group["size_bytes"], 12.5 if group["variant"] == "out-of-place" else 10
        assert group["busbw_gbs"] == pytest.approx(1.5 * size / (1000 * microseconds))
    assert capture.sql("select distinct nccl_version from processes").fetchall() == [("2.28.9",)]


def test_nccl_tests_iteration_by_iteration(tmp_path: Path) -> None:
    document = foreign_samples.nccl_tests_result(args=["/opt/alltoall_perf"])
    document["results"] = document["results"][:1]
    document["results"][0]["in_place"] = None
    document["results"][0]["out_of_place_per_iter"] = {"times_us": [11.0, 12.0, "nan", 14.0]}
    document["out_of_bounds"] = {"count": 3, "okay": "false"}
    result = tmp_path / "alltoall.json"
    result.write_text(json.dumps(document))
    capture = imported(tmp_path / "import", result)
    assert rows(capture, "function, duration_ns") == [
        ("AlltoAll", 11_000), ("AlltoAll", 12_000), ("AlltoAll", None), ("AlltoAll", 14_000),
    ]  # fmt: skip
    assert "alltoall.json: nccl-tests found 3 wrong values" in capture.completeness().notes


# ---- CoMMA ----
@pytest.mark.parametrize("in_list", [False, True])
def test_comma(tmp_path: Path, in_list: bool) -> None:
    records = [
        foreign_samples.comma_record(0),
        foreign_samples.comma_record(1, child_dur=None, child_start_ts=None),
        foreign_samples.comma_record(2, child_dur=None, dur=0),
        foreign_samples.comma_record(3, reclaimed=True, timeout_dur=10),
        foreign_samples.comma_record(4, cat="P2P", name="send", peer=5),
        {"ph": "X", "ts": 1, "dur": 2, "cat": "GROUP", "name": "group"},
        foreign_samples.comma_record(0)["proxyops"][0],
    ]
    file = tmp_path / "latency-169.json"
    if in_list:
        file.write_text(json.dumps(records, indent=1))
    else:
        foreign_samples.write_lines(file, records)
    capture = imported(tmp_path / "import", file)
    columns = "function, size_bytes, source, start_ns, duration_ns, algorithm, channels, sequence"
    found = rows(capture, columns)
    assert found[0] == ("AllReduce", 20_971_520, "proxy", 10_000, 1_456_000, "RING", 8, 0)
    assert found[1][2:5] == ("enqueue", None, 11_039_000)
    assert found[2][2:5] == ("none", None, None)
    assert rows(capture, "state")[3] == ("unknown",)
    assert rows(capture, "form, peer_communicator_rank")[4] == ("send", 5)
    assert len(found) == 5
    assert capture.completeness().lost == {}
    assert capture.sql("select pid from processes").fetchall() == [(169,)]


# ---- ncclsee ----
def test_ncclsee(tmp_path: Path) -> None:
    for pid in (11, 12):
        (tmp_path / f"{pid}.csv").write_text(foreign_samples.NCCLSEE)
    capture = imported(tmp_path / "import", tmp_path / "11.csv", tmp_path / "12.csv")
    sums = "select count(*), sum(size_bytes), sum(duration_ns) from operations where process = 0"
    assert capture.sql(sums).fetchall() == [(9, 20_000_701, 435_750)]
    assert set(rows(capture, "function, source, reason")) == {
        ("AllReduce", "host", "the mean of its bucket of sizes")
    }
    assert capture.completeness().processes_found == 2


# ---- Chrome traces ----
def test_chrome_traces_of_ncclsee(tmp_path: Path) -> None:
    for rank in range(2):
        trace = json.dumps(foreign_samples.ncclsee_trace(rank)).encode()
        (tmp_path / f"trace{rank}.json.gz").write_bytes(gzip.compress(trace))
    files = sorted(tmp_path.glob("*.gz"))
    capture = imported(tmp_path / "import", *files)
    columns = (
        "function, size_bytes, datatype, algorithm, protocol, duration_ns, communicator_rank, "
        "sequence"
    )
    found = rows(capture, columns)
    assert len(found) == 10
    assert found[1] == ("AllReduce", 4096, "float32", "RING", "LL", 30_250, 0, 1)
    assert capture.sql("select ranks from communicators").fetchall() == [(2,)]
    assert capture.completeness().is_complete
    instances = "select count(*), min(ranks_seen), max(skew_ns) from instances"
    assert capture.sql(instances).fetchall() == [(5, 2, None)], "clocks have nothing in common"


def test_chrome_traces_of_pytorch(tmp_path: Path) -> None:
    for rank in range(4):
        trace = foreign_samples.torch_trace(rank)
        (tmp_path / f"worker{rank}.pt.trace.json").write_text(json.dumps(trace))
    capture = imported(tmp_path / "import", *sorted(tmp_path.glob("*.json")))
    columns = (
        "function, count, size_bytes, datatype, communicator_rank, global_rank, call_order, stream"
    )
    assert rows(capture, columns) == [
        ("AllGather", 256, 2048, "bfloat16", rank, rank, 17, 20) for rank in range(4)
    ]
    assert capture.sql("select name, ranks from communicators").fetchall() == [("tp", 4)]
    assert capture.realtime_offset_ns == EPOCH_NS + 1_000_000


# ---- Nsight Systems ----
def test_nsys(tmp_path: Path) -> None:
    capture = imported(tmp_path / "import", foreign_samples.nsys_export(tmp_path / "report.sqlite"))
    columns = (
        "function, size_bytes, communicator_rank, peer_communicator_rank, source, "
        "start_ns + realtime, duration_ns, reason"
    )
    columns = columns.replace("realtime", str(capture.realtime_offset_ns - EPOCH_NS))
    found = {(row[0], row[5]): row for row in rows(capture, columns)}
    assert found["AllReduce", 1500] == ("AllReduce", 1 << 20, 2, None, "gpu", 1500, 400, "")
    assert found["AllGather", 2500] == ("AllGather", 4 << 20, 2, None, "gpu", 2500, 100, "")
    shared = "time of its group's kernel, which carried out several calls"
    assert found["Send", 3500] == ("Send", 4096, 2, 3, "host", 3500, 400, shared)
    assert found["Recv", 3500][4] == "host"
    assert found["Broadcast", 4100][4] == "gpu", "a kernel without a range"
    assert found["AllReduce", None][7] == "no kernel was launched during its call"
    assert len(found) == 6
    assert capture.sql("select host, pid from processes").fetchall() == [
        ("node7", foreign_samples.NSYS_PID)
    ]
    comm = capture.sql("select id, ranks from communicators").fetchall()
    assert comm == [(foreign_samples.NSYS_COMM - (1 << 64), 4)]


# ---- which format ----
def test_formats_are_told_apart(tmp_path: Path) -> None:
    logs = foreign_samples.inspector_logs(tmp_path / "logs")
    (logs / "readme.txt").write_text("nothing of interest")
    (logs / "nccl.txt").write_text(foreign_samples.NCCL_LOG)
    capture = imported(tmp_path / "both", logs)
    assert "1 file of other formats left out" in capture.completeness().notes
    assert capture.completeness().operations == 40, "calls of NCCL's log are not counted again"
    assert capture.topology().releases == ("2.28.9+cuda13.0",)
    (logs / "1.csv").write_text(foreign_samples.NCCLSEE)
    done = ncclscope("import", logs, "-o", tmp_path / "mixed")
    assert done.returncode == 2
    assert "several formats at once: inspector (4 files), ncclsee (1 file)" in done.stderr
    chosen = imported(tmp_path / "chosen", logs, options=("--from", "ncclsee"))
    assert chosen.completeness().operations == 9
    done = ncclscope("import", logs / "readme.txt", "-o", tmp_path / "text")
    assert done.returncode == 2
    assert "it is of no known format" in done.stderr
    done = ncclscope("import", tmp_path / "nowhere", "-o", tmp_path / "text")
    assert "no such file or directory" in done.stderr


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    logs = foreign_samples.inspector_logs(tmp_path / "logs")
    imported(tmp_path / "import", logs)
    done = ncclscope("import", logs, "-o", tmp_path / "import")
    assert done.returncode == 2
    assert "Use --force to replace it" in done.stderr
    imported(tmp_path / "import", logs, options=("--force",))
    done = ncclscope("import", logs, "-o", logs, "--force")
    assert done.returncode == 2
    assert len(list(logs.iterdir())) == 4


# ---- NCCL's log ----
def test_topology_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(foreign_samples.NCCL_LOG)
    capture = imported(tmp_path / "import", log)
    topology = capture.topology()
    links = {(link.source, link.destination, link.via): link for link in topology.links}
    assert len(links) == 5
    crossing = links[3, 0, "NET/IB/0/GDRDMA"]
    assert (crossing.scope, crossing.transport, crossing.nics, crossing.gpu_direct) == (
        "inter-node", "NET/IB", ("mlx5_0",), True,
    )  # fmt: skip
    assert links[1, 2, "NET/IB/1(0)/GDRDMA"].nics == ("mlx5_1", "mlx5_bond_0")
    within = links[0, 1, "P2P/CUMEM"]
    assert (within.scope, within.transport, within.nvlink, within.channels) == (
        "intra-node", "P2P", True, 2,
    )  # fmt: skip
    assert not links[2, 3, "P2P/IPC"].nvlink, "node-b's log does not show NVLink"
    assert links[2, 3, "SHM/direct/direct"].transport == "SHM"
    comm = topology.communicators[0]
    assert (comm.id, comm.ranks, comm.nodes) == ("0xd8289d3e6e217d26", 4, 2)
    assert comm.rings == {0: (0, 1, 2, 3), 1: (0, 3, 2, 1)}
    assert comm.trees == {0: {0: -1, 1: 0, 2: 0}, 1: {0: 2, 1: 0, 2: -1}}
    assert comm.channels == {"coll": 2, "collnet": 2, "nvls": 0, "p2p": 4}
    assert [(one.notice, one.hosts) for one in topology.warnings] == [
        (False, ("node-b",)), (True, ("node-b",)),
    ]  # fmt: skip
    assert topology.warnings[0].text.startswith("NET/IB: Got completion from peer")
    assert topology.environment == {"NCCL_IB_HCA": ("mlx5",)}
    assert [(one.protocol, one.from_bytes) for one in topology.choices] == [
        ("LL", 1024), ("SIMPLE", 262144),
    ]  # fmt: skip


def test_calls_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(foreign_samples.NCCL_LOG)
    capture = imported(tmp_path / "import", log)
    columns = (
        "function, form, size_bytes, datatype, communicator_rank, call_order, "
        "peer_communicator_rank, source"
    )
    assert rows(capture, columns) == [
        ("AllReduce", "collective", 262144, "float32", 0, 0, None, "none"),
        ("AllGather", "collective", 2048, "bfloat16", 0, 1, None, "none"),
        ("Send", "send", 128, "uint8", 0, 0, 3, "none"),
        ("AllReduce", "collective", 262144, "float32", 1, 0, None, "none"),
    ]
    assert capture.completeness().missing_operations == 2 + 3 + 1
    assert capture.sql("select distinct nccl_version from processes").fetchall() == [("2.28.9",)]


def test_logs_of_older_releases(tmp_path: Path) -> None:
    log = tmp_path / "old.log"
    log.write_text(foreign_samples.OLD_LOG)
    topology = imported(tmp_path / "import", log).topology()
    assert topology.communicators[0].rings == {0: (0, 1, 2)}
    links = {(link.source, link.destination): link for link in topology.links}
    assert links[0, 1].transport == "NET/Socket"
    assert links[0, 1].nics == ("eth0",)
    assert links[0, 1].scope == "inter-node"
    assert not links[1, 2].nvlink
    assert [(one.algorithm, one.protocol) for one in topology.choices] == [("RING", "SIMPLE")]
    assert topology.releases == ("2.8.3+cuda10.2",)


def test_report_shows_the_topology_warnings_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(foreign_samples.NCCL_LOG)
    capture = imported(tmp_path / "import", log)
    monkeypatch.setenv("COLUMNS", "80")
    text = printed("report", capture.path)
    opening = text.split("──")[0]
    assert "! NCCL warned: NET/IB: Got completion from peer" in opening
    assert opening.index("NCCL warned") < opening.index("imported from")
    order = [text.index(title) for title in ("log: warnings", "log: links", "log: communicators")]
    assert order == sorted(order)
    assert "P2P by NVLink" in text
    assert text.count("NVLink") == 1, "said of the one link whose log shows it"
    assert "mlx5_1, mlx5_bond_0" in text
    report = report_of(capture)
    assert len(report["topology"]["links"]) == 5
    assert report["topology"]["communicators"][0]["rings"]["1"] == [0, 3, 2, 1]
    printed("report", capture.path, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "NCCL&#x27;s log: links" in page
    assert "<b>vendor" not in page, "names from logs are escaped"
    assert "&lt;b&gt;vendor err 129" in page


def test_logs_in_a_capture_join_it(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    from_transcript(TRANSCRIPTS / "2.28.9-v5-2ranks", path)
    assert not package.open(path).topology()
    assert report_of(package.open(path))["topology"] is None
    before = report_of(package.open(path))
    (path / "debug.node-a.1001").write_text(foreign_samples.NCCL_LOG)
    after = report_of(package.open(path))
    assert len(after["topology"]["links"]) == 5
    assert after["operations"] == before["operations"], "calls of the log are not counted"


# ---- there and back ----
@pytest.fixture(scope="module", params=["2.28.9-v5-4ranks", "2.28.9-v5-3ranks-hang"])
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    path = tmp_path_factory.mktemp("captures") / request.param
    from_transcript(TRANSCRIPTS / request.param, path)
    return package.open(path)


def wall(capture: Capture, column: str) -> str:
    return f"{column} + {capture.realtime_offset_ns}"


@pytest.mark.parametrize("form", ["chrome", "inspector", "parquet"])
def test_a_simulation_stays_one(form: str, tmp_path: Path) -> None:
    """However often it is exported and imported; where it cannot come back, viewers show it."""
    write_scenario(tmp_path / "0", Scenario(ranks=2, steps=3))
    for trip in (1,) if form == "inspector" else (1, 2):  # its import has no times of the GPU's
        before, after = tmp_path / f"{trip - 1}", tmp_path / f"{trip}"
        said = ncclscope("export", before, "--to", form, "-o", tmp_path / f"out{trip}")
        assert f"           {SIMULATION}\n" in said.stderr
        if form == "parquet":
            (tmp_path / f"out{trip}").rename(after)
        else:
            imported(after, tmp_path / f"out{trip}")
        shown = ncclscope("report", after).stdout
        assert shown.count(f"! {SIMULATION}") == 1
    ncclscope("export", tmp_path / "0", "-o", tmp_path / "x.pftrace")
    assert b"SIMULATION" in (tmp_path / "x.pftrace").read_bytes()


def test_what_is_none_is_not_called_a_simulation(capture: Capture, tmp_path: Path) -> None:
    for form in ("chrome", "inspector"):
        ncclscope("export", capture.path, "--to", form, "-o", tmp_path / form)
        assert (
            not imported(tmp_path / f"{form}-again", tmp_path / form).completeness().is_simulation
        )


def test_chrome_there_and_back(capture: Capture, tmp_path: Path) -> None:
    """Everything but what a trace cannot hold: calls, launches, streams, parts, NCCL's hash."""
    assert (
        main(["export", str(capture.path), "--to", "chrome", "-o", str(tmp_path / "t.json")]) == 0
    )
    again = imported(tmp_path / "again", tmp_path / "t.json")

    def operations(of: Capture) -> list[tuple[Any, ...]]:
        began = "coalesce(start_ns, launch_ns, call_ns, enqueue_ns)"
        return of.sql(
            "select global_rank, communicator_rank, communicator_name, function, form, "
            "size_bytes, count, "
            "datatype, algorithm, protocol, channels, root_communicator_rank, "
            "peer_communicator_rank, call_order, replay, inferred, "
            f"state, source, reason, duration_ns, {wall(of, began)} as began, "
            f"{wall(of, 'end_ns')}, host from operations "
            "where part_of is null order by global_rank, began, form, call_order"
        ).fetchall()

    assert operations(again) == operations(capture)
    missing = "select sum(ranks_expected - ranks_seen) from instances where form = 'collective'"
    assert again.sql(missing).fetchall() == capture.sql(missing).fetchall()


@pytest.mark.parametrize("verbose", [(), ("--verbose",)])
def test_inspector_there_and_back(
    capture: Capture, tmp_path: Path, verbose: tuple[str, ...]
) -> None:
    """What Inspector's lines hold: whole µs, no beginnings, no datatype."""
    logs = tmp_path / "logs"
    options = ["--to", "inspector", "-o", str(logs), *verbose]
    assert main(["export", str(capture.path), *options]) == 0
    again = imported(tmp_path / "again", logs)
    kind = "case when source like 'gpu%' then 'gpu' when source = 'host' then source else 'enqueue' end"
    columns = (
        "global_rank, communicator_name, function, form, size_bytes, peer_communicator_rank, "
        "case when form = 'collective' then sequence end as number"
    )
    found = again.sql(
        f"select {columns}, {kind} as kind, duration_ns from operations order by all"
    ).fetchall()
    sends = again.sql("select distinct source from operations where form <> 'collective'")
    assert {source for (source,) in sends.fetchall()} <= {"gpu-early", "host", "enqueue"}
    expected = capture.sql(
        f"select {columns}, {kind} as kind, cast(round_even(duration_ns / 1000.0, 0) as bigint) "
        "* 1000 as duration_ns from operations "
        "where duration_ns is not null and inferred = 0 order by all"
    ).fetchall()
    assert found == expected
    assert (
        again.sql("select id from communicators").fetchall()
        == capture.sql(
            "select distinct c.id from communicators c join operations o using (communicator) "
            "where o.duration_ns is not null"
        ).fetchall()
    )


def test_inspector_gives_one_ranks_share(tmp_path: Path) -> None:
    """The numbers of NVIDIA's example: 65536 bytes a rank, 32 ranks, 110 µs, 19.065018 GB/s."""
    record = foreign_samples.inspector_record(
        31, 129, coll="ReduceScatter", coll_msg_size_bytes=65536
    )
    record["coll_perf"]["coll_exec_time_us"] = 110
    record["header"] |= {"n_ranks": 32, "nnodes": 4}
    log = foreign_samples.write_lines(tmp_path / "a.log", [record])
    group = report_of(imported(tmp_path / "import", log))["operations"][0]
    assert group["algbw_gbs"] == pytest.approx(19.065018)
    assert group["busbw_gbs"] == pytest.approx(18.469236)


def test_split_communicators_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(foreign_samples.SPLIT_LOG)
    capture = imported(tmp_path / "import", log)
    assert capture.completeness().missing_operations == 0
    instances = "select ranks_seen, ranks_expected, size_bytes from instances"
    assert capture.sql(instances).fetchall() == [(2, 2, 40)]
    topology = capture.topology()
    assert [comm.id for comm in topology.communicators] == ["0xabc", "0xabc split 1.5"]
    assert topology.links[0].communicator == "0xabc split 1.5"
    assert topology.links[0].scope == "intra-node"


@pytest.mark.parametrize("form", ["perfetto", "chrome", "inspector", "jsonl", "csv", "parquet"])
def test_imports_can_be_exported(tmp_path: Path, form: str) -> None:
    for rank in range(3):
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(foreign_samples.hung_dump(rank), 2))
    capture = imported(tmp_path / "import", *sorted(tmp_path.glob("dump_*")))
    options = ["--to", form, "-o", str(tmp_path / "exported")]
    assert main(["export", str(capture.path), *options]) == 0


@pytest.mark.parametrize("verb", ["status", "dump"])
def test_what_needs_events_says_so(tmp_path: Path, verb: str) -> None:
    imported(tmp_path / "import", foreign_samples.inspector_logs(tmp_path / "logs"))
    done = ncclscope(verb, tmp_path / "import")
    assert done.returncode == 2
    assert "a dataset has no" in done.stderr
