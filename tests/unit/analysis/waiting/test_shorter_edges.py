"""Lengths vary both ways: what is shorter than usual makes up for what is longer."""

from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import account_of, waiting_of
from ncclscope.analysis.waiting.shorter_edges import Deviations, made_up_by_group
from tests.support.laboratory.kinds import all_kinds

KINDS = all_kinds()


def shares(capture: Path, name: str) -> float:
    """What the planted rank has beyond the usual, as a share of what was planted."""
    truth = KINDS[name].write(capture, 1)
    waiting = waiting_of(Run(ncclscope.open(str(capture)).model))
    assert waiting is not None
    (rank,) = truth.origins[0].ranks
    excess_ns = sum(o.excess_ns for o in account_of(waiting).origins if o.rank == rank)
    return excess_ns / truth.origins[0].delay_ns


def test_the_noise_of_a_late_rank_is_no_delay_of_it(tmp_path: Path) -> None:
    """The sum of what is longer alone is 1.13 times what was planted."""
    assert shares(tmp_path / "c", "ddp 8, long buckets, late rank") == pytest.approx(1, abs=0.05)


def test_a_call_unlike_those_of_other_ranks_makes_up_for_nothing(tmp_path: Path) -> None:
    """A call of the late rank follows an end that others follow after pauses of 400 ms alone."""
    share = shares(tmp_path / "c", "all start data loaders again 8, late rank")
    assert share == pytest.approx(1, abs=0.1)


def test_shorter_edges_make_up_for_notable_excess_at_their_place() -> None:
    longer = Deviations(np.array([0, 0, 1]), np.array([7, 8, 7]), np.array([90.0, 60.0, 8.0]))
    shorter = Deviations(
        np.array([0, 0, 0, 1, 1]),
        np.array([7, 7, 8, 7, 9]),
        np.array([24.0, 25.0, 300.0, 2.0, 40.0]),
    )
    # Of the first group 24 is not notable, and at place 8 no more than 60 is longer. Of the second
    # one nothing is longer at place 9.
    made_up = made_up_by_group(np.array([100.0, 8.0]), longer, shorter)
    assert made_up.tolist() == [25.0 + 60.0, 2.0]
