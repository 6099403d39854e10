"""What all ranks take longer in a step is nobody's own delay."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.origins import account_of, waiting_of
from ncclscope.analysis.waiting.shared_lengths import with_shared_lengths
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.truth import Truth

KINDS = all_kinds()


@dataclass(frozen=True, slots=True)
class MadeKernels:
    """What shared lengths need of kernels."""

    rank: np.ndarray
    kind: np.ndarray
    first_of_rank: np.ndarray
    ranks: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)


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


def test_steps_that_are_long_for_all_ranks_of_a_stage_are_no_delay(tmp_path: Path) -> None:
    """Stages of a pipeline make different calls. With all ranks or none it is 1.33 times."""
    truth, excess_ns = excess_of(tmp_path / "c", "mesh 2 x 2 x 2 with warm-up, slow GPU")
    assert excess_ns < 1.05 * truth.origins[0].delay_ns


def made(kinds: list[list[int]], lengths: list[list[float]], usual_ns: float) -> np.ndarray:
    """Shared median lengths of ranks with these kinds of calls and lengths, in ms."""
    first = np.cumsum([0, *(len(own) for own in kinds)])[:-1]
    kind = np.concatenate([np.array(own, np.int32) for own in kinds])
    rank = np.repeat(np.arange(len(kinds), dtype=np.int32), [len(own) for own in kinds])
    kernels = cast(Kernels, MadeKernels(rank, kind, first, np.arange(len(kinds))))
    length = np.array([1e6 * one for own in lengths for one in own]).astype(np.int64)
    usual = np.full((2, len(length)), 1e6 * usual_ns)
    group, shown = kind.astype(np.int64), np.ones(len(length), bool)
    shared = with_shared_lengths(kernels, usual, group, length, shown, any_group=True)
    return np.asarray(np.split(shared[0] / 1e6, first[1:])[-1])


def test_steps_that_are_short_for_all_ranks_lower_nothing() -> None:
    """Of few ranks that vary, one would be late by half of its noise."""
    others = [[1.0, 2.0, 4.0]] * 3
    shared = made([[0, 0, 0]] * 4, [*others, [2.0, 3.0, 5.0]], usual_ns=2.0)
    assert shared.tolist() == [2.0, 2.0, 4.0]


def test_ranks_are_compared_with_those_that_make_the_same_calls() -> None:
    first_stage = [[9.0, 9.0]] * 3
    second_stage = [[2.0, 2.0, 4.0]] * 3
    kinds = [[5, 6]] * 3 + [[0, 1, 2]] * 4
    shared = made(kinds, [*first_stage, *second_stage, [3.0, 3.0, 5.0]], usual_ns=2.0)
    assert shared.tolist() == [2.0, 2.0, 4.0]
