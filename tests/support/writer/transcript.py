"""The capture of a transcript at the job's own times.

The player replays transcripts with new host times, so its captures cannot show how GPU stamps and
host times fit together. Here CLOCK_MONOTONIC is the transcript's `t`.
"""

import atexit
import heapq
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from ncclscope.capture import layout
from ncclscope.nccl.events import (
    BIT,
    FIRST_WITH_CALLS,
    FIRST_WITH_STAMPS,
    LAST_OLD_PROXY_OP_STATE,
    MODE_EVENTS,
)
from tests.support.player import TRANSCRIPTS, read_transcript
from tests.support.writer.descriptors import Context, Line, fill, store_state
from tests.support.writer.files import NS, ProcessFolder, Who, nonce_of
from tests.support.writer.meta import Meta
from tests.support.writer.slots import CHUNK_SLOTS, Slot, block_heads, handle_of, pack

_BOOT_ID = "6f3c1c5e-0000-4000-8000-000000000000"
_REALTIME_OFFSET_NS = 1_794_709_000 * NS  # when the jobs ran, about


@dataclass
class _Stream:
    """One thread's slots."""

    number: int
    tid: int
    slots: list[Slot] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    next_index: int = 1  # the first slot of a chunk is its head

    def take(self, slot: Slot, extension: Slot | None = None) -> int:
        """Puts a slot, and its extension right behind it, into the stream; returns its index."""
        left = CHUNK_SLOTS - self.next_index % CHUNK_SLOTS
        if extension is not None and left == 1:
            self._put({"kind": layout.KINDS["Pad"]})
        index = self._put(slot)
        if extension is not None:
            self._put(extension)
        return index

    def slot_before(self) -> Slot | None:
        """The one right before the next, of the same chunk."""
        is_neighbour = self.indexes and self.indexes[-1] == self.next_index - 1
        return self.slots[-1] if is_neighbour else None

    def _put(self, slot: Slot) -> int:
        index = self.next_index
        self.slots.append(slot)
        self.indexes.append(index)
        slot["check"] = index & 0xFFFFFFFF
        self.next_index += 2 if (index + 1) % CHUNK_SLOTS == 0 else 1
        return index


@dataclass(frozen=True)
class _HostClock:
    """A host's CLOCK_MONOTONIC against the transcript's times."""

    origin_ns: int  # where drift counts from
    offset_ns: int
    drift_ppm: float

    def at(self, t_ns: int) -> int:
        """What this host's clock shows at the time that the transcript calls t_ns."""
        drift_ns = round((t_ns - self.origin_ns) * self.drift_ppm / 1e6)
        return t_ns + self.offset_ns + drift_ns


class _Recorder:
    """Takes one process's callbacks as the plugin does."""

    def __init__(self, who: Who, clock: _HostClock) -> None:
        self._who = who
        self._clock = clock
        self._events: dict[int, tuple[Slot, int, int]] = {}  # by handle: slot, tid, our handle
        self._contexts: dict[int, Context] = {}
        self.streams: dict[int, _Stream] = {}
        self.open: set[int] = set()  # contexts
        self.meta = Meta(who)

    def take(self, line: Line) -> None:
        """One callback."""
        t_ns = self._clock.at(line["t"])
        if line["cb"] == "init":
            self._init(line, t_ns)
        elif line["cb"] == "start":
            self._start(line, t_ns)
        elif line["cb"] == "finalize":
            if line["ctx"] in self.open:
                self.open.remove(line["ctx"])
                self.meta.communicator_end(self._contexts[line["ctx"]].comm, t_ns)
        elif line["h"] in self._events:
            self._update(line, t_ns)

    def _init(self, line: Line, t_ns: int) -> None:
        known = line["v"] >= FIRST_WITH_STAMPS
        number = len(self._contexts)
        self._contexts[line["ctx"]] = Context(
            nonce=self._who.nonce,
            comm=number,
            comm_rank=line["rank"] if known else 0,
            version=line["v"],
            text=self.meta.string,
            handle=lambda h: self._events[h][2] if h in self._events else 0,
        )
        self.open.add(line["ctx"])
        self.meta.communicator(
            line["name"],
            gpu_uuid=line.get("gpu_uuid", b""),
            id=int(line["comm"], 16),
            t0=t_ns,
            comm=number,
            version=line["v"],
            rank=line["rank"] if known else -1,
            ranks=line["nranks"],
            nodes=line["nnodes"],
            tid=line["tid"],
            mask=line["mask"] & MODE_EVENTS[self._who.mode],
        )

    def _stream(self, tid: int) -> _Stream:
        return self.streams.setdefault(tid, _Stream(len(self.streams), tid))

    def _start(self, line: Line, t_ns: int) -> None:
        if not line["type"] & MODE_EVENTS[self._who.mode]:
            return
        context = self._contexts[line["ctx"]]
        slot, extension = fill(context, line, t_ns)
        stream = self._stream(line["tid"])
        before = stream.slot_before()
        if before is not None and self._fits_group(line, context, before, stream):
            assert extension is not None
            slot["flags"] = layout.FLAG_IN_GROUP | (layout.FLAG_RANK if line["rank"] else 0)
            before["states"] |= layout.STATE_FIRST
            before |= {name: extension[name] for name in ("send_buff", "recv_buff")}
            extension = None
        handle = handle_of(self._who.nonce, stream.number, stream.take(slot, extension))
        self._events[line["h"]] = slot, line["tid"], handle

    def _fits_group(self, line: Line, context: Context, before: Slot, stream: _Stream) -> bool:
        """Whether the slot before is a Coll's Group, and can hold what an extension would say."""
        if line["type"] != BIT["Coll"] or context.version < FIRST_WITH_CALLS:
            return False
        if line.get("tag") or line["rank"] != context.comm_rank:
            return False
        before_handle = handle_of(self._who.nonce, stream.number, stream.next_index - 1)
        if before["kind"] != layout.KINDS["Group"] or before["states"] & layout.STATE_STOPPED:
            return False
        return context.handle(line.get("group", 0)) == before_handle

    def _update(self, line: Line, t_ns: int) -> None:
        slot, tid, handle = self._events[line["h"]]
        ours = tid == line["tid"]
        if line["cb"] == "stop":
            stopped = bool(slot["states"] & layout.STATE_STOPPED)
            if ours and not stopped:
                slot["t1"] = t_ns
                slot["states"] |= layout.STATE_STOPPED
            elif not ours:
                self._append(line, handle, t_ns, layout.STATE_IS_STOP)
        elif not ours or line["s"] <= LAST_OLD_PROXY_OP_STATE or not store_state(slot, line, t_ns):
            self._append(line, handle, t_ns, line["s"])

    def _append(self, line: Line, handle: int, t_ns: int, state: int) -> None:
        """A state that has a slot of its own."""
        slot = {
            "kind": layout.KINDS["State"],
            "states": layout.STATE_STOPPED,
            "parent": handle,
            "t0": t_ns,
            "t1": t_ns,
            "arg": line.get("a", 0),
            "state": state,
            "repeats": 1,
            "steps": line["a2"] if state <= LAST_OLD_PROXY_OP_STATE else 0,
        }
        self._stream(line["tid"]).take(slot)


def _thread_name(stream: _Stream, pid: int) -> str:
    """What the thread was called, by what it did; transcripts do not say."""
    kinds = {slot["kind"] for slot in stream.slots}
    if stream.tid == pid:
        return "python3"
    if kinds & {layout.KINDS["ProxyOp"], layout.KINDS["ProxyCtrl"]}:
        return "NCCL Progress 0"
    return "NCCL Profiler" if layout.KINDS["KernelCh"] in kinds else "python3"


def _write_stream(folder: ProcessFolder, stream: _Stream) -> None:
    """The stream's slots, a block for each chunk."""
    slots, indexes = pack(stream.slots), np.array(stream.indexes, np.int64)
    starts = np.flatnonzero(np.diff(indexes, prepend=-1) != 1)
    counts = np.diff(starts, append=len(indexes))
    written = np.array([slot.get("t0", 0) for slot in stream.slots], np.int64)[starts] + NS // 10
    name = _thread_name(stream, folder.who.pid)
    heads = block_heads(indexes[starts], counts, written, stream.number, stream.tid, name)
    folder.append(np.insert(slots, starts, heads))


def _rank_and_pid(path: Path) -> tuple[int, int]:
    match = re.match(r"rank(\d+)-(\d+)\.jsonl", path.name)
    assert match, f"{path} is not a transcript"
    return int(match[1]), int(match[2])


def _write_process(capture: Path, who: Who, clock: _HostClock, lines: list[Line]) -> None:
    recorder = _Recorder(who, clock)
    for line in lines:
        recorder.take(line)
    folder = ProcessFolder(capture, who)
    for stream in recorder.streams.values():
        _write_stream(folder, stream)
    folder.close()
    last_ns = max(clock.at(line["t"]) for line in lines)
    recorder.meta.syncs(who.start_ns, last_ns, folder.slots_written)
    if not recorder.open:
        recorder.meta.end(last_ns + NS // 50, folder.slots_written)
    folder.write("meta", layout.FILE_META, recorder.meta.slots())


@cache
def _written_folder() -> Path:
    """Captures that this process has written, until it ends."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)


@cache
def _written(folder: Path, mode: str) -> Path:
    """The capture of a transcript, written once: a copy takes a tenth of the time."""
    capture = _written_folder() / mode / folder.name
    from_transcript(folder, capture, mode)
    return capture


def _copy_tree(source: Path, target: Path) -> None:
    """Copies folders as if they were written now."""
    shutil.copytree(source, target, copy_function=shutil.copy, dirs_exist_ok=True)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        os.utime(folder)


def from_transcript(
    folder: Path,
    capture: Path,
    mode: str = "full",
    offsets_ns: Mapping[int, int] | None = None,
    drift_ppm: Mapping[int, float] | None = None,
    boot_ids: Mapping[int, str] | None = None,
    realtime_errors_ns: Mapping[int, int] | None = None,
    ranks_per_process: int = 1,
) -> None:
    """Writes the capture that the plugin would have made of the job in `folder`.

    Ranks are keys. `offsets_ns` and `drift_ppm` (from the job's first callback on) shift a rank's
    CLOCK_MONOTONIC; GPU stamps stay. CLOCK_REALTIME drifts too, but is otherwise the same for all
    ranks, as time servers keep it, give or take `realtime_errors_ns`. A rank with another boot id is
    on another node. `ranks_per_process`: so many neighbours' callbacks are taken as one process's.
    """
    plain = (
        not (offsets_ns or drift_ppm or boot_ids or realtime_errors_ns) and ranks_per_process == 1
    )
    if plain and folder.parent == TRANSCRIPTS and not capture.is_relative_to(_written_folder()):
        _copy_tree(_written(folder, mode), capture)
        return
    files = {_rank_and_pid(path): path for path in sorted(folder.glob("rank*.jsonl*"))}
    jobs = {ids: read_transcript(path) for ids, path in files.items()}
    if ranks_per_process > 1:
        jobs = _in_fewer_processes(jobs, ranks_per_process)
    origin_ns = min(line["t"] for lines in jobs.values() for line in lines)
    boots = {rank: (boot_ids or {}).get(rank, _BOOT_ID) for rank, _ in jobs}
    hosts = {
        boot_id: f"node{number}" for number, boot_id in enumerate(dict.fromkeys(boots.values()))
    }
    for (rank, pid), lines in jobs.items():
        offset_ns = (offsets_ns or {}).get(rank, 0)
        clock = _HostClock(origin_ns, offset_ns, (drift_ppm or {}).get(rank, 0.0))
        error_ns = (realtime_errors_ns or {}).get(rank, 0)
        who = Who(
            host=hosts[boots[rank]],
            pid=pid,
            boot_id=boots[rank],
            start_ns=clock.at(lines[0]["t"]),
            realtime_offset_ns=_REALTIME_OFFSET_NS - offset_ns + error_ns,
            mode=mode,
            nonce=nonce_of(rank),
            environment={"RANK": str(rank), "WORLD_SIZE": str(len(jobs))},
            more={
                "command": f"transcript {folder.name}",
                "nccl_version": _nccl_version(folder.name),
            },
        )
        _write_process(capture, who, clock, lines)


Jobs = dict[tuple[int, int], list[Line]]  # by rank and pid


def _in_fewer_processes(jobs: Jobs, ranks_per_process: int) -> Jobs:
    """The same callbacks at the same times, from threads of fewer processes, a GPU to each rank."""
    ids, merged = sorted(jobs), {}
    for place in range(0, len(ids), ranks_per_process):
        members = ids[place : place + ranks_per_process]
        parts = [_renumbered(jobs[one], *one, pid=members[0][1]) for one in members]
        # Within a part lines stay in their order, though threads may be some µs apart in it.
        merged[members[0]] = list(heapq.merge(*parts, key=lambda line: line["t"]))
    return merged


def _renumbered(lines: list[Line], rank: int, own_pid: int, pid: int) -> list[Line]:
    """A rank's callbacks with contexts and handles that no other rank has."""
    first, renumbered = rank << 32, []
    for line in lines:
        serial = (name for name in ("ctx", "h", "p", "group") if line.get(name))
        line = line | {name: line[name] + first for name in serial}
        if line["cb"] == "init":
            line["gpu_uuid"] = (rank + 1).to_bytes(16, "big")
        if line.get("pid") == own_pid:
            line["pid"] = pid
        renumbered.append(line)
    return renumbered


def _nccl_version(name: str) -> str:
    """As ncclGetVersion says it: 22809 for 2.28.9."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", name)
    return str(int(match[1]) * 10000 + int(match[2]) * 100 + int(match[3])) if match else "0"
