"""The ten questions of docs/guides/notebook.md have answers of at most three lines."""

import re
from collections.abc import Sized
from pathlib import Path
from typing import Any

import pytest

import ncclscope
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.paths import ROOT
from tests.support.writer import write_scenario

PAGE = (ROOT / "docs" / "guides" / "notebook.md").read_text()
SECTIONS = PAGE.partition("## Plots")[0].split("\n### ")[1:]
QUESTIONS = [
    (section.partition("\n")[0], section.partition("```python\n")[2].partition("```")[0])
    for section in SECTIONS
]
JOB = Scenario(
    ranks=4,
    ranks_per_host=2,
    communicators=(Communicators("world"), Communicators("tp", 2), Communicators("dp", 2, 2)),
    calls=(
        Call("tp", "AllGather", 1 << 18),
        Call("dp", "AllReduce", 1 << 20),
        Call("world", "SendRecv", 1 << 16),
    ),
    late=(Late(rank=2, ms=20, from_step=10),),
    steps=40,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures")
    write_scenario(path / "job", JOB, 1)
    write_scenario(path / "later", JOB, 2)
    return path


def answer(code: str, names: dict[str, Any]) -> Any:
    """The value of the last line, as a notebook shows it."""
    *before, last = re.split(r"\n(?! )", code.strip())
    for statement in before:
        exec(statement, names)
    return eval(last, names)


def test_there_are_ten() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_it_is_answered_in_three_lines(
    question: tuple[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    code = question[1]
    assert len(code.strip().splitlines()) <= 3
    result = answer(code, {"ncclscope": ncclscope, "capture": ncclscope.open("job")})
    rows = result.fetchall() if hasattr(result, "fetchall") else result
    assert isinstance(rows, Sized)
    assert len(rows) > 0
    assert repr(result)


def test_answers_are_right(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names = {"ncclscope": ncclscope, "capture": ncclscope.open("job")}
    code = dict(QUESTIONS)
    assert [ranks for ranks, _ in answer(code["Which rank is late?"], names)] == [(2,)]
    pairs = answer(code["Which pair of hosts is slow?"], names).fetchall()
    assert {(source, destination) for source, destination, _ in pairs} == {
        (a, b) for a in ("node0", "node1") for b in ("node0", "node1")
    }
    shares = answer(code["What share of the time is each rank in NCCL?"], names).fetchall()
    assert [row[0] for row in shares] == [0, 1, 2, 3]
    assert all(0 < run <= 1 for _, run, _ in shares)
    assert min(shares, key=lambda row: row[2])[0] == 2  # the late rank waits least
    slowest = answer(code["Which step was the slowest?"], names).fetchall()[0]
    assert slowest[1] > 20
