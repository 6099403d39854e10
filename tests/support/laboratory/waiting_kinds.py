"""Kinds after jobs of others in which work goes on while ranks wait, or waiting is in every step:
recommendation models, tokens in a ring of stages, decoding behind prefill, uneven exchanges of
experts, storage of one host.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Kernel, Machine
from tests.support.laboratory.held_out_programs import Prefill, prefill_program
from tests.support.laboratory.mesh import Mesh
from tests.support.laboratory.programs import MB, Buckets, Experts, Steps, start_up
from tests.support.laboratory.rank import Rank
from tests.support.laboratory.shapes import gpu, host, link, shape
from tests.support.laboratory.truth import Kind


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Embeddings are exchanged while dense layers compute; gradients go back the same way."""

    ranks: int = 8
    steps: int = 50
    before_ms: float = 2.0
    overlapped_ms: float = 4.0  # needs nothing that is exchanged
    behind_ms: float = 6.0
    block_mb: float = 1.0
    gradient_mb: float = 30.0


def recommendation_program(job: Job, load: Recommendation) -> Program:
    """Training of a recommendation model."""
    world = job.communicator("world", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        size = int(load.block_mb * MB)
        others = [(peer, size) for peer in range(load.ranks) if peer != rank.number]
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, load.behind_ms, 0.5)
            first = rank.compute(load.before_ms)
            exchanged = rank.group(world, others, others, first)
            overlapped = rank.compute(load.overlapped_ms, first)
            last = rank.compute(load.behind_ms, overlapped, exchanged)
            back = rank.group(world, others, others, last)
            reduced = rank.collective(world, "AllReduce", int(load.gradient_mb * MB), last)
            yield rank.compute(2.0, back, reduced)

    return program


@dataclass(frozen=True, slots=True)
class TokenRing:
    """Decoding in a pipeline: as many tokens as stages go round and round."""

    ranks: int = 4
    tokens: int = 120
    stage_ms: float = 3.0


def token_ring_program(job: Job, load: TokenRing) -> Program:
    """Inference with a ring of stages."""
    world = job.communicator("world", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        ranks, size = load.ranks, 64 << 10  # of one token: sends do not wait
        before, behind = (rank.number - 1) % ranks, (rank.number + 1) % ranks
        yield from start_up(rank, world)
        for token in range(load.tokens):
            rank.begin_step(token, load.stage_ms, 0.1)
            last: Kernel | None = None
            if rank.number or token >= ranks:
                last = rank.group(world, [], [(before, size)])
            last = rank.compute(load.stage_ms, last)
            if rank.number < ranks - 1 or token < load.tokens - ranks:
                last = rank.group(world, [(behind, size)], [], last)
            yield last

    return program


@dataclass(frozen=True, slots=True)
class UnevenExperts:
    """Experts whose tokens vary from step to step, around a power of two."""

    ranks: int = 16
    steps: int = 12
    layers: int = 3
    tokens_mb: float = 2.0
    spread: float = 0.2

    def bytes_of(self, seed: int, step: int, exchange: int, pair: tuple[int, int]) -> int:
        """From one rank to another: both must know it."""
        draw = Random(f"{seed} {step} {exchange} {pair}")
        return int(self.tokens_mb * MB * draw.lognormvariate(0, self.spread)) // 4 * 4


def uneven_experts_program(job: Job, load: UnevenExperts) -> Program:
    """Training of experts with uneven loads."""
    world = job.communicator("world", tuple(range(load.ranks)))
    experts = job.communicator("ep", tuple(range(load.ranks)))

    def exchange(rank: Rank, step: int, number: int, last: Kernel | None) -> Kernel:
        own = rank.number
        others = [peer for peer in range(load.ranks) if peer != own]
        sends = [(p, load.bytes_of(job.seed, step, number, (own, p))) for p in others]
        receives = [(p, load.bytes_of(job.seed, step, number, (p, own))) for p in others]
        return rank.group(experts, sends, receives, last)

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, 15 * load.layers, 0.5)
            last: Kernel | None = None
            for turn in range(2 * load.layers):
                back = 2.0 if turn >= load.layers else 1.0
                last = exchange(rank, step, 2 * turn, rank.compute(2 * back, last))
                last = exchange(rank, step, 2 * turn + 1, rank.compute(3 * back, last))
            last = rank.collective(world, "AllReduce", 80 * MB, last)
            yield rank.compute(1.5, last)

    return program


@dataclass(frozen=True, slots=True)
class Distillation:
    """Teachers send what they computed to students, who train on it with gradients in buckets."""

    ranks: int = 8  # half of them students
    steps: int = 50
    teacher_ms: float = 8.0
    student_ms: float = 3.0
    buckets: int = 3
    bucket_ms: float = 2.4
    logits_mb: float = 24.0


def distillation_program(job: Job, load: Distillation) -> Program:
    """A teacher for each student."""
    students = load.ranks // 2
    world = job.communicator("world", tuple(range(2 * students)))
    trained = job.communicator("students", tuple(range(students, 2 * students)))
    size = int(load.logits_mb * MB) // 4 * 4

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, load.teacher_ms, 0.5)
            if rank.number < students:
                work = rank.compute(load.teacher_ms)
                yield rank.group(world, [(rank.number + students, size)], [], work)
                continue
            received = rank.group(world, [], [(rank.number - students, size)])
            work = rank.compute(load.student_ms, received)
            for _ in range(load.buckets):
                reduced = rank.collective(trained, "AllReduce", 25 * MB, work)
                work = rank.compute(load.bucket_ms, work)
            yield rank.compute(1.0, work, reduced)

    return program


def waiting_kinds() -> Iterator[Kind]:
    """All of them."""
    hosts = Machine(ranks_per_host=4)
    yield from shape("recommendation 8 on 2 hosts", recommendation_program, Recommendation(), {
        "late rank": (host(7, 5),),
        "slow GPU": (gpu(2, 1.25),),
    }, machine=hosts)  # fmt: skip
    yield from shape("tokens in a ring of 4", token_ring_program, TokenRing(), {
        "slow GPU": (gpu(2, 1.3),),
    })  # fmt: skip
    decode = Prefill(requests=60, layers=3, prompt_ms=6.0, token_ms=5.0, tokens=4, cache_mb=64.0)
    yield from shape("prefill 2, then long decode 2", prefill_program, decode, {
        "slow decode GPU": (gpu(3, 1.4),),
    }, machine=Machine(ranks_per_host=2))  # fmt: skip
    yield from shape("uneven experts 16 on 4 hosts", uneven_experts_program, UnevenExperts(), {
        "late rank": (host(9, 9),),
    }, machine=hosts)  # fmt: skip
    # No other rank does the work of a stage: it may have more of it.
    stages = Mesh(pp=4, micro_batches=8, steps=20, layer_ms=2.0)
    yield from shape("pipeline 4 with single ranks", None, stages, {
        "slow GPU": (gpu(2, 1.3),),
    }, blind=True)  # fmt: skip
    ahead = Buckets(16, steps=60, bucket_ms=4.0, meets_first=False)
    storage = tuple(host(r, 120, first=9, every=10, group="storage") for r in range(4, 8))
    writers = tuple(host(r, 120, first=9, every=15, group="writers") for r in (0, 4, 8, 12))
    yield from shape("ddp 16 on 4 hosts, 60 steps", None, ahead, {
        "storage of a host": storage,
        "a writer on each host": writers,
    }, machine=hosts)  # fmt: skip
    yield from shape("distillation 4 x 2", distillation_program, Distillation(), {
        "slow link": (link(1, 5, 14),),
        "slow student": (gpu(6, 1.5),),
    }, machine=hosts)  # fmt: skip
    # Half of a host: the ranks of one replica are as slow as each other, and wait for nobody.
    replicas = Mesh(dp=4, tp=4, steps=30, layer_ms=1.0)
    yield from shape("dp 4 x tp 4, long layers", None, replicas, {
        "slow replica": tuple(gpu(r, 1.3, group="replica") for r in range(4, 8)),
    }, machine=Machine(ranks_per_host=8))  # fmt: skip
    # Turns of one step: nothing that most ranks show lies next to each other in a turn.
    yield from shape("ddp 8, 60 steps, 8 buckets", None, Buckets(8, 60, buckets=8), {
        "two ranks slow in turns": (gpu(2, 1.3, every=2), gpu(5, 1.3, first=1, every=2)),
    })  # fmt: skip
    yield from _groups_of_experts(hosts)
    yield from _in_turn()


def _in_turn() -> Iterator[Kind]:
    """Ranks of a host, or all ranks, that are late by chance or by turns: no rank stands out."""
    chance = Random("loaders of a host")
    loaders = tuple(
        host(rank, chance.uniform(8, 24), first=step, last=step, group="host")
        for step in range(2, 40)
        for rank in range(8, 16)
        if step == 4 * rank - 29 or chance.random() < 0.05 + 0.05 * (rank in (8, 13))
    )
    collections = tuple(
        host(rank, chance.uniform(14, 18), first=step, last=step, group="collections")
        for rank in range(16)
        for step in range(2 + 5 * rank % 16, 60, 16)
    )
    daemon = tuple(host(rank, 60, first=2, every=6, group="host") for rank in range(8, 16))
    yield from shape("ddp 24 on 3 hosts", None, Buckets(24, steps=40), {
        "loaders of a host": loaders,
        "daemon of a host": daemon,
    }, machine=Machine(ranks_per_host=8))  # fmt: skip
    roving = tuple(
        gpu(rank, 1.25, first=8 * turn, last=8 * turn + 7, group="roving")
        for turn, rank in enumerate((3, 12, 7, 0, 9, 14, 5, 10))
    )
    yield from shape("ddp 16 on 2 hosts, 64 steps", None, Buckets(16, steps=64, buckets=5), {
        "another slow GPU every 8 steps": roving,
    }, machine=Machine(ranks_per_host=8))  # fmt: skip
    yield from shape("ddp 16 on 2 hosts, 60 steps", None, Buckets(16, steps=60), {
        "garbage collections in turn": collections,
    }, machine=Machine(ranks_per_host=8))  # fmt: skip


def _groups_of_experts(hosts: Machine) -> Iterator[Kind]:
    """Equal groups that exchange tokens among themselves, each on a host, and one of all ranks."""
    groups = Experts(16, steps=15, tokens_mb=8.0, groups=4, reduce_mb=1.0)
    slow = tuple(link(a, b, 6, group="group") for a in range(8, 12) for b in range(a + 1, 12))
    yield from shape("experts 4 x 4 on 4 hosts", None, groups, {
        "slow links of a group": slow,
        "one slow link": (link(8, 9, 12),),
    }, machine=hosts)  # fmt: skip
    # One group moves more than others, and takes longer by that.
    popular = replace(groups, popular="fixed", compute_follows=False)
    yield from shape(
        "experts 4 x 4 on 4 hosts, one is popular", None, popular, {}, machine=hosts,
        may_ranks=(0,), may_families=("imbalance",), uneven=True,
    )  # fmt: skip
    # All hosts but one wait for what one rank sends, and it for what they send.
    others = [rank for rank in range(16) if not 8 <= rank < 12]
    exchange = Experts(16, steps=15, tokens_mb=2.0)
    yield from shape("experts 16 on 4 hosts", None, exchange, {
        "slow adapter": tuple(link(9, rank, 8, group="adapter") for rank in others),
    }, machine=hosts)  # fmt: skip
    yield from shape(
        "experts 16 on 4 hosts, one is popular", None,
        replace(exchange, popular="fixed", compute_follows=False), {}, machine=hosts,
        may_ranks=(0,), may_families=("imbalance",), uneven=True,
    )  # fmt: skip
