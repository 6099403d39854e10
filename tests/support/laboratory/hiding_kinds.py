"""Kinds after jobs of others in which something stands beside the culprit: work that a rank has by
design and that nobody waits for, or a rank that is slightly slower.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.programs import MB, Buckets, Steps, start_up
from tests.support.laboratory.rank import Rank
from tests.support.laboratory.shapes import gpu, host, shape
from tests.support.laboratory.truth import Kind


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Batches without a backward pass: rank 0 writes results down while others compute."""

    ranks: int = 3
    batches: int = 40
    batch_ms: float = 5.0
    written_ms: float = 1.0
    logits_mb: float = 8.0


def evaluation_program(job: Job, load: Evaluation) -> Program:
    """Evaluation of a model."""
    world = job.communicator("world", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for batch in range(load.batches):
            rank.begin_step(batch, load.batch_ms, 0.5)
            last = rank.compute(load.batch_ms)
            yield rank.collective(world, "AllGather", int(load.logits_mb * MB), last)
            rank.host(load.written_ms if rank.number == 0 else 0.05)

    return program


def hiding_kinds() -> Iterator[Kind]:
    """All of them."""
    yield from shape("evaluation 3, rank 0 writes", evaluation_program, Evaluation(), {
        "slow GPU": (gpu(1, 1.3),),
    }, may_ranks=(0,))  # fmt: skip
    stalls = ((2, 60), (4, 21), (7, 14), (9, 150), (12, 134), (16, 30))
    yield from shape("ddp 16 on 2 hosts, 24 steps", None, Buckets(16, steps=24), {
        "loader that stalls, and a slower GPU": (
            *(host(6, ms, first=step, last=step, group="loader") for step, ms in stalls),
            gpu(12, 1.06, masked=True),
        ),
    })  # fmt: skip
