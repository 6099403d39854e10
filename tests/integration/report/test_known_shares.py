"""Shares and head lines of jobs whose truth is known: tests/data/verdicts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncclscope.simulation.scenario_files import read_scenario
from tests.support.paths import DATA
from tests.support.player import ncclscope, play_job, transcript_files
from tests.support.writer.scenario import write_scenario

VERDICTS = DATA / "verdicts"
# All but rel226: the writer has no events of 2.26.
SCENARIOS = sorted(path.stem for path in VERDICTS.glob("*.scenario") if path.stem != "rel226")


def shares(answer: Any) -> Iterator[float]:
    """All values of `run_share` and `wait_share`, wherever they are."""
    if isinstance(answer, list):
        for value in answer:
            yield from shares(value)
    elif isinstance(answer, dict):
        for name, value in answer.items():
            if name in ("run_share", "wait_share", "wait_known_share") and value is not None:
                yield value
            yield from shares(value)


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_share_is_above_one(name: str, tmp_path: Path) -> None:
    write_scenario(tmp_path / "c", read_scenario(VERDICTS / f"{name}.scenario"), 1)
    printed = ncclscope("report", "--json", tmp_path / "c")
    assert all(0 <= share <= 1 + 1e-9 for share in shares(json.loads(printed.stdout)))


def test_waiting_that_is_known_of_little_says_so(tmp_path: Path) -> None:
    write_scenario(tmp_path / "c", read_scenario(VERDICTS / "mixed.scenario"), 1)
    printed = " ".join(ncclscope("report", tmp_path / "c").stdout.split())
    assert "waiting for other ranks is known of" in printed
    assert "of that waiting for other ranks" not in printed


def test_stamps_that_never_were_are_not_counted(tmp_path: Path) -> None:
    """NCCL 2.26 gives none at all."""
    play_job(transcript_files("2.26.5-v3-2ranks"), tmp_path / "c")
    assert "stamps of other operations" not in ncclscope("diagnose", tmp_path / "c").stdout
