"""`ncclscope overhead` end to end: a plugin of known cost, windows, and commands that fail."""

import json
import os
import signal
import statistics
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ncclscope.native import simulated_nccl_path
from tests.support.paths import C_SOURCES
from tests.support.waiting import eventually

OVERHEAD = [sys.executable, "-m", "ncclscope", "overhead", "-q"]
BURNT_US, PAUSE_US = 1000, 1000
SLACK = 0.05  # of the cost: a busy machine takes the CPU away right before and after it, too


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job and the plugin."""
    folder = tmp_path_factory.mktemp("overhead")
    job, plugin = C_SOURCES / "paced_job.c", C_SOURCES / "burning_plugin.c"
    subprocess.run(["cc", "-O2", "-o", folder / "job", job, "-ldl"], check=True)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "burn.so", plugin], check=True)
    return folder


def overhead(
    tools: Path, *words: object, job: tuple[object, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    command = [*OVERHEAD, *map(str, words), "--"]
    command += [str(tools / "job"), str(simulated_nccl_path()), *map(str, job)] if job else []
    env = {k: v for k, v in os.environ.items() if not k.startswith("NCCL")}
    env["BURNT_US"] = str(BURNT_US)
    env["BURNT_LOG"] = str(tools / "burnt")
    return subprocess.run(
        command, env=env, cwd=tools, capture_output=True, text=True, timeout=120, check=False
    )


def measured(tools: Path, *words: object, job: tuple[object, ...]) -> dict[str, Any]:
    for old in tools.glob("burnt.*"):
        old.unlink()
    found = overhead(tools, "--json", *words, job=job)
    assert found.returncode == 0, found.stderr
    said: dict[str, Any] = json.loads(found.stdout)
    assert [path.name for path in tools.iterdir() if path.is_dir()] == [], "nothing is left"
    return said


def burnt_us(tools: Path, of_a_job: Callable[[Sequence[int]], float]) -> float:
    """What the plugin really took for a call, by its own clock: the middle one of all jobs."""
    logs = [path.read_bytes() for path in tools.glob("burnt.*")]
    return statistics.median(
        of_a_job(struct.unpack(f"{len(log) // 8}l", log)) for log in logs if log
    )


def assert_known_cost(
    said: dict[str, Any], tools: Path, calls_s: float, of_a_job: Callable[[Sequence[int]], float]
) -> None:
    """What was measured is what the plugin burnt, within what was said of it. `of_a_job`: as the
    cost itself is made of a job's calls: on a busy machine, a mean is no median.
    """
    shares = said["shares"]
    burnt = burnt_us(tools, of_a_job)
    assert burnt >= BURNT_US
    expected = burnt / 1e6 / calls_s
    room = shares["noise_share"] + SLACK * expected
    assert shares["ours"]["low"] - room <= expected <= shares["ours"]["high"] + room, shares
    # On a busy machine noise can be as large as the cost; then it must not be called resolved.
    assert shares["resolved"] or shares["noise_share"] >= expected / 2, shares


def test_a_plugin_of_known_cost(tools: Path) -> None:
    said = measured(
        tools, "--rounds", 6, "--plugin", "burn.so", "--time", r"a call takes: ([0-9.]+)",
        job=(60, PAUSE_US),
    )  # fmt: skip
    calls_s = statistics.median(said["costs"]["empty"]) / 1e6
    assert_known_cost(said, tools, calls_s, statistics.median)
    assert {name: len(costs) for name, costs in said["costs"].items()} == {
        "none": 6,
        "none again": 6,
        "empty": 6,
        "ours": 6,
        "empty up to calls": 6,
        "empty up to operations": 6,
        "empty up to proxy": 6,
    }
    assert said["events"] == 0xFF4F
    assert all(cpu_s > 0 for costs in said["cpu_costs"].values() for cpu_s in costs)
    assert list(said["shares"]["events"]) == ["calls", "operations", "proxy", "kernels"]
    assert said["cpu_shares"]["total"]["low"] > 0, "the plugin burns CPU time"


def test_a_known_cost_in_a_window(tools: Path) -> None:
    """Of a job that never ends: ncclscope, with the plugin of known cost behind it."""
    said = measured(
        tools, "--rounds", 4, "--seconds", 1, "--chain", tools / "burn.so", job=(0, PAUSE_US)
    )
    assert set(said["costs"]) == {
        "empty", "empty again", "ours", "empty up to operations", "empty up to proxy",
    }  # fmt: skip
    assert_known_cost(said, tools, statistics.median(said["costs"]["empty"]), statistics.fmean)
    assert said["shares"]["nccl"] is None


def test_our_own_share_by_wall_time(tools: Path) -> None:
    found = overhead(tools, "--rounds", 3, "--rate", "calls a second: ([0-9.]+)", job=(20, 500))
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("! this is a simulation: these times mean nothing\n")
    assert "no plugin" in found.stdout
    assert "of this, NCCL itself for events 0xff4f" in found.stdout
    assert "noise: no plugin again" in found.stdout
    assert "verdict: ncclscope (trace) against no plugin: " in found.stdout
    wall = measured(tools, "--rounds", 3, "--mode", "profile", job=(5, 500))
    assert wall["measures"] == "wall time"
    assert wall["events"] == 0x7F07, "profile mode samples, so it does without KernelCh"
    assert wall["simulation"] is True


def test_commands_that_cannot_be_measured(tools: Path) -> None:
    def refused(code: int, why: str, *words: object, job: tuple[object, ...] = ()) -> None:
        found = overhead(tools, *words, job=job)
        assert found.returncode == code, found.stderr
        assert why in found.stderr
        assert "Traceback" not in found.stderr

    refused(2, "nothing to run")
    silent = [*OVERHEAD, "--rounds", "3", "--", "true"]
    found = subprocess.run(silent, capture_output=True, text=True, cwd=tools, check=False)
    assert found.returncode == 1
    assert "true (ours) made no NCCL call that was recorded" in found.stderr
    assert "verdict" not in found.stdout
    refused(1, "ended with exit code 2", job=("too", "many", "words"))
    refused(1, "did not end within 1 s", "--timeout", 1, job=(0, 1000))
    refused(1, "printed no number", "--rate", "steps: ([0-9]+)", job=(5, 100))
    refused(2, "no regular expression", "--rate", "(", job=(5, 100))
    refused(2, "has 0 groups", "--time", "x", job=(5, 100))
    refused(2, "too few", "--rounds", 2, job=(5, 100))
    refused(2, "no such file", "--plugin", "/no/such.so", job=(5, 100))
    refused(2, "does not count calls", "--plugin", "burn.so", "--seconds", 1, job=(0, 100))
    refused(2, "no such directory", "-o", "/no/such/folder", job=(5, 100))
    missing = subprocess.run(
        [*OVERHEAD, "--", "/no/such/command"], capture_output=True, text=True, check=False
    )
    assert missing.returncode == 127
    assert "cannot run /no/such/command" in missing.stderr
    silent = subprocess.run(
        [*OVERHEAD, "--seconds", "1", "--timeout", "2", "--", "sleep", "60"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert silent.returncode == 1
    assert "made no NCCL call within 2 s" in silent.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_ends_it_ends_the_command_too(number: signal.Signals, tmp_path: Path) -> None:
    words = [*OVERHEAD, "--", "sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 300"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    pid = int(eventually(lambda: (path := tmp_path / "pid").exists() and path.read_text()))
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if number == signal.SIGINT else 1)
    assert number == signal.SIGINT or f"stopped by {number.name}" in said
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["pid"], "nothing is left"
