"""Training and inference jobs for the event simulation: each a function that makes communicators
and returns the program of a rank.
"""

from collections.abc import Generator
from dataclasses import dataclass
from random import Random

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Communicator, Kernel
from tests.support.laboratory.rank import Rank

MB = 1_000_000
Steps = Generator[Kernel, None, None]


def start_up(rank: Rank, world: Communicator) -> Steps:
    """What frameworks do before the first step: ranks check that they agree, and share weights.

    These kernels start right after their launch, which ties the clocks of GPUs to those of hosts.
    """
    rank.begin_job()
    for function in ("AllReduce", "AllGather", "AllReduce", "AllReduce"):
        rank.host(0.3)
        yield rank.collective(world, function, 4096 * len(world.members))


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: every layer sends tokens to the ranks of their experts and back.
    Groups of ranks have the same experts, and exchange tokens among themselves.
    """

    ranks: int = 8
    steps: int = 20
    layers: int = 2
    tokens_mb: float = 1.0  # from one rank to another
    # "", "fixed" (the first rank's expert), "by layer", "moving" or "random"
    popular: str = ""
    popularity: float = 4.0  # so many times the tokens of others
    compute_follows: bool = True  # the rank of a popular expert computes longer
    expert_ms: float = 1.0
    dense_ms: float = 1.5
    reduce_mb: float = 16.0  # gradients; 0: nothing but all-to-all
    data_ms: float = 0.5
    groups: int = 1


def experts_program(job: Job, experts: Experts) -> Program:
    """Training of a mixture of experts."""
    world = job.communicator("world", tuple(range(experts.ranks)))
    each = experts.ranks // experts.groups
    eps = [
        job.communicator(f"ep#{n}" if n else "ep", tuple(range(n * each, (n + 1) * each)))
        for n in range(experts.groups)
    ]
    draws = Random(f"{job.seed} experts")
    hot = [
        [draws.randrange(experts.ranks) for _ in range(experts.layers)]
        for _ in range(experts.steps)
    ]

    def weight(expert: int, step: int, layer: int) -> float:
        popular = {
            "fixed": 0, "by layer": 2 + 3 * layer, "moving": step // 5 % experts.ranks,
            "random": hot[step][layer], "": -1,
        }[experts.popular]  # fmt: skip
        return experts.popularity if expert == popular else 1.0

    def program(rank: Rank) -> Steps:
        ep = eps[rank.number // each]
        others = [peer for peer in ep.members if peer != rank.number]
        size = experts.tokens_mb * MB
        usual_ms = experts.layers * (experts.expert_ms + experts.dense_ms) * 3
        yield from start_up(rank, world)
        for step in range(experts.steps):
            rank.begin_step(step, usual_ms, experts.data_ms)
            last: Kernel | None = None
            for turn in range(2 * experts.layers):
                layer = turn % experts.layers
                back = 2.0 if turn >= experts.layers else 1.0
                out = [(p, int(size * weight(p, step, layer))) for p in others]
                own = weight(rank.number, step, layer)
                into = [(p, int(size * own)) for p in others]
                last = rank.compute(back * experts.dense_ms, last)
                last = rank.group(ep, out, into, last)
                times = own if experts.compute_follows else 1.0
                last = rank.compute(back * experts.expert_ms * times, last)
                last = rank.group(ep, into, out, last)
            if experts.reduce_mb:
                last = rank.collective(world, "AllReduce", int(experts.reduce_mb * MB), last)
            assert last is not None
            yield rank.compute(0.5, last)

    return program


@dataclass(frozen=True, slots=True)
class Ring:
    """Ring attention: each layer hands blocks on around the ring."""

    ranks: int = 8
    steps: int = 20
    layers: int = 2
    block_mb: float = 4.0
    block_ms: float = 0.8
    reduce_mb: float = 16.0  # 0: nothing but sends and receives
    overlapped: bool = True  # computes while blocks move
    rounds: int = 0  # in each layer; 0: until all blocks have gone round
    data_ms: float = 0.5


def ring_program(job: Job, ring: Ring) -> Program:
    """Training with ring attention."""
    cp = job.communicator("cp", tuple(range(ring.ranks)))
    world = job.communicator("world", tuple(range(ring.ranks)))

    def program(rank: Rank) -> Steps:
        size = int(ring.block_mb * MB)
        behind = [((rank.number + 1) % ring.ranks, size)]
        before = [((rank.number - 1) % ring.ranks, size)]
        yield from start_up(rank, world)
        for step in range(ring.steps):
            rank.begin_step(step, ring.layers * ring.block_ms * ring.ranks * 2, ring.data_ms)
            last: Kernel | None = None
            for _ in range(2 * ring.layers):
                moved: Kernel | None = None
                for _ in range(ring.rounds or ring.ranks - 1):
                    needs = (last, moved) if ring.overlapped else (last,)
                    sent_after = moved if ring.overlapped else last
                    last = rank.compute(ring.block_ms, *needs) if ring.overlapped else last
                    moved = rank.group(cp, behind, before, sent_after)
                    if not ring.overlapped:
                        last = rank.compute(ring.block_ms, moved)
                last = rank.compute(ring.block_ms, last, moved)
            if ring.reduce_mb:
                last = rank.collective(world, "AllReduce", int(ring.reduce_mb * MB), last)
            assert last is not None
            yield rank.compute(0.3, last)

    return program


@dataclass(frozen=True, slots=True)
class Buckets:
    """Plain data parallelism: gradients are reduced in buckets during the backward pass."""

    ranks: int = 8
    steps: int = 30
    buckets: int = 4
    bucket_mb: float = 16.0
    bucket_ms: float = 1.5
    accumulate: int = 1  # micro-batches of which only the last one reduces
    function: str = "AllReduce"  # or "Reduce" to rank 0 and "Broadcast" back
    data_ms: float = 1.0
    synchronize: bool = True
    length_spread: float = (
        0.0  # of sequences: how far batches differ in length, another rank each time
    )
    duty_ms: float = 0.0  # what one rank does besides in each step, another one each time
    first_call_ms: float = 0.0
    checkpoint_every: int = 0
    checkpoint_ms: float = 0.0
    meets_first: bool = True  # in a small AllReduce before the first step, right after its launch


def buckets_program(job: Job, load: Buckets) -> Program:
    """Training with data parallelism."""
    world = job.communicator("world", tuple(range(load.ranks)))

    def reduce(rank: Rank, after: Kernel) -> Kernel:
        size = int(load.bucket_mb * MB)
        if load.function != "Reduce":
            return rank.collective(world, load.function, size, after)
        rank.collective(world, "Reduce", size, after, root=0)
        return rank.collective(world, "Broadcast", size, root=0)

    def program(rank: Rank) -> Steps:
        usual_ms = 3 * load.buckets * load.bucket_ms * load.accumulate
        rank.host_ns += rank.rng.random() * load.first_call_ms * 1e6
        if load.meets_first:
            yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, usual_ms, load.data_ms)
            rank.host(load.duty_ms if step % load.ranks == rank.number else 0.0)
            length = 1 + load.length_spread * (rank.rng.random() - 0.5)
            last: Kernel | None = None
            reduced: Kernel | None = None
            for turn in range(load.accumulate):
                last = rank.compute(load.buckets * load.bucket_ms * length, last)
                for _ in range(load.buckets):
                    last = rank.compute(2 * load.bucket_ms * length, last)
                    if turn == load.accumulate - 1:
                        reduced = reduce(rank, last)
            last = rank.compute(1.0, last, reduced)
            if load.synchronize or step == load.steps - 1:
                yield last
            every = load.checkpoint_every
            if every and step % every == every - 1:
                rank.host(load.checkpoint_ms if rank.number == 0 else 0.0)
                yield rank.collective(world, "AllReduce", 4096)

    return program


@dataclass(frozen=True, slots=True)
class ManyCommunicators:
    """Many small groups, in turn."""

    ranks: int = 8
    steps: int = 6
    communicators: int = 100  # groups; each is a pair
    gap_ms: float = 0.5
    size_mb: float = 0.25


def many_communicators_program(job: Job, load: ManyCommunicators) -> Program:
    """Pairs of ranks, another partner for each communicator."""
    world = job.communicator("world", tuple(range(load.ranks)))
    pairs: dict[int, list[Communicator]] = {rank: [] for rank in range(load.ranks)}
    made, turn = 0, 0
    while made < load.communicators:
        shift = 1 << turn % (load.ranks.bit_length() - 1)
        for rank in range(load.ranks):
            if rank < rank ^ shift < load.ranks:
                members = (rank, rank ^ shift)
                communicator = job.communicator(f"pair{turn}#{made}", members)
                made += 1
                for member in members:
                    pairs[member].append(communicator)
        turn += 1

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, load.gap_ms * len(pairs[rank.number]))
            last: Kernel | None = None
            for communicator in pairs[rank.number]:
                last = rank.compute(load.gap_ms, last)
                last = rank.collective(communicator, "AllReduce", int(load.size_mb * MB), last)
            assert last is not None
            yield last

    return program


@dataclass(frozen=True, slots=True)
class Serving:
    """Inference with tensor parallelism: requests at random times, batches of random sizes."""

    tp: int = 4
    replicas: int = 2
    requests: int = 60
    layers: int = 4
    token_ms: float = 0.25
    activation_mb: float = 0.5
    idle_ms: float = 3.0  # between requests, on average

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.tp * self.replicas


def serving_program(job: Job, load: Serving) -> Program:
    """Tokens of requests; rank 0 of a replica hands out the work."""
    world = job.communicator("world", tuple(range(load.ranks)))
    groups = [
        job.communicator(f"tp#{n}", tuple(range(n * load.tp, (n + 1) * load.tp)))
        for n in range(load.replicas)
    ]

    def program(rank: Rank) -> Steps:
        group = groups[rank.number // load.tp]
        draws = Random(f"{job.seed} requests {group.name}")
        yield from start_up(rank, world)
        arrives_ns = 0.0
        for request in range(load.requests):
            tokens, length = draws.randint(1, 6), draws.uniform(0.5, 2.0)
            arrives_ns += draws.expovariate(1 / (load.idle_ms * 1e6)) if load.idle_ms else 0.0
            rank.begin_step(request, load.token_ms * load.layers)
            if rank.number == group.members[0]:
                rank.host_ns = max(rank.host_ns, arrives_ns)
            last = rank.collective(group, "Broadcast", 4096, root=group.members[0])
            for _ in range(tokens):
                for _ in range(load.layers):
                    last = rank.compute(load.token_ms * length, last)
                    last = rank.collective(
                        group, "AllReduce", int(load.activation_mb * MB * length), last
                    )
            yield last

    return program
