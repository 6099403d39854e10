"""Kinds whose results are used a step later, whose ranks have duties, and links that flap, as an
engineer who had not read the rules invented them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Kernel, Machine
from tests.support.laboratory.faults import Fault
from tests.support.laboratory.held_out_programs import groups_of
from tests.support.laboratory.mesh import Mesh
from tests.support.laboratory.programs import MB, Buckets, Steps, start_up
from tests.support.laboratory.rank import Rank
from tests.support.laboratory.shapes import gpu, host, link, shape
from tests.support.laboratory.truth import Kind


@dataclass(frozen=True, slots=True)
class Stale:
    """Data parallelism whose gradients are used one step late."""

    ranks: int = 8
    steps: int = 60
    compute_ms: float = 9.0
    size_mb: float = 120.0


def stale_program(job: Job, load: Stale) -> Program:
    """Each step computes beside the AllReduce of the one before."""
    world = job.communicator("world", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        before: Kernel | None = None
        for step in range(load.steps):
            rank.begin_step(step, 1.5 * load.compute_ms, 0.8)
            last = rank.compute(load.compute_ms / 2, rank.compute(load.compute_ms / 2))
            reduced = rank.collective(world, "AllReduce", int(load.size_mb * MB), last)
            last, before = rank.compute(1.0, last, before), reduced
            yield last
        assert before is not None
        yield rank.compute(0.1, before)

    return program


@dataclass(frozen=True, slots=True)
class Sites:
    """Sharded within a site, reduced over a slow line between sites beside the next step."""

    sites: int = 2
    per_site: int = 8
    steps: int = 30
    layers: int = 4
    shard_mb: float = 50.0

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.sites * self.per_site


def sites_program(job: Job, load: Sites) -> Program:
    """Training in two data centres."""
    count, each, size = load.sites, load.per_site, int(load.shard_mb * MB)
    world = job.communicator("world", tuple(range(load.ranks)))
    site = groups_of(job, "site", [tuple(range(n * each, (n + 1) * each)) for n in range(count)])
    line = groups_of(job, "line", [tuple(range(n, load.ranks, each)) for n in range(each)])

    def program(rank: Rank) -> Steps:
        own, across = site[rank.number], line[rank.number]
        yield from start_up(rank, world)
        stale: Kernel | None = None
        for step in range(load.steps):
            rank.begin_step(step, 30, 0.6)
            last: Kernel | None = None
            reduced: Kernel | None = None
            for _ in range(load.layers):
                last = rank.compute(2.0, last, rank.collective(own, "AllGather", size))
            for _ in range(load.layers):
                last = rank.compute(4.0, last, rank.collective(own, "AllGather", size))
                reduced = rank.collective(own, "ReduceScatter", size, last)
            over_line = rank.collective(across, "AllReduce", size // 2, reduced)
            last, stale = rank.compute(1.0, last, reduced, stale), over_line
            yield last
        assert stale is not None
        yield rank.compute(0.1, stale)

    return program


@dataclass(frozen=True, slots=True)
class Leaders:
    """Data parallelism in which the first rank of each host writes a checkpoint now and then."""

    ranks: int = 16
    per_host: int = 4
    steps: int = 60
    every: int = 10
    checkpoint_ms: float = 25.0


def leaders_program(job: Job, load: Leaders) -> Program:
    """Four layers, reduced behind them."""
    world = job.communicator("world", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, 12, 0.8)
            last = rank.compute(4.0)
            for _ in range(4):
                last = rank.compute(2.0, last)
                reduced = rank.collective(world, "AllReduce", 40 * MB, last)
            yield rank.compute(1.0, last, reduced)
            if step % load.every == load.every - 1:
                rank.host(load.checkpoint_ms if rank.number % load.per_host == 0 else 0.2)
                yield rank.collective(world, "AllReduce", 64)

    return program


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Tensor-parallel inference: rank 0 prepares each token, and sends it to all others."""

    ranks: int = 16
    tokens: int = 50
    layers: int = 12
    schedule_ms: float = 0.3


def scheduled_program(job: Job, load: Scheduled) -> Program:
    """A Broadcast for each token, then layers."""
    world = job.communicator("world", tuple(range(load.ranks)))
    tp = job.communicator("tp", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for token in range(load.tokens):
            rank.begin_step(token, 4, 0.1)
            if rank.number == 0:
                rank.host(load.schedule_ms)
            last = rank.collective(tp, "Broadcast", 8192, root=0)
            for _ in range(load.layers):
                last = rank.collective(tp, "AllReduce", MB, rank.compute(0.3, last))
            yield last

    return program


def overlapping_kinds() -> Iterator[Kind]:
    """All of them."""
    yield from shape("ddp 8, gradients one step late", stale_program, Stale(), {
        "slow GPU": (gpu(0, 1.4),),
    }, machine=Machine(ranks_per_host=4))  # fmt: skip
    yield from shape("two sites of 8", sites_program, Sites(), {
        "slow GPU": (gpu(12, 1.4),),
    }, machine=Machine(ranks_per_host=8, net_gb_s=6.0))  # fmt: skip
    yield from shape("ddp 16 on 4 hosts, leaders write checkpoints", leaders_program, Leaders(), {
        "slow GPU": (gpu(2, 1.3),),
        "pauses of a rank": (host(5, 28.5, first=2, every=10),),
    }, machine=Machine(ranks_per_host=4), may_ranks=(0, 4, 8, 12))  # fmt: skip
    yield from shape("tp 16 on 2 hosts, a scheduler", scheduled_program, Scheduled(), {
        "slow GPU": (gpu(5, 1.6),),
    }, machine=Machine(ranks_per_host=8))  # fmt: skip
    deep = Mesh(pp=8, micro_batches=12, steps=12)
    yield from shape("pipeline 8 with single ranks on 2 hosts", None, deep, {
        "slow CPUs of a host": tuple(
            Fault("cpu", rank, ms=1.2, group="CPUs") for rank in range(4, 8)
        ),
    }, machine=Machine(ranks_per_host=4))  # fmt: skip
    much = Buckets(8, steps=48, buckets=2, bucket_mb=200)
    flaps = ((4, 12), (17, 24), (28, 36), (40, 45))
    yield from shape("ddp 8 on 2 hosts, two buckets", None, much, {
        "link that flaps": tuple(
            link(3, 4, 3, first=first, last=last, group="flaps") for first, last in flaps
        ),
    }, machine=Machine(ranks_per_host=4))  # fmt: skip
