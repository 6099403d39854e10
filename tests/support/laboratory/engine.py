"""An event simulation of a job: hosts that run ahead of their GPUs, streams, compute kernels that
no profiler sees, and NCCL operations in which ranks wait for each other.

A program is a generator for each rank. It makes calls, and yields a kernel to wait for its end, as
cudaStreamSynchronize does. All times follow from dependencies alone by sums and maxima, so the
order in which ranks are simulated changes nothing. Every random number belongs to a rank or to an
operation: a job with a fault draws the same ones as its healthy twin.
"""

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random

from tests.support.laboratory.faults import QUIET, Fault, Noise

STREAM_GAP_NS = 2_000  # from the end of a kernel to the start of the next one that needs it
SYNC_NS = 20_000  # from the end of a kernel until its host goes on
LAUNCH_NS = 7_000  # from the call of one operation to its launch
PART_NS = 600  # and so much longer for each further one of a group
CALL_NS = 14_000  # from the launch until the call has returned
_FIRST_LAUNCH_NS = (4_000, 9_000)  # from the launch to the start on an idle stream
_END_SPREAD = 0.002  # of the time on the wire, by which ranks end apart


@dataclass(frozen=True, slots=True)
class Machine:
    """Bandwidths and latencies."""

    ranks_per_host: int = 8
    gb_s: float = 100.0  # between ranks of a host
    net_gb_s: float = 25.0  # between hosts
    latency_us: float = 8.0
    hop_us: float = 1.0  # for each rank of a ring
    eager_bytes: int = 65_536  # a send of no more than this ends without its receiver
    host_us: float = 12.0  # of the host for each compute kernel


@dataclass(slots=True)
class Communicator:
    """Ranks of the job that call together."""

    name: str
    members: tuple[int, ...]
    number: int
    inter_node: bool
    rng: Random
    collectives: list["Instance"] = field(default_factory=list)
    pairs: dict[tuple[int, int], list["Instance"]] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)  # collectives by rank
    sequence: dict[tuple[int, str], int] = field(default_factory=dict)  # by rank and function
    pair_calls: dict[tuple[int, int, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Part:
    """One call of a group: a collective, or a send or receive with its peer (rank of the job)."""

    function: str
    size_bytes: int
    peer: int = -1
    root: int = -1  # rank of the job
    sequence: int = 0
    instance: "Instance | None" = None
    end_ns: float = -1.0


@dataclass(slots=True, eq=False)
class Kernel:
    """What a stream carries out. Without a communicator it is compute, which nobody records."""

    rank: int
    stream: str
    call_ns: float
    launch_ns: float  # of an operation: when its launch began
    ready_ns: float
    step: int
    need: int = 0  # predecessors that have not ended
    compute_ns: float = 0.0
    communicator: Communicator | None = None
    parts: tuple[Part, ...] = ()
    start_ns: float = -1.0
    end_ns: float = -1.0
    stamp_end_ns: float = -1.0  # what the GPU's stamp says; earlier than the end for trees
    open_parts: int = 0
    next: list["Kernel"] = field(default_factory=list)
    waiter: "Rank | None" = None


@dataclass(slots=True, eq=False)
class Instance:
    """An operation on all its ranks; of a pair, the sender's and the receiver's kernel."""

    wire_ns: float
    spread: tuple[float, ...]
    kernels: dict[int, Kernel] = field(default_factory=dict)  # that have started, by rank
    last_ns: float = -1.0


@dataclass(slots=True)
class Planted:
    """What a fault really did."""

    fault: Fault
    delay_ns: float = 0.0
    times: int = 0
    communicators: set[str] = field(default_factory=set)

    def add(self, delay_ns: float, communicator: str = "") -> None:
        """Counts one more delay."""
        self.delay_ns += delay_ns
        self.times += 1
        if communicator:
            self.communicators.add(communicator)


Program = Callable[["Rank"], Generator[Kernel, None, None]]


class Job:
    """Ranks, communicators, and what is wrong."""

    def __init__(
        self,
        ranks: int,
        machine: Machine | None = None,
        faults: tuple[Fault, ...] = (),
        noise: Noise = QUIET,
        seed: int = 0,
    ) -> None:
        self.machine, self.noise, self.seed = machine or Machine(), noise, seed
        self.communicators: dict[str, Communicator] = {}
        self.planted = [Planted(fault) for fault in faults]
        self.ranks = [Rank(self, number) for number in range(ranks)]
        self.runnable: deque[Rank] = deque()
        self.step_ends_ns: dict[int, float] = {}

    def host_of(self, rank: int) -> int:
        """The host that a rank is on."""
        return rank // self.machine.ranks_per_host

    def communicator(self, name: str, members: tuple[int, ...]) -> Communicator:
        """A new communicator, in the order of creation."""
        assert name not in self.communicators, name
        inter_node = len({self.host_of(rank) for rank in members}) > 1
        rng = Random(f"{self.seed} {name}")
        made = Communicator(name, members, len(self.communicators), inter_node, rng)
        self.communicators[name] = made
        return made

    def run(self, program: Program, backwards: bool = False) -> "Job":
        """Runs all ranks to their end; `backwards`: the last rank first, for tests."""
        programs = [program(rank) for rank in self.ranks]
        self.runnable.extend(reversed(self.ranks) if backwards else self.ranks)
        open_ranks = len(self.ranks)
        while self.runnable:
            rank = self.runnable.popleft()
            for kernel in programs[rank.number]:
                rank.waits_for = kernel
                if kernel.end_ns < 0:
                    kernel.waiter = rank
                    break
                rank.woken()
            else:
                open_ranks -= 1
        assert not open_ranks, f"{open_ranks} ranks wait for ever"
        return self

    @property
    def operations(self) -> list[Kernel]:
        """Kernels of NCCL, rank by rank in the order of calls."""
        return [kernel for rank in self.ranks for kernel in rank.kernels]

    @property
    def run_ns(self) -> float:
        """From the first call to the last end."""
        kernels = self.operations
        return max(k.end_ns for k in kernels) - min(k.call_ns for k in kernels)

    def waiting_ns(self, from_step: int = 0) -> float:
        """Of all ranks together, in collectives that wait for all ranks: until the last start."""
        total = 0.0
        for communicator in self.communicators.values():
            for instance in communicator.collectives:
                starts = [k.start_ns for k in instance.kernels.values() if k.step >= from_step]
                total += sum(max(starts, default=0.0) - start for start in starts)
        return total

    def exchange_waiting_ns(self, from_step: int = 0) -> float:
        """Of all ranks together, in groups of sends and receives: until the last peer started."""
        return sum(
            max(0.0, *(p.instance.last_ns - k.start_ns for p in k.parts if p.instance))
            for k in self.operations
            if k.parts[0].peer >= 0 and k.step >= from_step
        )

    # ---- what happens on GPUs ----
    def start(self, kernel: Kernel) -> None:
        """Starts a kernel that waits for nothing any more, and all that follow from it."""
        todo = [kernel]
        while todo:
            one = todo.pop()
            one.start_ns = one.ready_ns
            if one.communicator is None:
                one.end_ns = one.start_ns + one.compute_ns
                ended = [one]
            elif one.parts[0].peer < 0:
                ended = self._collective_starts(one)
            else:
                ended = self._group_starts(one)
            for done in ended:
                todo.extend(self._release(done))

    def _release(self, done: Kernel) -> list[Kernel]:
        ready = []
        for later in done.next:
            later.ready_ns = max(later.ready_ns, done.end_ns + STREAM_GAP_NS)
            later.need -= 1
            if not later.need:
                ready.append(later)
        done.next.clear()
        if done.waiter is not None:
            done.waiter.woken()
            self.runnable.append(done.waiter)
            done.waiter = None
        return ready

    def _collective_starts(self, kernel: Kernel) -> list[Kernel]:
        communicator, part = kernel.communicator, kernel.parts[0]
        assert communicator is not None
        assert part.instance is not None
        instance = part.instance
        instance.kernels[kernel.rank] = kernel
        if len(instance.kernels) < len(communicator.members):
            return []
        started = instance.kernels
        last_ns = instance.last_ns = max(k.start_ns for k in started.values())
        for place, rank in enumerate(communicator.members):
            one = started[rank]
            ready_ns = last_ns
            if part.function == "Broadcast":
                ready_ns = max(one.start_ns, started[part.root].start_ns)
            elif part.function == "Reduce" and rank != part.root:
                ready_ns = one.start_ns
            one.end_ns = ready_ns + instance.wire_ns * (1 + _END_SPREAD * instance.spread[place])
            one.stamp_end_ns = one.end_ns
        return list(started.values())

    def _group_starts(self, kernel: Kernel) -> list[Kernel]:
        """Both sides of a pair are there when the second kernel starts; eager sends need no one."""
        ended = []
        for part in kernel.parts:
            instance = part.instance
            assert instance is not None
            instance.kernels[kernel.rank] = kernel
            if part.function == "Send" and part.size_bytes <= self.machine.eager_bytes:
                ended += self._part_ends(kernel, part, kernel.start_ns + instance.wire_ns)
            if len(instance.kernels) < 2:
                continue
            last_ns = max(k.start_ns for k in instance.kernels.values())
            instance.last_ns = last_ns
            for one in instance.kernels.values():
                own = next(p for p in one.parts if p.instance is instance)
                ended += self._part_ends(one, own, last_ns + instance.wire_ns)
        return ended

    def _part_ends(self, kernel: Kernel, part: Part, end_ns: float) -> list[Kernel]:
        if part.end_ns >= 0:
            return []
        part.end_ns = end_ns
        kernel.open_parts -= 1
        if kernel.open_parts:
            return []
        kernel.end_ns = max(*(p.end_ns for p in kernel.parts), kernel.start_ns + kernel.compute_ns)
        kernel.stamp_end_ns = kernel.end_ns
        return [kernel]

    # ---- how long data takes ----
    def collective_wire_ns(self, communicator: Communicator, function: str, size: int) -> float:
        """Of a ring: turns times latency, and bytes over its slowest link."""
        ranks, machine = len(communicator.members), self.machine
        turns = 2 if function == "AllReduce" else 1
        share = (ranks - 1) / ranks if function not in ("Broadcast", "Reduce") else 1.0
        gb_s = machine.net_gb_s if communicator.inter_node else machine.gb_s
        latency_ns = 1e3 * (machine.latency_us + turns * machine.hop_us * (ranks - 1))
        return latency_ns + turns * share * size / gb_s

    def pair_wire_ns(self, source: int, destination: int, size: int) -> float:
        """Of one message."""
        far = self.host_of(source) != self.host_of(destination)
        gb_s = self.machine.net_gb_s if far else self.machine.gb_s
        return 1e3 * self.machine.latency_us + size / gb_s

    def slow_transfers(self, links: set[frozenset[int]], step: int) -> list[Planted]:
        """Faults of these links that act in a step."""
        return [
            planted
            for planted in self.planted
            if planted.fault.kind == "transfer"
            and frozenset(planted.fault.link) in links
            and planted.fault.active(step)
        ]

    def instance(
        self, communicator: Communicator, wire_ns: float, links: set[frozenset[int]], step: int
    ) -> Instance:
        """A new operation on all its ranks, with the time that its data takes."""
        rng = communicator.rng
        spread = tuple(rng.random() for _ in communicator.members)
        wire_ns *= self.noise.wire_factor(rng)
        longer_ns = 0.0
        for planted in self.slow_transfers(links, step):
            extra_ns = wire_ns * (planted.fault.factor - 1)
            planted.add(extra_ns, communicator.name)
            longer_ns = max(longer_ns, extra_ns)
        return Instance(wire_ns + longer_ns, spread)


def _ring_links(members: tuple[int, ...]) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in zip(members, members[1:] + members[:1], strict=True)}


class Rank:
    """A rank's host and streams, as its program uses them."""

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number = job, number
        self.rng = Random(f"{job.seed} rank {number}")
        self.host_ns = self.rng.uniform(0, 1e6)
        self.step = 0
        self.bias = 1 + job.noise.bias * max(-2.0, min(2.0, self.rng.gauss(0, 1)))
        self.kernels: list[Kernel] = []
        self.waits_for: Kernel | None = None
        self.computes = 0  # compute kernels of the step so far
        self._streams: dict[str, Kernel] = {}
        self._own = [p for p in job.planted if p.fault.rank == number]

    def _faults(self, *kinds: str) -> list[Planted]:
        return [p for p in self._own if p.fault.kind in kinds and p.fault.active(self.step)]

    def woken(self) -> None:
        """The kernel has ended that the host waited for."""
        assert self.waits_for is not None
        self.host_ns = max(self.host_ns, self.waits_for.end_ns) + SYNC_NS
        self.waits_for = None

    def begin_job(self) -> None:
        """Before the first step: step −1, in which no fault acts but a late start."""
        self.step = -1
        for planted in self._own:
            if planted.fault.kind == "start-up":
                self._delay(planted)

    def begin_step(self, step: int, usual_ms: float = 1.0, data_ms: float = 0.0) -> None:
        """A new step: the data loader, the noise of hosts, and what is planted there."""
        job = self.job
        job.step_ends_ns[step - 1] = max(job.step_ends_ns.get(step - 1, 0.0), self.host_ns)
        self.step, self.computes = step, 0
        self.host(data_ms)
        self.host_ns += job.noise.late_ns(self.rng, usual_ms * 1e6)
        for planted in self._faults("host", "data"):
            self._delay(planted)

    def _delay(self, planted: Planted) -> None:
        delay_ns = planted.fault.ms * 1e6
        planted.add(delay_ns)
        self.host_ns += delay_ns

    def _varied(self, ns: float, share: float) -> float:
        return ns * math.exp(share * self.rng.gauss(0, 1))

    def host(self, ms: float) -> None:
        """The host works; always one draw."""
        self.host_ns += self._varied(ms * 1e6, self.job.noise.host)

    def _queue(self, kernel: Kernel, after: tuple[Kernel | None, ...]) -> Kernel:
        previous = self._streams.get(kernel.stream)
        self._streams[kernel.stream] = kernel
        for needed in (previous, *after):
            if needed is None:
                continue
            if needed.end_ns < 0:
                needed.next.append(kernel)
                kernel.need += 1
            else:
                kernel.ready_ns = max(kernel.ready_ns, needed.end_ns + STREAM_GAP_NS)
        if not kernel.need:
            self.job.start(kernel)
        return kernel

    def compute(self, ms: float, *after: Kernel | None, stream: str = "compute") -> Kernel:
        """A compute kernel, behind those in `after`."""
        noise = self.job.noise
        self.host_ns += self._varied(self.job.machine.host_us * 1e3, noise.host)
        length_ns = self._varied(ms * 1e6 * self.bias, noise.compute)
        longer_ns = 0.0
        for planted in self._faults("gpu"):
            planted.add(length_ns * (planted.fault.factor - 1))
            longer_ns += length_ns * (planted.fault.factor - 1)
        for planted in self._faults("layer"):
            if planted.fault.place == self.computes:
                planted.add(planted.fault.ms * 1e6)
                longer_ns += planted.fault.ms * 1e6
        self.computes += 1
        ready_ns = self.host_ns + 5_000
        kernel = Kernel(self.number, stream, self.host_ns, self.host_ns, ready_ns, self.step)
        kernel.compute_ns = length_ns + longer_ns
        return self._queue(kernel, after)

    def _call(self, communicator: Communicator, parts: tuple[Part, ...], stream: str) -> Kernel:
        """The kernel of a group call, not queued yet."""
        start_ns = self.rng.uniform(*_FIRST_LAUNCH_NS)
        between_ns = self.rng.uniform(2_000, 6_000)
        call_ns = self.host_ns
        launch_ns = call_ns + LAUNCH_NS + PART_NS * len(parts)
        for planted in self._faults("launch"):
            planted.add(planted.fault.ms * 1e6)
            launch_ns += planted.fault.ms * 1e6
        self.host_ns = launch_ns + CALL_NS + PART_NS * len(parts) + between_ns
        kernel = Kernel(
            self.number, stream, call_ns, launch_ns, launch_ns + start_ns, self.step,
            communicator=communicator, parts=parts, open_parts=len(parts),
        )  # fmt: skip
        self.kernels.append(kernel)
        return kernel

    def collective(
        self,
        communicator: Communicator,
        function: str,
        size_bytes: int,
        *after: Kernel | None,
        stream: str = "",
        root: int = -1,
    ) -> Kernel:
        """A collective on its own stream, behind those in `after`."""
        order = communicator.calls.get(self.number, 0)
        communicator.calls[self.number] = order + 1
        if order == len(communicator.collectives):
            wire_ns = self.job.collective_wire_ns(communicator, function, size_bytes)
            links = _ring_links(communicator.members)
            made = self.job.instance(communicator, wire_ns, links, self.step)
            communicator.collectives.append(made)
        key = self.number, function
        sequence = communicator.sequence.get(key, 0)
        communicator.sequence[key] = sequence + 1
        part = Part(function, size_bytes, root=root, sequence=sequence)
        part.instance = communicator.collectives[order]
        kernel = self._call(communicator, (part,), stream or communicator.name)
        return self._queue(kernel, after)

    def group(
        self,
        communicator: Communicator,
        sends: list[tuple[int, int]],
        receives: list[tuple[int, int]],
        *after: Kernel | None,
        stream: str = "",
    ) -> Kernel:
        """Sends and receives, (peer, bytes) each, in one group and so in one kernel."""
        parts = []
        for function, wanted in (("Send", sends), ("Recv", receives)):
            for peer, size in wanted:
                sending = function == "Send"
                pair = (self.number, peer) if sending else (peer, self.number)
                part = Part(function, size, peer)
                part.instance = self._pair(communicator, pair, size)
                parts.append(part)
        kernel = self._call(communicator, tuple(parts), stream or communicator.name)
        busiest = max(sum(size for _, size in sends), sum(size for _, size in receives))
        kernel.compute_ns = busiest / self.job.machine.gb_s
        return self._queue(kernel, after)

    def _pair(self, communicator: Communicator, pair: tuple[int, int], size: int) -> Instance:
        order = communicator.pair_calls.get((self.number, *pair), 0)
        communicator.pair_calls[(self.number, *pair)] = order + 1
        made = communicator.pairs.setdefault(pair, [])
        if order == len(made):
            wire_ns = self.job.pair_wire_ns(*pair, size)
            links = {frozenset(pair)}
            # Pairs of a communicator come in any order: each has its own random numbers.
            rng = Random(f"{self.job.seed} {communicator.name} {pair} {order}")
            own = Communicator(communicator.name, pair, communicator.number, False, rng)
            made.append(self.job.instance(own, wire_ns, links, self.step))
        return made[order]
