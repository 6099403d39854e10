"""Verdicts about waiting on written jobs: who is late, and that links are not blamed for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.diagnose.finding import Finding
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.kinds import all_kinds
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


def test_compute_before_a_send_is_no_slow_launch(tmp_path: Path) -> None:
    """The AllReduce after the send comes late with it; its own launch is as usual."""
    job = Scenario(
        ranks=8, steps=40, compute_ms=4,
        communicators=(Communicators("pp", 2), Communicators("dp", 4, 2)),
        calls=(Call("pp", "SendRecv", 1 << 20), Call("dp", "AllReduce", 1 << 20)),
        late=(Late(3, 12.0, call=0),),
    )  # fmt: skip
    (late,) = [f for f in findings(tmp_path / "c", job) if f.severity != "info"]
    assert (late.family, late.kind, late.ranks) == ("straggler", "compute", (3,))
    assert late.evidence[0].facts["compute_us"] == pytest.approx(12_000, rel=0.1)


def test_one_outlier_changes_neither_who_is_late_nor_by_how_much(tmp_path: Path) -> None:
    all_kinds()["ddp 4, small lateness and one outlier"].write(tmp_path / "c", 1)
    late = [f for f in diagnose_capture(tmp_path / "c").findings if f.severity != "info"]
    steady = next(finding for finding in late if finding.kind == "compute")
    assert {finding.ranks for finding in late} == {(3,)}
    assert steady.evidence[0].facts["compute_us"] == pytest.approx(3_000, rel=0.2)
    assert "hide" not in steady.sentence


def test_one_late_rank_of_a_host_is_not_its_host(tmp_path: Path) -> None:
    job = Scenario(
        ranks=4, ranks_per_host=2, steps=40, compute_ms=4,
        communicators=(Communicators("pp", 4), Communicators("world", 4)),
        calls=(Call("pp", "SendRecv", 1 << 20), Call("world", "AllReduce", 1 << 20)),
        late=(Late(1, 12.0),),
    )  # fmt: skip
    said = findings(tmp_path / "c", job)
    assert problems(said) == [("straggler", (1,))]
    assert said[0].sentence.startswith("rank 1 ")
