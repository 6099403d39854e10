"""--rank, --comm, --op and times in diagnose and compare, on written jobs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.analysis.measures import extent
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.time_selection import model_between
from ncclscope.cli import main
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.writer.scenario import write_scenario

LATE = Scenario(
    ranks=4, steps=80, compute_ms=5, communicators=(Communicators("w"),),
    calls=(Call("w", "AllReduce", 1 << 20), Call("w", "AllGather", 1 << 18)),
    late=(Late(2, 8.0, from_step=40),),
)  # fmt: skip


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose rank 2 is late in its second half."""
    path = tmp_path_factory.mktemp("captures") / "late"
    write_scenario(path, LATE, 1)
    return path


def answer(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    """What a verb prints with --json."""
    assert main([*map(str, words), "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


def stragglers(said: dict[str, Any]) -> list[list[int]]:
    return [row["ranks"] for row in said["findings"] if row["family"] == "straggler"]


def half_s(model: Model) -> float:
    first, _ = extent(model.tables["operations"]) or (0, 0)
    starts = np.sort(np.asarray(model.tables["instances"]["first_start_ns"]))
    return float(starts[len(starts) // 2] - first) / 1e9 - 1e-3


def test_a_time_is_diagnosed_without_what_happens_later(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = f"{half_s(open_model(capture)):.6f}"
    assert stragglers(answer(capsys, "diagnose", capture)) == [[2]]
    assert stragglers(answer(capsys, "diagnose", capture, "--until", half)) == []
    assert stragglers(answer(capsys, "diagnose", capture, "--since", half)) == [[2]]


def test_findings_about_other_ranks_are_left_out_and_counted(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = answer(capsys, "diagnose", capture)["findings"]
    own = answer(capsys, "diagnose", capture, "--rank", "2")
    others = answer(capsys, "diagnose", capture, "--rank", "0,1", "--rank", "3")
    assert stragglers(own) == [[2]]
    assert stragglers(others) == []
    for said in (own, others):
        assert len(said["findings"]) + said["left_out"] == len(everything)
    assert main(["diagnose", str(capture), "--rank", "9"]) == 2
    assert "There are ranks 0-3" in capsys.readouterr().err


def test_compare_lists_the_chosen_kinds_and_judges_the_job(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = answer(capsys, "compare", capture, capture)
    part = answer(capsys, "compare", capture, capture, "--op", "allgather", "--comm", "w*")
    assert {row["function"] for row in whole["changes"]} == {"AllReduce", "AllGather"}
    assert {row["function"] for row in part["changes"]} == {"AllGather"}
    assert part["verdict"] == whole["verdict"]
    assert main(["compare", str(capture), str(capture), "--op", "foo"]) == 2
    assert "They have AllGather, AllReduce" in capsys.readouterr().err


def test_a_part_of_a_run_has_whole_instances(capture: Path) -> None:
    model = open_model(capture)
    first, last = extent(model.tables["operations"]) or (0, 0)
    part = model_between(model, Selection(since_ns=first + (last - first) // 3, until_ns=last))
    operations, instances = part.tables["operations"], part.tables["instances"]
    rows = np.asarray(operations["instance"])
    assert 0 < len(rows) < len(model.tables["operations"]["event"])
    assert (rows != NONE).all()
    assert (np.bincount(rows) == 4).all()
    assert (np.asarray(instances["function"])[rows] == operations["function"]).all()
    assert part.began_ns == first
    assert model_between(model, Selection()) is model
