"""What each kind of event says, under NCCL's names: the descriptor's fields, and its states.

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
    RECV_STEP_STATES,
    SEND_STEP_STATES,
    STATE,
)

Fields = dict[str, Any]

_STATE_BITS = (layout.STATE_FIRST, layout.STATE_SECOND, layout.STATE_THIRD)


def hexadecimal(value: Any) -> str:
    """Pointers and hashes as lower-case hex digits."""
    return f"{int(value):x}"


class Names:
    """What a process's numbers stand for: strings, communicators, events of this or another one."""

    def __init__(self, process: Process, nonces: dict[int, str]) -> None:
        self._strings = process.strings
        self._nonce = process.header.nonce
        self._nonces = nonces
        self.communicators = {comm.number: comm for comm in process.communicators}
        self.oldest_version = min(
            (comm.version for comm in process.communicators), default=NEWEST_INTERFACE
        )

    def reference(self, handle: int) -> str | None:
        """How an event is referred to: stream.index, with its process where that is another one."""
        if handle == 0:
            return None
        nonce = handle >> 48
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


def _group(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    return {"rank": _rank(s["flags"], comm)}


# What the extension of a collective in its Group's slot would say, but for the Group and buffers.
IN_GROUP = {"tag": 0, "traffic_bytes": 0, "comm_hash": 0, "rank": 0, "op": 0}


def _buffers(x: Any) -> Fields:
    """Of a collective, where they are known."""
    if x is None or (isinstance(x, dict) and "send_buff" not in x):
        return {}
    return {"sendBuff": hexadecimal(x["send_buff"]), "recvBuff": hexadecimal(x["recv_buff"])}


def _coll(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    flags, version = int(s["flags"]), comm.version if comm else NEWEST_INTERFACE
    early = version < FIRST_WITH_STAMPS
    fields: Fields = {"rank": _rank(flags, comm, x["rank"] if x is not None else None)}
    if early and x is not None:
        fields["commHash"] = hexadecimal(x["comm_hash"])
    fields |= {"seqNumber": int(s["seq"]), "func": n.text(s["func"], flags)}
    fields |= _buffers(x)
    fields |= {
        "count": int(s["count"]),
        "root": int(s["root"]),
        "datatype": n.text(s["dtype"], flags),
        "nMaxChannels" if early else "nChannels": int(s["channels"]),
        "nWarps": int(s["warps"]),
        "algo": n.text(s["algo"], flags),
        "proto": n.text(s["proto"], flags),
    }
    if version <= 2 and x is not None:
        fields["trafficBytes"] = int(x["traffic_bytes"])
    if version == 1:
        fields |= {
            "op": int(x["op"]) if x is not None else None,
            "isCollnet": bool(s["bits"] & layout.COLL_IS_COLLNET),
            "isNvls": bool(s["bits"] & layout.COLL_IS_NVLS),
        }
    if version >= FIRST_WITH_CALLS and x is not None:
        fields["parentGroup"] = n.reference(int(x["parent_group"]))
    if version >= FIRST_WITH_TAGS:
        fields |= {
            "kernelVariant": n.text(s["variant"], 0),
            "isSymColl": bool(s["bits"] & layout.COLL_IS_SYMMETRIC),
            "userTag": int(x["tag"]) if x is not None else 0,
        }
    return fields


def _p2p(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    flags, version = int(s["flags"]), comm.version if comm else NEWEST_INTERFACE
    fields: Fields = {"rank": _rank(flags, comm, x["rank"] if x is not None else None)}
    if version < FIRST_WITH_STAMPS and x is not None:
        fields["commHash"] = hexadecimal(x["comm_hash"])
    fields |= {
        "func": n.text(s["func"], flags),
        "buff": hexadecimal(s["buff"]),
        "datatype": n.text(s["dtype"], flags),
        "count": int(s["count"]),
        "peer": int(s["peer"]),
    }
    if version >= FIRST_WITH_STAMPS:
        fields["nChannels"] = int(s["chan"])
    if version >= FIRST_WITH_CALLS:
        fields["parentGroup"] = n.reference(int(s["parent_group"]))
    if version >= FIRST_WITH_TAGS:
        fields["userTag"] = int(x["tag"]) if x is not None else 0
    return fields


def _proxy_op(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": int(s["rank"]),
        "pid": int(s["pid"]),
        "channelId": int(s["chan"]),
        "peer": int(s["peer"]),
        "nSteps": int(s["steps"]),
        "chunkSize": int(s["chunk_size"]),
        "isSend": int(bool(s["flags"] & layout.FLAG_SEND)),
    }


def _proxy_step(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    fields: Fields = {"rank": int(s["rank"]), "step": int(s["step"])}
    if s["chan"]:
        fields["startedAgain"] = int(
            s["chan"]
        )  # ours: NCCL asked so many times more for this receive
    return fields


def _kernel_ch(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    fields: Fields = {"rank": _rank(s["flags"], comm), "channelId": int(s["chan"])}
    if not s["flags"] & layout.FLAG_NO_STAMP:
        fields["pTimer"] = int(s["gpu_start"])
    return fields


def _kernel_phase(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": _rank(s["flags"], comm),
        "channelId": int(s["chan"]),
        "phaseId": int(s["phase"]),
        "phaseName": n.text(s["name"], 0),
        "pTimer": int(s["gpu_start"]),
    }


def _net(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    net_id = int(s["id"])
    fields: Fields = {"rank": int(s["rank"]), "id": net_id}
    if net_id == NET_IB_V1:
        fields |= {
            "type": int(s["chan"]),
            "device": int(s["device"]),
            "wr_id": int(s["wr_id"]),
            "opcode": int(s["opcode"]),
            "qpNum": int(s["qp_or_fd"]),
            "length": int(s["length"]),
        }
    elif net_id == NET_SOCKET_V1:
        fields |= {
            "type": int(s["chan"]),
            "fd": int(s["qp_or_fd"]),
            "op": int(s["opcode"]),
            "length": int(s["length"]),
        }
    else:
        fields["id"] = int(s["wr_id"])
    return fields


def _group_api(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": _rank(s["flags"], comm),
        "graphCaptured": bool(s["flags"] & layout.FLAG_GRAPH),
        "groupDepth": int(s["depth"]),
    }


def _call(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    fields: Fields = {
        "rank": _rank(s["flags"], comm),
        "func": n.text(s["func"], 0),
        "count": int(s["count"]),
        "datatype": n.text(s["dtype"], 0),
        "stream": hexadecimal(s["stream"]),
        "graphCaptured": bool(s["flags"] & layout.FLAG_GRAPH),
    }
    if int(s["kind"]) == layout.KINDS["CollApi"]:
        fields["root"] = int(s["root"])
    if comm is None or comm.version >= FIRST_WITH_TAGS:
        fields["userTag"] = int(s["tag"])
    return fields


def _kernel_launch(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    return {"rank": _rank(s["flags"], comm), "stream": hexadecimal(s["stream"])}


def _ce_coll(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    fields: Fields = {
        "rank": int(x["rank"]) if x is not None else None,
        "seqNumber": int(s["seq"]),
        "func": n.text(s["func"], 0),
        "count": int(s["count"]),
        "root": int(s["root"]),
        "datatype": n.text(s["dtype"], 0),
        "syncStrategy": n.text(s["sync"], 0),
        "intraBatchSync": bool(s["flags"] & layout.FLAG_SEND),
        "ceSeqNum": int(s["ce_seq"]),
    }
    if x is not None:
        fields |= {
            "sendBuff": hexadecimal(x["send_buff"]),
            "recvBuff": hexadecimal(x["recv_buff"]),
            "stream": hexadecimal(x["stream"]),
            "batchSize": int(x["batch_size"]),
            "numBatches": int(x["num_batches"]),
        }
        if comm is None or comm.version >= FIRST_WITH_TAGS:
            fields["userTag"] = int(x["tag"])
    return fields


def _ce_sync(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": _rank(s["flags"], comm),
        "isComplete": bool(s["flags"] & layout.FLAG_SEND),
        "nRanks": int(s["ranks"]),
    }


def _ce_batch(n: Names, s: Any, x: Any, comm: Communicator | None) -> Fields:
    return {
        "rank": _rank(s["flags"], comm),
        "numOps": int(s["ops"]),
        "totalBytes": int(s["bytes"]),
        "useIntraSync": bool(s["flags"] & layout.FLAG_SEND),
    }


_READERS: dict[str, Callable[[Names, Any, Any, Communicator | None], Fields]] = {
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


def fields_of(names: Names, kind: str, slot: Any, extension: Any) -> Fields:
    """The descriptor's fields of one event; `extension` is the slot behind it, or None."""
    return _READERS[kind](names, slot, extension, names.communicator(slot))


# ---- states ----
def states_in_place(name: str, s: Any, early: bool) -> list[tuple[int, int, Fields]]:
    """(state, counter value, arguments) stored in the event's own slot."""
    bits, found = int(s["states"]), []
    if name == "ProxyStep":
        numbers = RECV_STEP_STATES if bits & layout.STATE_RECV else SEND_STEP_STATES
        for which, bit in enumerate(_STATE_BITS):
            if bits & bit:
                args = {} if early else {"transSize": int(s["size"][which])}
                found.append((numbers[which], int(s["t0"]) + int(s["dt"][which]), args))
    elif name == "ProxyCtrl":
        for bit, code, t in ((1, "first", "t_first"), (2, "second", "t_second")):
            if bits & bit:
                state = int(s[code])
                args = (
                    {"appendedProxyOps": int(s["appended"])}
                    if state == STATE["ProxyCtrlAppendEnd"]
                    else {}
                )
                found.append((state, int(s[t]), args))
    elif name in ("KernelCh", "KernelPhase") and bits & layout.STATE_FIRST:
        found.append((STATE[f"{name}Stop"], int(s["t_stop"]), {"pTimer": int(s["gpu_stop"])}))
    elif name == "ProxyOp" and bits & layout.STATE_FIRST:
        found.append((STATE["ProxyOpInProgress"], int(s["t_in_progress"]), {}))
    elif name == "GroupApi":
        for bit, state, t in (
            (1, STATE["GroupStartApiStop"], "t_start_done"),
            (2, STATE["GroupEndApiStart"], "t_end_begins"),
        ):
            if bits & bit:
                found.append((state, int(s[t]), {}))
    return found


def appended_arguments(state: int, s: Any) -> Fields:
    """The arguments that a State slot keeps."""
    if state <= LAST_OLD_PROXY_OP_STATE:
        return {"transSize": int(s["arg"]), "steps": int(s["steps"])}
    if state in (*SEND_STEP_STATES, *RECV_STEP_STATES):
        return {"transSize": int(s["arg"])}
    if state == STATE["ProxyCtrlAppendEnd"]:
        return {"appendedProxyOps": int(s["arg"])}
    if state in (STATE["KernelChStop"], STATE["KernelPhaseStop"]):
        return {"pTimer": int(s["arg"])}
    return (
        {"length": int(s["arg"]), "wr_id": int(s["arg2"])}
        if state == STATE["NetPluginUpdate"]
        else {}
    )
