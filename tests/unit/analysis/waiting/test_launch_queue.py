"""Hosts that a full launch queue holds back."""

from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.dependencies import HELD_BACK
from ncclscope.analysis.waiting.origins import Waiting, waiting_of
from ncclscope.analysis.waiting.pauses import standstills_of
from ncclscope.analysis.waiting.replay import Replay
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Kernel
from tests.support.laboratory.programs import MB, Steps, start_up
from tests.support.laboratory.rank import Rank
from tests.support.laboratory.shapes import gpu
from tests.support.laboratory.truth import Kind

RANKS, SLOW = 8, 5
PASSES, BUCKETS = 2, 4  # of a step: gradients are reduced in the last pass


def training(steps: int, queue: int, reads_loss_every: int = 0) -> Kind:
    """DDP with accumulated gradients. `queue`: compute kernels that can be in flight."""

    def made(job: Job) -> Program:
        world = job.communicator("world", tuple(range(RANKS)))

        def program(rank: Rank) -> Steps:
            yield from start_up(rank, world)
            launched: deque[Kernel] = deque()
            reduced: Kernel | None = None
            for step in range(steps):
                rank.begin_step(step, usual_ms=1.0, data_ms=0.5)
                for number in range(PASSES * BUCKETS):
                    if len(launched) == queue:
                        yield launched.popleft()
                    launched.append(rank.compute(6.0, reduced))
                    if number >= (PASSES - 1) * BUCKETS:
                        done = rank.collective(world, "AllReduce", 16 * MB, launched[-1])
                reduced = done
                if reads_loss_every and step % reads_loss_every == reads_loss_every - 1:
                    yield reduced
                    launched.clear()

        return program

    return Kind("ddp, full launch queue", RANKS, made)


def waiting_in(capture: Path) -> Waiting:
    waiting = waiting_of(Run(ncclscope.open(str(capture)).model))
    assert waiting is not None
    return waiting


def held_share(waiting: Waiting) -> float:
    return float(np.mean(waiting.dependencies.back[::3] == HELD_BACK))


@pytest.mark.parametrize(("steps", "reads_loss_every"), [(40, 0), (160, 0), (60, 15)])
def test_a_slow_gpu_is_named_where_hosts_wait_in_a_full_launch_queue(
    tmp_path: Path, steps: int, reads_loss_every: int
) -> None:
    """Calls keep the pace of the slow GPU on all ranks. A replay that takes that for work of the
    hosts gains no more than what they are ahead.
    """
    kind = replace(training(steps, 24, reads_loss_every), faults=(gpu(SLOW, 1.15),))
    truth = kind.write(tmp_path / "c", 1)
    found = [f for f in diagnose_capture(tmp_path / "c").findings if f.family == "straggler"]
    assert [(f.kind, f.ranks, f.severity) for f in found] == [("gpu", (SLOW,), "warning")]
    assert found[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.03)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_full_launch_queue_is_no_pause(tmp_path: Path, seed: int) -> None:
    """GPUs compute while no call comes."""
    training(40, 24).write(tmp_path / "c", seed)
    waiting = waiting_in(tmp_path / "c")
    assert held_share(waiting) > 0.5
    assert standstills_of(waiting) is None
    assert not [f for f in diagnose_capture(tmp_path / "c").findings if f.family == "straggler"]


def test_a_replay_with_held_calls_gives_the_measured_times(tmp_path: Path) -> None:
    training(40, 24, reads_loss_every=15).write(tmp_path / "c", 1)
    waiting = waiting_in(tmp_path / "c")
    assert held_share(waiting) > 0.1
    events = Replay(waiting).events_ns(waiting.dependencies.length_ns)
    assert np.array_equal(events, waiting.arrivals.events_ns)


def test_calls_are_not_held_back_where_the_host_waits_once_a_step(tmp_path: Path) -> None:
    """As many kernels are in flight at a call in each step, and more with every call."""
    training(40, 1000, reads_loss_every=3).write(tmp_path / "c", 1)
    assert held_share(waiting_in(tmp_path / "c")) == 0


def test_calls_of_a_host_that_gets_ahead_are_not_held_back(tmp_path: Path) -> None:
    kind = replace(training(40, 1000), faults=(gpu(SLOW, 1.15),))
    truth = kind.write(tmp_path / "c", 1)
    waiting = waiting_in(tmp_path / "c")
    assert held_share(waiting) == 0
    prediction = WhatIf(waiting).predict(Change(ranks=(SLOW,)))
    assert prediction.run_then_ns == pytest.approx(truth.healthy_run_ns, rel=0.03)
