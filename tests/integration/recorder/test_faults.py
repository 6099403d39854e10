"""Calls to the system that fail: the job ends as it would have, and what is missing is counted and
said. `benchmarks.faults` makes every call fail with each of its errors, in every place.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ncclscope.capture.reader import open_capture
from ncclscope.native import player_path
from tests.support.faults import (
    ERRORS,
    HARMLESS,
    Bench,
    Fault,
    calls_linked,
    fault_variables,
    prepare,
    run_with_fault,
)
from tests.support.player import ncclscope, player, recording

TOGETHER = 3  # a job waits more than it works


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return prepare(tmp_path_factory.mktemp("faults"))


def test_every_call_of_the_plugin_is_in_the_sweep() -> None:
    assert set(calls_linked()) <= set(ERRORS) | HARMLESS
    assert not set(ERRORS) & HARMLESS


def test_the_recorder_maps_its_own_arena_alone(bench: Bench) -> None:
    """Of a file that somebody truncates, as a dead process's arena, a mapping would be a SIGBUS."""
    assert bench.calls_made["mmap"] == 1
    assert bench.calls_made["pread"] > 1, "it has salvaged the dead process's"


def test_no_failing_call_harms_the_job(bench: Bench) -> None:
    """Every call that the recorder makes fails from the start on, with one of its errors."""
    faults = [Fault(call, ERRORS[call][0]) for call in bench.calls_made]
    assert len(faults) > 40
    with ThreadPoolExecutor(TOGETHER) as pool:
        outcomes = list(pool.map(lambda fault: run_with_fault(bench, fault), faults))
    assert [outcome for outcome in outcomes if outcome.problem] == []
    # Of jobs that run at the same time, one finds the dead process's arena.
    missed = [outcome.fault for outcome in outcomes if not outcome.failed_calls]
    assert len(missed) < 10
    again = [run_with_fault(bench, fault) for fault in missed]
    assert [outcome for outcome in again if outcome.problem or not outcome.failed_calls] == []


@pytest.mark.parametrize("error", ["EPERM", "ENOMEM"])
@pytest.mark.parametrize("version", [1, 3, 4, 7])
def test_callbacks_without_memory_to_record_into(
    bench: Bench, version: int, error: str, tmp_path: Path
) -> None:
    """Also those that the mask does not ask for, as of graphs that were captured before."""
    env = recording(tmp_path / "c") | fault_variables(bench, Fault("madvise", error))
    load = ["load", "--oracle", tmp_path / "oracle", "--collectives", 2000, "--version", version]
    played = player(*load, env=env)
    assert played.returncode == 0, played.stderr


# Of pwrite: from the middle on, for a while, and at the end.
WRITE_FAULTS = [
    *(Fault("pwrite", error, 20) for error in ("EIO", "ENOSPC", "EDQUOT", "ESTALE", "EAGAIN")),
    Fault("pwrite", "EIO", 20, 15),
    Fault("openat", "EROFS", 3),
    Fault("renameat", "EIO", 2),
]


def test_counts_are_exact_when_writes_fail(bench: Bench) -> None:
    """The arena keeps what could not be written, and readers bring it in."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        outcomes = list(pool.map(lambda fault: run_with_fault(bench, fault), WRITE_FAULTS))
    assert [outcome for outcome in outcomes if outcome.problem] == []
    assert not [outcome for outcome in outcomes if "early" in outcome.recorded]


def test_counts_that_are_nowhere_are_said_to_end_early(bench: Bench, tmp_path: Path) -> None:
    """Without shared memory, what cannot be written is gone."""
    capture = tmp_path / "c"
    variables = fault_variables(bench, Fault("pwrite", "EIO", 20))
    limit = 2 << 20  # the smallest arena is larger, so it is private memory
    env = recording(capture) | variables
    command = ["prlimit", f"--fsize={limit}:{limit}", str(player_path()), "load"]
    command += ["--collectives", "400", "--rate", "400000"]
    ran = ncclscope("run", "-o", capture, "--mode", "full", "--", *command, env=env)
    assert ran.returncode == 0, ran.stderr
    (process,) = open_capture(capture).processes
    assert process.calls_counted() < 400
    assert process.counts_end_early
    report = ncclscope("report", capture).stdout
    assert "nothing dropped" not in " ".join(report.split())
    assert "counts of 1 process end early" in " ".join(report.split())
    assert "counts of 1 process end early" in ran.stderr
    as_json = json.loads(ncclscope("report", "--json", capture).stdout)
    assert as_json["completeness"]["counts_end_early"] == 1
