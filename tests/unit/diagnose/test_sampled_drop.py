"""A drop of bandwidth is named from sampled GPU times as from all of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import Finding
from ncclscope.model.build import open_model
from tests.support.laboratory.kinds import drops_and_late_ranks
from tests.support.laboratory.recording import Recording

_SAMPLED = Recording(timed_every=16)
_KINDS = {kind.name: kind for kind in drops_and_late_ranks()}


def _degradation(name: str, recording: Recording, capture: Path) -> list[Finding]:
    replace(_KINDS[name], recording=recording).write(capture, 1)
    findings = diagnose(open_model(capture), None).findings
    return [finding for finding in findings if finding.family == "degradation"]


@pytest.mark.parametrize("recording", [Recording(), _SAMPLED], ids=["kernel", "sampled"])
def test_links_that_become_slow_are_named(recording: Recording, tmp_path: Path) -> None:
    (finding,) = _degradation(
        "ddp 4, 600 steps, links slow from half on", recording, tmp_path / "c"
    )
    assert abs(finding.evidence[0].facts["factor"] - 3.0) < 0.15
    if recording == _SAMPLED:
        # One timed collective stands for those that were not chosen: 5 % of the run on the wire.
        # That most of it hides behind the backward pass cannot be seen.
        assert 0.04 < finding.lost_share < 0.06
        assert "up to" in finding.sentence
    else:
        assert finding.lost_share == pytest.approx(0.0122, abs=0.002)  # the healthy twin is shorter


def test_a_healthy_job_has_no_degradation_in_its_sample(tmp_path: Path) -> None:
    assert _degradation("ddp 4, 600 steps, healthy", _SAMPLED, tmp_path / "c") == []
