"""Ranks of popular experts have more to do, and are not slow."""

from pathlib import Path

import pytest

from ncclscope.diagnose.finding import Finding
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.programs import Experts
from tests.support.laboratory.shapes import gpu, host, shape

KINDS = {
    kind.name: kind
    for kind in shape(
        "experts",
        None,
        Experts(popular="by layer", popularity=1.4, expert_ms=4.0, steps=24),
        {
            "slow GPU elsewhere": (gpu(3, 1.5),),
            "slow GPU of a popular expert": (gpu(5, 1.5),),
            "late host": (host(6, 20),),
        },
    )
}


def judged(capture: Path, name: str) -> tuple[list[Finding], list[Finding]]:
    """Problems, and remarks about ranks that have more to do."""
    KINDS[f"experts, {name}"].write(capture, 1)
    said = diagnose_capture(capture).findings
    problems = [finding for finding in said if finding.severity != "info"]
    return problems, [finding for finding in said if finding.kind == "unequal data"]


def test_ranks_that_receive_more_are_a_remark(tmp_path: Path) -> None:
    """They were a warning, with "look at GPU clocks, thermals"."""
    problems, (remark,) = judged(tmp_path / "c", "healthy")
    assert not problems
    assert remark.severity == "info"
    assert remark.ranks == (2, 5)
    assert remark.evidence[0].facts["times"] == pytest.approx(1.4, abs=0.02)
    assert remark.sentence.startswith("ranks 2, 5 receive 1.4 times as much as others in exchanges")
    assert "clocks" not in remark.advice


@pytest.mark.parametrize(
    ("name", "rank"),
    [("slow GPU elsewhere", 3), ("slow GPU of a popular expert", 5), ("late host", 6)],
)
def test_a_slow_rank_beside_them_is_still_a_problem(tmp_path: Path, name: str, rank: int) -> None:
    problems, remarks = judged(tmp_path / "c", name)
    assert [finding.ranks for finding in problems] == [(rank,)]
    assert not any(rank in remark.ranks for remark in remarks)
