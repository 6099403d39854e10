"""The fields and states of each kind of event, under NCCL's names.

Values are as NCCL handed them over: interface v1's numbers stay numbers, GPU stamps stay stamps.
"""

from collections.abc import Callable
from typing import Any

from ncclscope.capture import layout
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.process import Process
from ncclscope.nccl.events import (
    FIRST_WITH_CALLS,
    FIRST_WITH_STAMPS,
    FIRST_WITH_TAGS,
    LAST_OLD_PROXY_OP_STATE,
    NET_IB_V1,
    NET_SOCKET_V1,
    NEWEST_INTERFACE,
    OLDEST_INTERFACE,
    RECV_STEP_STATES,
    SEND_STEP_STATES,
    STATE,
)

Fields = dict[str, Any]


def hexadecimal(value: Any) -> str:
    """Pointers and hashes as lower-case hex digits."""
    return f"{int(value):x}"


class ProcessNames:
    """Looks up a process's numbers: strings, communicators, events of this or another process."""

    def __init__(self, process: Process, nonces: dict[int, str]) -> None:
        self._strings = process.strings
        self._nonce = process.header.nonce
        self._nonces = nonces
        self.communicators = {comm.number: comm for comm in process.communicators}
        self.oldest_version = min(
            (comm.version for comm in process.communicators), default=NEWEST_INTERFACE
        )

    def reference(self, handle: int) -> str | None:
        """The reference to an event: stream.index, with its process where that is another one."""
        if handle == 0:
            return None
        nonce = handle >> layout.HANDLE_BITS
        stream = handle >> layout.INDEX_BITS & layout.CONTEXT_STREAM
        name = f"{stream}.{handle & layout.INDEX_MASK}"
        if nonce == self._nonce:
            return name
        if nonce in self._nonces:
            return f"{self._nonces[nonce]}/{name}"
        return f"foreign:{handle:x}"

    def text(self, number: int, flags: int = 0) -> str | int | None:
        """A string by its id, or v1's number itself."""
        if flags & layout.FLAG_NUMBERS:
            return int(number)
        return None if number == 0 else self._strings.get(int(number), f"?{int(number)}")

    def communicator(self, slot: Any) -> Communicator | None:
        """The communicator of an event; None where its context was another process's, or none."""
        if "comm" not in slot.dtype.names:
            return None
        if "ctx_nonce" in slot.dtype.names and int(slot["ctx_nonce"]) != self._nonce:
            return None
        return self.communicators.get(int(slot["comm"]))


def _rank(flags: int, comm: Communicator | None, inside: Any = None) -> int | None:
    """The descriptor's rank: in a field of its own, the communicator's, or 0."""
    if flags & layout.FLAG_RANK_IN:
        return None if inside is None else int(inside)
    if flags & layout.FLAG_RANK:
        return comm.rank if comm else None
    return 0


def _group(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    return {"rank": _rank(slot["flags"], comm)}


# An extension for a collective whose Group's slot serves as one, without Group and buffers.
IN_GROUP = {"tag": 0, "traffic_bytes": 0, "comm_hash": 0, "rank": 0, "op": 0}


def _buffers(extension: Any) -> Fields:
    """Buffers of a collective, where they are known."""
    if extension is None or (isinstance(extension, dict) and "send_buff" not in extension):
        return {}
    return {
        "sendBuff": hexadecimal(extension["send_buff"]),
        "recvBuff": hexadecimal(extension["recv_buff"]),
    }


def _coll(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    flags, version = int(slot["flags"]), comm.version if comm else NEWEST_INTERFACE
    early = version < FIRST_WITH_STAMPS
    fields: Fields = {
        "rank": _rank(flags, comm, extension["rank"] if extension is not None else None)
    }
    if early and extension is not None:
        fields["commHash"] = hexadecimal(extension["comm_hash"])
    fields |= {"seqNumber": int(slot["seq"]), "func": names.text(slot["func"], flags)}
    fields |= _buffers(extension)
    fields |= {
        "count": int(slot["count"]),
        "root": int(slot["root"]),
        "datatype": names.text(slot["dtype"], flags),
        "nMaxChannels" if early else "nChannels": int(slot["channels"]),
        "nWarps": int(slot["warps"]),
        "algo": names.text(slot["algo"], flags),
        "proto": names.text(slot["proto"], flags),
    }
    if version <= 2 and extension is not None:
        fields["trafficBytes"] = int(extension["traffic_bytes"])
    if version == OLDEST_INTERFACE:
        fields |= {
            "op": int(extension["op"]) if extension is not None else None,
            "isCollnet": bool(slot["bits"] & layout.COLL_IS_COLLNET),
            "isNvls": bool(slot["bits"] & layout.COLL_IS_NVLS),
        }
    if version >= FIRST_WITH_CALLS and extension is not None:
        fields["parentGroup"] = names.reference(int(extension["parent_group"]))
    if version >= FIRST_WITH_TAGS:
        fields |= {
            "kernelVariant": names.text(slot["variant"], 0),
            "isSymColl": bool(slot["bits"] & layout.COLL_IS_SYMMETRIC),
            "userTag": int(extension["tag"]) if extension is not None else 0,
        }
    return fields


def _p2p(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    flags, version = int(slot["flags"]), comm.version if comm else NEWEST_INTERFACE
    fields: Fields = {
        "rank": _rank(flags, comm, extension["rank"] if extension is not None else None)
    }
    if version < FIRST_WITH_STAMPS and extension is not None:
        fields["commHash"] = hexadecimal(extension["comm_hash"])
    fields |= {
        "func": names.text(slot["func"], flags),
        "buff": hexadecimal(slot["buff"]),
        "datatype": names.text(slot["dtype"], flags),
        "count": int(slot["count"]),
        "peer": int(slot["peer"]),
    }
    if version >= FIRST_WITH_STAMPS:
        fields["nChannels"] = int(slot["chan"])
    if version >= FIRST_WITH_CALLS:
        fields["parentGroup"] = names.reference(int(slot["parent_group"]))
    if version >= FIRST_WITH_TAGS:
        fields["userTag"] = int(extension["tag"]) if extension is not None else 0
    return fields


def _proxy_op(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": int(slot["rank"]),
        "pid": int(slot["pid"]),
        "channelId": int(slot["chan"]),
        "peer": int(slot["peer"]),
        "nSteps": int(slot["steps"]),
        "chunkSize": int(slot["chunk_size"]),
        "isSend": int(bool(slot["flags"] & layout.FLAG_SEND)),
    }


def _proxy_step(
    names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None
) -> Fields:
    fields: Fields = {"rank": int(slot["rank"]), "step": int(slot["step"])}
    if slot["chan"]:  # a field of ours: how often NCCL started this receive again
        fields["startedAgain"] = int(slot["chan"])
    return fields


def _kernel_ch(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    fields: Fields = {"rank": _rank(slot["flags"], comm), "channelId": int(slot["chan"])}
    if not slot["flags"] & layout.FLAG_NO_STAMP:
        fields["pTimer"] = int(slot["gpu_start"])
    return fields


def _kernel_phase(
    names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None
) -> Fields:
    return {
        "rank": _rank(slot["flags"], comm),
        "channelId": int(slot["chan"]),
        "phaseId": int(slot["phase"]),
        "phaseName": names.text(slot["name"], 0),
        "pTimer": int(slot["gpu_start"]),
    }


def _net(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    net_id = int(slot["id"])
    fields: Fields = {"rank": int(slot["rank"]), "id": net_id}
    if net_id == NET_IB_V1:
        fields |= {
            "type": int(slot["chan"]),
            "device": int(slot["device"]),
            "wr_id": int(slot["wr_id"]),
            "opcode": int(slot["opcode"]),
            "qpNum": int(slot["qp_or_fd"]),
            "length": int(slot["length"]),
        }
    elif net_id == NET_SOCKET_V1:
        fields |= {
            "type": int(slot["chan"]),
            "fd": int(slot["qp_or_fd"]),
            "op": int(slot["opcode"]),
            "length": int(slot["length"]),
        }
    else:
        fields["id"] = int(slot["wr_id"])
    return fields


def _group_api(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": _rank(slot["flags"], comm),
        "graphCaptured": bool(slot["flags"] & layout.FLAG_GRAPH),
        "groupDepth": int(slot["depth"]),
    }


def _call(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    fields: Fields = {
        "rank": _rank(slot["flags"], comm),
        "func": names.text(slot["func"], 0),
        "count": int(slot["count"]),
        "datatype": names.text(slot["dtype"], 0),
        "stream": hexadecimal(slot["stream"]),
        "graphCaptured": bool(slot["flags"] & layout.FLAG_GRAPH),
    }
    if int(slot["kind"]) == layout.KINDS["CollApi"]:
        fields["root"] = int(slot["root"])
    if comm is None or comm.version >= FIRST_WITH_TAGS:
        fields["userTag"] = int(slot["tag"])
    return fields


def _kernel_launch(
    names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None
) -> Fields:
    return {"rank": _rank(slot["flags"], comm), "stream": hexadecimal(slot["stream"])}


def _ce_coll(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    fields: Fields = {
        "rank": int(extension["rank"]) if extension is not None else None,
        "seqNumber": int(slot["seq"]),
        "func": names.text(slot["func"], 0),
        "count": int(slot["count"]),
        "root": int(slot["root"]),
        "datatype": names.text(slot["dtype"], 0),
        "syncStrategy": names.text(slot["sync"], 0),
        "intraBatchSync": bool(slot["flags"] & layout.FLAG_SEND),
        "ceSeqNum": int(slot["ce_seq"]),
    }
    if extension is not None:
        fields |= {
            "sendBuff": hexadecimal(extension["send_buff"]),
            "recvBuff": hexadecimal(extension["recv_buff"]),
            "stream": hexadecimal(extension["stream"]),
            "batchSize": int(extension["batch_size"]),
            "numBatches": int(extension["num_batches"]),
        }
        if comm is None or comm.version >= FIRST_WITH_TAGS:
            fields["userTag"] = int(extension["tag"])
    return fields


def _ce_sync(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": _rank(slot["flags"], comm),
        "isComplete": bool(slot["flags"] & layout.FLAG_SEND),
        "nRanks": int(slot["ranks"]),
    }


def _ce_batch(names: ProcessNames, slot: Any, extension: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": _rank(slot["flags"], comm),
        "numOps": int(slot["ops"]),
        "totalBytes": int(slot["bytes"]),
        "useIntraSync": bool(slot["flags"] & layout.FLAG_SEND),
    }


_READERS: dict[str, Callable[[ProcessNames, Any, Any, Communicator | None], Fields]] = {
    "Group": _group,
    "Coll": _coll,
    "P2p": _p2p,
    "ProxyOp": _proxy_op,
    "ProxyStep": _proxy_step,
    "ProxyCtrl": _group,
    "KernelCh": _kernel_ch,
    "NetPlugin": _net,
    "GroupApi": _group_api,
    "CollApi": _call,
    "P2pApi": _call,
    "KernelLaunch": _kernel_launch,
    "CeColl": _ce_coll,
    "CeSync": _ce_sync,
    "CeBatch": _ce_batch,
    "KernelPhase": _kernel_phase,
}


def fields_of(names: ProcessNames, kind: str, slot: Any, extension: Any) -> Fields:
    """The descriptor's fields of one event; `extension` is the slot behind it, or None."""
    return _READERS[kind](names, slot, extension, names.communicator(slot))


# ---- states ----
StateInPlace = tuple[int, int, Fields]  # state, ticks, arguments


def _step_states(slot: Any, early: bool) -> list[StateInPlace]:
    bits = int(slot["states"])
    numbers = RECV_STEP_STATES if bits & layout.STATE_RECV else SEND_STEP_STATES
    return [
        (
            numbers[which],
            int(slot["t0"]) + int(slot["dt"][which]),
            {} if early else {"transSize": int(slot["size"][which])},
        )
        for which, bit in enumerate(layout.STATE_BITS)
        if bits & bit
    ]


def _ctrl_states(slot: Any) -> list[StateInPlace]:
    states = []
    for bit, name in ((layout.STATE_FIRST, "first"), (layout.STATE_SECOND, "second")):
        if slot["states"] & bit:
            state = int(slot[name])
            appends = state == STATE["ProxyCtrlAppendEnd"]
            arguments = {"appendedProxyOps": int(slot["appended"])} if appends else {}
            states.append((state, int(slot[f"t_{name}"]), arguments))
    return states


# States that are a time each: state bit, state and field, by kind.
_TIMES: dict[str, tuple[tuple[int, str, str], ...]] = {
    "ProxyOp": ((layout.STATE_FIRST, "ProxyOpInProgress", "t_in_progress"),),
    "GroupApi": (
        (layout.STATE_FIRST, "GroupStartApiStop", "t_start_done"),
        (layout.STATE_SECOND, "GroupEndApiStart", "t_end_begins"),
    ),
    "KernelCh": ((layout.STATE_FIRST, "KernelChStop", "t_stop"),),
    "KernelPhase": ((layout.STATE_FIRST, "KernelPhaseStop", "t_stop"),),
}


def states_in_place(kind: str, slot: Any, early: bool) -> list[StateInPlace]:
    """States that are stored in the event's own slot; `early`: of interfaces v1 to v3."""
    if kind == "ProxyStep":
        return _step_states(slot, early)
    if kind == "ProxyCtrl":
        return _ctrl_states(slot)
    arguments = {"pTimer": int(slot["gpu_stop"])} if kind in ("KernelCh", "KernelPhase") else {}
    return [
        (STATE[state], int(slot[field]), arguments)
        for bit, state, field in _TIMES.get(kind, ())
        if slot["states"] & bit
    ]


def appended_arguments(state: int, slot: Any) -> Fields:
    """The arguments that a State slot keeps."""
    if state <= LAST_OLD_PROXY_OP_STATE:
        return {"transSize": int(slot["arg"]), "steps": int(slot["steps"])}
    if state in (*SEND_STEP_STATES, *RECV_STEP_STATES):
        return {"transSize": int(slot["arg"])}
    if state == STATE["ProxyCtrlAppendEnd"]:
        return {"appendedProxyOps": int(slot["arg"])}
    if state in (STATE["KernelChStop"], STATE["KernelPhaseStop"]):
        return {"pTimer": int(slot["arg"])}
    if state == STATE["NetPluginUpdate"]:
        return {"length": int(slot["arg"]), "wr_id": int(slot["arg2"])}
    return {}
