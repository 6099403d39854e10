"""Kinds after jobs of others in which something stands beside the culprit: work that a rank has by
design and that nobody waits for, or a rank that is slightly slower.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Kernel, Machine
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


@dataclass(frozen=True, slots=True)
class Fsdp2:
    """FSDP2 with one communicator: the next AllGather is queued ahead of the ReduceScatter, and the
    host is two layers ahead of its GPU at most. Others compute while they wait in ReduceScatters.
    """

    ranks: int = 8
    layers: int = 5
    steps: int = 16
    layer_ms: float = 1.2
    layer_mb: float = 60.0


def fsdp2_program(job: Job, load: Fsdp2) -> Program:
    """Training with it."""
    world = job.communicator("world", tuple(range(load.ranks)))
    size = int(load.layer_mb * MB)

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, 4 * load.layers * load.layer_ms, 1.0)
            last: Kernel | None = None
            ahead: list[Kernel] = []
            for _ in range(load.layers):
                last = rank.compute(load.layer_ms, last, rank.collective(world, "AllGather", size))
                ahead.append(last)
                if len(ahead) > 2:
                    yield ahead.pop(0)
            gathered: Kernel | None = rank.collective(world, "AllGather", size)
            for layer in range(load.layers):
                is_last = layer == load.layers - 1
                upcoming = None if is_last else rank.collective(world, "AllGather", size)
                last = rank.compute(2 * load.layer_ms, last, gathered)
                rank.collective(world, "ReduceScatter", size, last)
                gathered = upcoming
                ahead.append(last)
                if len(ahead) > 2:
                    yield ahead.pop(0)
            last = rank.compute(0.8, last, rank.collective(world, "AllReduce", 8, last))
            yield last

    return program


def hiding_kinds() -> Iterator[Kind]:
    """All of them."""
    yield from shape("evaluation 3, rank 0 writes", evaluation_program, Evaluation(), {
        "slow GPU": (gpu(1, 1.3),),
    }, may_ranks=(0,))  # fmt: skip
    yield from shape("fsdp2 8, one communicator", fsdp2_program, Fsdp2(), {
        "slow GPU": (gpu(5, 1.225),), "late rank": (host(2, 4.0),),
    }, machine=Machine(gb_s=300.0, host_us=9.0))  # fmt: skip
    stalls = ((2, 60), (4, 21), (7, 14), (9, 150), (12, 134), (16, 30))
    yield from shape("ddp 16 on 2 hosts, 24 steps", None, Buckets(16, steps=24), {
        "loader that stalls, and a slower GPU": (
            *(host(6, ms, first=step, last=step, group="loader") for step, ms in stalls),
            gpu(12, 1.06, masked=True),
        ),
    })  # fmt: skip
