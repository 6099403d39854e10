"""Delays of laboratory jobs that only show where other ranks are held back, and what-ifs of them."""

from pathlib import Path

import pytest

from ncclscope.cli import main
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.score import score_capture


@pytest.mark.parametrize(
    "kind",
    [
        "ddp 4, slow GPU",  # compute runs beside the reductions
        "ddp 4, slow link",  # a communicator without peers
        "ddp 4, one pause",
        "ddp 4, three steps, late rank",
        "100 communicators, late rank",  # a sixth of the delays is in the first step
        "ddp 2, slow GPU",  # the only other rank is always held back
        "ddp 4, slow launches",  # nobody shows how long a bucket takes
        "pipeline 4, slow stage",  # all gaps hold its pace
        "sharded optimizer 8, slow GPU",  # hosts wait for GPUs every fifth step
        "fsdp 4, slow link",  # work runs beside slow transfers
    ],
)
def test_a_planted_delay_is_named_attributed_and_taken_out(kind: str, tmp_path: Path) -> None:
    truth = all_kinds()[kind].write(tmp_path / "c", 1)
    score = score_capture(tmp_path / "c", truth)
    assert score.failures == ()
    assert score.delay_share == pytest.approx(1.0, abs=0.1)
    assert score.path_share == pytest.approx(1.0, abs=0.1)
    assert score.whatif_errors == pytest.approx([0.0] * len(score.whatif_errors), abs=0.05)


def test_the_late_rank_of_a_sampled_record_is_named_and_a_replay_of_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = all_kinds()["ddp 4, every 5th operation timed, late rank"]
    score = score_capture(tmp_path / "c", kind.write(tmp_path / "c", 1))
    assert score.failures == ()
    assert any("24 % of the operations have GPU times" in said for said in score.said)
    assert main(["whatif", str(tmp_path / "c"), "--without", "rank", "2"]) != 0
    assert "cannot replay" in capsys.readouterr().err
