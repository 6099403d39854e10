"""Training on a mesh of pipeline, data and tensor parallel ranks, for the event simulation."""

from collections.abc import Generator
from dataclasses import dataclass

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Communicator, Kernel
from tests.support.laboratory.programs import MB, Steps, start_up
from tests.support.laboratory.rank import Rank


@dataclass(frozen=True, slots=True)
class Mesh:
    """A job on a mesh of pipeline × data × tensor parallel ranks."""

    pp: int = 1
    dp: int = 1
    tp: int = 1
    steps: int = 20
    layers: int = 2  # of a stage
    micro_batches: int = 1
    chunks: int = 1  # of a stage, in an interleaved pipeline
    layer_ms: float = 1.0
    activation_mb: float = 8.0
    parameter_mb: float = 32.0
    sharded: bool = False  # parameters, as FSDP does
    flush: bool = False  # a pipeline that does all forward passes before the first backward pass
    batched: bool = False  # sends and receives of a stage in one group
    data_ms: float = 0.5
    optimizer_ms: float = 1.0
    last_stage: float = 1.0  # how much longer the last stage computes, by design
    stage_work: tuple[float, ...] = ()  # the same for each stage; none: all alike
    warm_up: int = 0  # steps at the beginning that take three times as long
    checkpoint_every: int = 0
    checkpoint_ms: float = 0.0
    checkpoint_by_all: bool = False
    evaluate_every: int = 0
    norm: bool = True  # a small AllReduce of all ranks in each step, of the gradients' norm
    synchronize: bool = True  # the host waits for the end of each step
    first_call_ms: float = 0.0  # how much longer the first call of a communicator takes, at most

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.pp * self.dp * self.tp


class _Groups:
    """Communicators of a mesh; rank = (stage × dp + replica) × tp + shard."""

    def __init__(self, job: Job, mesh: Mesh) -> None:
        self.mesh = mesh
        self.tp: dict[int, Communicator] = {}
        self.dp: dict[int, Communicator] = {}
        self.pp: dict[int, Communicator] = {}
        self.links: dict[tuple[int, int], Communicator] = {}  # by source and destination
        self.world = job.communicator("world", tuple(range(mesh.ranks)))
        stages, replicas, shards = range(mesh.pp), range(mesh.dp), range(mesh.tp)
        tp = [tuple(self.rank(p, d, t) for t in shards) for p in stages for d in replicas]
        dp = [tuple(self.rank(p, d, t) for d in replicas) for p in stages for t in shards]
        pp = [tuple(self.rank(p, d, t) for p in stages) for d in replicas for t in shards]
        for name, groups, table in (("tp", tp, self.tp), ("dp", dp, self.dp), ("pp", pp, self.pp)):
            for number, members in enumerate(groups):
                if len(members) > 1 and (name != "pp" or mesh.batched):
                    made = job.communicator(f"{name}#{number}", members)
                    table.update(dict.fromkeys(members, made))

        if mesh.pp > 1 and not mesh.batched:
            self._open_links(job)

    def _open_links(self, job: Job) -> None:
        """A communicator for each direction between two stages, so that none waits for another:
        kernels of one communicator run one after the other.
        """
        for rank in range(self.mesh.ranks):
            behind = self.neighbour(rank, 1)
            if self.stage(rank) == self.mesh.pp - 1 and self.mesh.chunks == 1:
                continue
            for name, pair in (("forward", (rank, behind)), ("backward", (behind, rank))):
                made = job.communicator(f"{name}#{len(self.links)}", tuple(sorted(pair)))
                self.links[pair] = made

    def rank(self, stage: int, replica: int, shard: int) -> int:
        """The rank at that place of the mesh."""
        return (stage * self.mesh.dp + replica) * self.mesh.tp + shard

    def stage(self, rank: int) -> int:
        """The pipeline stage of a rank."""
        return rank // (self.mesh.dp * self.mesh.tp)

    def neighbour(self, rank: int, step: int) -> int:
        """The rank of the next or previous stage; behind the last one comes the first."""
        return (rank + step * self.mesh.dp * self.mesh.tp) % self.mesh.ranks


def pipeline_order(mesh: Mesh, stage: int) -> list[tuple[str, int, int]]:
    """Forward and backward passes of a stage, 1F1B: ("F" or "B", chunk, micro-batch)."""
    pp, chunks, micro = mesh.pp, mesh.chunks, mesh.micro_batches
    total = micro * chunks
    if chunks == 1:
        warm = micro if mesh.flush else min(pp - 1 - stage, micro)
        forward = [("F", 0, k) for k in range(micro)]
        backward = [("B", 0, k) for k in range(micro)]
    else:
        assert micro % pp == 0, "an interleaved pipeline takes whole rounds of micro-batches"
        warm = min((pp - stage - 1) * 2 + (chunks - 1) * pp, total)
        units = [(k // pp % chunks, k // (pp * chunks) * pp + k % pp) for k in range(total)]
        forward = [("F", chunk, m) for chunk, m in units]
        backward = [("B", chunks - 1 - chunk, m) for chunk, m in units]
    order = forward[:warm]
    for number in range(total):
        order += forward[warm + number : warm + number + 1]
        order.append(backward[number])
    return order


class _MeshRank:
    """What a rank of a mesh does."""

    def __init__(self, rank: Rank, mesh: Mesh, groups: _Groups) -> None:
        self.rank, self.mesh, self.groups = rank, mesh, groups
        self.stage = groups.stage(rank.number)
        self.dp, self.tp = groups.dp.get(rank.number), groups.tp.get(rank.number)
        self.pp = groups.pp.get(rank.number)  # where sends and receives share groups
        self.opened: set[str] = set()
        self.slow = 1.0

    def program(self) -> Steps:
        """All steps."""
        mesh, rank = self.mesh, self.rank
        usual_ms = mesh.layers * mesh.layer_ms * 3 * mesh.micro_batches
        yield from start_up(rank, self.groups.world)
        for step in range(mesh.steps):
            rank.begin_step(step, usual_ms, mesh.data_ms)
            self.slow = 3.0 if step < mesh.warm_up else 1.0
            last = yield from self._passes()
            if mesh.norm:
                last = self._collective(self.groups.world, "AllReduce", 4096, last)
            last = rank.compute(mesh.optimizer_ms, last)
            if mesh.synchronize or step == mesh.steps - 1:
                yield last
            yield from self._between(step)

    def _between(self, step: int) -> Steps:
        """Evaluation and checkpoints."""
        mesh, rank = self.mesh, self.rank
        if mesh.evaluate_every and step % mesh.evaluate_every == mesh.evaluate_every - 1:
            for _ in range(3):
                last = rank.compute(mesh.layer_ms * mesh.layers)
                last = self._collective(self.groups.world, "AllReduce", 4096, last)
            yield last
        if mesh.checkpoint_every and step % mesh.checkpoint_every == mesh.checkpoint_every - 1:
            rank.host(mesh.checkpoint_ms if mesh.checkpoint_by_all or rank.number == 0 else 0.0)
            yield self._collective(self.groups.world, "AllReduce", 4096)

    def _collective(
        self, communicator: Communicator, function: str, size: float, *after: Kernel | None
    ) -> Kernel:
        if communicator.name not in self.opened:
            self.opened.add(communicator.name)
            self.rank.host_ns += self.rank.rng.random() * self.mesh.first_call_ms * 1e6
        return self.rank.collective(communicator, function, int(size), *after)

    def _passes(self) -> Generator[Kernel, None, Kernel]:
        """Forward and backward passes, and the reduction of gradients."""
        mesh = self.mesh
        run = self._batched() if mesh.batched and self.pp else self._one_by_one()
        last = yield from run
        return last

    def _one_by_one(self) -> Generator[Kernel, None, Kernel]:
        mesh, last = self.mesh, None
        order = pipeline_order(mesh, self.stage)
        for place, (kind, chunk, _) in enumerate(order):
            forward = kind == "F"
            need = self._transfer("Recv", forward, chunk, None)
            ends = place == len(order) - 1
            last = self._forward(need) if forward else self._backward(need, ends)
            self._transfer("Send", forward, chunk, last)
        assert last is not None
        return last
        yield  # a generator like the other one

    def _transfer(
        self, function: str, forward: bool, chunk: int, after: Kernel | None
    ) -> Kernel | None:
        """A send or receive of activations or gradients on a stream of its own."""
        mesh, last_stage = self.mesh, self.mesh.pp - 1
        if mesh.pp == 1:
            return None
        down = forward == (function == "Send")  # with the rank of the next stage
        edge = last_stage if down else 0
        last_chunk = mesh.chunks - 1 if down else 0
        if self.stage == edge and chunk == last_chunk:
            return None
        peer = self.groups.neighbour(self.rank.number, 1 if down else -1)
        message = [(peer, int(mesh.activation_mb * MB))]
        own = self.rank.number
        if function == "Send":
            return self.rank.group(self.groups.links[own, peer], message, [], after)
        return self.rank.group(self.groups.links[peer, own], [], message, after)

    def _batched(self) -> Generator[Kernel, None, Kernel]:
        """1F1B as Megatron does it: a stage sends and receives in one group."""
        mesh, stage, rank = self.mesh, self.stage, self.rank
        size = int(mesh.activation_mb * MB)
        before, behind = self._neighbours()
        first, final = stage == 0, stage == mesh.pp - 1
        warm = min(mesh.pp - 1 - stage, mesh.micro_batches)
        rest = mesh.micro_batches - warm
        last: Kernel | None = None
        assert self.pp is not None

        def exchange(sends: list[int], receives: list[int], after: Kernel | None) -> Kernel | None:
            if not sends and not receives:
                return after
            assert self.pp is not None
            messages = [[(peer, size) for peer in peers] for peers in (sends, receives)]
            return rank.group(self.pp, messages[0], messages[1], after)

        for _ in range(warm):
            need = exchange([], [] if first else [before], None)
            last = self._forward(need)
            exchange([] if final else [behind], [], last)
        need = exchange([], [] if first else [before], None) if rest else None
        for number in range(rest):
            ends = number == rest - 1
            last = self._forward(need)
            need = exchange([] if final else [behind], [] if final else [behind], last)
            last = self._backward(need, ends and not warm)
            more = [] if first or ends else [before]
            need = exchange([] if first else [before], more, last)
        for number in range(warm):
            need = exchange([], [] if final else [behind], None)
            last = self._backward(need, number == warm - 1)
            exchange([] if first else [before], [], last)
        assert last is not None
        return last
        yield  # a generator like the other one

    def _neighbours(self) -> tuple[int, int]:
        number = self.rank.number
        return self.groups.neighbour(number, -1), self.groups.neighbour(number, 1)

    def _layer_ms(self) -> float:
        mesh = self.mesh
        work = mesh.stage_work[self.stage] if mesh.stage_work else 1.0
        last = self.stage == mesh.pp - 1
        return mesh.layer_ms * self.slow * work * (mesh.last_stage if last else 1.0)

    def _forward(self, need: Kernel | None) -> Kernel:
        mesh, rank, last = self.mesh, self.rank, need
        gathered: dict[int, Kernel] = {}
        for layer in range(mesh.layers):
            if mesh.sharded and self.dp:
                for ahead in range(layer, min(layer + 2, mesh.layers)):
                    if ahead not in gathered:
                        size = mesh.parameter_mb * MB
                        gathered[ahead] = self._collective(self.dp, "AllGather", size)
            last = rank.compute(self._layer_ms(), last, gathered.get(layer))
            if self.tp:
                size = mesh.activation_mb * MB
                last = self._collective(self.tp, "AllReduce", size, last)
        return rank.compute(0.02, last)

    def _backward(self, need: Kernel | None, ends: bool) -> Kernel:
        """`ends`: the last one of the step, after which gradients are reduced."""
        mesh, rank, last = self.mesh, self.rank, need
        reduced: Kernel | None = None
        for layer in range(mesh.layers):
            gathered = None
            if mesh.sharded and self.dp:
                gathered = self._collective(self.dp, "AllGather", mesh.parameter_mb * MB)
            computed = last = rank.compute(2 * self._layer_ms(), last, gathered)
            if self.tp:
                last = self._collective(self.tp, "AllReduce", mesh.activation_mb * MB, last)
            if self.dp and (mesh.sharded or ends):
                function = "ReduceScatter" if mesh.sharded else "AllReduce"
                reduced = self._collective(self.dp, function, mesh.parameter_mb * MB, computed)
            del layer
        return rank.compute(0.02, last, reduced if ends else None)


def mesh_program(job: Job, mesh: Mesh) -> Program:
    """Training on a mesh."""
    groups = _Groups(job, mesh)
    return lambda rank: _MeshRank(rank, mesh, groups).program()
