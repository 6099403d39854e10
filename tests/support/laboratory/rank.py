"""A rank of a simulated job: its host, its streams, and the calls that its program makes."""

import math
from random import Random
from typing import TYPE_CHECKING

from tests.support.laboratory.events import (
    CALL_NS,
    FIRST_LAUNCH_NS,
    LAUNCH_NS,
    PART_NS,
    STREAM_GAP_NS,
    SYNC_NS,
    Communicator,
    Instance,
    Kernel,
    Part,
    Planted,
)

if TYPE_CHECKING:
    from tests.support.laboratory.engine import Job


def _ring_links(members: tuple[int, ...]) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in zip(members, members[1:] + members[:1], strict=True)}


class Rank:
    """A rank's host and streams, as its program uses them."""

    def __init__(self, job: "Job", number: int) -> None:
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
        self._delays("host", "data")

    def _delays(self, *kinds: str) -> None:
        for planted in self._faults(*kinds):
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
        self._delays("cpu")
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
        self._delays("cpu")
        start_ns = self.rng.uniform(*FIRST_LAUNCH_NS)
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
            for planted in self.job.slow_transfers(links, self.step):
                planted.exchanges = True
        return made[order]
