"""Captures of simulated jobs, small or huge, with the truth to hold results against."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ncclscope.capture import layout
from ncclscope.nccl.events import MODE_EVENTS, events_of
from tests.support.writer.files import NS, ProcessFolder, Who, nonce_of
from tests.support.writer.meta import Meta
from tests.support.writer.operations import Caller, Kernels, MixTable, Ops, kernel_slots, mix_table
from tests.support.writer.physics import choose_rounds, simulate
from tests.support.writer.ranges import CallerRanges
from tests.support.writer.slots import Ints, StreamLayout, handle_of
from tests.support.writer.spec import SyntheticSpec
from tests.support.writer.truth import Clocks, Truth

ORIGIN_NS = 5_000 * NS  # of the true clock at the start of the job
INIT_NS = NS // 2  # from the first communicator to the first operation
_UNIX_NS = 1_794_700_000 * NS  # Unix time at true time 0
_BATCH = 1 << 14  # operations of a thread at once: fits caches
_NCCL_VERSIONS = {5: "22809", 6: "23007", 7: "23203"}
_MASKS = {version: events_of(version) & MODE_EVENTS["trace"] for version in (5, 6, 7)}
_SECONDS_BETWEEN_ATTEMPTS = 10
_EVENTS_OF_A_CALL = ("Group", "Coll", "KernelCh", "GroupApi", "CollApi", "KernelLaunch")


def _drawn(given: tuple[float, ...], drawn: np.ndarray, count: int) -> np.ndarray:
    assert len(given) in (0, count), f"{len(given)} clocks given, {count} needed"
    return np.array(given) if given else drawn


def _host_clocks(spec: SyntheticSpec, rng: np.random.Generator) -> Clocks:
    uptime_ns = rng.integers(-1_000 * NS, 1_000 * NS, spec.nodes)
    drift_ppm = rng.uniform(-20, 20, spec.nodes)
    return Clocks(
        ORIGIN_NS,
        _drawn(spec.node_offsets_ns, uptime_ns, spec.nodes).astype(np.int64),
        _drawn(spec.node_drift_ppm, drift_ppm, spec.nodes).astype(np.float64),
    )


def _gpu_clocks(spec: SyntheticSpec, rng: np.random.Generator) -> Clocks:
    offset_ns = rng.integers(-NS // 100, NS // 100, spec.ranks)
    drift_ppm = rng.uniform(-1.5, 1.5, spec.ranks)
    return Clocks(
        ORIGIN_NS,
        _UNIX_NS + _drawn(spec.gpu_offsets_ns, offset_ns, spec.ranks).astype(np.int64),
        _drawn(spec.gpu_drift_ppm, drift_ppm, spec.ranks).astype(np.float64),
    )


def comm_table(spec: SyntheticSpec) -> np.ndarray:
    table = np.full((len(spec.layers), spec.ranks), -1, np.int32)
    for number, layer in enumerate(spec.layers):
        for comm in layer:
            table[number, list(spec.members[comm])] = comm
    return table


def _happen(spec: SyntheticSpec, rng: np.random.Generator, begin_ns: int, clocks: Truth) -> Truth:
    """One attempt, by the clocks of another one."""
    rounds = choose_rounds(spec, rng)
    times = simulate(spec, rounds, rng, begin_ns)
    return replace(
        clocks,
        call_ns=times.call_ns,
        start_ns=times.start_ns,
        end_ns=times.end_ns,
        one_way_ns=times.one_way_ns,
        work=rounds.work,
        layer=rounds.layer,
        seq=rounds.seq,
        late_rank=rounds.late_rank,
        comm_ids=tuple(rng.integers(1, 1 << 63, len(spec.members)).tolist()),
    )


def clocks_of(spec: SyntheticSpec, rng: np.random.Generator) -> Truth:
    """A truth in which nothing has happened yet."""
    nothing = np.empty((spec.ranks, 0), np.int64)
    error_ns = spec.realtime_error_ns
    return Truth(
        spec=spec,
        call_ns=nothing,
        start_ns=nothing,
        end_ns=nothing,
        work=np.empty(0, np.int16),
        layer=np.empty(0, np.int16),
        seq=np.empty(0, np.int64),
        late_rank=np.empty(0, np.int32),
        comm_of=comm_table(spec),
        comm_ids=(),
        hosts=_host_clocks(spec, rng),
        gpus=_gpu_clocks(spec, rng),
        realtime_error_ns=rng.integers(-error_ns, error_ns + 1, spec.nodes),
        one_way_ns=0,
    )


@dataclass(frozen=True)
class Place:
    """One process of one attempt."""

    truth: Truth
    process: int
    attempt: int

    @property
    def ranks(self) -> list[int]:
        each = self.truth.spec.ranks_per_process
        return list(range(self.process * each, (self.process + 1) * each))

    @property
    def node(self) -> int:
        return self.truth.node_of(self.ranks[0])

    def host_ns(self, true_ns: Ints | int) -> Ints:
        return self.truth.hosts.at(self.node, np.asarray(true_ns, np.int64))

    @property
    def comms(self) -> dict[tuple[int, int], int]:
        """Numbers in this process of (communicator, rank)."""
        of = self.truth.spec.communicators_of
        pairs = sorted((comm, rank) for rank in self.ranks for comm in of.get(rank, ()))
        return {pair: number for number, pair in enumerate(pairs)}


def pid_of(number: int, ranks_per_process: int = 1) -> int:
    """Of a process of the job; its threads have the ids behind it."""
    return 10_000 + number * (2 * ranks_per_process + 2)


def _who(place: Place, begin_ns: int) -> Who:
    spec, truth = place.truth.spec, place.truth
    local = place.process % max(spec.ranks_per_node // spec.ranks_per_process, 1)
    environment = {"TORCHELASTIC_RUN_ID": "simulation"}
    environment["TORCHELASTIC_RESTART_COUNT"] = str(place.attempt)
    if spec.ranks_per_process == 1:
        sizes = {"RANK": place.process, "WORLD_SIZE": spec.ranks, "LOCAL_RANK": local}
        environment |= {name: str(value) for name, value in sizes.items()}
    offset_ns = int(truth.hosts.offset_ns[place.node])
    number = place.attempt * spec.processes + place.process
    return Who(
        host=f"node{place.node}",
        pid=pid_of(number, spec.ranks_per_process),
        boot_id=f"51309a7e-0000-4000-8000-{place.node:012d}",
        start_ns=int(place.host_ns(begin_ns - INIT_NS)),
        realtime_offset_ns=_UNIX_NS - offset_ns + int(truth.realtime_error_ns[place.node]),
        mode="trace",
        nonce=nonce_of(number),
        environment=environment,
        more={
            "simulation": "1",
            "nccl_version": _NCCL_VERSIONS[spec.version],
            "command": "simulation",
        },
    )


def _open_communicators(place: Place, meta: Meta, who: Who) -> None:
    spec, truth = place.truth.spec, place.truth
    for (comm, rank), number in place.comms.items():
        if (rank, comm) in truth.unopened:
            continue
        meta.communicator(
            spec.communicator_names[comm] if comm < len(spec.communicator_names) else "",
            gpu_uuid=(0x51309A7E << 96 | rank).to_bytes(16, "big"),
            gpu_bus_id=f"00000000:{0x10 + rank % spec.ranks_per_node:02X}:00.0",
            id=truth.comm_ids[comm],
            t0=who.start_ns + 1_000 + number * 50_000,
            comm=number,
            version=spec.version,
            rank=spec.rank_in[comm][rank],
            ranks=len(spec.members[comm]),
            nodes=spec.nodes_of[comm],
            tid=who.pid,
            mask=_MASKS[spec.version],
        )


class _Process:
    """Writes one process's log."""

    def __init__(self, place: Place, folder: ProcessFolder, table: MixTable, meta: Meta) -> None:
        self._place, self._folder, self._table = place, folder, table
        spec, who = place.truth.spec, folder.who
        self._spec, self._truth = spec, place.truth
        self._rng = np.random.default_rng((spec.seed, place.attempt, place.process))
        threads = [place.ranks] if spec.one_thread else [[rank] for rank in place.ranks]
        poller = "NCCL Profiler" if spec.version >= 7 else "NCCL Progress 0"
        self._callers = [(ranks, self._caller(n, ranks, meta)) for n, ranks in enumerate(threads)]
        self._pollers = {
            rank: StreamLayout(len(threads) + n, who.pid + len(threads) + n, poller)
            for n, rank in enumerate(place.ranks)
        }
        # By layer and rank of this process: number in the process, rank in the communicator, size.
        self._comm = np.zeros((3, len(spec.layers), len(place.ranks)), np.int64)
        for (comm, rank), number in place.comms.items():
            values = number, spec.rank_in[comm][rank], len(spec.members[comm])
            self._comm[:, spec.layer_of[comm], rank - place.ranks[0]] = values

    def _caller(self, number: int, ranks: list[int], meta: Meta) -> Caller:
        who, truth = self._folder.who, self._truth
        calls_ns = truth.call_ns[ranks[0]]
        calls_ns = np.where(calls_ns >= 0, self._place.host_ns(calls_ns), -1)
        ranges = CallerRanges(self._spec, calls_ns, handle_of(who.nonce, number, 0), meta)
        stream = StreamLayout(number, who.pid + number, "python3")
        return Caller(self._spec, self._table, who.nonce, stream, ranges)

    def write(self) -> None:
        """All operations, some at a time."""
        for first in range(0, self._spec.operations, _BATCH):
            last = min(first + _BATCH, self._spec.operations)
            for ranks, caller in self._callers:
                self._write_part(ranks, caller, first, last)
        self._folder.close()

    def _write_part(self, ranks: list[int], caller: Caller, first: int, last: int) -> None:
        """Operations first to last of one thread and of its ranks' pollers."""
        truth = self._truth
        calls = truth.call_ns[ranks, first:last].T.reshape(-1)  # in the order of the thread
        number = np.repeat(np.arange(first, last), len(ranks))
        rank = np.tile(np.array(ranks), last - first)
        recorded = calls >= 0
        for one, (first_lost, last_lost) in truth.dropped.items():
            recorded &= (rank != one) | (number < first_lost) | (number >= last_lost)
        number, rank = number[recorded], rank[recorded]
        if not len(number):
            return
        comm = self._comm[:, truth.layer[number], rank - self._place.ranks[0]]
        call_ns = self._place.host_ns(calls[recorded])
        launched = np.ones(len(number), bool)
        for who, when in truth.unlaunched:
            launched &= (rank != who) | (number != when)
        work = truth.work_of(rank, number)
        ops = Ops(call_ns, work, truth.seq[number], *comm, launched, number)
        slots, works = caller.slots(ops)
        self._folder.append(slots)
        for one in ranks:
            here = rank == one
            if here.any():
                self._write_kernels(one, number[here], ops[here], works[here])

    def _write_kernels(self, rank: int, number: Ints, ops: Ops, works: np.ndarray) -> None:
        truth = self._truth
        started = truth.start_ns[rank, number] >= 0
        if not started.any():
            return
        number, ops, works = number[started], ops[started], works[started]
        start_ns, end_ns = truth.start_ns[rank, number], truth.end_ns[rank, number]
        kernels = Kernels(
            host_start_ns=self._place.host_ns(start_ns),
            host_end_ns=self._place.host_ns(end_ns),
            gpu_start_ns=truth.gpus.at(rank, start_ns),
            gpu_end_ns=truth.gpus.at(rank, end_ns),
            ended=end_ns >= 0,
            call_ns=ops.call_ns,
            comm=ops.comm,
            sends=self._table.sends[ops.work],
            works=works,
        )
        self._folder.append(kernel_slots(self._spec, kernels, self._pollers[rank], self._rng))


def write_process(capture: Path, place: Place, begin_ns: int, ended: bool) -> None:
    """One process's folder; `ended`: it exited by itself."""
    truth = place.truth
    who = _who(place, begin_ns)
    meta, folder = Meta(who), ProcessFolder(capture, who)
    _open_communicators(place, meta, who)
    _Process(place, folder, mix_table(truth.spec, meta), meta).write()
    over_ns = truth.over_ns[place.ranks[0]] if truth.over_ns else truth.end_ns[:, -1].max()
    last_ns = int(place.host_ns(over_ns)) + NS // 1000
    meta.syncs(who.start_ns, last_ns + NS // 10, folder.slots_written)
    for rank in place.ranks:
        first, last = truth.dropped.get(rank, (0, 0))
        for event in _EVENTS_OF_A_CALL if last > first else ():
            each = truth.spec.channels if event == "KernelCh" else 1
            number = layout.KINDS[event] - 1  # NCCL's
            meta.count("dropped_arena_full", number, each * (last - first))
    if ended:
        for number in place.comms.values():
            meta.communicator_end(number, last_ns + number * 100_000)
        meta.end(last_ns + NS // 10, folder.slots_written)
    folder.write("meta", layout.FILE_META, meta.slots())


def simulated(spec: SyntheticSpec) -> tuple[Truth, int]:
    """What happens in a job of one attempt, as `synthetic` writes it, and when it begins:
    `write_process` writes its processes in any order.
    """
    rng = np.random.default_rng(spec.seed)
    clocks, begin_ns = clocks_of(spec, rng), ORIGIN_NS + INIT_NS
    return _happen(spec, rng, begin_ns, clocks), begin_ns


def synthetic(
    capture: Path, spec: SyntheticSpec, after_process: Callable[[int], object] = bool
) -> Truth:
    """Writes the capture of a simulated job; returns what really happened in it. `after_process`:
    is called with the number of each process that is written.
    """
    rng = np.random.default_rng(spec.seed)
    clocks = clocks_of(spec, rng)
    attempts: list[Truth] = []
    begin_ns = ORIGIN_NS + INIT_NS
    for attempt in range(spec.attempts):
        truth = _happen(spec, rng, begin_ns, clocks)
        for process in range(spec.processes):
            if process not in spec.missing:
                ended = attempt == spec.attempts - 1 and process not in spec.killed
                write_process(capture, Place(truth, process, attempt), begin_ns, ended)
                after_process(process)
        attempts.append(truth)
        begin_ns = int(truth.end_ns.max()) + _SECONDS_BETWEEN_ATTEMPTS * NS
    return replace(attempts[-1], earlier=tuple(attempts[:-1]))
