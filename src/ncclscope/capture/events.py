"""Events of a process as plain dictionaries: one per event, with the descriptor's fields under NCCL's names.

This is what `dump` prints. It joins slots that belong together and gives no further meaning: times are the host's
CLOCK_MONOTONIC, GPU stamps are as NCCL handed them over, v1's numbers stay numbers.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.process import Communicator, Process
from ncclscope.capture.slots import Slots, expand, key_of

Event = dict[str, Any]
_KINDS, _NAMES, _DTYPES = layout.KINDS, dtypes.OURS.names, dtypes.OURS.dtypes
_HAND_FULL = 1 << 14  # events decoded at a time

STATE_NAMES = {
    0: "ProxyOpSendPosted", 1: "ProxyOpSendRemFifoWait", 2: "ProxyOpSendTransmitted", 3: "ProxyOpSendDone",
    4: "ProxyOpRecvPosted", 5: "ProxyOpRecvReceived", 6: "ProxyOpRecvTransmitted", 7: "ProxyOpRecvDone",
    8: "ProxyStepSendGPUWait", 9: "ProxyStepSendWait", 10: "ProxyStepRecvWait", 11: "ProxyStepRecvFlushWait",
    12: "ProxyStepRecvGPUWait", 13: "ProxyCtrlIdle", 14: "ProxyCtrlActive", 15: "ProxyCtrlSleep",
    16: "ProxyCtrlWakeup", 17: "ProxyCtrlAppend", 18: "ProxyCtrlAppendEnd", 19: "ProxyOpInProgress",
    20: "ProxyStepSendPeerWait", 21: "NetPluginUpdate", 22: "KernelChStop", 23: "GroupStartApiStop",
    24: "GroupEndApiStart", 25: "CeCollStart", 26: "CeCollComplete", 27: "CeSyncStart", 28: "CeSyncComplete",
    29: "CeBatchStart", 30: "CeBatchComplete", 31: "KernelPhaseStop",
}  # fmt: skip
_SEND_STATES, _RECV_STATES = (8, 20, 9), (10, 11, 12)
_STATE_BITS = (layout.STATE_FIRST, layout.STATE_SECOND, layout.STATE_THIRD)


def _hex(value: Any) -> str:
    """Pointers and hashes as lower-case hex digits."""
    return f"{int(value):x}"


class _Decoder:
    """What is needed to turn one process's slots into events."""

    def __init__(self, process: Process, nonces: dict[int, str]) -> None:
        self.process = process
        self.nonce = process.header.nonce
        self.nonces = nonces
        self.comms = {comm.number: comm for comm in process.communicators}
        self._thread_keys = np.array(
            sorted(key_of(t.stream, t.first) for t in process.threads), np.int64
        )
        by_key = {key_of(t.stream, t.first): t.tid for t in process.threads}
        self._thread_ids = [by_key[int(key)] for key in self._thread_keys]
        self._states, self._state_parents = self._collect_states()

    def _collect_states(self) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
        """State slots sorted by the key of the event they belong to."""
        found = []
        for segment in self.process.slots.segments:
            found.append(segment[segment["kind"] == _KINDS["State"]])
        states = np.concatenate(found) if found else np.empty(0, dtypes.ANY_SLOT)
        parents = handle_keys(states["parent"], self.nonce)
        order = np.lexsort((states["t0"], parents))
        return states[order].view(_DTYPES["State"]), parents[order]

    def tid(self, key: int) -> int | None:
        at = int(np.searchsorted(self._thread_keys, key, side="right")) - 1
        return self._thread_ids[at] if at >= 0 else None

    def states_of(self, key: int) -> npt.NDArray[np.void]:
        first, last = np.searchsorted(self._state_parents, [key, key + 1])
        return self._states[first:last]

    def reference(self, handle: int) -> str | None:
        """How an event is referred to: stream.index, with its process where that is another one."""
        if handle == 0:
            return None
        nonce = handle >> 48
        name = f"{handle >> layout.INDEX_BITS & layout.CONTEXT_STREAM}.{handle & layout.INDEX_MASK}"
        if nonce == self.nonce:
            return name
        if nonce in self.nonces:
            return f"{self.nonces[nonce]}/{name}"
        return f"foreign:{handle:x}"

    def text(self, number: int, flags: int) -> str | int | None:
        if flags & layout.FLAG_NUMBERS:
            return int(number)
        return None if number == 0 else self.process.strings.get(int(number), f"?{int(number)}")

    def rank(self, flags: int, comm: Communicator | None, inside: Any = None) -> int | None:
        if flags & layout.FLAG_RANK_IN:
            return None if inside is None else int(inside)
        if flags & layout.FLAG_RANK:
            return comm.rank if comm else None
        return 0


def handle_keys(handles: npt.NDArray[np.uint64], nonce: int) -> npt.NDArray[np.int64]:
    """Slot keys of this process's handles, -1 for anything else."""
    ours = (handles >> np.uint64(48)) == nonce
    stream = (handles >> np.uint64(layout.INDEX_BITS)) & np.uint64(layout.CONTEXT_STREAM)
    index = handles & np.uint64(layout.INDEX_MASK)
    keys = (stream << np.uint64(48) | index).astype(np.int64)
    return np.where(ours, keys, -1)


# ---- fields by kind: (decoder, slot, extension or None, communicator or None) -> NCCL's names and values ----
Fields = Callable[[_Decoder, Any, Any, Communicator | None], Event]


def _group(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    return {"rank": d.rank(s["flags"], comm)}


def _coll(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    flags, version = int(s["flags"]), comm.version if comm else 7
    early = version <= 3
    fields: Event = {"rank": d.rank(flags, comm, x["rank"] if x is not None else None)}
    if early and x is not None:
        fields["commHash"] = _hex(x["comm_hash"])
    fields |= {"seqNumber": int(s["seq"]), "func": d.text(s["func"], flags)}
    if x is not None:
        fields |= {"sendBuff": _hex(x["send_buff"]), "recvBuff": _hex(x["recv_buff"])}
    fields |= {
        "count": int(s["count"]),
        "root": int(s["root"]),
        "datatype": d.text(s["dtype"], flags),
        "nMaxChannels" if early else "nChannels": int(s["channels"]),
        "nWarps": int(s["warps"]),
        "algo": d.text(s["algo"], flags),
        "proto": d.text(s["proto"], flags),
    }
    if version <= 2 and x is not None:
        fields["trafficBytes"] = int(x["traffic_bytes"])
    if version == 1:
        fields |= {
            "op": int(x["op"]) if x is not None else None,
            "isCollnet": bool(s["bits"] & layout.COLL_IS_COLLNET),
            "isNvls": bool(s["bits"] & layout.COLL_IS_NVLS),
        }
    if version >= 5 and x is not None:
        fields["parentGroup"] = d.reference(int(x["parent_group"]))
    if version >= 7:
        fields |= {
            "kernelVariant": d.text(s["variant"], 0),
            "isSymColl": bool(s["bits"] & layout.COLL_IS_SYMMETRIC),
            "userTag": int(x["tag"]) if x is not None else 0,
        }
    return fields


def _p2p(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    flags, version = int(s["flags"]), comm.version if comm else 7
    fields: Event = {"rank": d.rank(flags, comm, x["rank"] if x is not None else None)}
    if version <= 3 and x is not None:
        fields["commHash"] = _hex(x["comm_hash"])
    fields |= {
        "func": d.text(s["func"], flags),
        "buff": _hex(s["buff"]),
        "datatype": d.text(s["dtype"], flags),
        "count": int(s["count"]),
        "peer": int(s["peer"]),
    }
    if version >= 4:
        fields["nChannels"] = int(s["chan"])
    if version >= 5:
        fields["parentGroup"] = d.reference(int(s["parent_group"]))
    if version >= 7:
        fields["userTag"] = int(x["tag"]) if x is not None else 0
    return fields


def _proxy_op(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    return {
        "rank": int(s["rank"]),
        "pid": int(s["pid"]),
        "channelId": int(s["chan"]),
        "peer": int(s["peer"]),
        "nSteps": int(s["steps"]),
        "chunkSize": int(s["chunk_size"]),
        "isSend": int(bool(s["flags"] & layout.FLAG_SEND)),
    }


def _proxy_step(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    fields: Event = {"rank": int(s["rank"]), "step": int(s["step"])}
    if s["chan"]:
        fields["startedAgain"] = int(s["chan"])  # ours: NCCL asked so many times more for this receive
    return fields


def _kernel_ch(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    fields: Event = {"rank": d.rank(s["flags"], comm), "channelId": int(s["chan"])}
    if not s["flags"] & layout.FLAG_NO_STAMP:
        fields["pTimer"] = int(s["gpu_start"])
    return fields


def _kernel_phase(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    return {
        "rank": d.rank(s["flags"], comm),
        "channelId": int(s["chan"]),
        "phaseId": int(s["phase"]),
        "phaseName": d.text(s["name"], 0),
        "pTimer": int(s["gpu_start"]),
    }


def _net(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    fields: Event = {"rank": d.rank(s["flags"], comm), "id": int(s["id"])}
    if int(s["id"]) == 0x10001:
        fields |= {
            "type": int(s["chan"]), "device": int(s["device"]), "wr_id": int(s["wr_id"]),
            "opcode": int(s["opcode"]), "qpNum": int(s["qp_or_fd"]), "length": int(s["length"]),
        }  # fmt: skip
    elif int(s["id"]) == 0x20001:
        fields |= {
            "type": int(s["chan"]), "fd": int(s["qp_or_fd"]), "op": int(s["opcode"]), "length": int(s["length"]),
        }  # fmt: skip
    return fields


def _group_api(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    return {
        "rank": d.rank(s["flags"], comm),
        "graphCaptured": bool(s["flags"] & layout.FLAG_GRAPH),
        "groupDepth": int(s["depth"]),
    }


def _call(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    fields: Event = {
        "rank": d.rank(s["flags"], comm),
        "func": d.text(s["func"], 0),
        "count": int(s["count"]),
        "datatype": d.text(s["dtype"], 0),
        "stream": _hex(s["stream"]),
        "graphCaptured": bool(s["flags"] & layout.FLAG_GRAPH),
    }
    if int(s["kind"]) == _KINDS["CollApi"]:
        fields["root"] = int(s["root"])
    if comm is None or comm.version >= 7:
        fields["userTag"] = int(s["tag"])
    return fields


def _kernel_launch(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    return {"rank": d.rank(s["flags"], comm), "stream": _hex(s["stream"])}


def _ce_coll(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    fields: Event = {
        "rank": int(x["rank"]) if x is not None else None,
        "seqNumber": int(s["seq"]),
        "func": d.text(s["func"], 0),
        "count": int(s["count"]),
        "root": int(s["root"]),
        "datatype": d.text(s["dtype"], 0),
        "syncStrategy": d.text(s["sync"], 0),
        "intraBatchSync": bool(s["flags"] & layout.FLAG_SEND),
        "ceSeqNum": int(s["ce_seq"]),
    }
    if x is not None:
        fields |= {
            "sendBuff": _hex(x["send_buff"]), "recvBuff": _hex(x["recv_buff"]), "stream": _hex(x["stream"]),
            "batchSize": int(x["batch_size"]), "numBatches": int(x["num_batches"]),
        }  # fmt: skip
        if comm is None or comm.version >= 7:
            fields["userTag"] = int(x["tag"])
    return fields


def _ce_sync(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    return {
        "rank": d.rank(s["flags"], comm),
        "isComplete": bool(s["flags"] & layout.FLAG_SEND),
        "nRanks": int(s["ranks"]),
    }


def _ce_batch(d: _Decoder, s: Any, x: Any, comm: Communicator | None) -> Event:
    return {
        "rank": d.rank(s["flags"], comm),
        "numOps": int(s["ops"]),
        "totalBytes": int(s["bytes"]),
        "useIntraSync": bool(s["flags"] & layout.FLAG_SEND),
    }


_FIELDS: dict[str, Fields] = {
    "Group": _group, "Coll": _coll, "P2p": _p2p, "ProxyOp": _proxy_op, "ProxyStep": _proxy_step,
    "ProxyCtrl": _group, "KernelCh": _kernel_ch, "NetPlugin": _net, "GroupApi": _group_api, "CollApi": _call,
    "P2pApi": _call, "KernelLaunch": _kernel_launch, "CeColl": _ce_coll, "CeSync": _ce_sync,
    "CeBatch": _ce_batch, "KernelPhase": _kernel_phase,
}  # fmt: skip


# ---- states ----
def _in_place_states(name: str, s: Any, early: bool) -> list[tuple[int, int, Event]]:
    """(state, counter value, arguments) stored in the event's own slot."""
    bits, found = int(s["states"]), []
    if name == "ProxyStep":
        numbers = _RECV_STATES if bits & layout.STATE_RECV else _SEND_STATES
        for which, bit in enumerate(_STATE_BITS):
            if bits & bit:
                args = {} if early else {"transSize": int(s["size"][which])}
                found.append((numbers[which], int(s["t0"]) + int(s["dt"][which]), args))
    elif name == "ProxyCtrl":
        for bit, code, t in ((1, "first", "t_first"), (2, "second", "t_second")):
            if bits & bit:
                state = int(s[code])
                args = {"appendedProxyOps": int(s["appended"])} if state == 18 else {}
                found.append((state, int(s[t]), args))
    elif name in ("KernelCh", "KernelPhase") and bits & layout.STATE_FIRST:
        found.append((22 if name == "KernelCh" else 31, int(s["t_stop"]), {"pTimer": int(s["gpu_stop"])}))
    elif name == "ProxyOp" and bits & layout.STATE_FIRST:
        found.append((19, int(s["t_in_progress"]), {}))
    elif name == "GroupApi":
        for bit, state, t in ((1, 23, "t_start_done"), (2, 24, "t_end_begins")):
            if bits & bit:
                found.append((state, int(s[t]), {}))
    return found


def _appended_args(state: int, s: Any) -> Event:
    if state <= 7:
        return {"transSize": int(s["arg"]), "steps": int(s["steps"])}
    if state in (*_SEND_STATES, *_RECV_STATES):
        return {"transSize": int(s["arg"])}
    if state == 18:
        return {"appendedProxyOps": int(s["arg"])}
    if state in (22, 31):
        return {"pTimer": int(s["arg"])}
    return {"length": int(s["arg"]), "wr_id": int(s["arg2"])} if state == 21 else {}


def _decode(d: _Decoder, key: int, s: Any, x: Any) -> tuple[Event, list[int]]:
    """The event, with times as places in the list of counter values that comes with it."""
    name = _NAMES[int(s["kind"])]
    process = d.process
    names = s.dtype.names
    comm = d.comms.get(int(s["comm"])) if "comm" in names else None
    if name == "ProxyOp" and int(s["ctx_nonce"]) != d.nonce:
        comm = None
    early = any(c.version <= 3 for c in process.communicators) if comm is None else comm.version <= 3
    ticks = [int(s["t0"])]
    states: list[Event] = []
    for state, t, args in _in_place_states(name, s, early):
        states.append({"state": state, "name": STATE_NAMES.get(state), "t_ns": len(ticks), **args})
        ticks.append(t)
    stopped = bool(s["states"] & layout.STATE_STOPPED)
    stop = int(s["t1"]) if stopped else None
    for appended in d.states_of(key):
        state = int(appended["state"])
        if state == layout.STATE_IS_STOP:
            stop = int(appended["t0"]) if stop is None else stop
            continue
        repeats = int(appended["repeats"])
        first = next((known for known in states if known["state"] == state == 20), None)
        if first is not None:
            first |= {"last_t_ns": len(ticks), "count": first.get("count", 1) + repeats}
            ticks.append(int(appended["t1"]))
            continue
        states.append(
            {"state": state, "name": STATE_NAMES.get(state), "t_ns": len(ticks), **_appended_args(state, appended)}
        )
        ticks.append(int(appended["t0"]))
    event: Event = {
        "event": name,
        "process": process.folder,
        "rank": process.rank,
        "thread": d.tid(key),
        "id": f"{key >> 48}.{key & layout.INDEX_MASK}",
        "parent": d.reference(int(s["parent"])),
        "comm": f"comm.{comm.number}" if comm else None,
        "start_ns": 0,
        "stop_ns": len(ticks) if stop is not None else None,
        "states": states,
        "fields": _FIELDS[name](d, s, x, comm),
    }
    if stop is not None:
        ticks.append(stop)
    return event, ticks


def _set_times(process: Process, decoded: list[tuple[Event, list[int]]]) -> None:
    """Replaces places by times, for many events in one conversion."""
    flat = np.array([t for _, ticks in decoded for t in ticks], np.uint64)
    ns = process.clock.to_ns(flat).tolist()
    offset = 0
    for event, ticks in decoded:
        event["start_ns"] = ns[offset]
        if event["stop_ns"] is not None:
            event["stop_ns"] = ns[offset + event["stop_ns"]]
        for state in event["states"]:
            state["t_ns"] = ns[offset + state["t_ns"]]
            if "last_t_ns" in state:
                state["last_t_ns"] = ns[offset + state["last_t_ns"]]
        event["states"].sort(key=lambda state: state["t_ns"])
        offset += len(ticks)


def _communicator_events(process: Process) -> Iterator[Event]:
    for comm in process.communicators:
        times = np.array([comm.t_open, comm.t_close if comm.t_close is not None else comm.t_open], np.uint64)
        opened, closed = process.clock.to_ns(times).tolist()
        yield {
            "event": "Comm",
            "process": process.folder,
            "rank": process.rank,
            "thread": comm.tid,
            "id": f"comm.{comm.number}",
            "parent": None,
            "comm": f"comm.{comm.number}",
            "start_ns": opened,
            "stop_ns": closed if comm.t_close is not None else None,
            "states": [],
            "fields": {
                "commId": _hex(comm.id),
                "commName": comm.name,
                "nNodes": comm.nodes,
                "nRanks": comm.ranks,
                "rank": comm.rank if comm.rank >= 0 else None,
                "interface": comm.version,
                "mask": comm.mask,
                "gpuUuid": comm.gpu_uuid,
                "gpuBusId": comm.gpu_bus_id,
            },
        }


def _event_rows(process: Process) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and keys of all event slots, in the order of their starts."""
    log = process.slots
    rows = expand(log.blocks.row, log.blocks.count)
    keys = expand(log.blocks.key, log.blocks.count)
    kinds = np.empty(len(rows), np.uint8)
    starts = np.empty(len(rows), np.uint64)
    for first in range(0, len(rows), 1 << 20):
        part = log.take(rows[first : first + (1 << 20)])
        kinds[first : first + len(part)] = part["kind"]
        starts[first : first + len(part)] = part["t0"]
    is_event = (kinds >= 1) & (kinds <= layout.EVENT_KINDS)
    order = np.argsort(starts[is_event], kind="stable")
    return rows[is_event][order], keys[is_event][order]


def events_of(process: Process, nonces: dict[int, str] | None = None) -> Iterator[Event]:
    """All events of a process in the order of their starts, communicators first.

    `nonces` names the other processes of the capture, so that parents in another process (PXN) can be told.
    """
    decoder = _Decoder(process, nonces or {})
    yield from _communicator_events(process)
    rows, keys = _event_rows(process)
    for first in range(0, len(rows), _HAND_FULL):
        part_rows, part_keys = rows[first : first + _HAND_FULL], keys[first : first + _HAND_FULL]
        slots = process.slots.take(part_rows)
        extensions = _extensions(process, slots, part_keys)
        decoded = []
        for number, key in enumerate(part_keys.tolist()):
            slot = slots[number : number + 1]
            typed = slot.view(_DTYPES[_NAMES[int(slot["kind"][0])]])[0]
            decoded.append(_decode(decoder, key, typed, extensions.get(number)))
        _set_times(process, decoded)
        for event, _ in decoded:
            yield event


def _extensions(process: Process, slots: Slots, keys: npt.NDArray[np.int64]) -> dict[int, Any]:
    """The slot behind each one that says it has an extension."""
    extended = np.flatnonzero(slots["flags"] & layout.FLAG_EXT)
    rows = process.slots.rows_of(keys[extended] + 1)
    known = rows >= 0
    found = process.slots.take(rows[known])
    out: dict[int, Any] = {}
    for place, slot in zip(extended[known].tolist(), found, strict=True):
        name = _NAMES.get(int(slot["kind"]))
        if name in ("CollExt", "P2pExt", "CeExt"):
            out[place] = np.array([slot], dtypes.ANY_SLOT).view(_DTYPES[name])[0]
    return out
