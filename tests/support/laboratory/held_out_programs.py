"""Jobs that no rule was tuned on, for the event simulation: each a function that makes
communicators and returns the program of a rank.
"""

from dataclasses import dataclass
from random import Random

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Communicator, Kernel
from tests.support.laboratory.programs import MB, Steps, start_up
from tests.support.laboratory.rank import Rank


def groups_of(job: Job, name: str, members: list[tuple[int, ...]]) -> dict[int, Communicator]:
    """New communicators, by rank."""
    table: dict[int, Communicator] = {}
    for number, ranks in enumerate(members):
        table.update(dict.fromkeys(ranks, job.communicator(f"{name}#{number}", ranks)))
    return table


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Data parallelism in two levels: reduced within hosts, between hosts, gathered within them."""

    hosts: int = 2
    per_host: int = 4
    steps: int = 20
    layers: int = 4
    layer_ms: float = 1.0
    size_mb: float = 32.0

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.hosts * self.per_host


def hierarchy_program(job: Job, load: Hierarchy) -> Program:
    """Training with hierarchical AllReduce."""
    hosts, each = range(load.hosts), load.per_host
    world = job.communicator("world", tuple(range(load.ranks)))
    local = groups_of(job, "local", [tuple(range(h * each, (h + 1) * each)) for h in hosts])
    cross = groups_of(job, "cross", [tuple(h * each + n for h in hosts) for n in range(each)])
    size = int(load.size_mb * MB)

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, 3 * load.layers * load.layer_ms, 0.5)
            last = rank.compute(load.layers * load.layer_ms)
            reduced: Kernel | None = None
            for _ in range(load.layers):
                last = rank.compute(2 * load.layer_ms, last)
                part = rank.collective(local[rank.number], "ReduceScatter", size, last)
                part = rank.collective(cross[rank.number], "AllReduce", size // each, part)
                reduced = rank.collective(local[rank.number], "AllGather", size, part)
            yield rank.compute(1.0, last, reduced)

    return program


@dataclass(frozen=True, slots=True)
class Actors:
    """Reinforcement learning: actors generate, learners train on it and broadcast the weights."""

    learners: int = 4
    actors: int = 4
    steps: int = 15
    generate_ms: float = 12.0
    train_ms: float = 3.0
    updates: int = 4
    rollout_mb: float = 8.0
    weights_mb: float = 64.0

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.learners + self.actors


def actors_program(job: Job, load: Actors) -> Program:
    """Actors send to the learner of the same place; rank 0 broadcasts."""
    world = job.communicator("world", tuple(range(load.ranks)))
    learners = job.communicator("learners", tuple(range(load.learners)))
    size = int(load.rollout_mb * MB)

    def learner(rank: Rank) -> Kernel:
        actors = [a for a in range(load.actors) if a % load.learners == rank.number]
        got = rank.group(world, [], [(load.learners + a, size) for a in actors])
        last = got
        for _ in range(load.updates):
            last = rank.compute(load.train_ms, last)
            last = rank.collective(learners, "AllReduce", 32 * MB, last)
        return last

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, load.generate_ms, 0.3)
            if rank.number < load.learners:
                last = learner(rank)
            else:
                last = rank.compute(load.generate_ms)
                place = (rank.number - load.learners) % load.learners
                last = rank.group(world, [(place, size)], [], last)
            yield rank.collective(world, "Broadcast", int(load.weights_mb * MB), last, root=0)

    return program


@dataclass(frozen=True, slots=True)
class Star:
    """A parameter server: workers send gradients to rank 0 and receive weights."""

    ranks: int = 5
    steps: int = 25
    compute_ms: float = 6.0
    server_ms: float = 2.0
    size_mb: float = 16.0


def star_program(job: Job, load: Star) -> Program:
    """Training with a parameter server."""
    world = job.communicator("world", tuple(range(load.ranks)))
    size = int(load.size_mb * MB)
    workers = [(rank, size) for rank in range(1, load.ranks)]

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, load.compute_ms, 0.5)
            if rank.number:
                last = rank.group(world, [(0, size)], [], rank.compute(load.compute_ms))
                yield rank.group(world, [], [(0, size)], last)
            else:
                last = rank.group(world, [], workers)
                last = rank.compute(load.server_ms, last)
                yield rank.group(world, workers, [], last)

    return program


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """Local SGD: steps without communication, then an average of all weights."""

    ranks: int = 8
    steps: int = 12  # averages
    local_steps: int = 8
    compute_ms: float = 4.0
    buckets: int = 3
    size_mb: float = 64.0


def local_steps_program(job: Job, load: LocalSteps) -> Program:
    """Training with local SGD."""
    world = job.communicator("world", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, load.local_steps * load.compute_ms, 0.5)
            for _ in range(load.local_steps):
                rank.host(0.3)
                yield rank.compute(load.compute_ms)
            for _ in range(load.buckets):
                last = rank.collective(world, "AllReduce", int(load.size_mb * MB))
            yield last

    return program


@dataclass(frozen=True, slots=True)
class SequenceParallel:
    """Tensor parallelism that gathers and scatters activations, beside data parallelism."""

    tp: int = 4
    dp: int = 2
    steps: int = 20
    layers: int = 3
    layer_ms: float = 0.8
    activation_mb: float = 16.0
    gradient_mb: float = 48.0

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.tp * self.dp


def sequence_parallel_program(job: Job, load: SequenceParallel) -> Program:
    """Training with sequence parallelism."""
    tp, dp = load.tp, load.dp
    world = job.communicator("world", tuple(range(load.ranks)))
    shards = groups_of(job, "tp", [tuple(range(d * tp, (d + 1) * tp)) for d in range(dp)])
    replicas: dict[int, Communicator] = {}
    if dp > 1:
        replicas = groups_of(job, "dp", [tuple(d * tp + t for d in range(dp)) for t in range(tp)])
    size = int(load.activation_mb * MB)

    def program(rank: Rank) -> Steps:
        group = shards[rank.number]
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, 3 * load.layers * load.layer_ms, 0.5)
            last: Kernel | None = None
            reduced: Kernel | None = None
            for turn in range(2 * load.layers):
                back = turn >= load.layers
                last = rank.collective(group, "AllGather", size, last)
                last = rank.compute((2 if back else 1) * load.layer_ms, last)
                last = rank.collective(group, "ReduceScatter", size, last)
                if back and dp > 1:
                    gradient = int(load.gradient_mb * MB)
                    reduced = rank.collective(replicas[rank.number], "AllReduce", gradient, last)
            yield rank.compute(1.0, last, reduced)

    return program


@dataclass(frozen=True, slots=True)
class Prefill:
    """Serving with prefill and decode on other ranks: caches go from one group to the other."""

    tp: int = 2
    requests: int = 40
    layers: int = 4
    prompt_ms: float = 1.5
    token_ms: float = 0.2
    tokens: int = 8
    cache_mb: float = 24.0

    @property
    def ranks(self) -> int:
        """Of the job."""
        return 2 * self.tp


def prefill_program(job: Job, load: Prefill) -> Program:
    """The first half of ranks does prefill, the second half decodes."""
    tp = load.tp
    world = job.communicator("world", tuple(range(load.ranks)))
    groups = groups_of(job, "tp", [tuple(range(tp)), tuple(range(tp, 2 * tp))])
    caches = groups_of(job, "cache", [(n, tp + n) for n in range(tp)])
    size = int(load.cache_mb * MB)

    def layers(rank: Rank, ms: float, last: Kernel | None, mb: float) -> Kernel | None:
        for _ in range(load.layers):
            last = rank.compute(ms, last)
            last = rank.collective(groups[rank.number], "AllReduce", int(mb * MB), last)
        return last

    def program(rank: Rank) -> Steps:
        prefill = rank.number < tp
        draws = Random(f"{job.seed} prompts")
        yield from start_up(rank, world)
        for request in range(load.requests):
            length, tokens = draws.uniform(0.6, 1.6), draws.randint(4, load.tokens)
            rank.begin_step(request, load.layers * load.prompt_ms, 0.2)
            if prefill:
                last = layers(rank, load.prompt_ms * length, None, 8 * length)
                yield rank.group(caches[rank.number], [(tp + rank.number, size)], [], last)
                continue
            last = rank.group(caches[rank.number], [], [(rank.number - tp, size)])
            for _ in range(tokens):
                last = layers(rank, load.token_ms, last, 0.25) or last
                yield last

    return program


@dataclass(frozen=True, slots=True)
class HeadExchange:
    """Sequence parallelism by all-to-all of heads, in groups, with sharded parameters across."""

    cp: int = 4
    dp: int = 2
    steps: int = 15
    layers: int = 3
    layer_ms: float = 1.2
    block_mb: float = 2.0
    parameter_mb: float = 32.0

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.cp * self.dp


def head_exchange_program(job: Job, load: HeadExchange) -> Program:
    """Training with all-to-all in groups of ranks."""
    cp, dp = load.cp, load.dp
    world = job.communicator("world", tuple(range(load.ranks)))
    heads = groups_of(job, "cp", [tuple(range(d * cp, (d + 1) * cp)) for d in range(dp)])
    shards = groups_of(job, "dp", [tuple(d * cp + c for d in range(dp)) for c in range(cp)])
    size = int(load.block_mb * MB)

    def program(rank: Rank) -> Steps:
        group, shard = heads[rank.number], shards[rank.number]
        peers = [(peer, size) for peer in group.members if peer != rank.number]
        parameters = int(load.parameter_mb * MB)
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, 3 * load.layers * load.layer_ms, 0.5)
            last: Kernel | None = None
            reduced: Kernel | None = None
            for turn in range(2 * load.layers):
                back = turn >= load.layers
                weights = rank.collective(shard, "AllGather", parameters)
                last = rank.compute(0.3, last, weights)
                last = rank.group(group, peers, peers, last)
                last = rank.compute((2 if back else 1) * load.layer_ms, last)
                last = rank.group(group, peers, peers, last)
                if back:
                    reduced = rank.collective(shard, "ReduceScatter", parameters, last)
            yield rank.compute(0.8, last, reduced)

    return program


@dataclass(frozen=True, slots=True)
class TokenLoop:
    """Decoding with tiny messages: the host launches a token when the one before is there."""

    ranks: int = 4
    steps: int = 250
    layers: int = 3
    layer_ms: float = 0.06
    size_bytes: int = 65_536


def token_loop_program(job: Job, load: TokenLoop) -> Program:
    """Inference that is bound by launches."""
    world = job.communicator("world", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, load.layers * load.layer_ms, 0.05)
            last: Kernel | None = None
            for _ in range(2 * load.layers):
                last = rank.compute(load.layer_ms, last)
                last = rank.collective(world, "AllReduce", load.size_bytes, last)
            assert last is not None
            yield last

    return program


@dataclass(frozen=True, slots=True)
class Optimizer:
    """ZeRO stage 1: gradients are scattered, parameters gathered beside the next forward pass."""

    ranks: int = 8
    steps: int = 30
    layers: int = 4
    layer_ms: float = 1.2
    size_mb: float = 32.0
    synchronize_every: int = 5
    growth: float = 0.0  # how much longer the last step is than the first: longer sequences
    stall_every: int = 0  # steps between those in which all ranks wait for data
    stall_ms: float = 0.0


def optimizer_program(job: Job, load: Optimizer) -> Program:
    """Training with a sharded optimizer."""
    world = job.communicator("world", tuple(range(load.ranks)))
    gather = job.communicator("gather", tuple(range(load.ranks)))
    size = int(load.size_mb * MB)

    def program(rank: Rank) -> Steps:
        gathered: list[Kernel | None] = [None] * load.layers
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, 3 * load.layers * load.layer_ms, 0.5)
            stalls = load.stall_every and step % load.stall_every == load.stall_every - 1
            rank.host(load.stall_ms if stalls else 0.0)
            length = 1 + load.growth * step / load.steps
            last: Kernel | None = None
            for layer in range(load.layers):
                last = rank.compute(load.layer_ms * length, last, gathered[layer])
            scattered = []
            for _ in range(load.layers):
                last = rank.compute(2 * load.layer_ms * length, last)
                scattered.append(rank.collective(world, "ReduceScatter", size, last))
            last = rank.compute(0.6, *scattered)
            gathered = [rank.collective(gather, "AllGather", size, last) for _ in gathered]
            if step % load.synchronize_every == load.synchronize_every - 1:
                yield last
        yield rank.compute(0.1, *gathered)

    return program
