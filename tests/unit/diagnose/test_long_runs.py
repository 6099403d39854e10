"""Faults late in a run that is too long to be replayed at once."""

from pathlib import Path

import pytest

from ncclscope.analysis import time_selection
from ncclscope.diagnose.diagnosis import Diagnosis
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.faults import Fault
from tests.support.laboratory.programs import Buckets, buckets_program
from tests.support.laboratory.shapes import host
from tests.support.laboratory.truth import Kind

_STEPS = 200


def _diagnosis(monkeypatch: pytest.MonkeyPatch, path: Path, *faults: Fault) -> Diagnosis:
    """Of a job of which a quarter can be replayed."""
    load = Buckets(4, steps=_STEPS)
    kind = Kind("long", 4, lambda job: buckets_program(job, load), faults=faults)
    job = kind.job(1)
    monkeypatch.setattr(
        time_selection, "MOST_REPLAYED", sum(len(rank.kernels) for rank in job.ranks) // 4
    )
    kind.write(path, 1)
    return diagnose_capture(path)


def test_a_rank_that_is_late_towards_the_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = _diagnosis(monkeypatch, tmp_path / "job", host(2, 8, first=180))
    assert "where the run was slowest, from " in said.limits[0]
    assert [(found.family, found.ranks) for found in said.findings] == [("straggler", (2,))]


def test_links_that_become_slow_towards_the_end_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part that is replayed is slow from its first operation to its last."""
    slow = Fault("transfer", link=(1, 2), factor=20.0, first=140)
    said = _diagnosis(monkeypatch, tmp_path / "job", slow)
    found = [one for one in said.findings if one.family == "degradation"]
    assert [one.kind for one in found] == ["slower"]
    assert "up to " in found[0].sentence  # without a replay of the whole run


def test_of_a_run_that_is_equally_fast_the_middle_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long pause makes no part of it slow."""
    said = _diagnosis(monkeypatch, tmp_path / "job", host(2, 2000, first=180, last=180))
    assert "in the middle of the run, from " in said.limits[0]
