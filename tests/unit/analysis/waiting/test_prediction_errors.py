"""Predictions of which the record does not show enough are ranges, and hold the truth."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import waiting_of
from ncclscope.analysis.waiting.what_if import Change, Prediction, WhatIf
from ncclscope.diagnose.late_ranks import instead
from tests.support.laboratory.kinds import all_kinds

KINDS = all_kinds()


def predicted(capture: Path, name: str) -> tuple[Prediction, int]:
    """The prediction without the planted rank, and what the run takes without it."""
    truth = KINDS[name].write(capture, 1)
    waiting = waiting_of(Run(ncclscope.open(str(capture)).model))
    assert waiting is not None
    without_ns = truth.origins[0].run_without_ns
    assert without_ns is not None
    return WhatIf(waiting).predict(Change(ranks=truth.origins[0].ranks)), int(without_ns)


@pytest.mark.parametrize(
    "name",
    [
        "fsdp 4, slow launches",  # nothing shows how long others compute
        "dp 8 x tp 2, slow GPU",  # gradients are reduced beside its work
        "serving tp 4, hardly idle, slow GPU",  # requests come when they come
    ],
)
def test_what_the_record_does_not_show_is_a_range_that_holds_the_truth(
    tmp_path: Path, name: str
) -> None:
    prediction, without_ns = predicted(tmp_path / "c", name)
    least_ns, most_ns = prediction.range_ns
    assert not prediction.is_sure
    assert least_ns <= without_ns <= most_ns


def test_a_late_rank_of_equal_steps_is_a_number(tmp_path: Path) -> None:
    prediction, without_ns = predicted(tmp_path / "c", "ddp 4, late rank")
    assert prediction.is_sure
    assert prediction.run_then_ns == pytest.approx(without_ns, rel=0.05)


def test_a_sentence_has_a_number_or_a_range() -> None:
    sure = Prediction(6_440_000_000, 5_490_000_000, 68_900_000, 42_600_000, 200_000_000)
    unsure = Prediction(6_440_000_000, 5_490_000_000, 68_900_000, 42_600_000, 500_000_000)
    assert instead(sure) == (
        "the run would take 5.49 s instead of 6.44 s, a step 42.6 ms instead of 68.9 ms"
    )
    assert instead(unsure) == "the run would take 4.99 to 5.99 s instead of 6.44 s"
