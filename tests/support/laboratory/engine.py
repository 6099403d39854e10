"""An event simulation of a job: hosts that run ahead of their GPUs, streams, compute kernels that
no profiler sees, and NCCL operations in which ranks wait for each other.

A program is a generator for each rank. It makes calls, and yields a kernel to wait for its end, as
cudaStreamSynchronize does. All times follow from dependencies alone by sums and maxima, so the
order in which ranks are simulated changes nothing. Every random number belongs to a rank or to an
operation: a job with a fault draws the same ones as its healthy twin.
"""

from collections import deque
from collections.abc import Callable, Generator
from random import Random

from tests.support.laboratory.events import (
    END_SPREAD,
    STREAM_GAP_NS,
    Communicator,
    Instance,
    Kernel,
    Machine,
    Part,
    Planted,
)
from tests.support.laboratory.faults import QUIET, Fault, Noise
from tests.support.laboratory.rank import Rank

Program = Callable[[Rank], Generator[Kernel, None, None]]


def _needs_ns(kernel: Kernel, kernels: list[Kernel]) -> float:
    """When the last of those had started that a rank needs in a collective."""
    part = kernel.parts[0]
    if part.function == "Broadcast":
        return next(k.start_ns for k in kernels if k.rank == part.root)
    if part.function == "Reduce" and kernel.rank != part.root:
        return kernel.start_ns
    return max(k.start_ns for k in kernels)


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
        """Of all ranks together, in collectives: until the start of those that a rank needs."""
        total = 0.0
        for communicator in self.communicators.values():
            for instance in communicator.collectives:
                kernels = [k for k in instance.kernels.values() if k.step >= from_step]
                total += sum(max(_needs_ns(k, kernels) - k.start_ns, 0.0) for k in kernels)
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
            one.end_ns = ready_ns + instance.wire_ns * (1 + END_SPREAD * instance.spread[place])
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
