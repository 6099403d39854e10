"""Predictions for jobs in which work goes on while ranks wait, and for stages without peers."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.heavy_stages import heavy_stage
from ncclscope.analysis.waiting.origins import Waiting, waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from tests.support.laboratory.kinds import all_kinds


def written(path: Path, name: str, seed: int = 1) -> tuple[Waiting, int]:
    """A job, and how long it takes without its fault."""
    without_ns = all_kinds()[name].write(path, seed).origins[0].run_without_ns
    waiting = waiting_of(Run(ncclscope.open(str(path)).model))
    assert waiting is not None
    return waiting, int(without_ns)


@pytest.mark.parametrize(
    ("name", "rank", "was_off"),
    [
        ("recommendation 8 on 2 hosts, late rank", 7, "18 % too short"),
        ("tokens in a ring of 4, slow GPU", 2, "16 % too long"),
        ("prefill 2, then long decode 2, slow decode GPU", 3, "24 % too long"),
        ("uneven experts 16 on 4 hosts, late rank", 9, "a range of 24 %"),
    ],
)
def test_a_job_without_its_fault_is_predicted(
    tmp_path: Path, name: str, rank: int, was_off: str
) -> None:
    waiting, without_ns = written(tmp_path / "c", name)
    prediction = WhatIf(waiting).predict(Change(ranks=(rank,)))
    assert prediction.is_sure, was_off
    assert prediction.run_then_ns == pytest.approx(without_ns, rel=0.05), was_off


def test_a_slow_rank_that_alone_follows_its_launches_is_compared_with_others(
    tmp_path: Path,
) -> None:
    """Its receives never wait, so that its work begins before the launch of what follows."""
    waiting, without_ns = written(tmp_path / "c", "tokens in a ring of 4, slow GPU", 2)
    prediction = WhatIf(waiting).predict(Change(ranks=(2,)))
    assert prediction.is_sure
    assert prediction.run_then_ns == pytest.approx(without_ns, rel=0.02)  # was 25 % too long


@pytest.mark.parametrize(("seed", "was_off"), [(1, "18 % too short"), (2, "11 % too short")])
def test_work_during_a_chain_of_kernels_is_not_counted_for_each(
    tmp_path: Path, seed: int, was_off: str
) -> None:
    """Others do it while they wait in the first kernel, and seem to be quick behind the last."""
    name = "hierarchy 4 x 8, long layers, slightly slow GPU"
    waiting, without_ns = written(tmp_path / "c", name, seed)
    prediction = WhatIf(waiting).predict(Change(ranks=(19,)))
    assert prediction.run_then_ns == pytest.approx(without_ns, rel=0.02), was_off


def test_the_noise_of_half_of_all_ranks_is_no_gain(tmp_path: Path) -> None:
    name = "dp 4 x tp 2, noise of transcripts, half of the GPUs are old"
    waiting, without_ns = written(tmp_path / "c", name)
    prediction = WhatIf(waiting).predict(Change(ranks=(0, 1, 2, 3)))
    assert prediction.is_sure
    assert prediction.run_then_ns == pytest.approx(without_ns, rel=0.04)  # was 5.3 % too short


def test_a_stage_of_one_rank_may_be_slow_or_have_more_work(tmp_path: Path) -> None:
    """Nobody else does its work: to say that nothing is gained without it would be wrong."""
    waiting, without_ns = written(tmp_path / "c", "pipeline 4 with single ranks, slow GPU")
    what_if = WhatIf(waiting)
    prediction = what_if.predict(Change(ranks=(2,)))
    least_ns, most_ns = prediction.range_ns
    assert not prediction.is_sure
    assert least_ns <= without_ns <= most_ns
    stage = heavy_stage(waiting, what_if)
    assert stage is not None
    assert stage.ranks == (2,)
    assert stage.prediction.run_then_ns == pytest.approx(without_ns, rel=0.05)


def test_links_that_gain_nothing_may_have_been_slow_from_the_first_call_on(tmp_path: Path) -> None:
    """Links as usual are as slow as ever: that nothing is gained was given as sure."""
    waiting, without_ns = written(tmp_path / "c", "experts 16 on 4 hosts, slow adapter")
    links = tuple((9, other) for other in range(8))
    prediction = WhatIf(waiting).predict(Change(links=links))
    assert not prediction.is_sure
    assert prediction.range_ns[0] <= without_ns <= prediction.range_ns[1]
