"""What is said of a network that becomes slower and slower."""

import re
from pathlib import Path

import pytest

import ncclscope
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.snapshot.process import unfinished_snapshots
from tests.support.laboratory.programs import Buckets
from tests.support.laboratory.shapes import link, shape

STEPS = 40


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("most", [3.0, 5.0])
def test_it_costs_what_is_lost_since_the_beginning(tmp_path: Path, most: float, seed: int) -> None:
    """Halves of the run were compared with each other, which is half of it."""
    faults = tuple(
        link(2, 3, 1 + (most - 1) * step / STEPS, first=step, last=step, group="ramp")
        for step in range(1, STEPS)
    )
    load = Buckets(8, STEPS, bucket_mb=200.0)
    _, kind = shape("ddp 8", None, load, {"slower and slower": faults})
    truth = kind.write(tmp_path / "c", seed)
    model = ncclscope.open(str(tmp_path / "c")).model
    first = diagnose(model, unfinished_snapshots(model)).findings[0]
    assert (first.family, first.kind) == ("degradation", "slower and slower")
    said = re.search(r"(\d+)(?: to (\d+))? % of the run lost", first.sentence)
    assert said is not None
    least, top = int(said[1]), int(said[2] or said[1])
    lost = 100 * (1 - truth.healthy_run_ns / truth.run_ns)
    assert least - 2 <= lost <= top + 2
