"""Work beside NCCL kernels that slow ranks alone show."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import account_of, waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from tests.support.laboratory.kinds import all_kinds


def test_work_beside_a_chain_of_collectives_is_scaled_as_a_whole(tmp_path: Path) -> None:
    """Scaled from the end of the chain on, the run without the slow GPU is 5 % too long."""
    truth = all_kinds()["hierarchy 2 x 4, slow GPU"].write(tmp_path / "c", 1)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    prediction = WhatIf(waiting).predict(Change(ranks=(1,)))
    assert prediction.run_then_ns == pytest.approx(truth.healthy_run_ns, rel=0.02)


def test_ranks_that_are_slow_in_turn_are_no_measure_of_work_that_others_hide(
    tmp_path: Path,
) -> None:
    """Each of them alone shows two of four buckets in its turn. Without that it is 0.71 times."""
    truth = all_kinds()["ddp 8, 80 steps, three ranks in turn"].write(tmp_path / "c", 1)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    excess_ns: dict[int | None, int] = {}
    for origin in account_of(waiting).origins:
        excess_ns[origin.rank] = excess_ns.get(origin.rank, 0) + origin.excess_ns
    for planted in truth.origins:
        lost_ns = truth.run_ns - planted.run_without_ns
        assert 0.9 * lost_ns < excess_ns[planted.ranks[0]] < 1.1 * planted.delay_ns


def test_a_slow_stage_is_brought_to_the_usual_speed_once(tmp_path: Path) -> None:
    """By peers at some positions, and as a stage of a pipeline: both together are 1.8 times."""
    truth = all_kinds()["pipeline 8 on 2 hosts, slow stage"].write(tmp_path / "c", 1)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    (planted,) = truth.origins
    excess_ns = sum(o.excess_ns for o in account_of(waiting).origins if o.rank == planted.ranks[0])
    assert truth.run_ns - truth.healthy_run_ns < excess_ns < 1.1 * planted.delay_ns


def test_a_rank_with_one_slow_layer_is_not_slow_elsewhere(tmp_path: Path) -> None:
    """It alone shows the work behind that layer, which takes as long as usual."""
    truth = all_kinds()["ddp 4, slow layer"].write(tmp_path / "c", 7)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    prediction = WhatIf(waiting).predict(Change(ranks=(2,)))
    assert prediction.run_then_ns == pytest.approx(truth.healthy_run_ns, rel=0.02)
