"""Verdicts about waiting on written jobs: who is late, and that links are not blamed for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.diagnose.finding import Finding
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.diagnosis import diagnose_capture
from tests.support.writer import Straggler, SyntheticSpec, synthetic
from tests.support.writer.noise import noise_of_transcripts
from tests.support.writer.scenario import write_scenario


def findings(capture: Path, scenario: Scenario, seed: int = 1) -> tuple[Finding, ...]:
    write_scenario(capture, scenario, seed, noise_of_transcripts())
    return diagnose_capture(capture).findings


def problems(found: tuple[Finding, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.family, f.ranks) for f in found if f.severity != "info"]


RING = Scenario(
    ranks=8, ranks_per_host=4, steps=60, compute_ms=4,
    communicators=(Communicators("ring", 8),), calls=(Call("ring", "SendRecv", 1 << 20),),
)  # fmt: skip


def test_a_late_rank_of_a_ring_is_named_and_no_link(tmp_path: Path) -> None:
    """Sends and receives of one group are a kernel that waits for all of its peers."""
    late = replace(RING, late=(Late(3, 10.0),))
    assert problems(findings(tmp_path / "c", late)) == [("straggler", (3,))]


def test_no_link_of_a_healthy_ring_is_blamed(tmp_path: Path) -> None:
    assert not problems(findings(tmp_path / "c", RING))


@pytest.mark.parametrize("pairs", [4, 20])
def test_a_rank_that_is_late_on_many_communicators_is_named_once(
    tmp_path: Path, pairs: int
) -> None:
    names = [f"c{number}" for number in range(pairs)]
    job = Scenario(
        ranks=4, steps=12, compute_ms=1,
        communicators=tuple(Communicators(name, 4) for name in names),
        calls=tuple(Call(name, "AllReduce", 1 << 16) for name in names), late=(Late(1, 20.0),),
    )  # fmt: skip
    assert problems(findings(tmp_path / "c", job)) == [("straggler", (1,))]


def test_one_pause_says_whose_and_when(tmp_path: Path) -> None:
    synthetic(
        tmp_path / "c",
        SyntheticSpec(
            processes=8, operations=400, straggler=Straggler(3, 80_000_000, 0.004), seed=2
        ),
    )
    found = diagnose_capture(tmp_path / "c").findings
    (pause,) = [f for f in found if f.family == "straggler"]
    assert (pause.kind, pause.ranks, pause.severity) == ("pause", (3,), "critical")
    assert " at " in pause.sentence or " from " in pause.sentence


def test_half_of_all_ranks_can_be_late(tmp_path: Path) -> None:
    late = tuple(Late(rank, 8.0) for rank in (1, 2, 4, 7))
    job = Scenario(ranks=8, steps=40, compute_ms=4, late=late)
    named = {rank for _, ranks in problems(findings(tmp_path / "c", job)) for rank in ranks}
    assert named == {1, 2, 4, 7}
