"""Jobs that nobody wrote: what a step does, how ranks are grouped and what is wrong follow from a
seed. Rules that were made on written kinds are held against them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, prod
from random import Random

from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Communicator, Kernel, Machine
from tests.support.laboratory.faults import LAST_STEP, QUIET, TRANSCRIPTS, USUAL, Fault
from tests.support.laboratory.programs import MB, Steps, start_up
from tests.support.laboratory.rank import Rank
from tests.support.laboratory.recording import Recording
from tests.support.laboratory.truth import Kind

_MESHES = (
    (2,), (3,), (4,), (6,), (8,), (12,), (16,), (2, 2), (4, 2), (2, 4), (3, 4), (8, 2), (2, 8),
    (4, 4), (6, 2), (2, 2, 2), (2, 2, 4), (4, 2, 2), (3, 2, 2), (8, 4), (2, 3),
)  # fmt: skip
_NAMES = ("dp", "tp", "cp")
_COLLECTIVES = ("AllReduce", "AllReduce", "AllGather", "ReduceScatter", "Broadcast")
_PARTNERS = ("shift", "halo", "all to all")
_LEAST_LOST, _MOST_LOST = 0.06, 0.35  # of the run, by a planted fault
_TRIES = 7
_PEERS = 3  # communicators of a dimension, that can be compared


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that all ranks do."""

    what: str  # compute, synchronize, pipe, a function, or one of _PARTNERS
    dimension: int = -1  # of the mesh; -1: all ranks
    ms: float = 0.0
    size_mb: float = 0.0
    overlapped: bool = False  # computing goes on meanwhile
    micro_batches: int = 4  # of a pipe


@dataclass(frozen=True, slots=True)
class Load:
    """A job, but for its faults."""

    mesh: tuple[int, ...]
    steps: int
    layers: int
    layer: tuple[Statement, ...]
    end: tuple[Statement, ...]  # of a step
    synchronize: bool
    data_ms: float
    varies: float  # how much steps differ in length, for all ranks alike
    differs: float  # and ranks in a step
    warm_up: int
    every: int  # steps between two evaluations; 0: none

    @property
    def ranks(self) -> int:
        """Of the job."""
        return prod(self.mesh)

    def groups(self, dimension: int) -> list[tuple[int, ...]]:
        """Members of the communicators along a dimension."""
        if dimension < 0:
            return [tuple(range(self.ranks))]
        stride = prod(self.mesh[dimension + 1 :])
        size = self.mesh[dimension]
        firsts = [r for r in range(self.ranks) if r // stride % size == 0]
        return [tuple(first + n * stride for n in range(size)) for first in firsts]

    @property
    def used(self) -> set[int]:
        """Dimensions that statements name."""
        named = (*self.layer, *self.end)
        return {s.dimension for s in named if s.what not in ("compute", "synchronize")}


class _Interpreter:
    """What one rank does."""

    def __init__(self, rank: Rank, load: Load, groups: dict[int, dict[int, Communicator]]) -> None:
        self.rank, self.load, self.groups = rank, load, groups
        self.last: Kernel | None = None
        self.overlapped: list[Kernel] = []
        self.scale = 1.0

    def compute(self, ms: float) -> None:
        self.last = self.rank.compute(ms * self.scale, self.last)

    def joined(self) -> None:
        """What ran beside is needed from here on."""
        if self.overlapped:
            self.last = self.rank.compute(0.05, self.last, *self.overlapped)
            self.overlapped = []

    def communicate(self, one: Statement) -> None:
        communicator = self.groups[one.dimension].get(self.rank.number)
        if communicator is None or len(communicator.members) < 2:
            return
        members, own = communicator.members, self.rank.number
        size, place = int(one.size_mb * MB), members.index(own)
        if one.what in _PARTNERS:
            behind, before = members[(place + 1) % len(members)], members[place - 1]
            to, of = {
                "shift": ([behind], [before]),
                "halo": (sorted({behind, before}), sorted({behind, before})),
                "all to all": ([m for m in members if m != own],) * 2,
            }[one.what]
            made = self.rank.group(
                communicator, [(p, size) for p in to], [(p, size) for p in of], self.last
            )
        else:
            root = members[0] if one.what == "Broadcast" else -1
            made = self.rank.collective(communicator, one.what, size, self.last, root=root)
        if one.overlapped:
            self.overlapped.append(made)
        else:
            self.last = made

    def pipe(self, one: Statement) -> None:
        """Micro-batches through the stages of a dimension, forward and back."""
        for backward in (False, True):
            communicator = self.groups[one.dimension][self.rank.number]
            members = communicator.members[::-1] if backward else communicator.members
            place, size = members.index(self.rank.number), int(one.size_mb * MB)
            for _ in range(one.micro_batches):
                if place > 0:
                    source = [(members[place - 1], size)]
                    self.last = self.rank.group(communicator, [], source, self.last)
                self.compute(one.ms * (1.0 + backward))
                if place < len(members) - 1:
                    target = [(members[place + 1], size)]
                    self.last = self.rank.group(communicator, target, [], self.last)

    def run(self, statements: Sequence[Statement]) -> Steps:
        for one in statements:
            if one.what == "compute":
                self.compute(one.ms)
            elif one.what == "pipe":
                self.pipe(one)
            elif one.what == "synchronize":
                self.joined()
                assert self.last is not None
                yield self.last
            else:
                self.communicate(one)


def random_program(job: Job, load: Load) -> Program:
    """The program of a load."""
    world = job.communicator("world", tuple(range(load.ranks)))
    groups: dict[int, dict[int, Communicator]] = {-1: dict.fromkeys(range(load.ranks), world)}
    for dimension in sorted(load.used - {-1}):
        groups[dimension] = {}
        for number, members in enumerate(load.groups(dimension)):
            made = job.communicator(f"{_NAMES[dimension]}#{number}", members)
            groups[dimension].update(dict.fromkeys(members, made))
    draws = Random(f"{job.seed} steps")
    lengths = [exp(load.varies * draws.gauss(0, 1)) for _ in range(load.steps)]
    usual_ms = load.layers * sum(s.ms for s in load.layer)

    def program(rank: Rank) -> Steps:
        one = _Interpreter(rank, load, groups)
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, usual_ms, load.data_ms)
            warm = 3.0 if step < load.warm_up else 1.0
            one.scale = warm * lengths[step] * exp(load.differs * rank.rng.gauss(0, 1))
            for _ in range(load.layers):
                yield from one.run(load.layer)
            yield from one.run(load.end)
            one.joined()
            one.compute(0.5)
            assert one.last is not None
            if load.synchronize or step == load.steps - 1:
                yield one.last
            if load.every and step % load.every == load.every - 1:
                for _ in range(3):
                    one.compute(usual_ms / 6 + 0.2)
                    one.last = rank.collective(world, "AllReduce", 4096, one.last)
                assert one.last is not None
                yield one.last

    return program


# ---- drawn by a seed ----
def _layer(draw: Random, mesh: tuple[int, ...]) -> tuple[Statement, ...]:
    statements: list[Statement] = []
    dimensions = list(range(len(mesh)))
    if draw.random() < 0.2:
        ms, size_mb, micro = draw.uniform(0.4, 3), draw.uniform(1, 12), draw.choice((2, 4, 8))
        where = draw.choice(dimensions)
        statements.append(Statement("pipe", where, ms, size_mb, micro_batches=micro))
    for _ in range(draw.randint(0 if statements else 1, 3)):
        statements.append(Statement("compute", ms=exp(draw.uniform(-1.5, 1.6))))
        where = draw.choice([-1, *dimensions, *dimensions])
        what = draw.choice(_PARTNERS if draw.random() < 0.3 else _COLLECTIVES)
        size = exp(draw.uniform(-3, 3.6)) / (4 if what == "all to all" else 1)
        statements.append(Statement(what, where, size_mb=size, overlapped=draw.random() < 0.35))
    if draw.random() < 0.3:
        statements.append(Statement("compute", ms=exp(draw.uniform(-1.5, 1.0))))
    if draw.random() < 0.08:
        statements.append(Statement("synchronize"))
    return tuple(statements)


def _end(draw: Random, mesh: tuple[int, ...]) -> tuple[Statement, ...]:
    statements = []
    if draw.random() < 0.6:
        where = draw.choice([-1, 0])
        size = exp(draw.uniform(0, 4.5))
        if draw.random() < 0.3:
            statements += [
                Statement("ReduceScatter", where, size_mb=size),
                Statement("compute", ms=0.4),
                Statement("AllGather", where, size_mb=size),
            ]
        else:
            statements.append(Statement("AllReduce", where, size_mb=size))
    if draw.random() < 0.5:
        statements.append(Statement("AllReduce", -1, size_mb=4096 / MB))
    return tuple(statements)


def _load(draw: Random) -> Load:
    mesh = draw.choice(_MESHES)
    layer, end = _layer(draw, mesh), _end(draw, mesh)
    if not end and not any(s.dimension == -1 for s in layer):
        end = (Statement("AllReduce", -1, size_mb=4.0),)
    return Load(
        mesh, draw.choice((12, 20, 30, 40, 60)), draw.choice((1, 1, 2, 2, 3, 4)), layer, end,
        synchronize=draw.random() < 0.7, data_ms=draw.choice((0.2, 0.5, 1.0)),
        varies=draw.choice((0.0, 0.0, 0.03, 0.15)), differs=draw.choice((0.0, 0.0, 0.0, 0.02)),
        warm_up=draw.choice((0, 0, 0, 2)), every=draw.choice((0, 0, 0, 8)),
    )  # fmt: skip


def _fault(draw: Random, load: Load, machine: Machine, size: float) -> tuple[Fault, ...]:
    """One fault, drawn. `size`: how large; 1 is some tenths of a step. A fault that another one
    hides need not be named.
    """
    rank, steps = draw.randrange(load.ranks), load.steps
    step_ms = load.layers * sum(s.ms for s in load.layer) + 1.0
    first, last, every = draw.choice((
        (1, LAST_STEP, 1), (1, LAST_STEP, 1), (1, LAST_STEP, 1),
        (steps // 2, LAST_STEP, 1), (1, LAST_STEP, draw.choice((2, 3))),
        (steps // 4, steps // 4 + steps // 3, 1),
    ))  # fmt: skip
    computes = any(s.what in ("compute", "pipe") for s in load.layer)
    per_host = machine.ranks_per_host
    hosts, whole = load.ranks // per_host, load.ranks % per_host == 0
    kind = draw.choice(("gpu", "gpu", "gpu", "host", "data", "launch", "transfer", "slow host"))
    if kind == "slow host" and not (hosts > 1 and whole and computes):
        kind = "gpu"
    if kind == "gpu" and not computes:
        kind = "host"
    fault = Fault(kind, rank, first=first, last=last, every=every, masked=True)
    if kind == "transfer":
        groups = load.groups(draw.choice(sorted(load.used)))
        members = draw.choice(groups)
        place = draw.randrange(len(members))
        pair = (members[place - 1], members[place])
        if len(groups) < _PEERS:  # there is nothing but its own past to compare with
            fault = replace(fault, first=steps // 2, last=LAST_STEP, every=1)
        return (replace(fault, rank=-1, link=(min(pair), max(pair)), factor=1 + 3 * size),)
    if kind == "slow host":
        begin = draw.randrange(hosts) * per_host
        slow = replace(fault, kind="gpu", factor=1 + 0.4 * size, group="host")
        return tuple(replace(slow, rank=one) for one in range(begin, begin + per_host))
    if kind == "gpu":
        return (replace(fault, factor=1 + 0.4 * size),)
    return (replace(fault, ms=(0.2 if kind == "launch" else 0.4) * size * step_ms),)


def random_kind(seed: int, longer: int = 1) -> Kind:
    """The job of a seed: half of them healthy, some with two faults. `longer`: how many times as
    many steps.
    """
    draw = Random(f"random job {seed}")
    load = _load(draw)
    load = replace(load, steps=longer * load.steps)
    machine = Machine(
        ranks_per_host=draw.choice((2, 4, 8, 8)), net_gb_s=draw.choice((12.0, 25.0, 50.0))
    )
    kind = Kind(
        f"random {seed}, healthy", load.ranks, lambda job: random_program(job, load),
        machine=machine, noise=draw.choice((QUIET, USUAL, USUAL, TRANSCRIPTS)),
        recording=Recording(
            version=draw.choice((5, 5, 6, 7)), channels=draw.choice((1, 2)),
            names=draw.random() < 0.8, clock_drift_ppm=draw.choice((5.0, 20.0, 60.0)),
        ),
    )  # fmt: skip
    if draw.random() < 0.45:
        return kind
    count = 2 if draw.random() < 0.15 else 1
    faults: tuple[Fault, ...] = ()
    for _ in range(count):
        faults += _of_notable_size(kind, load, seed, draw.random())
    return replace(kind, name=f"random {seed}, {_words(faults)}", faults=faults)


def _of_notable_size(kind: Kind, load: Load, seed: int, which: float) -> tuple[Fault, ...]:
    """A fault that costs a part of the run, if one of its kind can."""
    healthy_ns = kind.job(seed, ()).run_ns
    size, low, high = 1.0, 0.0, 0.0
    for _ in range(_TRIES):
        faults = _fault(Random(which), load, kind.machine, size)
        lost = 1 - healthy_ns / kind.job(seed, faults).run_ns
        if _LEAST_LOST <= lost <= _MOST_LOST:
            break
        if lost < _LEAST_LOST:
            low = size
        else:
            high = size
        size = (low + high) / 2 if high else 2 * size
    return faults


def _words(faults: tuple[Fault, ...]) -> str:
    """What is planted: "gpu 4 in steps 10- of 1"."""
    words = []
    for fault in faults:
        where = "{}-{}".format(*fault.link) if fault.kind == "transfer" else str(fault.rank)
        last = "" if fault.last == LAST_STEP else str(fault.last)
        words.append(f"{fault.kind} {where} in every {fault.every} of {fault.first}-{last}")
    return "; ".join(words)
