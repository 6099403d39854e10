"""Work beside NCCL kernels that slow ranks alone show."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from tests.support.laboratory.kinds import all_kinds


def test_work_beside_a_chain_of_collectives_is_scaled_as_a_whole(tmp_path: Path) -> None:
    """Scaled from the end of the chain on, the run without the slow GPU is 5 % too long."""
    truth = all_kinds()["hierarchy 2 x 4, slow GPU"].write(tmp_path / "c", 1)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    prediction = WhatIf(waiting).predict(Change(ranks=(1,)))
    assert prediction.run_then_ns == pytest.approx(truth.healthy_run_ns, rel=0.02)
