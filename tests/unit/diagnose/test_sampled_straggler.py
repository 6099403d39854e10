"""A late rank where few operations are timed: named, with what it costs all operations."""

from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import Finding
from ncclscope.model.build import open_model
from tests.support.laboratory.kinds import drops_and_late_ranks
from tests.support.laboratory.recording import Recording

_KINDS = {kind.name: kind for kind in drops_and_late_ranks()}


def _stragglers(name: str, every: int, seed: int, capture: Path) -> list[Finding]:
    replace(_KINDS[name], recording=Recording(timed_every=every)).write(capture, seed)
    findings = diagnose(open_model(capture), None).findings
    return [finding for finding in findings if finding.family == "straggler"]


@pytest.mark.parametrize(("every", "seed"), [(16, 1), (64, 1), (64, 2)])
def test_a_late_rank_is_named_by_a_sample(every: int, seed: int, tmp_path: Path) -> None:
    (finding,) = _stragglers("ddp 4, 600 steps, late rank", every, seed, tmp_path / "c")
    assert finding.ranks == (2,)
    # 8 ms of 28.5 in each step. What was seen alone would be 2 % of the run.
    assert 0.2 < finding.lost_share < 0.4
    assert "by these, waiting for it takes about" in finding.sentence


def test_a_healthy_job_has_no_straggler_in_its_sample(tmp_path: Path) -> None:
    assert _stragglers("ddp 4, 600 steps, healthy", 64, 1, tmp_path / "c") == []
