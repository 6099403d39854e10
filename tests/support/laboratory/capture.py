"""Captures of simulated jobs, slot by slot as the plugin writes mode trace."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.nccl.events import MODE_EVENTS, events_of
from tests.support.laboratory.engine import Job
from tests.support.laboratory.events import CALL_NS, PART_NS, Communicator, Kernel, Part
from tests.support.writer.files import NS, ProcessFolder, Who, nonce_of
from tests.support.writer.meta import Meta
from tests.support.writer.slots import Placed, StreamLayout, handle_of
from tests.support.writer.truth import Clocks

Ints = npt.NDArray[np.int64]

ORIGIN_NS = 5_000 * NS  # true time at which a job begins
_UNIX_NS = 1_794_700_000 * NS  # Unix time at true time 0
_INIT_NS = NS // 2  # from the first communicator to the first operation
_BETWEEN_ATTEMPTS_NS = 10 * NS
_VERSIONS = {5: "22809", 6: "23007", 7: "23203"}
_STOPPED = layout.STATE_STOPPED
_BOTH = layout.STATE_FIRST | layout.STATE_SECOND
_STREAM_ADDRESS, _BUFFERS = 0x7F0000001000, 0x7F4200000000
_IN_BYTES = ("AllGather", "Broadcast")  # NCCL counts these in bytes below the API
_BYTES_OF_ELEMENT = 2  # bfloat16
_DROPPED_EVENTS = ("Group", "Coll", "KernelCh", "GroupApi", "CollApi", "KernelLaunch")
_START_SPREAD_NS, _STOP_SPREAD_NS = 800, 600  # over channels
_POLL_NS = 400
_GPU_STEP_NS = 32


@dataclass(frozen=True, slots=True)
class Recording:
    """How a job is recorded: clocks, and what the record lacks."""

    channels: int = 2
    version: int = 5  # of the profiler interface: 5, 6 or 7
    ranks_per_process: int = 1
    timed_every: int = 1  # only every n-th operation of a communicator has GPU times
    clock_offset_ms: float = 1e6  # of hosts' clocks, at most
    clock_drift_ppm: float = 20.0  # likewise
    gpu_drift_ppm: float = 1.5
    realtime_error_ms: float = 1.0
    dropped: tuple[tuple[int, int, int], ...] = ()  # rank, first and last step that were lost
    missing: tuple[int, ...] = ()  # ranks whose files are not there
    trees: tuple[str, ...] = ()  # communicators that use the algorithm TREE
    names: bool = True  # communicators have names


@dataclass(frozen=True, slots=True)
class _Process:
    """One process: its ranks, and which of its operations are on record."""

    job: Job
    recording: Recording
    ranks: tuple[int, ...]
    attempt: int
    begin_ns: int  # true time of the job's zero
    killed: bool
    clocks: Clocks
    gpus: Clocks
    realtime_error_ns: Ints
    comm_ids: dict[str, int] = field(default_factory=dict)

    @property
    def node(self) -> int:
        return self.job.host_of(self.ranks[0])

    def host_ns(self, ns: npt.ArrayLike) -> Ints:
        true_ns = np.rint(np.asarray(ns)).astype(np.int64) + self.begin_ns
        return self.clocks.at(self.node, true_ns)

    def gpu_ns(self, rank: int, ns: npt.ArrayLike) -> Ints:
        true_ns = np.rint(np.asarray(ns)).astype(np.int64) + self.begin_ns
        return self.gpus.at(rank, true_ns) // _GPU_STEP_NS * _GPU_STEP_NS


def _put(placed: Placed, places: Ints, kind: str, head: object, **fields: object) -> None:
    """Fills slots of one kind; a head is states | channel << 8 | flags << 16."""
    rows, index = placed.row[places], placed.index[places].astype(np.uint64)
    words = placed.out.view("<u8").reshape(-1, 8)
    low = np.asarray(head).astype(np.uint64) << np.uint64(8) | np.uint64(layout.KINDS[kind])
    words[rows, 0] = index << np.uint64(32) | low
    slots = placed.out.view(dtypes.OURS.dtypes[kind])
    for name, value in fields.items():
        slots[name][rows] = value


class _RankWriter:
    """Writes the slots of one rank: those of its calling thread and of the polling thread."""

    def __init__(
        self, process: _Process, rank: int, meta: Meta, nonce: int, threads: tuple[int, int],
        pid: int, numbers: dict[str, int],
    ) -> None:  # fmt: skip
        self._process, self._rank, self._meta = process, rank, meta
        self._caller = StreamLayout(threads[0], pid + threads[0], "python3")
        poller = "NCCL Profiler" if process.recording.version >= 7 else "NCCL Progress 0"
        self._poller = StreamLayout(threads[1], pid + threads[1], poller)
        self._base = np.uint64(handle_of(nonce, threads[0], 0))
        self._numbers = numbers
        self._streams: dict[str, int] = {}
        seed = process.job.seed, process.attempt, rank
        self._rng = np.random.default_rng(seed)

    def _handles(self, placed: Placed, places: Ints) -> npt.NDArray[np.uint64]:
        return placed.index[places].astype(np.uint64) | self._base

    def write(self, folder: ProcessFolder, kernels: list[Kernel]) -> None:
        """Everything of the rank."""
        if not kernels:
            return
        parts = np.array([len(kernel.parts) for kernel in kernels])
        collective = np.array([kernel.parts[0].peer < 0 for kernel in kernels])
        lengths = 3 + parts + np.where(collective, 2, 1) * parts
        first = np.cumsum(lengths) - lengths
        work_first = first + parts + 3
        written_ns = int(self._process.host_ns(kernels[-1].launch_ns)) + 1_000_000
        placed = self._caller.place(int(lengths.sum()), work_first[collective], written_ns)
        self._write_calls(placed, kernels, first, parts)
        works = self._write_parts(placed, kernels, first, parts, collective)
        folder.append(placed.out)
        self._write_kernels(folder, kernels, parts, collective, works)

    def _common(self, kernels: list[Kernel]) -> tuple[Ints, Ints, Ints, Ints]:
        """Call and launch by the host's clock, number of the communicator, stream."""
        call_ns = self._process.host_ns([kernel.call_ns for kernel in kernels])
        launch_ns = self._process.host_ns([kernel.launch_ns for kernel in kernels])
        comm, streams = [], []
        for kernel in kernels:
            assert kernel.communicator is not None
            comm.append(self._numbers[kernel.communicator.name])
            number = self._streams.setdefault(kernel.stream, len(self._streams))
            streams.append(_STREAM_ADDRESS + 4096 * number)
        return call_ns, launch_ns, np.array(comm), np.array(streams)

    def _rank_flag(self, comm_rank: Ints) -> Ints:
        """NCCL 2.32 gives the rank in API events, earlier releases 0."""
        given = (comm_rank != 0) & (self._process.recording.version >= 7)
        return np.where(given, layout.FLAG_RANK << 16, 0)

    def _comm_ranks(self, kernels: list[Kernel]) -> Ints:
        return np.array(
            [k.communicator.members.index(self._rank) for k in kernels if k.communicator]
        )

    def _write_calls(self, placed: Placed, kernels: list[Kernel], first: Ints, parts: Ints) -> None:
        """GroupApi, KernelLaunch and Group."""
        call_ns, launch_ns, comm, stream = self._common(kernels)
        flag = self._rank_flag(self._comm_ranks(kernels))
        end_ns = launch_ns + CALL_NS + PART_NS * parts
        _put(
            placed, first, "GroupApi", _STOPPED | _BOTH | flag,
            t0=call_ns, t_start_done=call_ns + 800, t_end_begins=launch_ns - 1_000,
            t1=end_ns - 500, depth=parts, comm=comm,
        )  # fmt: skip
        _put(
            placed, first + 1 + parts, "KernelLaunch", _STOPPED | flag,
            parent=self._handles(placed, first), t0=launch_ns, t1=launch_ns + 6_000,
            stream=stream, comm=comm,
        )  # fmt: skip
        _put(
            placed, first + 2 + parts, "Group", _STOPPED,
            t0=launch_ns + 6_500, t1=end_ns - 1_000, comm=comm,
        )  # fmt: skip

    def _write_parts(
        self, placed: Placed, kernels: list[Kernel], first: Ints, parts: Ints,
        collective: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.uint64]:  # fmt: skip
        """API events and works; returns the handles of the works, part by part."""
        group = np.repeat(np.arange(len(kernels)), parts)
        place = np.arange(len(group)) - np.repeat(np.cumsum(parts) - parts, parts)
        rows = [self._part_row(kernel, part) for kernel in kernels for part in kernel.parts]
        func, count, work_count, work_type, sequence, root, peer, algo = np.array(rows, np.int64).T
        call_ns, launch_ns, comm, stream = (c[group] for c in self._common(kernels))
        comm_rank = self._comm_ranks(kernels)[group]
        api_ns = call_ns + 1_200 + PART_NS * place
        work_ns = launch_ns + 7_200 + PART_NS * place
        api = first[group] + 1 + place
        many = np.where(collective[group], 2, 1)
        work = first[group] + parts[group] + 3 + many * place
        works = self._handles(placed, work)
        common = {"func": func, "comm": comm}
        dtype = self._meta.string("ncclBfloat16")
        for is_collective, kind in ((True, "CollApi"), (False, "P2pApi")):
            at = np.flatnonzero(collective[group] == is_collective)
            more = {"root": np.maximum(root, 0)[at]} if is_collective else {}
            _put(
                placed, api[at], kind, _STOPPED | self._rank_flag(comm_rank)[at],
                parent=self._handles(placed, first[group][at]), t0=api_ns[at], t1=api_ns[at] + 400,
                count=count[at], stream=stream[at], dtype=dtype, **more,
                **{name: column[at] for name, column in common.items()},
            )  # fmt: skip
        at = np.flatnonzero(collective[group])
        variant = self._meta.string("") if self._process.recording.version >= 7 else 0
        _put(
            placed, work[at], "Coll", _STOPPED | (layout.FLAG_EXT | layout.FLAG_RANK_IN) << 16,
            parent=self._handles(placed, api[at]), t0=work_ns[at], t1=work_ns[at] + 3_000,
            seq=sequence[at], count=work_count[at], dtype=work_type[at], algo=algo[at],
            proto=self._meta.string("SIMPLE"), channels=self._process.recording.channels,
            warps=16, variant=variant, root=np.maximum(root, 0)[at],
            **{name: column[at] for name, column in common.items()},
        )  # fmt: skip
        group_handles = self._handles(placed, first[group] + parts[group] + 2)
        _put(
            placed, work[at] + 1, "CollExt", 0, parent_group=group_handles[at],
            send_buff=_BUFFERS, recv_buff=_BUFFERS + (1 << 28), rank=comm_rank[at],
        )  # fmt: skip
        at = np.flatnonzero(~collective[group])
        rank_flag = np.where(comm_rank != 0, layout.FLAG_RANK << 16, 0)
        _put(
            placed, work[at], "P2p", _STOPPED | 1 << 8 | rank_flag[at],
            parent=self._handles(placed, api[at]), t0=work_ns[at], t1=work_ns[at] + 400,
            buff=_BUFFERS, count=count[at], parent_group=group_handles[at], dtype=dtype,
            peer=peer[at], **{name: column[at] for name, column in common.items()},
        )  # fmt: skip
        return works

    def _part_row(self, kernel: Kernel, part: Part) -> tuple[int, ...]:
        communicator = kernel.communicator
        assert communicator is not None
        meta, members = self._meta, communicator.members
        count = part.size_bytes // _BYTES_OF_ELEMENT
        if part.function in ("AllGather", "ReduceScatter"):
            count //= len(members)
        in_bytes = part.function in _IN_BYTES
        tree = communicator.name in self._process.recording.trees
        return (
            meta.string(part.function), max(count, 1),
            max(count, 1) * (_BYTES_OF_ELEMENT if in_bytes else 1),
            meta.string("ncclInt8" if in_bytes else "ncclBfloat16"), part.sequence,
            members.index(part.root) if part.root >= 0 else 0,
            members.index(part.peer) if part.peer >= 0 else -1,
            meta.string("TREE" if tree else "RING"),
        )  # fmt: skip

    def _write_kernels(
        self, folder: ProcessFolder, kernels: list[Kernel], parts: Ints,
        collective: npt.NDArray[np.bool_], works: npt.NDArray[np.uint64],
    ) -> None:  # fmt: skip
        """KernelCh events: one for each channel of a collective, one for each send or receive.

        Sends and receives of a group share their kernel, so they share its stamps.
        """
        recording, process = self._process.recording, self._process
        timed = np.array([_is_timed(kernel, recording.timed_every) for kernel in kernels])
        each = np.where(collective, recording.channels, parts) * timed
        if not each.sum():
            return
        group = np.repeat(np.arange(len(kernels)), each)
        number = np.arange(len(group)) - np.repeat(np.cumsum(each) - each, each)
        channel = np.where(collective[group], number, 0)
        part_first = np.cumsum(parts) - parts
        work = works[part_first[group] + np.where(collective[group], 0, number)]
        start = np.array([k.start_ns for k in kernels])
        end = np.array([k.stamp_end_ns for k in kernels])
        notice = self._rng.integers(2_000, 6_000, (2, len(kernels)))
        _, launch_ns, comm, _ = self._common(kernels)
        seen_ns = np.maximum(process.host_ns(start) + notice[0], launch_ns + CALL_NS)
        stop_ns = np.maximum(process.host_ns(end) + notice[1], seen_ns + 1_000)
        spread = max(recording.channels - 1, 1)
        late = channel * _START_SPREAD_NS // spread
        early = np.where(
            collective[group], (recording.channels - 1 - number) * _STOP_SPREAD_NS // spread, 0
        )
        placed = self._poller.place(
            len(group), np.empty(0, np.int64), int(stop_ns.max()) + 1_000_000
        )
        polled = np.minimum(number, 20) * _POLL_NS
        _put(
            placed, np.arange(len(group)), "KernelCh",
            _STOPPED | layout.STATE_FIRST | channel << 8, parent=work,
            t0=seen_ns[group] + late + polled, t_stop=stop_ns[group] + polled,
            t1=stop_ns[group] + polled + 150,
            gpu_start=process.gpu_ns(self._rank, start[group] + late),
            gpu_stop=process.gpu_ns(self._rank, end[group] - early), comm=comm[group],
        )  # fmt: skip
        folder.append(placed.out)


def _is_timed(kernel: Kernel, every: int) -> bool:
    """The same operations on all ranks: chosen by their number on the communicator."""
    if every == 1:
        return True
    part, communicator = kernel.parts[0], kernel.communicator
    assert communicator is not None
    return part.peer < 0 and (part.sequence * 7 + communicator.number) % every == 0


def _clocks(job: Job, recording: Recording) -> tuple[Clocks, Clocks, Ints]:
    """Of hosts and GPUs, and by how much hosts' Unix times are wrong."""
    rng = np.random.default_rng((job.seed, 77))
    ranks = len(job.ranks)
    hosts = job.host_of(ranks - 1) + 1
    offset_ns = rng.uniform(-1, 1, hosts) * recording.clock_offset_ms * 1e6
    drift_ppm = rng.uniform(-1, 1, hosts) * recording.clock_drift_ppm
    host_clocks = Clocks(ORIGIN_NS, np.rint(offset_ns).astype(np.int64), drift_ppm)
    gpu_offset_ns = rng.uniform(-1, 1, ranks) * NS / 100
    gpu_drift_ppm = rng.uniform(-1, 1, ranks) * recording.gpu_drift_ppm
    gpus = Clocks(ORIGIN_NS, _UNIX_NS + np.rint(gpu_offset_ns).astype(np.int64), gpu_drift_ppm)
    error_ns = rng.uniform(-1, 1, hosts) * recording.realtime_error_ms * 1e6
    return host_clocks, gpus, np.rint(error_ns).astype(np.int64)


def _who(process: _Process) -> Who:
    job, recording = process.job, process.recording
    ranks, per_host = len(job.ranks), job.machine.ranks_per_host
    environment = {
        "TORCHELASTIC_RUN_ID": "laboratory",
        "TORCHELASTIC_RESTART_COUNT": str(process.attempt),
    }
    if recording.ranks_per_process == 1:
        rank = process.ranks[0]
        sizes = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank % per_host}
        environment |= {name: str(value) for name, value in sizes.items()}
    offset_ns = int(process.clocks.offset_ns[process.node])
    number = (process.attempt * ranks + process.ranks[0]) // recording.ranks_per_process
    return Who(
        host=f"node{process.node}",
        pid=10_000 + number * (2 * recording.ranks_per_process + 2),
        boot_id=f"51309a7e-0000-4000-8000-{process.node:012d}",
        start_ns=int(process.host_ns(-_INIT_NS)),
        realtime_offset_ns=_UNIX_NS - offset_ns + int(process.realtime_error_ns[process.node]),
        mode="trace",
        nonce=nonce_of(number),
        environment=environment,
        more={
            "simulation": "1",
            "nccl_version": _VERSIONS[recording.version],
            "command": "laboratory",
        },
    )


def _lost(recording: Recording, kernel: Kernel) -> bool:
    return any(
        rank == kernel.rank and first <= kernel.step <= last
        for rank, first, last in recording.dropped
    )


def _open(process: _Process, meta: Meta, who: Who) -> dict[tuple[str, int], int]:
    """Communicators of the process; numbers by name and rank."""
    job, recording = process.job, process.recording
    numbers: dict[tuple[str, int], int] = {}
    for communicator in job.communicators.values():
        for rank in process.ranks:
            if rank not in communicator.members:
                continue
            number = numbers[communicator.name, rank] = len(numbers)
            meta.communicator(
                communicator.name.split("#")[0] if recording.names else "",
                gpu_uuid=(0x51309A7E << 96 | rank).to_bytes(16, "big"),
                gpu_bus_id=f"00000000:{0x10 + rank % job.machine.ranks_per_host:02X}:00.0",
                id=process.comm_ids[communicator.name],
                t0=who.start_ns + 1_000 + number * 50_000,
                comm=number,
                version=recording.version,
                rank=communicator.members.index(rank),
                ranks=len(communicator.members),
                nodes=_nodes(job, communicator),
                tid=who.pid,
                mask=events_of(recording.version) & MODE_EVENTS["trace"],
            )
    return numbers


def _nodes(job: Job, communicator: Communicator) -> int:
    return len({job.host_of(rank) for rank in communicator.members})


def _write_process(capture: Path, process: _Process) -> None:
    who = _who(process)
    meta, folder = Meta(who), ProcessFolder(capture, who)
    numbers = _open(process, meta, who)
    many = len(process.ranks)
    dropped = 0
    over_ns = 0.0
    for place, rank in enumerate(process.ranks):
        own = {name: number for (name, owner), number in numbers.items() if owner == rank}
        threads = place, many + place
        writer = _RankWriter(process, rank, meta, who.nonce, threads, who.pid, own)
        kernels = process.job.ranks[rank].kernels
        recorded = [k for k in kernels if not _lost(process.recording, k)]
        dropped += len(kernels) - len(recorded)
        over_ns = max(over_ns, *(k.end_ns for k in kernels), 0.0)
        writer.write(folder, recorded)
    folder.close()
    last_ns = int(process.host_ns(over_ns)) + NS // 1000
    meta.syncs(who.start_ns, last_ns + NS // 10, folder.slots_written)
    for event in _DROPPED_EVENTS if dropped else ():
        each = process.recording.channels if event == "KernelCh" else 1
        meta.count("dropped_arena_full", layout.KINDS[event] - 1, each * dropped)
    if not process.killed:
        for number in numbers.values():
            meta.communicator_end(number, last_ns + number * 1_000)
        meta.end(last_ns + NS // 10, folder.slots_written)
    folder.write("meta", layout.FILE_META, meta.slots())


def write_capture(
    capture: Path, job: Job, recording: Recording | None = None, earlier: tuple[Job, ...] = ()
) -> None:
    """Writes a job's capture; `earlier`: attempts before it, which were killed at their end."""
    recording = recording or Recording()
    shutil.rmtree(capture, ignore_errors=True)
    capture.mkdir(parents=True)
    clocks, gpus, realtime_error_ns = _clocks(job, recording)
    begin_ns = ORIGIN_NS + _INIT_NS
    attempts = (*earlier, job)
    for attempt, one in enumerate(attempts):
        rng = np.random.default_rng((job.seed, attempt, 78))
        ids = {name: int(rng.integers(1, 1 << 62)) for name in one.communicators}
        each = recording.ranks_per_process
        for first in range(0, len(one.ranks), each):
            ranks = tuple(range(first, first + each))
            if set(ranks) & set(recording.missing):
                continue
            process = _Process(
                one, recording, ranks, attempt, begin_ns, one is not job, clocks, gpus,
                realtime_error_ns, ids,
            )  # fmt: skip
            _write_process(capture, process)
        begin_ns += int(max(k.end_ns for k in one.operations)) + _BETWEEN_ATTEMPTS_NS
