"""Captures of scenarios, written directly: for jobs that are too large to be run.

The same scenario gives the same capture as the simulated NCCL's in what it says: who calls what,
who waits for whom, what never ends. Only times are drawn here instead of lived through.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.nccl.datatypes import DATATYPES
from ncclscope.simulation.scenario import Call, Scenario
from tests.support.writer.files import NS
from tests.support.writer.noise import Noise
from tests.support.writer.physics import CALL_NS, CALL_TO_LAUNCH_NS
from tests.support.writer.spec import SEND_RECV, SyntheticSpec, Work
from tests.support.writer.synthetic import INIT_NS, ORIGIN_NS, Place, clocks_of, write_process
from tests.support.writer.truth import Ints, Truth

_VERSIONS = {"2.28": 5, "2.30": 6, "2.31": 7, "2.32": 7}
_NEVER = 1 << 61  # later than anything
_JITTER_NS, _END_JITTER_NS = 20_000, 3_000
_LAUNCH_NS = (4_000, 9_000)


def _work(call: Call, ranks: int) -> Work:
    """A call as a member of the mix."""
    func = SEND_RECV if call.function == "SendRecv" else call.function
    name = f"nccl{call.datatype.capitalize()}"
    return Work(func, call.count(ranks), name, root=call.root)


def _heavy_works(
    scenario: Scenario, works: tuple[Work, ...]
) -> tuple[tuple[Work, ...], dict[tuple[int, int], int]]:
    """Works of ranks that send or receive more; by rank and call their places behind the others."""
    more: list[Work] = []
    places = {}
    groups = {one.name: one.groups(scenario.ranks) for one in scenario.made_communicators}
    for heavy in scenario.heavy:
        members = next(
            g for g in groups[scenario.calls[heavy.call].communicator] if heavy.rank in g
        )
        after = members[(members.index(heavy.rank) + 1) % len(members)]
        usual = works[heavy.call]
        much = usual.count * heavy.factor
        for rank, work in (
            (heavy.rank, replace(usual, count=much, recv_count=usual.count)),
            (after, replace(usual, recv_count=much)),
        ):
            places[rank, heavy.call] = len(works) + len(more)
            more.append(work)
    return tuple(more), places


def _members(scenario: Scenario) -> list[list[tuple[int, ...]]]:
    return [one.groups(scenario.ranks) for one in scenario.made_communicators]


def _spec(scenario: Scenario, works: tuple[Work, ...], seed: int) -> SyntheticSpec:
    groups = _members(scenario)
    names = [
        one.name
        for one, made in zip(scenario.made_communicators, groups, strict=True)
        for _ in made
    ]
    per_node = scenario.ranks_per_host or scenario.ranks
    nodes = -(-scenario.ranks // per_node)
    offset_ns, drift_ppm = [0] * nodes, [0.0] * nodes
    for clock in scenario.host_clocks:
        offset_ns[clock.host] += round(clock.offset_ms * 1e6)
        drift_ppm[clock.host] += clock.drift_ppm
    gpu_offset_ns, gpu_drift_ppm = [0] * scenario.ranks, [0.0] * scenario.ranks
    for gpu in scenario.gpu_clocks:
        gpu_offset_ns[gpu.rank] += round(gpu.offset_ms * 1e6)
        gpu_drift_ppm[gpu.rank] += gpu.drift_ppm
    return SyntheticSpec(
        processes=scenario.ranks,
        operations=scenario.steps * len(scenario.calls),
        ranks_per_node=per_node,
        channels=scenario.channels,
        version=_VERSIONS[scenario.release],
        communicators=tuple(members for made in groups for members in made),
        communicator_names=tuple(names),
        mix=works,
        node_offsets_ns=tuple(offset_ns),
        node_drift_ppm=tuple(drift_ppm),
        gpu_offsets_ns=tuple(gpu_offset_ns),
        gpu_drift_ppm=tuple(gpu_drift_ppm),
        seed=seed,
        ranges=scenario.ranges,
        calls_per_step=max(len(scenario.calls), 1),
    )


@dataclass(frozen=True)
class _Ring:
    """The communicators of one name: who is in them, and the slowest link of each."""

    members: npt.NDArray[np.int64]  # by communicator
    slowness: npt.NDArray[np.float64]  # likewise


def _slowness(scenario: Scenario, a: int, b: int) -> float:
    factor = 1.0
    for link in scenario.slow_links:
        ends = (a, b) if link.ranks else (scenario.host_of(a), scenario.host_of(b))
        if set(ends) == set(link.ranks or link.hosts):
            factor *= link.factor
    return factor


def _rings(scenario: Scenario) -> dict[str, _Ring]:
    rings = {}
    for one, groups in zip(scenario.made_communicators, _members(scenario), strict=True):
        slowness = [
            max(_slowness(scenario, a, b) for a, b in zip(g, g[1:] + g[:1], strict=True))
            for g in groups
        ]
        rings[one.name] = _Ring(np.array(groups), np.array(slowness))
    return rings


class _Job:
    """Where every rank stands; times are true ones."""

    def __init__(
        self, scenario: Scenario, begin_ns: int, rng: np.random.Generator, noise: Noise | None
    ) -> None:
        self.scenario, self.rng, self._noise = scenario, rng, noise
        self.first_ns = begin_ns + round(scenario.compute_ms * 1e6)  # of the first operation
        self.rings = _rings(scenario)
        ranks = scenario.ranks
        self.host_ns = np.full(ranks, begin_ns, np.int64)  # when the caller is free again
        self.gpu_ns = np.zeros(ranks, np.int64)  # when the stream is free; _NEVER: it hangs
        self.gone_ns = np.full(ranks, _NEVER, np.int64)  # stopped calling for good
        shape = (ranks, scenario.steps * len(scenario.calls))
        self.call, self.start, self.end = (np.full(shape, -1, np.int64) for _ in range(3))
        self.died_ns: dict[int, int] = {}
        self.unlaunched: set[tuple[int, int]] = set()
        self.unopened = self._never_joined(begin_ns)

    def _never_joined(self, begin_ns: int) -> set[tuple[int, int]]:
        """Ranks and communicators that they never made; who waits there makes no calls. Parts are
        made by all ranks together: behind one that is not done there are no others.
        """
        unopened, made = set(), self.scenario.made_communicators
        groups = _members(self.scenario)
        first = np.cumsum([0, *(len(one) for one in groups)])
        for absent in self.scenario.never_joins:
            place = [one.name for one in made].index(absent.communicator)
            for number, members in enumerate(groups[place]):
                if absent.rank in members:
                    unopened.add((absent.rank, int(first[place]) + number))
                    self.gone_ns[list(members)] = begin_ns
            for later in range(place + 1, len(made)):
                self.gone_ns[:] = begin_ns
                for number, members in enumerate(groups[later]):
                    unopened |= {(rank, int(first[later]) + number) for rank in members}
        return unopened

    def step(self, step: int) -> None:
        """Everybody computes, calls, and waits for the end of the step."""
        scenario, ranks = self.scenario, self.scenario.ranks
        jitter = self.rng.integers(0, _JITTER_NS + 1, ranks)
        if self._noise:
            late = self._noise.late_ns(self.rng, scenario.compute_ms * 1e6, (ranks,))
            jitter = np.rint(late).astype(np.int64)
        self.host_ns += round(scenario.compute_ms * 1e6) + jitter
        for number in range(len(scenario.calls)):
            self._one_call(step, number)
        self.host_ns = np.maximum(self.host_ns, self.gpu_ns)

    def _one_call(self, step: int, number: int) -> None:
        scenario, column = self.scenario, step * len(self.scenario.calls) + number
        for late in scenario.late:
            if late.call == number and late.from_step <= step <= late.to_step:
                self.host_ns[late.rank] += round(late.ms * 1e6)
        for never in scenario.never:
            if (never.step, never.call) == (step, number):
                self.gone_ns[never.rank] = min(self.gone_ns[never.rank], self.host_ns[never.rank])
        stuck = [one for one in scenario.stuck if (one.step, one.call) == (step, number)]
        for dies in scenario.dies:
            if (dies.step, dies.call) == (step, number) and self.host_ns[dies.rank] < _NEVER:
                self._die(dies.rank, bool(dies.after))
        calls = self.host_ns < np.minimum(self.gone_ns, _NEVER)
        delay = self.rng.integers(*_LAUNCH_NS, len(calls), endpoint=True)
        start = np.maximum(self.host_ns + CALL_TO_LAUNCH_NS + delay, self.gpu_ns)
        start[~calls] = _NEVER
        for one in stuck:
            if calls[one.rank] and one.at in ("launch", "start"):
                start[one.rank] = _NEVER
                if one.at == "launch":
                    self.unlaunched.add((one.rank, column))
                    self.gone_ns[one.rank] = self.host_ns[one.rank] + 1
        start[[rank for rank in self.died_ns if calls[rank]]] = (
            _NEVER  # its kernel never came to run
        )
        end = self._ends(step, number, start)
        for one in stuck:
            members = self.rings[scenario.calls[number].communicator].members
            group = members[(members == one.rank).any(axis=1)][0]
            if one.at in ("finish", "network"):
                end[group if one.at == "network" else one.rank] = _NEVER
        self.call[calls, column] = self.host_ns[calls]
        for times, made in ((self.start, start), (self.end, end)):
            times[made < _NEVER, column] = made[made < _NEVER]
        self.gpu_ns[calls] = end[calls]
        self.host_ns[calls] += CALL_NS

    def _die(self, rank: int, after: bool) -> None:
        now_ns = int(self.host_ns[rank])
        self.died_ns[rank] = now_ns + 2 * CALL_NS if after else now_ns
        self.gone_ns[rank] = min(self.gone_ns[rank], now_ns + after)

    def _ends(self, step: int, number: int, start: Ints) -> Ints:
        """When each rank's kernel ends, or _NEVER."""
        call, ring = (
            self.scenario.calls[number],
            self.rings[self.scenario.calls[number].communicator],
        )
        starts = start[ring.members]
        ready = _ready(call, starts)
        for wrong in self.scenario.wrong:
            if (wrong.step, wrong.call) == (step, number):
                other = self.scenario.call_of(wrong.rank, step, number)
                if _differs(call, other, ring.members.shape[1]):
                    ready[(ring.members == wrong.rank).any(axis=1)] = _NEVER
        jitter = self.rng.integers(0, _END_JITTER_NS + 1, starts.shape)
        times = np.array(
            [self.scenario.sends_times(rank, number) for rank in range(self.scenario.ranks)]
        )[ring.members]
        times = np.maximum(times, np.roll(times, 1, axis=1))  # what it receives counts as well
        ends = ready + self._wire_ns(call, ring, ready, times) + jitter
        out = np.full(len(start), _NEVER, np.int64)
        out[ring.members] = np.where((ready >= _NEVER) | (starts >= _NEVER), _NEVER, ends)
        return out

    def _wire_ns(self, call: Call, ring: _Ring, ready: Ints, times: Ints) -> Ints:
        """As the simulated NCCL has it."""
        scenario, ranks = self.scenario, ring.members.shape[1]
        size_bytes = call.count(ranks) * DATATYPES[call.datatype].bits // 8
        parts = ranks - 1
        turns = 2 * parts if call.function == "AllReduce" else parts
        sent = {"AllReduce": 2 * parts / ranks, "AllGather": parts, "ReduceScatter": parts}
        if call.function == "SendRecv":
            turns = 1
        ns_per_byte = np.full(ready.shape, 1 / scenario.bandwidth_gb_s)
        for drop in scenario.bandwidth_drops:
            ns_per_byte[ready >= self.first_ns + drop.at_ms * 1e6] *= drop.factor
        ns = (
            turns * scenario.latency_us * 1e3
            + size_bytes * sent.get(call.function, 1) * ns_per_byte * times
        )
        if self._noise:
            ns = ns * self._noise.factors(self.rng, (len(ring.members), 1))
        return np.rint(ns * ring.slowness[:, None]).astype(np.int64)


def _differs(right: Call, wrong: Call, ranks: int) -> bool:
    """Whether NCCL would wait for ever: other functions, sizes in bytes or roots."""
    sizes = [call.count(ranks) * DATATYPES[call.datatype].bits // 8 for call in (right, wrong)]
    return right.function != wrong.function or sizes[0] != sizes[1] or right.root != wrong.root


def _ready(call: Call, start: Ints) -> Ints:
    """From when on only data has to move, by communicator and member."""
    last = np.broadcast_to(start.max(axis=1, keepdims=True), start.shape).copy()
    root = start[:, [call.root]] if call.root < start.shape[1] else last[:, :1]
    if call.function == "Broadcast":
        return np.maximum(start, root)
    if call.function == "Reduce":
        return np.where(np.arange(start.shape[1]) == call.root, last, start)
    if call.function == "SendRecv":
        return np.maximum(start, np.roll(start, 1, axis=1))
    return last


def _sequence(scenario: Scenario) -> Ints:
    """NCCL's sequence numbers: per communicator and function."""
    seen: dict[tuple[str, str], int] = {}
    numbers = []
    for _ in range(scenario.steps):
        for call in scenario.calls:
            key = call.communicator, call.function
            numbers.append(seen.setdefault(key, 0))
            seen[key] += 1
    return np.array(numbers, np.int64)


def begins_ms(scenario: Scenario, step: int, noise: Noise | None = None) -> float:
    """About how long after the first operation a step begins."""
    job = _Job(scenario, ORIGIN_NS, np.random.default_rng(0), noise)
    for number in range(step):
        job.step(number)
    return float(job.host_ns.min() - job.first_ns) / 1e6


def write_scenario(
    capture: Path,
    scenario: Scenario,
    seed: int = 0,
    noise: Noise | None = None,
    dropped: dict[int, tuple[int, int]] | None = None,
) -> Truth:
    """Writes the capture that a scenario would leave; returns what really happened in it. With
    `noise`, ranks and wires vary as in real jobs, else by little. `dropped`: by rank the steps of
    which its recorder lost everything.
    """
    assert scenario.release in _VERSIONS, "releases whose events an eager call has in full"
    functions = {call.function for call in scenario.calls}
    assert scenario.release == "2.28" or "Broadcast" not in functions, "has no events there"
    rng = np.random.default_rng(seed)
    names = [one.name for one in scenario.made_communicators]
    sizes = {one.name: one.size or scenario.ranks for one in scenario.made_communicators}
    wrong_calls = [scenario.call_of(one.rank, one.step, one.call) for one in scenario.wrong]
    made = (*scenario.calls, *wrong_calls)
    works = tuple(_work(call, sizes[call.communicator]) for call in made)
    more, heavy_at = _heavy_works(scenario, works)
    spec = _spec(scenario, works + more, seed)
    begin_ns = ORIGIN_NS + INIT_NS
    job = _Job(scenario, begin_ns, rng, noise)
    for step in range(scenario.steps):
        job.step(step)
    calls = len(scenario.calls)
    hung = bool((job.gone_ns < _NEVER).any() or (job.gpu_ns >= _NEVER).any())
    last_ns = int(max(job.end.max(initial=begin_ns), job.call.max(initial=begin_ns)))
    over_ns = [last_ns + (int(scenario.give_up_s * NS) if hung else 0)] * scenario.ranks
    for rank, died_ns in job.died_ns.items():
        over_ns[rank] = died_ns - NS // 1000
    truth = replace(
        clocks_of(spec, rng),
        call_ns=job.call,
        start_ns=job.start,
        end_ns=job.end,
        work=np.tile(np.arange(calls, dtype=np.int16), scenario.steps),
        layer=np.tile(
            np.array([names.index(c.communicator) for c in scenario.calls], np.int16),
            scenario.steps,
        ),
        seq=_sequence(scenario),
        late_rank=np.full(scenario.steps * calls, -1, np.int32),
        comm_ids=tuple(rng.integers(1, 1 << 63, len(spec.members)).tolist()),
        wrong_work={
            (one.rank, one.step * calls + one.call): calls + number
            for number, one in enumerate(scenario.wrong)
        }
        | {
            (rank, step * calls + call): place
            for (rank, call), place in heavy_at.items()
            for step in range(scenario.steps)
        },
        unlaunched=frozenset(job.unlaunched),
        unopened=frozenset(job.unopened),
        dropped={
            rank: (first * calls, last * calls) for rank, (first, last) in (dropped or {}).items()
        },
        over_ns=tuple(over_ns),
    )
    for process in range(scenario.ranks):
        ended = not hung and process not in job.died_ns
        write_process(capture, Place(truth, process, 0), begin_ns, ended)
    return truth
