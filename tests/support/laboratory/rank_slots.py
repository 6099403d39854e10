"""Slots of one rank, as the plugin writes them in mode trace: its calls and its kernels."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from tests.support.laboratory.events import CALL_NS, PART_NS, Kernel, Part
from tests.support.laboratory.recording import Ints, RecordedProcess
from tests.support.laboratory.sampling import sampled
from tests.support.writer.files import ProcessFolder
from tests.support.writer.meta import Meta
from tests.support.writer.slots import Placed, StreamLayout, handle_of

Bools = npt.NDArray[np.bool_]
Handles = npt.NDArray[np.uint64]

_STOPPED = layout.STATE_STOPPED
_BOTH = layout.STATE_FIRST | layout.STATE_SECOND
_STREAM_ADDRESS, _BUFFERS = 0x7F0000001000, 0x7F4200000000
_IN_BYTES = ("AllGather", "Broadcast")  # NCCL counts these in bytes below the API
_BYTES_OF_ELEMENT = 2  # bfloat16
_START_SPREAD_NS, _STOP_SPREAD_NS = 800, 600  # over channels
_POLL_NS = 400
EVENT_EXCESS_NS = 6_000  # of the time between two CUDA events over the kernel's own


def _put(placed: Placed, places: Ints, kind: str, head: object, **fields: object) -> None:
    """Fills slots of one kind; a head is states | channel << 8 | flags << 16."""
    rows, index = placed.row[places], placed.index[places].astype(np.uint64)
    words = placed.out.view("<u8").reshape(-1, 8)
    low = np.asarray(head).astype(np.uint64) << np.uint64(8) | np.uint64(layout.KINDS[kind])
    words[rows, 0] = index << np.uint64(32) | low
    slots = placed.out.view(dtypes.OURS.dtypes[kind])
    for name, value in fields.items():
        slots[name][rows] = value


@dataclass(frozen=True, slots=True)
class _Parts:
    """The calls of groups as columns: what is called, by whom, when, and where its slots are."""

    func: Ints
    count: Ints
    work_count: Ints
    work_type: Ints
    sequence: Ints
    root: Ints
    peer: Ints
    algo: Ints
    comm: Ints
    stream: Ints
    comm_rank: Ints
    api_ns: Ints
    work_ns: Ints
    call: Ints  # places of slots: GroupApi, the API event, Group, the work
    api: Ints
    group: Ints
    work: Ints

    def __getitem__(self, which: Bools) -> "_Parts":
        return _Parts(*(getattr(self, name)[which] for name in self.__slots__))


class RankWriter:
    """Writes the slots of one rank: those of its calling thread and of the polling thread."""

    def __init__(
        self, process: RecordedProcess, rank: int, meta: Meta, nonce: int, threads: tuple[int, int],
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

    def _handles(self, placed: Placed, places: Ints) -> Handles:
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
        if self._process.recording.timed_every > 1:
            launches = self._handles(placed, first + 1 + parts)
            self._write_launch_times(folder, kernels, launches)
        else:
            self._write_kernels(folder, kernels, parts, collective, works)

    def _is_sampled(self, kernels: list[Kernel]) -> Bools:
        every = self._process.recording.timed_every
        return sampled(kernels, every) if every > 1 else np.zeros(len(kernels), bool)

    def _write_launch_times(
        self, folder: ProcessFolder, kernels: list[Kernel], launches: Handles
    ) -> None:
        """LaunchTime events: CUDA events around launches that sampling chose. The first one is
        reached before the kernel starts, EVENT_EXCESS_NS in the median. Both are seen to be over
        at the next chosen launch, or when the rank ends.
        """
        process, chosen = self._process, np.flatnonzero(self._is_sampled(kernels))
        clock = process.ranks.index(self._rank)
        if not len(chosen):
            return
        own = [kernels[row] for row in chosen.tolist()]
        _, launch_ns, comm, _ = self._common(own)
        end = np.array([kernel.end_ns for kernel in own])
        early = self._rng.integers(EVENT_EXCESS_NS // 2, EVENT_EXCESS_NS * 3 // 2, len(own))
        start = np.array([kernel.start_ns for kernel in own]) - early
        over_ns = process.host_ns(end)
        looks_ns = np.append(np.sort(launch_ns), max(over_ns.max(), launch_ns.max()) + 1_000_000)
        seen_ns = looks_ns[np.searchsorted(looks_ns, over_ns, side="right")]
        seen_ns = seen_ns + self._rng.integers(2_000, 6_000, len(own))
        placed = self._poller.place(len(own), np.empty(0, np.int64), int(seen_ns.max()) + 1_000_000)
        _put(
            placed, np.arange(len(own)), "LaunchTime", _STOPPED, parent=launches[chosen],
            t0=launch_ns - 1_000, t1=seen_ns, gpu_start_ns=process.gpu_ns(self._rank, start),
            gpu_stop_ns=process.gpu_ns(self._rank, end), comm=comm, clock=clock, reason=0,
        )  # fmt: skip
        folder.append(placed.out)

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
        noted = np.where(self._is_sampled(kernels), layout.STATE_NOTED, 0)
        _put(
            placed, first + 1 + parts, "KernelLaunch", _STOPPED | noted | flag,
            parent=self._handles(placed, first), t0=launch_ns, t1=launch_ns + 6_000,
            stream=stream, comm=comm,
        )  # fmt: skip
        _put(
            placed, first + 2 + parts, "Group", _STOPPED,
            t0=launch_ns + 6_500, t1=end_ns - 1_000, comm=comm,
        )  # fmt: skip

    def _write_parts(
        self, placed: Placed, kernels: list[Kernel], first: Ints, parts: Ints, collective: Bools
    ) -> Handles:
        """API events and works; returns the handles of the works, part by part."""
        group = np.repeat(np.arange(len(kernels)), parts)
        place = np.arange(len(group)) - np.repeat(np.cumsum(parts) - parts, parts)
        rows = [self._part_row(kernel, part) for kernel in kernels for part in kernel.parts]
        call_ns, launch_ns, comm, stream = (c[group] for c in self._common(kernels))
        many = np.where(collective[group], 2, 1)
        work = first[group] + parts[group] + 3 + many * place
        own = _Parts(
            *np.array(rows, np.int64).T, comm, stream, self._comm_ranks(kernels)[group],
            call_ns + 1_200 + PART_NS * place, launch_ns + 7_200 + PART_NS * place,
            first[group], first[group] + 1 + place, first[group] + parts[group] + 2, work,
        )  # fmt: skip
        chosen = collective[group]
        self._write_apis(placed, own[chosen], "CollApi")
        self._write_apis(placed, own[~chosen], "P2pApi")
        self._write_collectives(placed, own[chosen])
        self._write_exchanges(placed, own[~chosen])
        return self._handles(placed, work)

    def _write_apis(self, placed: Placed, own: "_Parts", kind: str) -> None:
        more = {"root": own.root} if kind == "CollApi" else {}
        _put(
            placed, own.api, kind, _STOPPED | self._rank_flag(own.comm_rank),
            parent=self._handles(placed, own.call), t0=own.api_ns, t1=own.api_ns + 400,
            count=own.count, stream=own.stream, dtype=self._meta.string("ncclBfloat16"),
            func=own.func, comm=own.comm, **more,
        )  # fmt: skip

    def _write_collectives(self, placed: Placed, own: "_Parts") -> None:
        """Coll and CollExt."""
        recording = self._process.recording
        _put(
            placed, own.work, "Coll", _STOPPED | (layout.FLAG_EXT | layout.FLAG_RANK_IN) << 16,
            parent=self._handles(placed, own.api), t0=own.work_ns, t1=own.work_ns + 3_000,
            seq=own.sequence, count=own.work_count, dtype=own.work_type, algo=own.algo,
            proto=self._meta.string("SIMPLE"), channels=recording.channels, warps=16,
            variant=self._meta.string("") if recording.version >= 7 else 0, root=own.root,
            func=own.func, comm=own.comm,
        )  # fmt: skip
        _put(
            placed, own.work + 1, "CollExt", 0, parent_group=self._handles(placed, own.group),
            send_buff=_BUFFERS, recv_buff=_BUFFERS + (1 << 28), rank=own.comm_rank,
        )  # fmt: skip

    def _write_exchanges(self, placed: Placed, own: "_Parts") -> None:
        """P2p."""
        rank_flag = np.where(own.comm_rank != 0, layout.FLAG_RANK << 16, 0)
        _put(
            placed, own.work, "P2p", _STOPPED | 1 << 8 | rank_flag,
            parent=self._handles(placed, own.api), t0=own.work_ns, t1=own.work_ns + 400,
            buff=_BUFFERS, count=own.count, parent_group=self._handles(placed, own.group),
            dtype=self._meta.string("ncclBfloat16"), peer=own.peer, func=own.func, comm=own.comm,
        )  # fmt: skip

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
        collective: Bools, works: Handles,
    ) -> None:  # fmt: skip
        """KernelCh events: one for each channel of a collective, one for each send or receive.

        Sends and receives of a group share their kernel, so they share its stamps.
        """
        recording, process = self._process.recording, self._process
        each = np.where(collective, recording.channels, parts)
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
