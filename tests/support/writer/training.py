"""Captures of training jobs with planted ranges: every call's step, phase and module are known.

`Program` is what one process does: ranges and calls of its threads, one after the other.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.capture import layout
from ncclscope.nccl.events import FIRST_WITH_CALLS, MODE_EVENTS, events_of
from tests.support.writer.files import NS, ProcessFolder, Who, nonce_of
from tests.support.writer.meta import Meta
from tests.support.writer.slots import CHUNK_SLOTS, Slot, block_heads, handle_of, pack

MAIN, AUTOGRAD, POLLER = "python3", "pt_autograd_0", "NCCL Progress 0"
COMPUTE_STREAM, COMM_STREAM = 0x7F0000001000, 0x7F0000002000
ORIGIN_NS = 5_000 * NS
MS, US = 1_000_000, 1_000
_STOPPED = layout.STATE_STOPPED
_GPU_OFFSET_NS = 1_794_700_000 * NS


@dataclass(frozen=True)
class PlantedCall:
    """What is true of one call."""

    step: int | None
    phase: str | None
    module: str | None
    prefetch: bool = False


@dataclass(frozen=True)
class PlantedKernel:
    """What ran on the GPU, as a CUDA profiler would see it; times are the host's monotonic ones."""

    name: str
    launch_ns: int
    start_ns: int
    end_ns: int
    truth: PlantedCall | None = None  # of NCCL's


@dataclass
class _Thread:
    number: int
    tid: int
    name: str
    slots: list[Slot] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    next_index: int = 1
    open: list[tuple[int, Slot]] = field(default_factory=list)  # handle and slot of open ranges

    def put(self, *group: Slot) -> int:
        """Puts slots next to each other; returns the index of the first."""
        if CHUNK_SLOTS - self.next_index % CHUNK_SLOTS < len(group):
            while self.next_index % CHUNK_SLOTS > 1:
                self._put({"kind": layout.KINDS["Pad"]})
        first, *_ = [self._put(slot) for slot in group]
        return first

    def _put(self, slot: Slot) -> int:
        index = self.next_index
        slot["check"] = index & 0xFFFFFFFF
        self.slots.append(slot)
        self.indexes.append(index)
        self.next_index += 2 if (index + 1) % CHUNK_SLOTS == 0 else 1
        return index


class Program:
    """One process. Times run on with what it does; `now_ns` may be moved."""

    def __init__(
        self, rank: int, ranks: int, kernels: bool = True, groups: bool = True, interface: int = 5
    ) -> None:
        self.rank, self.ranks, self.now_ns = rank, ranks, ORIGIN_NS
        self.truth: list[PlantedCall] = []
        self.kernels: list[PlantedKernel] = []
        self.context: list[dict[str, Any]] = []
        self._kernels, self._sequences, self._interface = kernels, [0], interface
        pid = 10_000 + rank * 10
        self.who = Who(
            host="node0", pid=pid, boot_id="51309a7e-0000-4000-8000-000000000000",
            start_ns=ORIGIN_NS - NS // 2, realtime_offset_ns=_GPU_OFFSET_NS, mode="trace",
            nonce=nonce_of(rank), environment={"RANK": str(rank), "WORLD_SIZE": str(ranks)},
            more={"simulation": "1", "nccl_version": "22809", "command": "train"},
        )  # fmt: skip
        self.meta = Meta(self.who)
        self._texts: dict[str, int] = {}
        self._threads = {
            name: _Thread(number, pid + number, name)
            for number, name in enumerate((MAIN, AUTOGRAD, POLLER))
        }
        self._gpu_free_ns = self._compute_free_ns = 0
        self._communicator("", 0)
        if groups:
            ranked = list(range(ranks))
            self.context.append(
                {"what": "group", "name": "1", "description": "mesh_dp", "ranks": ranked}
            )

    def _communicator(self, name: str, number: int) -> None:
        self.meta.communicator(
            name, gpu_uuid=(0x51309A7E << 96 | self.rank).to_bytes(16, "big"),
            gpu_bus_id=f"00000000:{0x10 + self.rank:02X}:00.0", id=0x1234567 + number,
            t0=ORIGIN_NS - NS // 3, comm=number, version=self._interface, rank=self.rank,
            ranks=self.ranks, nodes=1, tid=self.who.pid,
            mask=events_of(self._interface) & MODE_EVENTS["trace"],
        )  # fmt: skip

    def communicator(self, name: str) -> int:
        """Another communicator of all ranks, with a name; its number is what `call` takes."""
        self._sequences.append(0)
        self._communicator(name, len(self._sequences) - 1)
        return len(self._sequences) - 1

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts) + 1
            self.meta.text(layout.TEXT_RANGE, self._texts[text], text)
        return self._texts[text]

    def _handle(self, thread: _Thread, index: int) -> int:
        return handle_of(self.who.nonce, thread.number, index)

    def push(
        self, text: str, source: int = layout.RANGE_RECORD_FUNCTION, thread: str = MAIN,
        domain: int = 0,
    ) -> None:  # fmt: skip
        """Begins a range; without a place in the table of texts where `text` begins with "!"."""
        own = self._threads[thread]
        slot: Slot = {
            "kind": layout.KINDS["Range"], "chan": source, "states": 0, "t0": self.now_ns,
            "parent": own.open[-1][0] if own.open else 0, "domain": domain,
        }  # fmt: skip
        group = [slot]
        if text.startswith("!"):
            slot["flags"] = layout.FLAG_EXT
            raw = text[1:].encode()[:56].ljust(56, b"\0")
            group.append({"kind": layout.KINDS["RangeText"], "text": tuple(raw)})
        else:
            slot["text"] = self._text(text)
        index = own.put(*group)
        own.open.append((self._handle(own, index), slot))
        self.now_ns += US

    def pop(self, thread: str = MAIN) -> None:
        """Ends the innermost range."""
        _, slot = self._threads[thread].open.pop()
        slot |= {"t1": self.now_ns, "states": _STOPPED}
        self.now_ns += US

    @contextmanager
    def range(
        self, text: str, source: int = layout.RANGE_RECORD_FUNCTION, thread: str = MAIN
    ) -> Iterator[None]:
        """A range around what follows."""
        self.push(text, source, thread)
        yield
        self.pop(thread)

    def mark(
        self, text: str, source: int = layout.RANGE_API, payload: int | None = None,
        thread: str = MAIN,
    ) -> None:  # fmt: skip
        """A moment."""
        slot: Slot = {
            "kind": layout.KINDS["Range"], "chan": source, "text": self._text(text),
            "states": _STOPPED | layout.STATE_FIRST, "t0": self.now_ns, "t1": self.now_ns,
        }  # fmt: skip
        if payload is not None:
            slot |= {"payload": payload, "payload_type": layout.PAYLOAD_U64}
        self._threads[thread].put(slot)
        self.now_ns += US

    def wait(self, length_ns: int) -> None:
        """Time passes."""
        self.now_ns += length_ns

    def compute(self, length_ns: int, name: str = "sm90_xmma_gemm_f32") -> None:
        """A kernel of the program's own, behind the one before it."""
        t = self.now_ns
        start = max(t + 8 * US, self._compute_free_ns)
        self._compute_free_ns = start + length_ns
        self.kernels.append(PlantedKernel(name, t + 2 * US, start, start + length_ns))
        self.now_ns = t + 5 * US

    def _put_call(
        self, own: _Thread, function: int, dtype: int, count: int, stream: int, comm: int
    ) -> int:
        """Puts the events of a call, from interface v5 on; returns its handle, 0 before."""
        t = self.now_ns
        if self._interface < FIRST_WITH_CALLS:
            return 0
        group_api = own.put(
            {"kind": layout.KINDS["GroupApi"], "t0": t, "t1": t + 19 * US, "depth": 1, "comm": comm,
             "states": _STOPPED | layout.STATE_FIRST | layout.STATE_SECOND,
             "t_start_done": t + US, "t_end_begins": t + 4 * US}
        )  # fmt: skip
        parent = self._handle(own, group_api)
        api = own.put(
            {"kind": layout.KINDS["CollApi"], "states": _STOPPED, "parent": parent, "t0": t + US,
             "t1": t + 2 * US, "count": count, "stream": stream, "func": function,
             "dtype": dtype, "comm": comm}
        )  # fmt: skip
        own.put(
            {"kind": layout.KINDS["KernelLaunch"], "states": _STOPPED, "parent": parent,
             "t0": t + 5 * US, "t1": t + 11 * US, "stream": stream, "comm": comm}
        )  # fmt: skip
        return self._handle(own, api)

    def call(
        self, function: str, count: int, truth: PlantedCall, thread: str = MAIN,
        stream: int = COMM_STREAM, length_ns: int = 200 * US, send_buffer: int = 0,
        comm: int = 0,
    ) -> None:  # fmt: skip
        """A collective on float32, launched and carried out behind the one before."""
        own, t = self._threads[thread], self.now_ns
        function_id, dtype = self.meta.string(function), self.meta.string("ncclFloat32")
        in_bytes = function in ("AllGather", "Broadcast")
        api = self._put_call(own, function_id, dtype, count, stream, comm)
        group = own.put(
            {"kind": layout.KINDS["Group"], "states": _STOPPED, "t0": t + 12 * US,
             "t1": t + 17 * US, "comm": comm}
        )  # fmt: skip
        coll = own.put(
            {"kind": layout.KINDS["Coll"], "states": _STOPPED, "parent": api,
             "flags": layout.FLAG_EXT | layout.FLAG_RANK_IN, "t0": t + 13 * US, "t1": t + 16 * US,
             "seq": self._sequences[comm], "count": count * (4 if in_bytes else 1), "func": function_id,
             "dtype": self.meta.string("ncclInt8") if in_bytes else dtype,
             "algo": self.meta.string("RING"), "proto": self.meta.string("SIMPLE"),
             "channels": 1, "warps": 16, "comm": comm},
            {"kind": layout.KINDS["CollExt"], "parent_group": self._handle(own, group),
             "rank": self.rank, "send_buff": send_buffer},
        )  # fmt: skip
        if self._kernels:
            start = max(t + 15 * US, self._gpu_free_ns)
            self._gpu_free_ns = end = start + length_ns
            name = f"ncclDevKernel_{function}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            self.kernels.append(PlantedKernel(name, t + 6 * US, start, end, truth))
            poller = self._threads[POLLER]
            poller.put(
                {"kind": layout.KINDS["KernelCh"], "states": _STOPPED | layout.STATE_FIRST,
                 "parent": self._handle(own, coll), "t0": start + 3 * US, "t1": end + 3 * US,
                 "gpu_start": start + _GPU_OFFSET_NS, "gpu_stop": end + _GPU_OFFSET_NS,
                 "t_stop": end + 3 * US, "comm": comm}
            )  # fmt: skip
        self._sequences[comm] += 1
        self.truth.append(truth)
        self.now_ns = t + 20 * US

    def write(self, capture: Path) -> None:
        """Writes the process into a capture."""
        folder = ProcessFolder(capture, self.who)
        for thread in self._threads.values():
            if thread.slots:
                _write_thread(folder, thread)
        folder.close()
        last_ns = max(self.now_ns, self._gpu_free_ns) + MS
        self.meta.syncs(self.who.start_ns, last_ns, folder.slots_written)
        self.meta.end(last_ns, folder.slots_written)
        folder.write("meta", layout.FILE_META, self.meta.slots())
        lines = "".join(json.dumps(line) + "\n" for line in self.context)
        (capture / self.who.folder / "context.jsonl").write_text(lines)


def _write_thread(folder: ProcessFolder, thread: _Thread) -> None:
    slots, indexes = pack(thread.slots), np.array(thread.indexes, np.int64)
    starts = np.flatnonzero(np.diff(indexes, prepend=-1) != 1)
    counts = np.diff(starts, append=len(indexes))
    written = np.array([slot.get("t0", 0) for slot in thread.slots], np.int64)[starts] + NS // 10
    heads = block_heads(indexes[starts], counts, written, thread.number, thread.tid, thread.name)
    folder.append(np.insert(slots, starts, heads))


# ---- jobs ----
def fsdp2_step(program: Program, step: int, layers: int, data_ns: int = 2 * MS) -> None:
    """One step of FSDP2 as PyTorch names it; backward calls come from autograd's thread."""
    with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        program.wait(data_ns)
    with program.range("FSDP::root_pre_forward"):
        for layer in range(layers):
            name = f"layers.{layer}"
            with program.range(f"FSDP::pre_forward ({name})"):
                with program.range(f"FSDP::all_gather ({name})"):
                    program.call("AllGather", 4096, PlantedCall(step, "forward", name))
                program.wait(MS)
    with program.range("autograd.backward", layout.RANGE_ENGINE):
        for layer in reversed(range(layers)):
            name, ahead = f"layers.{layer}", f"layers.{layer - 1}"
            with program.range(f"FSDP::pre_backward ({name})", thread=AUTOGRAD):
                if layer:
                    program.push(f"FSDP::backward_prefetch for {ahead}", thread=AUTOGRAD)
                    program.push(f"FSDP::all_gather ({ahead})", thread=AUTOGRAD)
                    truth = PlantedCall(step, "backward", ahead, prefetch=True)
                    program.call("AllGather", 4096, truth, AUTOGRAD)
                    program.pop(AUTOGRAD)
                    program.pop(AUTOGRAD)
            program.wait(2 * MS)
            with program.range(f"FSDP::post_backward_reduce ({name})", thread=AUTOGRAD):
                program.call("ReduceScatter", 4096, PlantedCall(step, "backward", name), AUTOGRAD)
            truth = PlantedCall(step, "backward", None)
            program.call("AllReduce", 64, truth, AUTOGRAD, COMPUTE_STREAM)
    with program.range("Optimizer.step#AdamW.step"):
        program.wait(MS)


BUCKETS = (
    (40_000, ("module.head.weight", "module.layers.2.a.weight")),
    (20_000, ("module.layers.1.a.weight", "module.layers.1.a.bias")),
    (20_000, ("module.layers.0.a.weight", "module.layers.0.a.bias")),
)


def ddp_step(program: Program, step: int) -> None:
    """One step of DistributedDataParallel: buckets from autograd's thread, without ranges."""
    with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        program.wait(MS)
    with program.range("DistributedDataParallel.forward"):
        program.call("Broadcast", 64, PlantedCall(step, "forward", None))
        program.wait(2 * MS)
    with program.range("autograd.backward", layout.RANGE_ENGINE):
        for (size, _), module in zip(
            BUCKETS, ("head … layers.2", "layers.1.a", "layers.0.a"), strict=True
        ):
            program.wait(MS)
            truth = PlantedCall(step, "backward", module)
            program.call("AllReduce", size // 4, truth, AUTOGRAD)
    with program.range("Optimizer.step#SGD.step"):
        program.wait(MS)


def write_fsdp2(
    capture: Path, ranks: int = 2, steps: int = 4, layers: int = 3, data_ns: int = 2 * MS
) -> list[Program]:
    """A job of FSDP2; one call before the first step belongs to none."""
    programs = [Program(rank, ranks) for rank in range(ranks)]
    for program in programs:
        program.context.append(
            {"what": "facts", "torch": "2.13.0", "device": "NVIDIA H200",
             "compute_stream": COMPUTE_STREAM, "parameters": 1_000_000}
        )  # fmt: skip
        program.call("Broadcast", 16, PlantedCall(None, None, None))
        for step in range(steps):
            fsdp2_step(program, step, layers, data_ns)
        program.write(capture)
    return programs


def write_ddp(capture: Path, ranks: int = 2, steps: int = 4) -> list[Program]:
    """A job of DistributedDataParallel."""
    programs = [Program(rank, ranks, groups=False) for rank in range(ranks)]
    for program in programs:
        buckets = [{"bytes": size, "parameters": list(names)} for size, names in BUCKETS]
        program.context.append({"what": "buckets", "buckets": buckets})
        program.call("Broadcast", 16, PlantedCall(None, None, None))
        for step in range(steps):
            ddp_step(program, step)
        program.write(capture)
    return programs
