"""A late rank where few operations are timed: named, with what it costs all operations at most."""

from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import INFO, Finding
from ncclscope.model.build import open_model
from tests.support.laboratory.kinds import all_kinds, drops_and_late_ranks
from tests.support.laboratory.random_jobs import random_kind
from tests.support.laboratory.recording import Recording
from tests.support.laboratory.shapes import gpu
from tests.support.laboratory.truth import Kind

_KINDS = {kind.name: kind for kind in drops_and_late_ranks()}


def _problems(kind: Kind, every: int, seed: int, capture: Path) -> list[Finding]:
    replace(kind, recording=replace(kind.recording, timed_every=every)).write(capture, seed)
    return [one for one in diagnose(open_model(capture), None).findings if one.severity != INFO]


def _stragglers(kind: Kind, every: int, seed: int, capture: Path) -> list[Finding]:
    findings = _problems(replace(kind, recording=Recording()), every, seed, capture)
    return [finding for finding in findings if finding.family == "straggler"]


@pytest.mark.parametrize(
    ("name", "waited"),
    # What others wait for it, of the run: where all operations are timed.
    [("ddp 4, 600 steps, late rank", 0.57), ("fsdp 4, 600 steps, late rank", 0.48)],
)
@pytest.mark.parametrize(("every", "seed"), [(16, 1), (64, 1), (64, 2)])
def test_a_late_rank_is_named_by_a_sample(
    name: str, waited: float, every: int, seed: int, tmp_path: Path
) -> None:
    (finding,) = _stragglers(_KINDS[name], every, seed, tmp_path / "c")
    assert finding.ranks == (2,)
    assert finding.kind == "compute"
    assert finding.lost_share == pytest.approx(waited, rel=0.3)  # 13 delays were seen in one job
    assert "which is the most that it costs" in finding.sentence


@pytest.mark.parametrize("name", ["ddp 4, 600 steps, healthy", "fsdp 4, 600 steps, healthy"])
@pytest.mark.parametrize("every", [16, 64])
def test_a_healthy_job_has_no_straggler_in_its_sample(
    name: str, every: int, tmp_path: Path
) -> None:
    """Nor pauses of all ranks: nothing is on record between two timed operations."""
    assert _stragglers(_KINDS[name], every, 1, tmp_path / "c") == []


def test_a_slow_host_is_named_by_a_sample(tmp_path: Path) -> None:
    kind = _KINDS["ddp 4, 600 steps, healthy"]
    hosts = replace(kind.machine, ranks_per_host=2)
    faults = tuple(gpu(rank, 1.4, group="host") for rank in (2, 3))
    kind = replace(kind, machine=hosts, faults=faults)
    (finding,) = _stragglers(kind, 16, 1, tmp_path / "c")
    assert (finding.ranks, finding.kind) == ((2, 3), "host gpu")


# 30003, 30041: the first stage of a pipeline comes last to the collectives of all stages.
# 30022, 30027: the rank that came last has no duration: its time is short beside the clock's error.
@pytest.mark.parametrize(("seed", "longer"), [(30003, 4), (30041, 1), (30022, 8), (30027, 8)])
def test_a_sample_shows_neither_stages_nor_waiting_as_faults(
    seed: int, longer: int, tmp_path: Path
) -> None:
    kind = replace(random_kind(seed, longer=longer), faults=())
    assert _problems(kind, 16, seed, tmp_path / "c") == []


@pytest.mark.parametrize(
    "name",
    [
        "experts 4 x 4 on 4 hosts, one is popular, healthy",  # it receives more than others
        "distillation 4 x 2, healthy",  # a student's teacher may have been late
    ],
)
def test_ranks_that_others_may_have_delayed_are_not_named_by_a_sample(
    name: str, tmp_path: Path
) -> None:
    kind = all_kinds()[name]
    assert _problems(kind, 8, 1, tmp_path / "c") == []
