"""Every profiler callback of NCCL, one JSON object a line, one file per process.

`ncclscope-player play` plays such a file again. Times are CLOCK_MONOTONIC of the process's own
host. Handles and contexts are serial numbers; 0 is NULL. Of a state that NCCL repeats many times
(SendPeerWait) only the first and the last callback are recorded.
"""

import gzip
import heapq
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.capture.dump_events import Event, events_of, keys_by_start
from ncclscope.capture.process import Process, open_process
from ncclscope.errors import FormatError, UsageError
from ncclscope.export.result import ExportResult
from ncclscope.model.model import Model, Progress
from ncclscope.nccl.events import BIT
from ncclscope.output_files import check_directory, holds_only, writing_directory

FILES = "rank*-*.jsonl.gz"
Line = dict[str, Any]
# By event: key in the line -> NCCL's name of the field. Not every interface has all of them. Fields
# that are not listed have NCCL's name as their key.
FIELDS = {
    "Coll": {
        "comm": "commHash", "seq": "seqNumber", "func": "func", "send": "sendBuff",
        "recv": "recvBuff", "count": "count", "root": "root", "dtype": "datatype", "op": "op",
        "traffic": "trafficBytes", "nch": "nChannels", "nmaxch": "nMaxChannels",
        "nwarps": "nWarps", "algo": "algo", "proto": "proto", "collnet": "isCollnet",
        "nvls": "isNvls", "group": "parentGroup", "variant": "kernelVariant", "sym": "isSymColl",
        "tag": "userTag",
    },
    "P2p": {
        "comm": "commHash", "func": "func", "buff": "buff", "dtype": "datatype", "count": "count",
        "peer": "peer", "nch": "nChannels", "group": "parentGroup", "tag": "userTag",
    },
    "ProxyOp": {
        "pid": "pid", "ch": "channelId", "peer": "peer", "nsteps": "nSteps", "chunk": "chunkSize",
        "send": "isSend",
    },
    "ProxyStep": {"step": "step"},
    "KernelCh": {"ch": "channelId", "ptimer": "pTimer"},
    "GroupApi": {"graph": "graphCaptured", "depth": "groupDepth"},
    "CollApi": {
        "func": "func", "count": "count", "dtype": "datatype", "root": "root", "stream": "stream",
        "graph": "graphCaptured", "tag": "userTag",
    },
    "P2pApi": {
        "func": "func", "count": "count", "dtype": "datatype", "stream": "stream",
        "graph": "graphCaptured", "tag": "userTag",
    },
    "KernelLaunch": {"stream": "stream"},
    "KernelPhase": {
        "ch": "channelId", "phase": "phaseId", "phname": "phaseName", "ptimer": "pTimer",
    },
    "NetPlugin": {
        "id": "id", "nettype": "type", "device": "device", "wrid": "wr_id", "opcode": "opcode",
        "qp": "qpNum", "fd": "fd", "length": "length",
    },
    "CeColl": {
        "seq": "seqNumber", "func": "func", "send": "sendBuff", "recv": "recvBuff",
        "count": "count", "root": "root", "dtype": "datatype", "sync": "syncStrategy",
        "intra": "intraBatchSync", "batch": "batchSize", "nbatches": "numBatches",
        "ceseq": "ceSeqNum", "stream": "stream", "tag": "userTag",
    },
    "CeSync": {"complete": "isComplete", "nranks": "nRanks"},
    "CeBatch": {"nops": "numOps", "bytes": "totalBytes", "intra": "useIntraSync"},
}  # fmt: skip
# Fields that are not in a line by themselves: the rank is in every line, the player counts repeated
# starts, and reads no operation of a socket.
_LEFT_OUT = frozenset(("rank", "startedAgain", "op"))
_BEFORE_ALL = 1 << 62  # above all serial numbers
_STATE_ARGUMENT_NAMES = ("transSize", "appendedProxyOps", "pTimer", "length")


def write_callbacks(
    model: Model,
    selection: Selection,
    path: Path,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Writes the callbacks of the selected ranks, communicators and times."""
    if selection.functions is not None:
        hint = "Select by --comm, --rank and time"
        raise UsageError("cannot select callbacks by --op: few of them have one", hint)
    check_directory(path, force, holds_only(FILES), "set of callback logs")
    count, readable = 0, 0
    with writing_directory(path) as folder:
        for number, row in enumerate(model.processes):
            if selection.ranks is None or row.global_rank in selection.ranks:
                try:
                    process = open_process(model.path / row.folder)
                except (FormatError, OSError):
                    continue
                readable += 1
                file = folder / f"rank{row.global_rank}-{row.pid}.jsonl.gz"
                if file.exists():  # another container has a process of the same pid
                    file = folder / f"rank{row.global_rank}-{row.pid}-{number}.jsonl.gz"
                count += _write_process(model, selection, number, process, file)
            if progress:
                progress(number + 1, len(model.processes))
        if not readable and model.processes and selection.ranks is None:
            message = f"cannot export callbacks of {model.path}: it holds no events"
            raise UsageError(message, "Name the capture, not a dataset that was made of it")
    return ExportResult(count, unit="callback")


def _write_process(
    model: Model, selection: Selection, number: int, process: Process, file: Path
) -> int:
    callback_filter = _Filter(model, selection, number, process)
    count = 0
    with gzip.open(file, "xt", encoding="utf-8", compresslevel=3) as out:
        for line in callbacks_of(process):
            if callback_filter.includes(line):
                line.pop("of", None)
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
                count += 1
    return count


class _Filter:
    """Decides which callbacks are selected. Times do not leave out init and finalize."""

    def __init__(self, model: Model, selection: Selection, number: int, process: Process) -> None:
        node = model.processes[number].node
        self._clock = model.clocks[node] if node < len(model.clocks) else None
        self._since, self._until = selection.since_ns, selection.until_ns
        self._contexts: set[int] | None = None
        if selection.communicators is not None:
            ids = model.tables["communicators"]["id"].astype(np.int64).view(np.uint64)
            wanted = {int(ids[row]) for row in selection.communicators}
            comms = enumerate(process.communicators, 1)
            self._contexts = {context for context, comm in comms if comm.id in wanted}

    def includes(self, line: Line) -> bool:
        """Whether a line is written."""
        if line["cb"] in ("init", "finalize"):
            return self._contexts is None or line["ctx"] in self._contexts
        if self._contexts is not None and line["of"] not in self._contexts:
            return False
        if self._since is None and self._until is None:
            return True
        time = line["t"]
        if self._clock is not None:
            time = int(self._clock.to_reference(np.array([time], np.int64))[0])
        return (self._since is None or time >= self._since) and (
            self._until is None or time < self._until
        )


def callbacks_of(process: Process) -> Iterator[Line]:
    """All callbacks of a process in the order of time. `of` is the context of each line."""
    handles = _Handles(process)
    waiting: list[tuple[int, int, int, Line]] = []  # a heap of states and stops
    serial = 0
    for event in events_of(process):
        lines = handles.lines(event)
        if event["event"] != "Comm":  # init and finalize come first
            first = lines.pop(0)
            while waiting and waiting[0][0] <= first["t"]:
                yield heapq.heappop(waiting)[3]
            yield first
        for line in lines:
            serial += 1
            heapq.heappush(waiting, (line["t"], _order(event, line), serial, line))
    while waiting:
        yield heapq.heappop(waiting)[3]


def _order(event: Line, line: Line) -> int:
    """Sorts callbacks of equal times: those of the latest event first, because children stop before
    their parents. But sends and receives stop before all others, in the order of their starts.
    """
    handle: int = line.get("h", 0)
    return handle - _BEFORE_ALL if event["event"] == "P2p" else -handle


class _Handles:
    """Serial numbers of a process's events, in the order of their starts."""

    def __init__(self, process: Process) -> None:
        keys = keys_by_start(process)
        order = np.argsort(keys, kind="stable")
        self._keys, self._serials = keys[order], order + 1
        self._contexts = np.zeros(len(keys) + 1, np.int32)  # by handle
        self._comms = {
            f"comm.{comm.number}": context for context, comm in enumerate(process.communicators, 1)
        }

    def _serial(self, reference: str | None) -> int:
        """The handle of the event `stream.index`; 0: none, or an event of another process."""
        stream, _, index = (reference or "").partition(".")
        if not (stream.isdecimal() and index.isdecimal()):
            return 0
        key = int(stream) << 48 | int(index)
        place = int(np.searchsorted(self._keys, key))
        exists = place < len(self._keys) and int(self._keys[place]) == key
        return int(self._serials[place]) if exists else 0

    def lines(self, event: Event) -> list[Line]:
        """An event's callbacks: start, states, stop."""
        if event["event"] == "Comm":
            return self._communicator_lines(event)
        handle, parent = self._serial(event["id"]), self._serial(event["parent"])
        context = self._comms.get(event["comm"] or "", 0) or int(self._contexts[parent])
        self._contexts[handle] = context
        thread = event["thread"]
        start = {
            "t": event["start_ns"], "tid": thread, "cb": "start", "ctx": context, "h": handle,
            "p": parent, "type": BIT[event["event"]], "rank": event["fields"]["rank"],
            **self._fields(event), "of": context,
        }  # fmt: skip
        if parent == 0 and event["parent"]:
            start["foreign"] = event["parent"]  # of another process (PXN)
        lines = [start]
        for state in event["states"]:
            value = next((state[name] for name in _STATE_ARGUMENT_NAMES if name in state), 0)
            line = {"t": state["t_ns"], "tid": thread, "cb": "state", "h": handle}
            line |= {"s": state["state"], "a": value, "a2": state.get("steps", 0), "of": context}
            lines.append(line)
            if "last_t_ns" in state:
                lines.append(line | {"t": state["last_t_ns"]})
        if event["stop_ns"] is not None:
            line = {"t": event["stop_ns"], "tid": thread, "cb": "stop", "h": handle}
            lines.append(line | {"of": context})
        return lines

    def _fields(self, event: Event) -> Line:
        fields = event["fields"]
        line: Line = {"name": ""} if "commHash" in fields else {}
        listed = FIELDS.get(event["event"], {})
        others = fields.keys() - listed.values() - _LEFT_OUT
        for key, name in (*listed.items(), *((name, name) for name in sorted(others))):
            if name in fields:
                value = fields[name]
                line[key] = int(value) if isinstance(value, bool) else value
        if "group" in line:
            line["group"] = self._serial(line["group"])
        return line | {key: "" for key in ("variant",) if key in line and line[key] is None}

    def _communicator_lines(self, event: Event) -> list[Line]:
        """A communicator's init and finalize."""
        fields, context = event["fields"], self._comms[event["id"]]
        init = {
            "t": event["start_ns"], "tid": event["thread"], "cb": "init", "v": fields["interface"],
            "ctx": context, "mask": fields["mask"], "comm": fields["commId"],
            "name": fields["commName"], "nnodes": fields["nNodes"], "nranks": fields["nRanks"],
            "rank": fields["rank"] or 0,
        }  # fmt: skip
        if event["stop_ns"] is None:
            return [init]
        end = {"t": event["stop_ns"], "tid": event["thread"], "cb": "finalize", "ctx": context}
        return [init, end]
