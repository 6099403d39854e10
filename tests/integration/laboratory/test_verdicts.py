"""Verdicts on small jobs of the laboratory: what was planted is named, and nobody else.

benchmarks/verdict_quality.py has all kinds and the bars. Until the rules are there, this runs on
demand: NCCLSCOPE_TEST_VERDICTS=1.
"""

import os
from pathlib import Path

import pytest

from tests.support.laboratory.kinds import FAST, all_kinds
from tests.support.laboratory.score import score_capture

pytestmark = pytest.mark.skipif(
    not os.environ.get("NCCLSCOPE_TEST_VERDICTS"), reason="set NCCLSCOPE_TEST_VERDICTS=1 to run it"
)
KINDS = all_kinds()


@pytest.mark.parametrize("name", FAST)
def test_verdicts_on_a_job_are_true(name: str, tmp_path: Path) -> None:
    truth = KINDS[name].write(tmp_path / "capture", 1)
    score = score_capture(tmp_path / "capture", truth)
    assert not score.failures
    assert all(abs(error) <= 0.05 for error in score.whatif_errors)
