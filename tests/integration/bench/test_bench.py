"""`ncclscope bench` on the simulated NCCL: ranks, operations, stopping, checks, and bad luck."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ncclscope.bench.libraries import find_libraries
from ncclscope.bench.operations import OPERATIONS
from ncclscope.bench.plan import Plan
from ncclscope.bench.table import SIMULATED
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli import main
from ncclscope.launch.environment import Settings, recording_variables
from ncclscope.model.build import open_model
from ncclscope.native import plugin_path, simulated_nccl_path
from tests.support import bench_accuracy
from tests.support.free_ports import free_port
from tests.support.paths import C_SOURCES
from tests.support.player import ncclscope
from tests.support.waiting import eventually

BENCH = [sys.executable, "-m", "ncclscope", "bench"]
SOURCE = C_SOURCES / "broken_nccl.c"
OWN = ("NCCL", "RANK", "WORLD_SIZE", "SLURM", "OMPI", "PMI", "LOCAL_", "MASTER_", "TORCHELASTIC")


def environment(**variables: str) -> dict[str, str]:
    """Nothing of a launcher's."""
    return {k: v for k, v in os.environ.items() if not k.startswith(OWN)} | variables


def bench(
    *words: object, timeout: float = 60, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Runs the verb; a hang would be a failure of its own."""
    return ncclscope("bench", *map(str, words), env=environment(**variables), timeout=timeout)


def measured(*words: object, **variables: str) -> dict[str, Any]:
    """What it says as JSON."""
    found = bench("--simulate", "--json", "--timeout", 30, *words, **variables)
    assert found.returncode == 0, found.stderr
    said: dict[str, Any] = json.loads(found.stdout)
    assert said["simulated"]
    return said


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_every_operation(ranks: int) -> None:
    sizes = ("-b", "4K", "-e", "20K", "-f", 5) if ranks < 8 else ("-b", "20K")
    said = measured("all", "--ranks", ranks, *sizes, "-n", 3, "-w", 1)
    possible = {name for name in OPERATIONS if name != "pairs" or ranks % 2 == 0}
    assert {one["variant"] for one in said["results"]} == possible
    for one in said["results"]:
        assert one["wrong"] == 0, one["variant"]
        assert one["calls"] == 3
        assert [rank["gpu"]["count"] for rank in one["by_rank"]] == [3] * ranks
        assert one["time_ns"] > 0
        assert one["min_ns"] <= one["median_ns"] <= one["p99_ns"] <= one["max_ns"]
    places = [one for one in said["results"] if one["variant"] == "allgather"]
    assert [one["in_place"] for one in places] == [False, True] * (len(places) // 2)
    assert ranks % 2 == 0 or "cannot be paired" in said["notes"][0]
    assert [one["reference"] for one in said["devices"]] == ["kernel"] * ranks


def test_datatypes_operators_roots() -> None:
    said = measured(
        "allreduce", "reduce", "-b", "4K", "-n", 1, "-w", 1, "-r", "all", "-o", "sum,avg,max",
        "-d", "int8,half,bfloat16,double,f8e4m3", "--place", "out",
    )  # fmt: skip
    assert len(said["results"]) == 5 * 3 * (1 + 2)
    assert all(one["wrong"] == 0 for one in said["results"])


@pytest.mark.parametrize("how", [["-z"], ["--graph"], ["-m", "3"], ["-m", "2", "--graph", "-z"]])
def test_ways_of_calling(how: list[str]) -> None:
    said = measured("allreduce", "broadcast", "-b", "4K", "-n", 4, "-w", 1, *how)
    for one in said["results"]:
        unknown = "-m" in how and one["in_place"] and one["variant"] == "allreduce"
        assert one["wrong"] == (None if unknown else 0), "what cannot be known is not claimed"
        awaited = [rank["host"] for rank in one["by_rank"]]
        assert all(host is not None for host in awaited) == ("-z" in how)


def test_stops_after_calls_in_every_run() -> None:
    (one,) = measured("-b", "4K", "-n", 7, "--runs", 3, "--place", "out")["results"]
    assert [run["count"] for run in one["runs"]] == [7, 7, 7]
    assert one["calls"] == 21


def test_stops_after_seconds_on_all_ranks_alike() -> None:
    said = measured("-b", "64K", "--seconds", 0.3, "--runs", 2, "--place", "out", "--ranks", 3)
    (one,) = said["results"]
    for rank in one["by_rank"]:
        for run in (0, 1):
            loops = [loop for loop in rank["loops"] if loop["run"] == run]
            assert sum(loop["host_ns"] for loop in loops) > 0.2e9
    assert len({rank["gpu"]["count"] for rank in one["by_rank"]}) == 1
    assert one["calls"] > 2


def test_held_calls_do_not_wait_for_the_host() -> None:
    said = measured("-b", "1K", "-n", 80, "--place", "out", "--held", "-m", 2)
    (one,) = said["results"]
    assert (one["calls"], one["wrong"], one["host_bound"]) == (80, 0, False)
    assert [loop["calls"] for loop in one["by_rank"][0]["loops"]] == [16] * 5
    refused = bench("--simulate", "-b", "1K", "--held", "-z")
    assert refused.returncode == 2
    assert "calls cannot be held and awaited one by one" in refused.stderr


def test_every_call_is_in_the_capture(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    recording = recording_variables(Settings(capture, mode="trace"), plugin_path())
    said = measured("allreduce", "allgather", "-b", "4K", "-n", 20, "-w", 5, **recording)
    model = open_model(resolve_capture(str(capture)))
    operations = model.tables["operations"]
    names = [model.words["function"][code] for code in operations["function"].tolist()]
    made = sum(one["calls"] + 5 + 1 for one in said["results"] if one["operation"] == "AllReduce")
    for rank in (0, 1):
        of_rank = operations["rank"] == rank
        found = sum(name == "AllReduce" for name, own in zip(names, of_rank, strict=True) if own)
        assert found == made == 2 * (20 + 5 + 1)


def test_the_gpu_measurement_on_the_simulation() -> None:
    """What `python -m tests.gpu bench` does, as far as it can be tried without a GPU."""
    libraries = find_libraries(None, None, True, {})
    for held in (False, True):
        plan = Plan(("allgather",), (1024, 1 << 20), ("int32",), places=("out-of-place",), runs=2)
        rows = bench_accuracy.run_and_compare(replace(plan, held=held), 2, libraries, {})
        assert [row.size_bytes for row in rows] == [1024, 1 << 20]
        for row in rows:
            assert row.made == row.recorded == 2 * (5 + 2 * 20 + 1)
            assert (row.source, row.wrong) == ("gpu", 0)
            assert row.way == ("held" if held else "back to back")
            assert row.ours_us
            assert row.ours_us > 0
    plan = Plan(("pairs",), (1024,), places=("out-of-place",), calls=2)
    (row,) = bench_accuracy.run_and_compare(plan, 2, libraries, {})
    assert row.verdict == "a lower bound", "a send's stop stamp comes early"


def test_all_forms_of_output(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("b.json", "t.json", "c.parquet", "p.html", "p.svg")}
    shown = bench(
        "--simulate", "allreduce", "-b", "4K", "-e", "8K", "-n", 5, "--runs", 2,
        "--save", files["b.json"], "-J", files["t.json"], "--parquet", files["c.parquet"],
        "--plot", files["p.html"],
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert sum(SIMULATED in line for line in lines) == 2, "at the beginning and at the end"
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert [row[:3] for row in rows] == [["4096", "1024", "float"], ["8192", "2048", "float"]]
    assert json.loads(files["b.json"].read_text())["form"] == "ncclscope-bench"
    assert json.loads(files["t.json"].read_text())["simulation"] == SIMULATED
    assert SIMULATED in files["p.html"].read_text()
    query = f"""select size_bytes, in_place, rank, count(*), count(distinct run), bool_and(simulated),
        min(gpu_ns) > 0, count(host_ns) from '{files["c.parquet"]}' group by all order by all"""
    found = duckdb.sql(query).fetchall()
    assert found == [
        (size, place, rank, 10, 2, True, True, 0)
        for size in (4096, 8192)
        for place in (False, True)
        for rank in (0, 1)
    ]
    plotted = bench("--simulate", "-b", "4K", "-n", 5, "--plot")
    assert "median" in plotted.stdout.splitlines()[-1]


def test_scaling() -> None:
    said = measured("-b", "64K", "-n", 5, "--place", "out", "--ranks", 4, "--scaling")
    assert [one["ranks"] for one in said["results"]] == [2, 4]
    assert [one["ranks"] for one in said["scaling"]] == [2, 4]
    assert said["scaling"][0]["efficiency"] == 1.0
    assert all(one["wrong"] == 0 for one in said["results"])
    text = bench("--simulate", "-b", "64K", "-n", 2, "--ranks", 3, "--scaling", "--blocking").stdout
    assert "# AllReduce, 3 ranks" in text
    assert "efficiency" in text


# ---- what goes wrong ----


def built(tmp_path: Path, *options: object) -> Path:
    """A libnccl with a fault."""
    library = tmp_path / "libbroken.so"
    command = ["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, SOURCE, *options]
    subprocess.run([str(word) for word in command], check=True)
    return library


def test_wrong_results_are_found(tmp_path: Path) -> None:
    real = simulated_nccl_path()
    library = built(
        tmp_path, "-DWRONG_RESULT", f"-L{real.parent}", f"-l:{real.name}", f"-Wl,-rpath,{real.parent}",
    )  # fmt: skip
    found = bench("--nccl", library, "--cudart", real, "--ranks", 2, "-b", "4K", "-n", 2)
    assert found.returncode == 1
    assert "results are wrong: 4 elements" in found.stderr, "one for each rank and place"
    assert "4 FAILED" in found.stdout
    assert SIMULATED in found.stdout, "a simulation says so, however it was chosen"
    unchecked = bench("--nccl", library, "--cudart", real, "--ranks", 2, "-b", "4K", "-c", 0)
    assert unchecked.returncode == 0
    assert "not checked" in unchecked.stdout


def test_what_this_nccl_cannot_do(tmp_path: Path) -> None:
    library, cudart = built(tmp_path, "-DOLD"), simulated_nccl_path()
    common = ("--nccl", library, "--cudart", cudart, "--ranks", 2, "-b", "4K")
    for words, why in (
        (["sendrecv"], "it has no function ncclSend"),
        (["-d", "bfloat16"], "NCCL 2.6.4 has no datatype bfloat16"),
        (["-o", "avg"], "NCCL 2.6.4 has no operator avg"),
    ):
        found = bench(*common, *words)
        assert found.returncode == 1
        assert why in found.stderr
        assert "Traceback" not in found.stderr


def test_old_releases_have_alltoall_by_sends() -> None:
    said = measured("alltoall", "gather", "-b", "4K", "-n", 2, NCCLSCOPE_SIM_RELEASE="2.26")
    assert said["nccl"].startswith("2.26")
    assert all(one["wrong"] == 0 for one in said["results"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-b", "1X"], "no size"),
        (["-b", "2K", "-e", "1K"], "larger than -e"),
        (["nothing"], "no such operation"),
        (["-d", "float31"], "no datatype"),
        (["-o", "xor"], "no operator"),
        (["-r", "7"], "cannot be root"),
        (["-r", "x"], "no rank"),
        (["-n", "0"], "-n 0 makes no sense"),
        (["--seconds", "0"], "--seconds 0 makes no sense"),
        (["--seconds", "nan"], "makes no sense"),
        (["--timeout", "-1"], "makes no sense"),
        (["--ranks", "-2"], "makes no sense"),
        (["-f", "1"], "would not grow"),
        (["-f", "2", "-i", "8"], "in two ways"),
        (["--nccl", "/no/such/libnccl.so"], "at once"),
        (["pairs", "--ranks", "3"], "cannot be paired"),
        (["--save", "/no/such/folder/x.json"], "cannot write"),
        (["--hosts", "no.such.host.invalid"], "which of"),
        (["--plot", "allreduce"], "plots are HTML or SVG"),
        (["--scaling", "--ranks", "1"], "cannot show scaling with 1 rank"),
        (["--ranks", "65"], "cannot simulate 65 ranks"),
        (["--address", "n1"], "the ranks of a launcher"),
    ],
)
def test_bad_arguments(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--simulate", *words]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert len(said.splitlines()) == 1


def test_no_library_and_no_gpu(tmp_path: Path) -> None:
    missing = bench("--nccl", tmp_path / "libnccl.so.2")
    assert missing.returncode == 2
    assert "no such file" in missing.stderr
    (tmp_path / "libcudart.so").write_text("not a library")
    broken = bench("--cudart", tmp_path / "libcudart.so")
    assert broken.returncode == 1
    assert "cannot load CUDA's runtime" in broken.stderr
    real = simulated_nccl_path()
    none = bench("--nccl", real, "--cudart", real, NCCLSCOPE_SIM_DEVICES="0")
    assert none.returncode == 1
    assert "no GPU" in none.stderr
    few = bench("--nccl", real, "--cudart", real, "--ranks", 3, NCCLSCOPE_SIM_DEVICES="2")
    assert few.returncode == 2
    assert "there are 2 GPUs" in few.stderr
    shared = bench(
        "--nccl", real, "--cudart", real, "--ranks", 3, "--share-gpu", "-b", "4K", "-n", 2,
        NCCLSCOPE_SIM_DEVICES="2",
    )  # fmt: skip
    assert shared.returncode == 0, shared.stderr


def test_out_of_memory() -> None:
    found = bench("--simulate", "-b", "64M", "-n", 1, NCCLSCOPE_SIM_MEMORY="32M")
    assert found.returncode == 1
    assert "out of GPU memory: 67,108,864 bytes" in found.stderr
    assert "-e" in found.stderr


def started(*words: object, **variables: str) -> "subprocess.Popen[str]":
    """A benchmark that runs until somebody ends it."""
    return subprocess.Popen(
        [*BENCH, "--simulate", *map(str, words)],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rank_pids(process: "subprocess.Popen[str]", ranks: int) -> list[int]:
    """The processes of the ranks, as the table's head names them."""
    assert process.stdout
    found: list[int] = []
    while len(found) < ranks:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        match = re.match(r"#  Rank +\d+ .* Pid +(\d+) ", line)
        found += [int(match[1])] if match else []
    return found


def alive(pid: int) -> bool:
    """Whether a process still runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_rank_that_is_killed_in_the_middle() -> None:
    process = started("-b", "4K", "--seconds", 50, "--ranks", 3)
    pids = rank_pids(process, 3)
    time.sleep(0.5)
    os.kill(pids[1], signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"rank 1 (process {pids[1]}) was killed by SIGKILL in AllReduce of 4K bytes" in error
    assert not any(alive(pid) for pid in pids)


def test_a_rank_that_stops_answering() -> None:
    process = started("-b", "4K", "--seconds", 50, "--ranks", 2, "--timeout", 3)
    pids = rank_pids(process, 2)
    os.kill(pids[0], signal.SIGSTOP)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search(
        rf"rank 0 \(.*, process {pids[0]}\).* did not get through .* within 3 s", error
    )
    assert not any(alive(pid) for pid in pids)


def test_ranks_do_not_outlive_their_starter() -> None:
    process = started("-b", "4K", "--seconds", 50, "--ranks", 2)
    pids = rank_pids(process, 2)
    process.kill()
    process.communicate(timeout=60)
    eventually(lambda: not any(alive(pid) for pid in pids))


def test_termination_ends_all() -> None:
    process = started("-b", "4K", "--seconds", 50, "--ranks", 2)
    pids = rank_pids(process, 2)
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped by SIGTERM" in error
    assert not any(alive(pid) for pid in pids)


# ---- several processes that are started by others ----


def launched(port: int, rank: int, ranks: int, *words: object) -> "subprocess.Popen[str]":
    """One rank as torchrun starts it."""
    return started(
        "-b", "4K", "-n", 3, *words, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port - 1),
    )  # fmt: skip


def test_inside_a_launcher_rank_0_shows_the_results() -> None:
    port = free_port()
    ranks = [launched(port, rank, 3, "--json") for rank in range(3)]
    said = [process.communicate(timeout=60) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0, 0], said
    assert len(json.loads(said[0][0])["devices"]) == 3
    assert said[1][0] == said[2][0] == ""


def test_a_rank_that_never_comes() -> None:
    port = free_port()
    ranks = [launched(port, rank, 3, "--timeout", 3) for rank in range(2)]
    said = [process.communicate(timeout=60) for process in ranks]
    assert [process.returncode for process in ranks] == [1, 1]
    assert "rank 2 never came within 3 s" in said[0][1]
    assert "rank 0 says why" in said[1][1]


def test_rank_0_that_never_comes() -> None:
    process = launched(free_port(), 1, 2, "--timeout", 2)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank 1 cannot reach rank 0 at 127.0.0.1" in error
    assert "--address" in error


def test_strangers_do_not_disturb() -> None:
    port = free_port()
    first = launched(port, 0, 2, "--json")

    def a_stranger_was_heard() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        except OSError:
            return False
        return True

    eventually(a_stranger_was_heard)
    second = launched(port, 1, 2, "--json")
    out, error = first.communicate(timeout=60)
    assert first.returncode == 0, error
    assert json.loads(out)["ranks"] == 2
    assert second.wait(30) == 0
    second.communicate()


def test_by_host_list() -> None:
    port = free_port()
    hosts = f"127.0.0.1:{port},localhost.second"
    parts = [
        started("-b", "4K", "-n", 3, "--json", "--hosts", hosts, "--host-number", n, "--ranks", 2)
        for n in (0, 1)
    ]
    said = [part.communicate(timeout=60) for part in parts]
    assert [part.returncode for part in parts] == [0, 0], said
    assert json.loads(said[0][0])["ranks"] == 4


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
def test_under_mpirun() -> None:
    command = ["mpirun", "-np", "2", "--oversubscribe", "--allow-run-as-root", *BENCH, "--simulate"]
    command += ["-b", "4K", "-n", "3", "--json", "--address", f"127.0.0.1:{free_port()}"]
    found = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["ranks"] == 2


def test_an_interrupt_ends_quietly() -> None:
    """As Ctrl-C on a terminal: the ranks get it, too."""
    words = ["all_reduce", "--simulate", "--ranks", "2", "-b", "8", "-e", "1G", "-n", "1000"]
    with subprocess.Popen(
        [*BENCH, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stdout
        assert running.stdout.readline()
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "Traceback" not in errors
