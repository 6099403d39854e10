"""Ranks that meet in sends and receives alone keep a lead over each other: nobody is late."""

from pathlib import Path

import pytest

from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.score import score_capture


@pytest.mark.parametrize("seed", [102, 103])
def test_the_last_of_a_healthy_ring_is_not_warned_of(seed: int, tmp_path: Path) -> None:
    kind = all_kinds()["ring 8, sends and receives only, healthy"]
    score = score_capture(tmp_path / "c", kind.write(tmp_path / "c", seed), ask_whatif=False)
    assert score.false_alarms == ()


def test_a_rank_that_is_late_to_a_ring_is_named(tmp_path: Path) -> None:
    kind = all_kinds()["ring 8, sends and receives only, late rank"]
    score = score_capture(tmp_path / "c", kind.write(tmp_path / "c", 1), ask_whatif=False)
    assert (score.named, score.false_alarms) == (1, ())


def test_one_of_two_links_between_hosts_is_compared_with_its_own_past(tmp_path: Path) -> None:
    kind = all_kinds()["ring 8 on 2 hosts, without overlap, slow link"]
    score = score_capture(tmp_path / "c", kind.write(tmp_path / "c", 1), ask_whatif=False)
    assert (score.named, score.false_alarms) == (1, ())
    assert any("times as slow as it was when it was fast" in sentence for sentence in score.said)
