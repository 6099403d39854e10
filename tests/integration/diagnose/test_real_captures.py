"""Captures of real jobs whose truth is known: two equal ones, and one with a planted sleep."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ncclscope.cli import main
from tests.support.paths import DATA

PLANTED_NS = 34 * 30_000_000  # the sleep before the first of 35 steps is start-up's
Json = dict[str, Any]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    for name in ("fsdp2-trace1", "fsdp2-trace2", "fsdp2-slow2", "late-rank-sampled"):
        with tarfile.open(DATA / "captures" / f"h200-{name}.tar.xz") as packed:
            packed.extractall(folder, filter="data")
    return folder


def ask(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Json:
    main([*map(str, words), "--json"])
    answer: Json = json.loads(capsys.readouterr().out)
    return answer


def test_the_sleep_is_the_late_ranks_and_nearly_all_waiting_began_there(
    captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = ask(capsys, "report", captures / "slow2")["waiting"]
    first, *others = waiting["origins"]
    assert (first["kind"], first["rank"], first["times"]) == ("host after sync", 2, 34)
    assert first["excess_ns"] == pytest.approx(PLANTED_NS, rel=0.05)
    assert first["on_path_ns"] == pytest.approx(PLANTED_NS, rel=0.05)
    of_others = sum(origin["waiting_ns"] for origin in others if origin.get("rank") in (0, 1, 3))
    assert of_others < 0.05 * waiting["total_ns"]


def test_the_step_without_the_late_rank_is_that_of_the_healthy_jobs(
    captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = ("--without", "rank", "2")
    slow = ask(capsys, "whatif", captures / "slow2", *without)
    healthy = [ask(capsys, "whatif", captures / name, *without) for name in ("trace1", "trace2")]
    usual_ns = sum(answer["step_now_ns"] for answer in healthy) / 2
    assert slow["step_now_ns"] > 1.5 * usual_ns
    assert slow["step_then_ns"] == pytest.approx(usual_ns, rel=0.03)
    for answer in healthy:  # nothing is gained without a rank that is not late
        assert answer["run_then_ns"] == pytest.approx(answer["run_now_ns"], rel=0.01)


def test_the_late_rank_is_the_only_problem(
    captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = {
        name: [
            (finding["family"], finding["ranks"])
            for finding in ask(capsys, "diagnose", captures / name)["findings"]
            if finding["severity"] != "info"
        ]
        for name in ("trace1", "trace2", "slow2")
    }
    assert problems == {"trace1": [], "trace2": [], "slow2": [("straggler", [2])]}


def test_equal_jobs_are_equal_both_ways_and_the_slow_one_is_slower(captures: Path) -> None:
    def gate(first: str, second: str) -> int:
        return main(["compare", "--gate", str(captures / first), str(captures / second)])

    assert gate("trace1", "trace2") == 0
    assert gate("trace2", "trace1") == 0
    assert gate("trace1", "slow2") == 3
    assert gate("trace2", "slow2") == 3


def test_a_sample_says_who_waited_how_long_for_whom_like_the_times_of_all_kernels(
    captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clocks of CUDA events were off by up to 2 ms, which is as late as the late rank is."""
    answer = ask(capsys, "report", captures / "late-rank-sampled")
    by_function = {row["function"]: row for row in answer["operations"]}
    for function, share in (("AllGather", 0.41), ("ReduceScatter", 0.07)):
        estimate = by_function[function]["sample"]["wait_share"]
        assert estimate["low"] <= share <= estimate["high"]
    first, *others = answer["ranks"]
    assert first["rank"] == 3
    assert all(first["caused_wait_ns"] > 20 * other["caused_wait_ns"] for other in others)
    assert answer["arrivals"]["clock_error_ns"] < 100_000
