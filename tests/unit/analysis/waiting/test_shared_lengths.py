"""What all ranks take longer in a step is nobody's own delay."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import account_of, waiting_of
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.truth import Truth

KINDS = all_kinds()


def excess_of(capture: Path, name: str) -> tuple[Truth, int]:
    """What was planted, and what the planted rank has beyond the usual."""
    truth = KINDS[name].write(capture, 1)
    waiting = waiting_of(Run(ncclscope.open(str(capture)).model))
    assert waiting is not None
    (rank,) = truth.origins[0].ranks
    return truth, sum(o.excess_ns for o in account_of(waiting).origins if o.rank == rank)


def test_steps_that_are_long_for_all_ranks_are_no_delay_of_the_late_one(tmp_path: Path) -> None:
    truth, excess_ns = excess_of(tmp_path / "c", "all wait for data 8, late rank")
    assert excess_ns == pytest.approx(truth.origins[0].delay_ns, rel=0.1)


def test_work_that_two_kernels_wait_for_counts_once(tmp_path: Path) -> None:
    truth, excess_ns = excess_of(tmp_path / "c", "fsdp 2 x tp 2, slow GPU")
    lost_ns = truth.run_ns - truth.healthy_run_ns
    planted_ns = truth.origins[0].delay_ns
    assert 0.9 * min(lost_ns, planted_ns) < excess_ns < 1.1 * max(lost_ns, planted_ns)
