"""When kernels of a simulated job start and end.

A ring-like collective ends on no rank before the last one has arrived and the data has gone round.
All ranks take up the next operation after the last end, a little earlier or later.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.support.writer.spec import RING_LIKE, SEND_RECV, SyntheticSpec, Work

Ints = npt.NDArray[np.int64]

CALL_TO_LAUNCH_NS = 5_000  # from the call to the start of KernelLaunch
CALL_NS = 20_000  # until the call has returned
THREAD_STEP_NS = 25_000  # from one rank's call to the next one's in the same thread
START_SPREAD_NS, STOP_SPREAD_NS = 800, 600  # over channels
_BATCH = 1 << 22  # times at once
_ALL, _FROM_ROOT, _TO_ROOT, _TREE, _NEIGHBOURS = range(5)


@dataclass(frozen=True)
class Rounds:
    """The operations of a job, each carried out by all communicators of a layer."""

    work: npt.NDArray[np.int16]
    layer: npt.NDArray[np.int16]
    seq: Ints
    wire_ns: Ints
    gap_ns: Ints
    late_rank: npt.NDArray[np.int32]


@dataclass(frozen=True)
class Times:
    """By rank and operation; −1 where the rank takes no part."""

    call_ns: Ints
    start_ns: Ints
    end_ns: Ints
    one_way_ns: int


def choose_rounds(spec: SyntheticSpec, rng: np.random.Generator) -> Rounds:
    """Draws what is called."""
    count = spec.operations
    weights = np.array([work.weight for work in spec.mix])
    work = rng.choice(len(spec.mix), count, p=weights / weights.sum()).astype(np.int16)
    layer = (np.arange(count) % len(spec.layers)).astype(np.int16)
    low, high = np.array([work.wire_ns for work in spec.mix], np.int64).T
    late_rank = np.full(count, -1, np.int32)
    if spec.straggler is not None:
        late = rng.random(count) < spec.straggler.share
        anyone = rng.integers(0, spec.ranks, count)
        late_rank[late] = anyone[late] if spec.straggler.rank is None else spec.straggler.rank
    return Rounds(
        work=work,
        layer=layer,
        seq=_sequence_numbers(spec, work, layer),
        wire_ns=rng.integers(low[work], high[work] + 1),
        gap_ns=rng.integers(spec.gap_ns[0], spec.gap_ns[1] + 1, count),
        late_rank=late_rank,
    )


def _sequence_numbers(
    spec: SyntheticSpec, work: npt.NDArray[np.int16], layer: npt.NDArray[np.int16]
) -> Ints:
    """Per communicator and function, from 0."""
    functions = {name: number for number, name in enumerate({work.func for work in spec.mix})}
    function = np.array([functions[work.func] for work in spec.mix])[work]
    seq = np.zeros(len(work), np.int64)
    for number in range(len(spec.layers)):
        for which in functions.values():
            chosen = (layer == number) & (function == which)
            seq[chosen] = np.arange(int(chosen.sum()))
    return seq


def _pattern(work: Work) -> int:
    """Who waits for whom."""
    if work.func == SEND_RECV:
        return _NEIGHBOURS
    if work.algo not in RING_LIKE:
        return _TREE
    return {"Broadcast": _FROM_ROOT, "Reduce": _TO_ROOT}.get(work.func, _ALL)


def _ready(start: Ints, pattern: Ints, root: Ints) -> Ints:
    """From when on only data has to move, by member and operation; `start` likewise."""
    last = start.max(axis=0)
    if not pattern.any():
        return np.broadcast_to(last, start.shape)
    rank = np.arange(len(start))[:, None]
    from_root = np.maximum(start, start[root, np.arange(start.shape[1])])
    return np.select(
        [pattern == _ALL, pattern == _FROM_ROOT, pattern == _TO_ROOT, pattern == _TREE],
        [
            np.broadcast_to(last, start.shape),
            from_root,
            np.where(rank == root, last, start),
            # Thread 0 only reduces upwards: leaves do not see when the others come.
            np.where(rank % 2 == 1, start, last),
        ],
        np.maximum(start, np.roll(start, -1, axis=0)),  # a send needs its receiver
    )


class _Simulation:
    """Times relative to the beginning of each operation, some operations at once."""

    def __init__(self, spec: SyntheticSpec, rounds: Rounds, rng: np.random.Generator) -> None:
        self._spec, self._rounds, self._rng = spec, rounds, rng
        self._pattern = np.array([_pattern(work) for work in spec.mix])
        self._root = np.array([work.root for work in spec.mix])
        self.one_way_ns = min(work.wire_ns[1] for work in spec.mix)

    def calls(self, part: slice) -> Ints:
        """When each rank calls."""
        spec, late_rank = self._spec, self._rounds.late_rank[part]
        together = spec.ranks_per_process if spec.one_thread else 1
        threads = spec.ranks // together
        call = self._rng.integers(0, spec.arrival_jitter_ns + 1, (threads, len(late_rank)))
        late = np.flatnonzero(late_rank >= 0)
        if spec.straggler is not None:
            call[late_rank[late] // together, late] += spec.straggler.late_ns
        call = np.repeat(call, together, axis=0)
        return call + (np.arange(spec.ranks) % together * THREAD_STEP_NS)[:, None]

    def starts(self, call: Ints) -> Ints:
        """When kernels start."""
        low, high = self._spec.launch_delay_ns
        delay = self._rng.integers(low, high + 1, call.shape)
        return call + CALL_TO_LAUNCH_NS + delay

    def ends(self, part: slice, start: Ints) -> Ints:
        """When kernels end; −1 for ranks that have none."""
        rounds, spec = self._rounds, self._spec
        end = np.full(start.shape, -1, np.int64)
        for number, layer in enumerate(spec.layers):
            columns = np.flatnonzero(rounds.layer[part] == number)
            work = rounds.work[part][columns]
            pattern, wire_ns = self._pattern[work], rounds.wire_ns[part][columns]
            for comm in layer:
                members = np.array(spec.members[comm])
                starts = start[np.ix_(members, columns)]
                root = self._root[work] % len(members)
                jitter = self._rng.integers(0, spec.end_jitter_ns + 1, starts.shape)
                ends = _ready(starts, pattern, root) + wire_ns + jitter
                end[np.ix_(members, columns)] = ends
                slack = (ends.min(axis=0) - starts.max(axis=0))[pattern == _ALL]
                self.one_way_ns = min(self.one_way_ns, int(slack.min(initial=1 << 62)))
        return end


def simulate(spec: SyntheticSpec, rounds: Rounds, rng: np.random.Generator, begin_ns: int) -> Times:
    """The times of all operations, the first one from `begin_ns` on."""
    shape = (spec.ranks, spec.operations)
    times = [np.empty(shape, np.int64) for _ in range(3)]
    simulation = _Simulation(spec, rounds, rng)
    step = max(_BATCH // spec.ranks, 1)
    for first in range(0, spec.operations, step):
        part = slice(first, first + step)
        call = simulation.calls(part)
        start = simulation.starts(call)
        end = simulation.ends(part, start)
        whole_ns = end.max(axis=0) + rounds.gap_ns[part]
        after_ns = begin_ns + np.cumsum(whole_ns)
        for all_times, some in zip(times, (call, start, end), strict=True):
            all_times[:, part] = np.where(end < 0, -1, some + (after_ns - whole_ns))
        begin_ns = int(after_ns[-1])
    spread_ns = START_SPREAD_NS if spec.channels > 1 else 0
    return Times(*times, simulation.one_way_ns - spread_ns - spec.gpu_step_ns)
