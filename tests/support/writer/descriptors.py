"""Event slots from a transcript's descriptors and states, by the plugin's rules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ncclscope.capture import layout
from ncclscope.nccl.events import (
    EVENTS,
    FIRST_WITH_STAMPS,
    OLDEST_INTERFACE,
    RECV_STEP_STATES,
    SEND_STEP_STATES,
    STATE,
)
from tests.support.writer.slots import Slot

Line = dict[str, Any]
Filled = tuple[Slot, Slot | None]  # the event's slot, and its extension

_U32 = 0xFFFFFFFF


@dataclass(frozen=True)
class Context:
    """What an event's fields refer to."""

    nonce: int
    comm: int
    comm_rank: int
    version: int
    text: Callable[[str | None], int]  # a string's id
    handle: Callable[[int], int]  # of a transcript's handle


def _hex(line: Line, key: str) -> int:
    return int(line.get(key, "0"), 16)


def _rank_flag(c: Context, line: Line) -> int:
    if line["rank"] == 0:
        return 0
    return layout.FLAG_RANK if line["rank"] == c.comm_rank else layout.FLAG_RANK_IN


def _plain(c: Context, line: Line) -> Filled:
    return {"comm": c.comm}, None


def _named(c: Context, line: Line, keys: tuple[str, ...]) -> dict[str, int]:
    """Strings as ids; interface v1's numbers as they are."""
    values = {key: line.get(key) for key in keys}
    return {k: v if isinstance(v, int) else c.text(v) for k, v in values.items()}


def _numbers_flag(c: Context) -> int:
    return layout.FLAG_NUMBERS if c.version == OLDEST_INTERFACE else 0


def _coll(c: Context, line: Line) -> Filled:
    bits = layout.COLL_IS_SYMMETRIC if line.get("sym") else 0
    bits |= layout.COLL_IS_COLLNET if line.get("collnet") else 0
    bits |= layout.COLL_IS_NVLS if line.get("nvls") else 0
    slot = {
        "flags": layout.FLAG_EXT | layout.FLAG_RANK_IN | _numbers_flag(c),
        "seq": line["seq"],
        "count": line["count"],
        **_named(c, line, ("func", "dtype", "algo", "proto")),
        "channels": line["nch"] if "nch" in line else line["nmaxch"],
        "warps": line["nwarps"],
        "variant": c.text(line.get("variant")),
        "bits": bits,
        "root": line["root"],
        "comm": c.comm,
    }
    extension = {
        "kind": layout.KINDS["CollExt"],
        "parent_group": c.handle(line.get("group", 0)),
        "send_buff": _hex(line, "send"),
        "recv_buff": _hex(line, "recv"),
        "tag": line.get("tag", 0),
        "traffic_bytes": line.get("traffic", 0),
        "comm_hash": _hex(line, "comm"),
        "rank": line["rank"],
        "op": line.get("op", 0),
    }
    return slot, extension


def _p2p(c: Context, line: Line) -> Filled:
    slot = {
        "chan": line.get("nch", 0),
        "flags": _rank_flag(c, line),
        "buff": _hex(line, "buff"),
        "count": line["count"],
        "parent_group": c.handle(line.get("group", 0)),
        **_named(c, line, ("func", "dtype")),
        "comm": c.comm,
        "peer": line["peer"],
    }
    if c.version >= FIRST_WITH_STAMPS and not line.get("tag"):
        return slot, None
    slot["flags"] = layout.FLAG_EXT | layout.FLAG_RANK_IN | _numbers_flag(c)
    extension = {
        "kind": layout.KINDS["P2pExt"],
        "tag": line.get("tag", 0),
        "comm_hash": _hex(line, "comm"),
        "rank": line["rank"],
    }
    return slot, extension


def _proxy_op(c: Context, line: Line) -> Filled:
    slot = {
        "chan": line["ch"],
        "flags": layout.FLAG_RANK_IN | (layout.FLAG_SEND if line["send"] else 0),
        "pid": line["pid"],
        "peer": line["peer"],
        "steps": line["nsteps"],
        "chunk_size": line["chunk"],
        "comm": c.comm,
        "ctx_nonce": c.nonce,
        "rank": line["rank"],
    }
    return slot, None


def _proxy_step(c: Context, line: Line) -> Filled:
    slot = {"flags": layout.FLAG_RANK_IN, "step": line["step"], "rank": line["rank"]}
    return slot | {"dt": (0, 0, 0), "size": (0, 0, 0)}, None


def _kernel_ch(c: Context, line: Line) -> Filled:
    flags = _rank_flag(c, line) | (0 if "ptimer" in line else layout.FLAG_NO_STAMP)
    stamp = line.get("ptimer", 0)
    return {"chan": line["ch"], "flags": flags, "gpu_start": stamp, "comm": c.comm}, None


def _kernel_phase(c: Context, line: Line) -> Filled:
    slot = {
        "chan": line["ch"],
        "flags": _rank_flag(c, line),
        "gpu_start": line["ptimer"],
        "phase": line["phase"],
        "name": c.text(line["phname"]),
        "comm": c.comm,
    }
    return slot, None


def _graph_flag(line: Line) -> int:
    return layout.FLAG_GRAPH if line["graph"] else 0


def _group_api(c: Context, line: Line) -> Filled:
    flags = _rank_flag(c, line) | _graph_flag(line)
    return {"flags": flags, "depth": line["depth"], "comm": c.comm}, None


def _call(c: Context, line: Line) -> Filled:
    slot = {
        "flags": _rank_flag(c, line) | _graph_flag(line),
        "count": line["count"],
        "stream": _hex(line, "stream"),
        "tag": line.get("tag", 0),
        **_named(c, line, ("func", "dtype")),
        "comm": c.comm,
        "root": line.get("root", 0),
    }
    return slot, None


def _kernel_launch(c: Context, line: Line) -> Filled:
    stream = _hex(line, "stream")
    return {"flags": _rank_flag(c, line), "stream": stream, "comm": c.comm}, None


_FILLERS: dict[str, Callable[[Context, Line], Filled]] = {
    "Group": _plain,
    "Coll": _coll,
    "P2p": _p2p,
    "ProxyOp": _proxy_op,
    "ProxyStep": _proxy_step,
    "ProxyCtrl": _plain,
    "KernelCh": _kernel_ch,
    "GroupApi": _group_api,
    "CollApi": _call,
    "P2pApi": _call,
    "KernelLaunch": _kernel_launch,
    "KernelPhase": _kernel_phase,
}


def fill(c: Context, line: Line, t_ns: int) -> Filled:
    """The slots of a start callback. Copy-engine and network events are in no transcript."""
    name = EVENTS[line["type"].bit_length() - 1]
    slot, extension = _FILLERS[name](c, line)
    begun = {"kind": layout.KINDS[name], "states": 0, "parent": c.handle(line["p"]), "t0": t_ns}
    return begun | slot, extension


# ---- states: False where one needs a slot of its own ----
def _store(slot: Slot, bit: int, **fields: Any) -> bool:
    if slot["states"] & bit:
        return False
    slot |= fields
    slot["states"] |= bit
    return True


def _step_state(slot: Slot, line: Line, t_ns: int) -> bool:
    receives = line["s"] in RECV_STEP_STATES
    which = (RECV_STEP_STATES if receives else SEND_STEP_STATES).index(line["s"])
    direction = layout.STATE_RECV if receives else 0
    elapsed = t_ns - slot["t0"]
    any_time = layout.STATE_FIRST | layout.STATE_SECOND | layout.STATE_THIRD
    turned = slot["states"] & any_time and (slot["states"] & layout.STATE_RECV) != direction
    if turned or elapsed > _U32 or line["a"] > _U32:
        return False
    dt, size = list(slot["dt"]), list(slot["size"])
    dt[which], size[which] = elapsed, line["a"]
    return _store(slot, 1 << which, dt=tuple(dt), size=tuple(size)) and _direct(slot, direction)


def _direct(slot: Slot, direction: int) -> bool:
    slot["states"] |= direction
    return True


def _ctrl_state(slot: Slot, line: Line, t_ns: int) -> bool:
    more = {"appended": line["a"]} if line["s"] == STATE["ProxyCtrlAppendEnd"] else {}
    if not slot["states"] & layout.STATE_FIRST:
        return _store(slot, layout.STATE_FIRST, first=line["s"], t_first=t_ns, **more)
    return _store(slot, layout.STATE_SECOND, second=line["s"], t_second=t_ns, **more)


def store_state(slot: Slot, line: Line, t_ns: int) -> bool:
    """Stores a state in its event's own slot where it has a place there."""
    kind, state = layout.KIND_NAMES[slot["kind"]], line["s"]
    if slot["states"] & layout.STATE_STOPPED:
        return False
    if kind == "ProxyStep" and state in (*SEND_STEP_STATES, *RECV_STEP_STATES):
        return _step_state(slot, line, t_ns)
    if kind == "ProxyCtrl" and STATE["ProxyCtrlIdle"] <= state <= STATE["ProxyCtrlAppendEnd"]:
        return _ctrl_state(slot, line, t_ns)
    if kind in ("KernelCh", "KernelPhase") and state == STATE[f"{kind}Stop"]:
        return _store(slot, layout.STATE_FIRST, gpu_stop=line["a"], t_stop=t_ns)
    if kind == "ProxyOp" and state == STATE["ProxyOpInProgress"]:
        return _store(slot, layout.STATE_FIRST, t_in_progress=t_ns)
    if kind == "GroupApi" and state == STATE["GroupStartApiStop"]:
        return _store(slot, layout.STATE_FIRST, t_start_done=t_ns)
    if kind == "GroupApi" and state == STATE["GroupEndApiStart"]:
        return _store(slot, layout.STATE_SECOND, t_end_begins=t_ns)
    return False
