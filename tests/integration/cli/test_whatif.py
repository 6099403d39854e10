"""`ncclscope whatif` on a written job with a late rank."""

import json
from pathlib import Path
from typing import Any

import pytest

from ncclscope.simulation.scenario import Late, Scenario
from tests.support.player import ncclscope
from tests.support.writer.scenario import write_scenario

STEPS, LATE_MS = 40, 6.0


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whatif") / "c"
    write_scenario(path, Scenario(ranks=4, steps=STEPS, compute_ms=4, late=(Late(2, LATE_MS),)))
    return path


def predicted(capture: Path, *words: str) -> dict[str, Any]:
    printed = ncclscope("whatif", capture, *words, "--json")
    assert printed.returncode == 0, printed.stderr
    answer: dict[str, Any] = json.loads(printed.stdout)
    return answer


def test_without_the_late_rank_the_run_is_shorter_by_its_delays(capture: Path) -> None:
    answer = predicted(capture, "--without", "rank", "2")
    assert set(answer) == {
        "version", "run_now_ns", "run_then_ns", "step_now_ns", "step_then_ns", "error_ns", "limits",
    }  # fmt: skip
    assert answer["limits"] == []
    gained_ms = (answer["run_now_ns"] - answer["run_then_ns"]) / 1e6
    assert gained_ms == pytest.approx(STEPS * LATE_MS, rel=0.1)
    step_ms = (answer["step_now_ns"] - answer["step_then_ns"]) / 1e6
    assert step_ms == pytest.approx(LATE_MS, rel=0.1)


def test_without_a_change_the_run_is_as_long_as_it_was(capture: Path) -> None:
    answer = predicted(capture)
    assert answer["run_then_ns"] == answer["run_now_ns"]


def test_changes_can_be_combined(capture: Path) -> None:
    printed = ncclscope("whatif", capture, "--without", "ranks", "1-2", "--free", "world")
    assert printed.returncode == 0, printed.stderr
    assert "without delays of ranks 1, 2" in printed.stdout
    assert "instead of" in printed.stdout
    assert "critical path" in printed.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--without", "rank", "9"), "no GPU times of it"),
        (("--without", "gpu", "1"), "Say --without rank 2"),
        (("--link", "0-1", "at", "once"), "Say --link 5-9 at median"),
        (("--link", "0-1", "at", "median"), "these ranks do not send to each other"),
        (("--link", "0-9", "at", "median"), "no GPU times of it"),
        (("--comm", "world", "at", "light"), "Say --comm tp at 100 GB/s"),
        (("--free", "nobody"), "the capture has none of that name"),
    ],
)
def test_what_cannot_be_changed_is_said(capture: Path, words: tuple[str, ...], reason: str) -> None:
    printed = ncclscope("whatif", capture, *words)
    assert printed.returncode == 2
    assert reason in printed.stderr
