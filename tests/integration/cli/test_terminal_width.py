"""On a terminal lines fit, but for paths, which stay in one piece."""

import re
from pathlib import Path

import pytest

from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.player import TRANSCRIPTS, shown_on_terminal
from tests.support.writer import from_transcript, write_scenario

_LATE = Scenario(
    ranks=4, ranks_per_host=2, steps=30,
    communicators=(Communicators("world"), Communicators("tp", 2)),
    calls=(Call("world", "AllReduce", 1 << 20), Call("tp", "AllGather", 1 << 18, "bfloat16")),
    late=(Late(rank=2, ms=20, from_step=10),),
)  # fmt: skip


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("w") / "late"
    write_scenario(path, _LATE, 1)
    return path


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("w") / "hung"
    from_transcript(TRANSCRIPTS / "2.28.9-v5-3ranks-hang", path)
    return path


def _shown(columns: int, *words: str | Path) -> list[str]:
    """The lines that a terminal gets."""
    shown = shown_on_terminal(*words, COLUMNS=str(columns), TERM="dumb")
    return [line.rpartition("\r")[2] for line in shown.replace("\r\n", "\n").split("\n")]


def _check(columns: int, shown: list[str]) -> None:
    assert any(shown)
    assert not [line for line in shown if len(line) > columns and "/" not in line]
    broken = [line for line in shown if re.match(r" *(%|ns|µs|ms|s|[KMGT]i?B)(?!\w)", line)]
    assert not broken, "a unit is not with its number"


@pytest.mark.parametrize("columns", [80, 100, 140])
@pytest.mark.parametrize("verb", ["status", "compare", "diagnose", "whatif"])
def test_answers_fit(verb: str, columns: int, late: Path, hung: Path) -> None:
    if verb == "compare":
        _check(columns, _shown(columns, "compare", late, late))
        return
    if verb == "whatif":
        _check(columns, _shown(columns, "whatif", late, "--without", "rank", "2"))
        return
    hang, other = (_shown(columns, verb, capture) for capture in (hung, late))
    assert any(word in line for line in hang for word in ("DEAD", "hang"))
    _check(columns, hang)
    _check(columns, other)


@pytest.mark.parametrize("verb", ["doctor", "pack"])
def test_lines_fit_but_for_paths(verb: str, late: Path, tmp_path: Path) -> None:
    more = [] if verb == "doctor" else [late, "-o", tmp_path / "p.tar.gz"]
    _check(80, _shown(80, verb, *more))
