"""Who is named where something stands beside the culprit."""

from pathlib import Path

import pytest

from ncclscope.diagnose.finding import INFO, Finding
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.truth import Truth

KINDS = all_kinds()


def judged(capture: Path, name: str, seed: int) -> tuple[Truth, list[Finding]]:
    truth = KINDS[name].write(capture, seed)
    return truth, [one for one in diagnose_capture(capture).findings if one.severity != INFO]


@pytest.mark.parametrize("seed", [1, 2])
def test_work_that_nobody_waits_for_hides_no_slow_gpu(tmp_path: Path, seed: int) -> None:
    """Rank 0 writes longer than rank 1 is slow, and is done before others are."""
    _, said = judged(tmp_path / "c", "evaluation 3, rank 0 writes, slow GPU", seed)
    assert said[0].ranks == (1,)


@pytest.mark.parametrize("seed", [1, 2])
def test_few_and_uneven_stalls_are_pauses(tmp_path: Path, seed: int) -> None:
    """They are too many for single pauses, and too uneven for a habit."""
    name = "ddp 16 on 2 hosts, 24 steps, loader that stalls, and a slower GPU"
    truth, said = judged(tmp_path / "c", name, seed)
    assert said[0].ranks == (6,)
    assert said[0].lost_share == pytest.approx(truth.origins[0].lost_share, abs=0.03)
