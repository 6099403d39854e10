"""Slots of simulated operations, as NCCL 2.28 and later reports eager calls in trace mode."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from tests.support.writer.meta import Meta
from tests.support.writer.physics import CALL_TO_LAUNCH_NS, START_SPREAD_NS, STOP_SPREAD_NS
from tests.support.writer.ranges import CallerRanges
from tests.support.writer.slots import Ints, Placed, Slots, StreamLayout, handle_of
from tests.support.writer.spec import SEND_RECV, SyntheticSpec

Handles = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_STOPPED = layout.STATE_STOPPED
_BOTH = layout.STATE_FIRST | layout.STATE_SECOND
_ELEMENT_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}  # by the digits that end a datatype's name
_IN_BYTES = ("AllGather", "Broadcast")  # NCCL counts these in bytes below the API
_STREAM_ADDRESS = 0x7F0000001000
_BUFFERS = 0x7F4200000000
# A collective: GroupApi, CollApi, KernelLaunch, Group, Coll, CollExt. (The plugin leaves the last
# one out where the Group can stand for it; every capture before 1.3 has it.)
# A send and a receive: GroupApi, P2pApi, P2pApi, KernelLaunch, Group, P2p, P2p.
_COLLECTIVE_SLOTS, _SEND_RECV_SLOTS = 6, 7
_COLL, _SEND = 4, 5
# Times after the call, in ns.
_START_DONE, _END_BEGINS = 1_000, 4_000
_API, _API_END, _SECOND_API, _SECOND_API_END = 1_500, 2_300, 2_700, 3_500
_LAUNCHED = CALL_TO_LAUNCH_NS + 6_000
_GROUP, _WORK, _WORK_END, _GROUP_END, _CALL_END = 11_500, 12_200, 16_500, 17_000, 19_000
_POLL = 400  # between two things that the polling thread reports


@dataclass(frozen=True)
class Ops:
    """Operations that one thread calls, in order; times are this host's CLOCK_MONOTONIC."""

    call_ns: Ints
    work: npt.NDArray[np.int16]  # place in the mix
    seq: Ints
    comm: Ints  # number in the process
    comm_rank: Ints
    comm_ranks: Ints
    launched: Bools  # else it is inside the call
    number: Ints  # in the job

    def __getitem__(self, which: Ints | Bools) -> "Ops":
        return Ops(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Kernels:
    """One rank's kernels, in order; host times and stamps."""

    host_start_ns: Ints
    host_end_ns: Ints
    gpu_start_ns: Ints
    gpu_end_ns: Ints
    ended: Bools
    call_ns: Ints
    comm: Ints
    sends: Bools
    works: Handles  # of Coll in the first column, of Send and Recv in both


@dataclass(frozen=True)
class MixTable:
    """The mix as columns: string ids, and counts as they are in slots."""

    func: Ints
    dtype: Ints
    count: Ints
    recv_count: Ints
    coll_dtype: Ints
    coll_count: Ints
    algo: Ints
    proto: Ints
    root: Ints
    sends: Bools
    send_name: int  # string ids
    recv_name: int
    variant: int


def _element_bytes(dtype: str) -> int:
    return next((size for digits, size in _ELEMENT_BYTES.items() if dtype.endswith(digits)), 1)


def mix_table(spec: SyntheticSpec, meta: Meta) -> MixTable:
    """The mix with its strings interned in one process."""
    rows = []
    for work in spec.mix:
        in_bytes = work.func in _IN_BYTES
        ids = [meta.string(name) for name in (work.dtype, work.algo, work.proto)]
        func = 0 if work.func == SEND_RECV else meta.string(work.func)
        coll_dtype = meta.string("ncclInt8") if in_bytes else ids[0]
        coll_count = work.count * (_element_bytes(work.dtype) if in_bytes else 1)
        received = work.recv_count or work.count
        rows.append(
            (func, ids[0], work.count, received, coll_dtype, coll_count, ids[1], ids[2], work.root)
        )
    sends = np.array([work.func == SEND_RECV for work in spec.mix])
    names = [meta.string(name) if sends.any() else 0 for name in ("Send", "Recv")]
    variant = meta.string("") if spec.version >= 7 else 0
    return MixTable(*np.array(rows, np.int64).T, sends, *names, variant)


def _put(placed: Placed, places: Ints, kind: str, head: Any, **fields: Any) -> None:
    """Fills slots of one kind; a head is states | chan << 8 | flags << 16."""
    rows, index = placed.row[places], placed.index[places].astype(np.uint64)
    words = placed.out.view("<u8").reshape(-1, 8)
    low = np.asarray(head).astype(np.uint64) << np.uint64(8) | np.uint64(layout.KINDS[kind])
    words[rows, 0] = index << np.uint64(32) | low
    slots = placed.out.view(dtypes.OURS.dtypes[kind])
    for name, value in fields.items():
        slots[name][rows] = value


class Caller:
    """A thread that calls NCCL."""

    def __init__(
        self,
        spec: SyntheticSpec,
        table: MixTable,
        nonce: int,
        stream: StreamLayout,
        ranges: CallerRanges,
    ) -> None:
        self._spec, self._table, self._stream, self._ranges = spec, table, stream, ranges
        self._base = np.uint64(handle_of(nonce, stream.number, 0))

    def _handles(self, placed: Placed, places: Ints) -> Handles:
        return placed.index[places].astype(np.uint64) | self._base

    def _rank_flag(self, ops: Ops) -> Ints:
        """In a head: NCCL 2.32 gives the rank in API events, earlier ones 0."""
        given = (ops.comm_rank != 0) & (self._spec.version >= 7)
        return np.where(given, layout.FLAG_RANK << 16, 0)

    def slots(self, ops: Ops) -> tuple[Slots, Handles]:
        """What the thread writes, with block heads; the works of each call (see Kernels)."""
        sends = self._table.sends[ops.work]
        lengths = np.where(sends, _SEND_RECV_SLOTS, _COLLECTIVE_SLOTS)
        lengths[~ops.launched] = np.where(sends[~ops.launched], 3, 2)
        lengths, first = self._ranges.around(lengths, ops.number)
        written_ns = int(ops.call_ns[-1]) + 1_000_000
        works_at = first[~sends & ops.launched] + _COLL
        placed = self._stream.place(int(lengths.sum()), works_at, written_ns)
        self._around(placed, first, sends, ops)
        self._ranges.put(placed)
        works = np.zeros((len(first), 2), np.uint64)
        if not sends.all():
            some = first[~sends]
            self._calls(placed, some, ops[~sends])
        collectives = ~sends & ops.launched
        if collectives.any():
            some = first[collectives]
            self._collectives(placed, some, ops[collectives])
            works[collectives, 0] = self._handles(placed, some + _COLL)
        if sends.any():
            assert ops.launched[sends].all(), "a send that is not launched is not written"
            some = first[sends]
            self._sends(placed, some, ops[sends])
            works[sends, 0] = self._handles(placed, some + _SEND)
            works[sends, 1] = self._handles(placed, some + _SEND + 1)
        return placed.out, works

    def _around(self, placed: Placed, first: Ints, sends: Bools, ops: Ops) -> None:
        """GroupApi, KernelLaunch and Group."""
        t, flag = ops.call_ns, self._rank_flag(ops)
        over = np.where(ops.launched, _STOPPED, 0)
        _put(
            placed, first, "GroupApi", over | _BOTH | flag,
            t0=t, t_start_done=t + _START_DONE, t_end_begins=t + _END_BEGINS,
            t1=np.where(ops.launched, t + _CALL_END, 0), depth=np.where(sends, 2, 1), comm=ops.comm,
        )  # fmt: skip
        first, sends, ops = first[ops.launched], sends[ops.launched], ops[ops.launched]
        t, flag = ops.call_ns, self._rank_flag(ops)
        launch = first + np.where(sends, 3, 2)
        _put(
            placed, launch, "KernelLaunch", _STOPPED | flag,
            parent=self._handles(placed, first), t0=t + CALL_TO_LAUNCH_NS, t1=t + _LAUNCHED,
            stream=_STREAM_ADDRESS, comm=ops.comm,
        )  # fmt: skip
        _put(
            placed, launch + 1, "Group", _STOPPED,
            t0=t + _GROUP, t1=t + _GROUP_END, comm=ops.comm,
        )  # fmt: skip

    def _calls(self, placed: Placed, first: Ints, ops: Ops) -> None:
        """CollApi."""
        t, work, table = ops.call_ns, ops.work, self._table
        _put(
            placed, first + 1, "CollApi", _STOPPED | self._rank_flag(ops),
            parent=self._handles(placed, first), t0=t + _API, t1=t + _API_END,
            count=table.count[work], stream=_STREAM_ADDRESS, func=table.func[work],
            dtype=table.dtype[work], root=table.root[work], comm=ops.comm,
        )  # fmt: skip

    def _collectives(self, placed: Placed, first: Ints, ops: Ops) -> None:
        """Coll and CollExt."""
        t, work, table = ops.call_ns, ops.work, self._table
        _put(
            placed, first + 4, "Coll", _STOPPED | (layout.FLAG_EXT | layout.FLAG_RANK_IN) << 16,
            parent=self._handles(placed, first + 1), t0=t + _WORK, t1=t + _WORK_END,
            seq=ops.seq, count=table.coll_count[work], func=table.func[work],
            dtype=table.coll_dtype[work], algo=table.algo[work], proto=table.proto[work],
            channels=self._spec.channels, warps=16, variant=table.variant,
            root=table.root[work], comm=ops.comm,
        )  # fmt: skip
        _put(
            placed, first + 5, "CollExt", 0,
            parent_group=self._handles(placed, first + 3), send_buff=_BUFFERS,
            recv_buff=_BUFFERS + (1 << 28), rank=ops.comm_rank,
        )  # fmt: skip

    def _sends(self, placed: Placed, first: Ints, ops: Ops) -> None:
        """P2pApi and P2p: a Send to the next rank, a Recv from the one before."""
        t, work, table = ops.call_ns, ops.work, self._table
        rank_flag = np.where(ops.comm_rank != 0, layout.FLAG_RANK << 16, 0)
        directions = (
            (0, table.send_name, table.count, 1, _API, _API_END),
            (1, table.recv_name, table.recv_count, -1, _SECOND_API, _SECOND_API_END),
        )
        for which, name, count, step, begin, end in directions:
            _put(
                placed, first + 1 + which, "P2pApi", _STOPPED | self._rank_flag(ops),
                parent=self._handles(placed, first), t0=t + begin, t1=t + end,
                count=count[work], stream=_STREAM_ADDRESS, func=name,
                dtype=table.dtype[work], comm=ops.comm,
            )  # fmt: skip
            _put(
                placed, first + _SEND + which, "P2p", _STOPPED | 1 << 8 | rank_flag,
                parent=self._handles(placed, first + 1 + which),
                t0=t + _WORK + which * 300, t1=t + _WORK_END + which * 100,
                buff=_BUFFERS + (which << 28), count=count[work],
                parent_group=self._handles(placed, first + 4), func=name,
                dtype=table.dtype[work], comm=ops.comm,
                peer=(ops.comm_rank + step) % ops.comm_ranks,
            )  # fmt: skip


def kernel_slots(
    spec: SyntheticSpec, kernels: Kernels, stream: StreamLayout, rng: np.random.Generator
) -> Slots:
    """What the polling thread writes, with block heads: a KernelCh per channel.

    Send and Recv share one work on channel 0, so their stamps are the same.
    """
    lengths = np.where(kernels.sends, 2, spec.channels)
    first = np.cumsum(lengths) - lengths
    nothing = np.empty(0, np.int64)
    written_ns = int(max(kernels.host_start_ns[-1], kernels.host_end_ns[-1])) + 1_000_000
    placed = stream.place(int(lengths.sum()), nothing, written_ns)
    low, high = spec.notice_ns
    notices = rng.integers(low, high + 1, (2, len(first)))
    seen_ns = np.maximum(kernels.host_start_ns + notices[0], kernels.call_ns + _WORK_END + 1_000)
    ended_ns = np.maximum(kernels.host_end_ns + notices[1], seen_ns + 1_000)
    for number in range(max(spec.channels, 2 if kernels.sends.any() else 1)):
        here = np.flatnonzero(lengths > number)
        channel = np.where(kernels.sends[here], 0, number)
        early = np.where(kernels.sends[here], 0, spec.channels - 1 - number)
        parts = max(spec.channels - 1, 1)
        late_ns = channel * START_SPREAD_NS // parts
        start_ns = kernels.gpu_start_ns[here] + late_ns
        stop_ns = kernels.gpu_end_ns[here] - early * STOP_SPREAD_NS // parts
        step_ns = spec.gpu_step_ns
        ended = kernels.ended[here]
        t_stop = np.where(ended, ended_ns[here] + number * _POLL, 0)
        states = np.where(ended, _STOPPED | layout.STATE_FIRST, 0)
        _put(
            placed, first[here] + number, "KernelCh", states | channel << 8,
            parent=kernels.works[here, np.where(kernels.sends[here], number, 0)],
            t0=seen_ns[here] + late_ns + number * _POLL, t_stop=t_stop,
            t1=np.where(ended, t_stop + 150, 0), gpu_start=start_ns // step_ns * step_ns,
            gpu_stop=np.where(ended, stop_ns // step_ns * step_ns, 0),
            comm=kernels.comm[here],
        )  # fmt: skip
    return placed.out
