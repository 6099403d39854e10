"""Scenarios, run by the simulated NCCL and written directly: both captures say what was planted."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import ncclscope
from ncclscope.api import Capture
from ncclscope.cli import main
from ncclscope.model import join_processes
from ncclscope.model.align.host_clocks import HostClocks
from ncclscope.simulation.nccl import SimulatedNccl
from ncclscope.simulation.rank import ID_VARIABLE, PROGRESS_VARIABLE, SCENARIO_VARIABLE
from ncclscope.simulation.scenario import (
    BandwidthDrop,
    Call,
    Communicators,
    Dies,
    GpuClock,
    Heavy,
    HostClock,
    Late,
    Never,
    Scenario,
    SlowLink,
    Wrong,
)
from ncclscope.simulation.scenario_files import toml_text
from ncclscope.simulation.scenario_lines import scenario_text
from tests.support.exhaustive import IS_EXHAUSTIVE
from tests.support.player import ncclscope as command_line
from tests.support.waiting import eventually
from tests.support.writer.scenario import write_scenario

BASE = Scenario(ranks=4, steps=8, give_up_s=2, calls=(Call("world", "AllReduce", 1 << 18),))
CALLS = BASE.ranks * BASE.steps
Make = Callable[..., Capture]


def run_live(tmp_path: Path, scenario: Scenario, mode: str = "trace", code: int = 0) -> Capture:
    """Runs the scenario through `ncclscope run`."""
    file, capture = tmp_path / "scenario", tmp_path / "live"
    file.write_text(scenario_text(scenario))
    job = [sys.executable, "-m", "ncclscope.simulation", file]
    ran = command_line("run", "-o", capture, "--mode", mode, "--", *job)
    assert ran.returncode == code, ran.stderr
    assert "simulated by ncclscope" in ran.stderr
    return ncclscope.open(capture)


@pytest.fixture(params=["live", "written"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """The capture of a scenario, one way or the other."""

    def make_live(scenario: Scenario, code: int = 0) -> Capture:
        return run_live(tmp_path, scenario, code=code)

    def make_written(scenario: Scenario, code: int = 0) -> Capture:
        write_scenario(tmp_path / "written", scenario)
        return ncclscope.open(tmp_path / "written")

    return make_live if request.param == "live" else make_written


def rows(capture: Capture, query: str) -> list[tuple[Any, ...]]:
    """What the capture's tables answer."""
    return capture.sql(query).fetchall()


def test_nothing_goes_wrong(make: Make) -> None:
    capture = make(BASE)
    found = capture.completeness()
    assert (found.calls, found.operations, found.gpu_timed) == (CALLS, CALLS, CALLS)
    assert found.is_complete
    assert found.in_flight == found.mismatched_instances == 0
    assert found.notes == ["this is a simulation: nothing of it was measured"]


def durations(capture: Capture) -> dict[int, dict[int, int]]:
    """By order of calls and rank, from the GPU's stamps alone: no clock is compared."""
    found: dict[int, dict[int, int]] = {}
    query = "select call_order, global_rank, duration_ns from operations where duration_ns >= 0"
    for order, rank, duration_ns in rows(capture, query):
        found.setdefault(order, {})[rank] = duration_ns
    return dict(sorted(found.items()))


def test_every_output_says_that_it_is_a_simulation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_live(tmp_path, Scenario(ranks=2, steps=10))
    capture = tmp_path / "live"
    outputs = [
        ["report"], ["report", "--json"], ["report", "--by", "rank"], ["status"],
        ["status", "--json"], ["diagnose"], ["diagnose", "--json"], ["dump"], ["dump", "--json"],
        ["compare", str(capture)], ["compare", str(capture), "--json"],
    ]  # fmt: skip
    forms = ("perfetto", "chrome", "parquet", "csv", "jsonl", "callbacks", "inspector")
    outputs += [["export", "--to", form, "-o", str(tmp_path / form)] for form in forms]
    for verb, *words in outputs:
        main([verb, str(capture), *words])
        said = capsys.readouterr()
        assert "simulation" in (said.out + said.err).casefold(), (verb, words)


def test_a_late_rank(make: Make) -> None:
    """Whoever comes last waits least. A busy machine makes others late, too, now and then."""
    capture = make(replace(BASE, late=(Late(2, 80, from_step=2),)))
    late = [ranks for order, ranks in durations(capture).items() if order >= 2]
    assert sum(min(ranks, key=ranks.__getitem__) == 2 for ranks in late) >= len(late) - 2
    assert median(max(ranks.values()) - min(ranks.values()) for ranks in late) > 60e6


def test_a_rank_that_never_calls(make: Make) -> None:
    capture = make(replace(BASE, never=(Never(1, 5),)), code=137)
    found = capture.completeness()
    assert (found.calls, found.in_flight, found.missing_operations) == (4 * 5 + 3, 3, 1)
    absent = rows(capture, "select max(call_order) from operations where global_rank = 1")
    assert absent == [(4,)]


@pytest.mark.parametrize("wrong", [{"function": "AllGather"}, {"size": 1 << 19}])
def test_a_rank_that_calls_something_else(wrong: dict[str, Any], make: Make) -> None:
    capture = make(replace(BASE, wrong=(Wrong(3, 4, **wrong),)), code=137)
    found = capture.completeness()
    assert (found.calls, found.in_flight, found.mismatched_instances) == (4 * 5, 4, 1)
    other = rows(
        capture,
        "select function, size_bytes from operations where global_rank = 3 and call_order = 4",
    )
    expected = ("AllGather", BASE.calls[0].size) if "function" in wrong else ("AllReduce", 1 << 19)
    assert other == [expected]


def test_another_datatype_of_the_same_size_goes_through(make: Make) -> None:
    capture = make(replace(BASE, wrong=(Wrong(3, 4, datatype="int32"),)))
    found = capture.completeness()
    assert (found.calls, found.in_flight, found.mismatched_instances) == (CALLS, 0, 1)


def test_another_root(tmp_path: Path) -> None:
    calls = (Call("world", "Reduce", 1 << 18),)
    capture = run_live(tmp_path, replace(BASE, calls=calls, wrong=(Wrong(3, 4, root=3),)), code=137)
    roots = rows(
        capture,
        "select global_rank, root_communicator_rank from operations where call_order = 4 order by 1",
    )
    assert roots == [(0, 0), (1, 0), (2, 0), (3, 3)]
    assert capture.completeness().in_flight >= 2  # both roots wait for all


@pytest.mark.parametrize("after", [0, 1])
def test_a_process_that_dies(after: int, make: Make) -> None:
    capture = make(replace(BASE, dies=(Dies(2, 3, after=after),)), code=137)
    found = capture.completeness()
    assert found.calls == 4 * 3 + 3 + after
    assert found.gpu_timed >= 4 * 3 - 1  # its last end may not have been noticed yet
    assert found.in_flight >= 3  # its own may not have got so far
    assert any("ended abruptly" in note or "cut off" in note for note in found.notes)


def test_a_slow_link(make: Make) -> None:
    """Of two pairs of ranks, one has a slow link."""
    pairs = replace(
        BASE,
        communicators=(Communicators("tp", 2),),
        calls=(Call("tp", "AllReduce", 1 << 18),),
        slow_links=(SlowLink(ranks=(2, 3), factor=50),),
    )
    capture = make(pairs)
    shortest = [
        min(ranks[rank] for ranks in durations(capture).values() if rank in ranks)
        for rank in range(4)
    ]
    assert min(shortest[2:]) > 20 * min(shortest[:2])


def test_a_rank_that_sends_more(make: Make) -> None:
    """And its neighbour, that receives it."""
    exchange = (Call("world", "SendRecv", 1 << 14),)
    capture = make(replace(BASE, calls=exchange, heavy=(Heavy(1, 3),)))
    found = rows(
        capture,
        "select global_rank, function, sum(size_bytes) from operations"
        " group by 1, 2 having sum(size_bytes) > 200000 order by 1",
    )
    total = 3 * BASE.steps * (1 << 14)
    assert found == [(1, "Send", total), (2, "Recv", total)]


def test_bandwidth_that_drops(make: Make) -> None:
    dropping = replace(
        BASE,
        steps=30,
        compute_ms=20,
        calls=(Call("world", "AllReduce", 1 << 20),),
        bandwidth_drops=(BandwidthDrop(300, 20),),
    )
    capture = make(dropping)
    shortest = [min(ranks.values()) for ranks in durations(capture).values()]
    slow = [one > 5 * min(shortest) for one in shortest]
    assert max(shortest) > 10 * min(shortest)
    assert slow == sorted(slow)
    assert 0 < sum(slow) < len(slow)


def test_communicators_of_a_training_job(make: Make) -> None:
    job = replace(
        BASE,
        ranks=8,
        ranks_per_host=4,
        steps=3,
        communicators=(
            Communicators("tp", 2),
            Communicators("pp", 2, 2),
            Communicators("dp", 2, 4),
        ),
        calls=(
            Call("tp", "AllGather", 1 << 16, "bfloat16"),
            Call("tp", "ReduceScatter", 1 << 16, "bfloat16"),
            Call("pp", "SendRecv", 1 << 14, "bfloat16"),
            Call("dp", "AllReduce", 1 << 18),
        ),
    )
    capture = make(job)
    assert capture.completeness().is_complete
    found = rows(
        capture,
        "select split_part(communicator_name, '#', 1), function, count(*), min(size_bytes),"
        " count(distinct communicator) from operations group by 1, 2 order by 1, 2",
    )
    assert found == [
        ("dp", "AllReduce", 24, 1 << 18, 4),
        ("pp", "Recv", 24, 1 << 14, 4),
        ("pp", "Send", 24, 1 << 14, 4),
        ("tp", "AllGather", 24, 1 << 16, 4),
        ("tp", "ReduceScatter", 24, 1 << 16, 4),
    ]
    hosts = rows(capture, "select host, count(distinct global_rank) from operations group by 1")
    assert sorted(hosts) == [("node0", 4), ("node1", 4)]


def test_clocks_of_fake_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offset and drift of a host are found again within the error bar, whatever GPU timers say."""
    clocks: list[HostClocks] = []
    solve = join_processes.solve
    monkeypatch.setattr(
        join_processes, "solve", lambda *a, **k: clocks.append(solve(*a, **k)) or clocks[-1]
    )
    offset_ns, drift = 2_500_000_000, 50e-6
    hosts = replace(
        BASE,
        ranks_per_host=2,
        steps=40,
        compute_ms=10,
        host_clocks=(HostClock(1, offset_ns / 1e6, drift * 1e6),),
        gpu_clocks=(GpuClock(1, 7, 1), GpuClock(2, -3)),
    )
    before_ns = time.monotonic_ns()
    capture = run_live(tmp_path, hosts, mode="full")
    found = rows(
        capture,
        "select host, min(call_ns), max(call_ns) from operations group by 1 order by 1",
    )
    assert [host for host, _, _ in found] == ["node0", "node1"]
    at = np.linspace(found[0][1], found[0][2], 50).astype(np.int64)
    shown = at + offset_ns + ((at - before_ns) * drift).astype(np.int64)
    # The drift began with the job: somewhere between `before_ns` and the first call.
    started_ns = (found[0][1] - before_ns) * drift
    error_ns = clocks[-1].error_at(1, shown)
    assert (np.abs(clocks[-1].to_reference(1, shown) - at) <= error_ns + started_ns).all()
    assert np.median(error_ns) < 100e6
    assert capture.completeness().gpu_timed == hosts.ranks * hosts.steps


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_launcher_that_is_ended_takes_its_ranks_along(
    number: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "scenario.toml"
    hangs = Scenario(ranks=2, give_up_s=0, never=(Never(rank=1, step=0),))
    file.write_text(toml_text(hangs))
    job = subprocess.Popen(
        [sys.executable, "-m", "ncclscope.simulation", str(file)],
        stderr=subprocess.PIPE,
        text=True,
        # Who ignores a signal bequeaths that: the tests may run under nohup.
        preexec_fn=lambda: (
            signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        ),
    )

    def ranks() -> list[int]:
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        found = [int(pid) for pid in children]
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found]
        made = [line for line in lines if b"ncclscope.simulation.rank" in line]
        return found if len(made) == 2 else []

    found = eventually(ranks)
    assert job.stderr is not None
    assert "simulated by ncclscope" in job.stderr.readline()  # the ranks are at work
    job.send_signal(number)
    _, said = job.communicate(timeout=60)
    assert job.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert said == ""
    eventually(lambda: not any(map(is_running, found)))


def test_a_rank_without_a_launcher_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "scenario"
    file.write_text(scenario_text(Scenario(ranks=1)))
    read, written = os.pipe()
    os.close(read)
    variables = {
        SCENARIO_VARIABLE: str(file),
        ID_VARIABLE: SimulatedNccl().unique_id().hex(),
        PROGRESS_VARIABLE: str(written),
        "RANK": "0",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "ncclscope.simulation.rank"], env=os.environ | variables,
        pass_fds=(written,), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(written)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    file.unlink()  # the launcher takes it along
    ran = subprocess.run(
        [sys.executable, "-m", "ncclscope.simulation.rank"], env=os.environ | variables,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"rank 0: cannot read the scenario {file}: No such file or")
    assert len(ran.stderr.splitlines()) == 1


def test_many_ranks(tmp_path: Path) -> None:
    ranks = 1024 if IS_EXHAUSTIVE else 256
    large = Scenario(
        ranks=ranks,
        ranks_per_host=8,
        steps=3,
        give_up_s=1,
        communicators=(Communicators("tp", 8), Communicators("dp", ranks // 8, 8)),
        calls=(Call("tp", "AllReduce", 1 << 20, "bfloat16"), Call("dp", "AllReduce", 1 << 22)),
        never=(Never(177, 2, 1),),
    )
    write_scenario(tmp_path / "c", large)
    found = ncclscope.open(tmp_path / "c").completeness()
    assert (found.processes_found, found.processes_expected) == (ranks, ranks)
    assert (found.calls, found.in_flight) == (ranks * 6 - 1, ranks // 8 - 1)
