"""`ncclscope diagnose` on real jobs at their own times, and on simulated ones of real processes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ncclscope.simulation.job import run_job
from ncclscope.simulation.scenario import Late, Scenario
from ncclscope.simulation.scenario_files import read_scenario
from tests.support.player import TRANSCRIPTS, ncclscope, recording
from tests.support.simulated_faults import JOBS
from tests.support.writer import from_transcript
from tests.support.writer.scenario import write_scenario

HEALTHY = (
    "2.27.7-v4-2ranks", "2.28.9-v5-2ranks", "2.28.9-v5-4ranks", "2.30.7-v6-2ranks",
    "2.31.2-v7-2ranks", "2.32.3-v7-2ranks-one-host", "2.28.9-v5-2ranks-ddp-densenet121",
)  # fmt: skip


def capture_of(name: str, directory: Path) -> Path:
    """The job with each rank on a node of its own."""
    from_transcript(
        TRANSCRIPTS / name, directory / name, boot_ids={r: f"boot{r}" for r in range(4)}
    )
    return directory / name


def diagnosis(capture: Path, *options: str) -> list[dict[str, Any]]:
    printed = ncclscope("diagnose", "--json", capture, *options)
    assert printed.returncode == 0, printed.stderr
    return list(json.loads(printed.stdout)["findings"])


def test_the_straggler_is_named(tmp_path: Path) -> None:
    capture = capture_of("2.28.9-v5-4ranks-straggler", tmp_path)
    first, *others = diagnosis(capture)
    assert (first["family"], first["kind"], first["ranks"]) == ("straggler", "compute", [3])
    assert first["severity"] == "critical"
    assert first["hosts"] == ["node3"]
    assert 0.4 < first["lost_share"] < 1
    late_us = first["evidence"][0]["facts"]["compute_us"]
    assert 19_000 < late_us < 23_000
    assert all(other["severity"] == "info" for other in others)
    failed = ncclscope("diagnose", capture, "--fail-on", "warning")
    assert failed.returncode == 3
    assert "rank 3 (node3; pid " in failed.stdout
    assert ") is late 18 times, typically by 20" in failed.stdout
    assert "without that the run would take" in " ".join(failed.stdout.split())


def test_of_two_ranks_the_late_one_is_as_late_as_it_is(tmp_path: Path) -> None:
    """The demo's job, all of whose communicators are pairs: what is found is what was planted."""
    scenario = read_scenario(Path("late_rank.toml"))
    (planted,) = scenario.late
    write_scenario(tmp_path / "c", scenario)
    (first,) = diagnosis(tmp_path / "c")
    assert (first["family"], first["ranks"]) == ("straggler", [planted.rank])
    late_steps = scenario.steps - planted.from_step
    found = re.search(r"is late (\d+) times, typically by ([\d.]+) ms", first["sentence"])
    assert found
    assert int(found[1]) == pytest.approx(late_steps, abs=2)
    assert float(found[2]) == pytest.approx(planted.ms, rel=0.05)
    run_ms = scenario.steps * scenario.compute_ms + late_steps * planted.ms
    assert first["lost_share"] == pytest.approx(late_steps * planted.ms / run_ms, rel=0.2)


@pytest.mark.parametrize("hosts", [2, 3])
def test_a_late_host_costs_what_it_costs(hosts: int, tmp_path: Path) -> None:
    """Also where there is only one other to compare it with."""
    late = tuple(Late(rank, ms=20) for rank in range(4, 8))
    scenario = Scenario(ranks=4 * hosts, ranks_per_host=4, steps=60, compute_ms=10, late=late)
    write_scenario(tmp_path / "c", scenario)
    first, *others = diagnosis(tmp_path / "c")
    assert (first["family"], first["hosts"]) == ("straggler", ["node1"])
    assert first["lost_share"] == pytest.approx(20 / 30, rel=0.1)
    assert all(other["severity"] == "info" for other in others)


def test_the_hang_is_named(tmp_path: Path) -> None:
    """Its record ends milliseconds after it began: that could as well be a death."""
    first, *others = diagnosis(capture_of("2.28.9-v5-3ranks-hang", tmp_path))
    assert (first["family"], first["kind"], first["ranks"]) == ("hang", "never_called", [2])
    assert "rank 2 (node2; pid " in first["sentence"]
    assert "had not called it and may have died first" in first["sentence"]
    assert first["severity"] == "critical"
    assert "AllReduce #6" in first["sentence"]
    assert all(other["severity"] == "info" for other in others)


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_wrong_with_jobs_that_are_well(name: str, tmp_path: Path) -> None:
    found = diagnosis(capture_of(name, tmp_path), "--fail-on", "warning")
    assert all(finding["severity"] == "info" for finding in found)


def test_bad_input(tmp_path: Path) -> None:
    assert ncclscope("diagnose", tmp_path / "nowhere").returncode == 2
    capture = capture_of("2.28.9-v5-2ranks", tmp_path)
    (tmp_path / "b.json").write_text("{}")
    printed = ncclscope("diagnose", capture, "--baseline", tmp_path / "b.json")
    assert printed.returncode == 2
    assert "it holds no bus bandwidths" in printed.stderr


def test_below_a_baseline(tmp_path: Path) -> None:
    capture = capture_of("2.28.9-v5-2ranks", tmp_path)
    rows = [{"operation": "AllReduce", "size_bytes": 1 << 20, "busbw_gbs": 500.0}]
    saved = {"form": "ncclscope-bench", "form_version": 1, "simulated": False, "results": rows}
    (tmp_path / "b.json").write_text(json.dumps(saved))
    found = diagnosis(capture, "--baseline", str(tmp_path / "b.json"))
    assert found[0]["family"] == "below_expected"
    assert "AllReduce of 1 MiB" in found[0]["sentence"]
    # As nccl-tests -J has it.
    rows = [{"size": 1 << 20, "out_of_place": {"bus_bw": 500.0}}]
    results = {"args": ["./build/all_reduce_perf", "-b", "1M"], "results": rows}
    (tmp_path / "b.json").write_text(json.dumps(results))
    assert diagnosis(capture, "--baseline", str(tmp_path / "b.json"))[0] == found[0]


# ---- simulated jobs of real processes ----
# All of them are in benchmarks/diagnose_quality.py.
@pytest.mark.parametrize(
    "name",
    ["late rank", "slow host of eight", "slow link", "imbalance", "wrong root",
     "never calls of eight", "late rank + never calls"],
)  # fmt: skip
def test_simulated_jobs(name: str, tmp_path: Path) -> None:
    """Through the real plugin; times are a busy machine's, so faults are large."""
    job = JOBS[name]
    run_job(job.scenario, recording(tmp_path / "c", "full"))
    found = diagnosis(tmp_path / "c")[: len(job.expected)]
    first = {(one["family"], one["kind"], tuple(one["ranks"])) for one in found}
    assert first == set(job.expected)


def test_numpy_is_enough(tmp_path: Path) -> None:
    """On a machine without DuckDB."""
    capture = capture_of("2.28.9-v5-4ranks-straggler", tmp_path)
    code = "import sys; sys.modules['duckdb'] = None; from ncclscope.cli import main; "
    for verb in ("status", "diagnose"):
        ran = subprocess.run(
            [sys.executable, "-c", f"{code} sys.exit(main(['{verb}', {str(capture)!r}]))"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr


def test_compare_as_a_gate(tmp_path: Path) -> None:
    a = capture_of("2.28.9-v5-2ranks", tmp_path)
    b = capture_of("2.30.7-v6-2ranks", tmp_path)
    printed = ncclscope("compare", a, b, "--gate")
    assert printed.returncode == 5, "a few calls of two releases: nothing could be judged"
    assert "not judged" in printed.stdout + printed.stderr
    assert ncclscope("compare", a, tmp_path / "nowhere").returncode == 2
