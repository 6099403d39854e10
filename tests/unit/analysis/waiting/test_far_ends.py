"""Hosts that wait for a kernel of another stream, called long before."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.dependencies import FAR_BACK
from ncclscope.analysis.waiting.origins import waiting_of
from ncclscope.analysis.waiting.replay import Replay
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Kernel
from tests.support.laboratory.programs import MB, Steps, start_up
from tests.support.laboratory.rank import Rank
from tests.support.laboratory.shapes import gpu
from tests.support.laboratory.truth import Kind

EACH, REQUESTS, TOKENS, LAYERS = 4, 40, 6, 3
SLOW = 2


def serving(vary: float) -> Kind:
    """Ranks that read prompts send what they made of them to ranks that write tokens meanwhile, and
    wait for the next prompt then. `vary`: by how much prompts differ in length.
    """

    def made(job: Job) -> Program:
        world = job.communicator("world", tuple(range(2 * EACH)))
        groups = [
            job.communicator(f"tp{n}", tuple(range(n * EACH, n * EACH + EACH))) for n in (0, 1)
        ]
        draws = Random(f"{job.seed} prompts")
        lengths = [draws.uniform(1 - vary, 1 + vary) for _ in range(REQUESTS)]

        def program(rank: Rank) -> Steps:
            reads = rank.number < EACH
            tp = groups[0 if reads else 1]
            yield from start_up(rank, world)
            for step, length in enumerate(lengths):
                rank.begin_step(step, usual_ms=1.0, data_ms=0.3)
                size = int(20 * MB * length)
                last: Kernel | None = None
                if reads:
                    for _ in range(4):
                        last = rank.collective(
                            tp, "AllReduce", 8 * MB, rank.compute(8.0 * length, last)
                        )
                    rank.group(world, [(rank.number + EACH, size)], [], last, stream="kv")
                    assert last is not None
                    yield last
                    continue
                prompt = rank.group(world, [], [(rank.number - EACH, size)], stream="kv")
                for _ in range(TOKENS):
                    for _ in range(LAYERS):
                        last = rank.collective(tp, "AllReduce", MB // 10, rank.compute(0.5, last))
                    assert last is not None
                    yield last
                    rank.host(0.1)
                yield prompt

        return program

    return Kind("prefill and decode apart", 2 * EACH, made)


@pytest.mark.parametrize("vary", [0.0, 0.3])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_slow_rank_is_named_whose_data_hosts_wait_for(
    tmp_path: Path, vary: float, seed: int
) -> None:
    """The receive is 18 calls before the next one. Taken for work of the hosts, the wait for it
    stays in a replay, and nothing is gained.
    """
    truth = replace(serving(vary), faults=(gpu(SLOW, 1.3),)).write(tmp_path / "c", seed)
    found = [f for f in diagnose_capture(tmp_path / "c").findings if f.family == "straggler"]
    assert [(f.kind, f.ranks) for f in found if f.severity != "info"] == [("gpu", (SLOW,))]
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    prediction = WhatIf(waiting).predict(Change(ranks=(SLOW,)))
    assert prediction.run_then_ns == pytest.approx(truth.healthy_run_ns, rel=0.06)


@pytest.mark.parametrize("seed", [1, 2])
def test_waiting_for_prompts_is_nobodys_fault(tmp_path: Path, seed: int) -> None:
    serving(0.3).write(tmp_path / "c", seed)
    said = diagnose_capture(tmp_path / "c").findings
    assert [f for f in said if f.severity != "info"] == []
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    assert (waiting.dependencies.back[::3] == FAR_BACK).any()
    events = Replay(waiting).events_ns(waiting.dependencies.length_ns)
    assert np.array_equal(events, waiting.arrivals.events_ns)
