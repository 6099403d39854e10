"""An elastic job for the event simulation: hosts join, and a larger communicator takes over."""

from dataclasses import dataclass

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Kernel
from tests.support.laboratory.programs import MB, Steps
from tests.support.laboratory.rank import Rank


@dataclass(frozen=True, slots=True)
class Elastic:
    """Data parallelism on more and more ranks."""

    sizes: tuple[int, ...] = (4, 8, 12)  # ranks of the job, one size after the other
    steps: int = 20  # with each size
    buckets: int = 3
    bucket_mb: float = 16.0
    bucket_ms: float = 1.5
    join_ms: float = 150.0  # until ranks that join have made their first call

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.sizes[-1]


def elastic_program(job: Job, load: Elastic) -> Program:
    """Training with data parallelism; all ranks of a size share a new communicator."""
    worlds = [
        job.communicator(f"world{size}#{number}", tuple(range(size)))
        for number, size in enumerate(load.sizes)
    ]
    step_ms = 3 * load.buckets * load.bucket_ms + 4.0

    def program(rank: Rank) -> Steps:
        joined = next(n for n, size in enumerate(load.sizes) if rank.number < size)
        rank.begin_job()
        rank.host_ns += joined * (load.steps * step_ms + load.join_ms) * 1e6
        for number in range(joined, len(load.sizes)):
            world = worlds[number]
            for function in ("AllReduce", "AllGather", "Broadcast"):
                rank.host(0.3)
                yield rank.collective(world, function, 4096 * len(world.members), root=0)
            for step in range(load.steps):
                rank.begin_step(number * load.steps + step, step_ms, 1.0)
                last: Kernel | None = rank.compute(load.buckets * load.bucket_ms)
                reduced: Kernel | None = None
                for _ in range(load.buckets):
                    last = rank.compute(2 * load.bucket_ms, last)
                    reduced = rank.collective(world, "AllReduce", int(load.bucket_mb * MB), last)
                yield rank.compute(1.0, last, reduced)

    return program
