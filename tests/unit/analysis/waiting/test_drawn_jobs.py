"""Predictions for jobs that nobody wrote: what misled them was drawn by a seed."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import Waiting, account_of, waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from tests.support.laboratory.events import Machine
from tests.support.laboratory.faults import QUIET, USUAL, Fault, Noise
from tests.support.laboratory.random_jobs import Load, Statement, random_program
from tests.support.laboratory.truth import Kind, Truth

HOST, PAIRS = Machine(ranks_per_host=8), Machine(ranks_per_host=2, net_gb_s=12.0)


def load(
    mesh: tuple[int, ...], steps: int, layer: list[Statement], end: list[Statement], *,
    layers: int = 1, data_ms: float = 0.2, varies: float = 0.0, warm_up: int = 0, every: int = 0,
    synchronize: bool = True,
) -> Load:  # fmt: skip
    """A job."""
    return Load(
        mesh, steps, layers, tuple(layer), tuple(end), synchronize=synchronize, data_ms=data_ms,
        varies=varies, differs=0.0, warm_up=warm_up, every=every,
    )  # fmt: skip


def written(
    path: Path, seed: int, of: Load, fault: Fault, noise: Noise = QUIET, machine: Machine = HOST
) -> tuple[Waiting, Truth]:
    """A job with one fault."""
    kind = Kind(
        "drawn", of.ranks, lambda job: random_program(job, of), faults=(fault,), noise=noise,
        machine=machine,
    )  # fmt: skip
    truth = kind.write(path, seed)
    waiting = waiting_of(Run(ncclscope.open(str(path)).model))
    assert waiting is not None
    return waiting, truth


def compute(ms: float) -> Statement:
    return Statement("compute", ms=ms)


def overlapped(what: str, dimension: int, size_mb: float) -> Statement:
    """Communication that computing goes on during."""
    return Statement(what, dimension, 0.0, size_mb, True)


SLOW_LAUNCHES = load(
    (2,), 40,
    [compute(4.0), overlapped("all to all", 0, 0.05), compute(1.1),
     Statement("AllGather", size_mb=1.4)],
    [Statement("AllReduce", size_mb=0.004)], data_ms=1.0, varies=0.15, synchronize=False,
)  # fmt: skip
EVALUATED = load(
    (2, 4), 60, [compute(0.8696305685084883), overlapped("Broadcast", 1, 2.4)],
    [Statement("AllReduce", size_mb=2.56), Statement("AllReduce", size_mb=0.004096)],
    warm_up=2, every=8,
)  # fmt: skip
DONE_MEANWHILE = load(
    (6,), 12, [compute(0.23), overlapped("Broadcast", 0, 0.07), compute(1.6)],
    [],
)  # fmt: skip
EXCHANGES = load(
    (3, 4), 30, [compute(0.296), overlapped("all to all", 0, 3.4)], [],
    layers=4, data_ms=1.0,
)  # fmt: skip
LAYERS = load(
    (4, 2), 20, [compute(3.7), Statement("AllGather", 0, size_mb=1.47)], [],
    layers=3, data_ms=1.0, synchronize=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("of", "seed", "fault", "noise", "was_off"),
    [
        # The kernel that was launched late ends when its host goes on: no wait for its end.
        (SLOW_LAUNCHES, 107, Fault("launch", 1, ms=2.44, first=1), QUIET, "27 % too long"),
        # The last AllReduce of a step is as those of an evaluation, which work comes before.
        (EVALUATED, 113, Fault("gpu", 4, factor=1.4, first=1), USUAL, "6 % too long"),
        # Others do all of their work while they wait for longer than it takes.
        (DONE_MEANWHILE, 173, Fault("host", 0, ms=1.14, first=6), USUAL, "16 % too short"),
        # In steps without waiting all ranks show how long the work is: none was done before.
        (LAYERS, 193, Fault("gpu", 4, factor=1.4, first=10), USUAL, "13 % too long"),
    ],
)
def test_a_drawn_job_without_its_fault_is_predicted(
    tmp_path: Path, of: Load, seed: int, fault: Fault, noise: Noise, was_off: str
) -> None:
    waiting, truth = written(tmp_path / "c", seed, of, fault, noise)
    prediction = WhatIf(waiting).predict(Change(ranks=(fault.rank,)))
    assert prediction.run_then_ns == pytest.approx(truth.healthy_run_ns, rel=0.03), was_off


def test_a_rank_whose_starts_alone_are_not_held_back_is_no_stage_of_its_own(
    tmp_path: Path,
) -> None:
    """Its own time was taken for that of a stage with far more work, and counted as a delay."""
    fault = Fault("gpu", 3, factor=1.4, first=1)
    waiting, truth = written(tmp_path / "c", 69, EXCHANGES, fault, machine=PAIRS)
    excess_ns = sum(one.excess_ns for one in account_of(waiting).origins if one.rank == 3)
    assert excess_ns == pytest.approx(truth.origins[0].delay_ns, rel=0.1)  # was 2.2 times that
