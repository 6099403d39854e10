"""Live pages and metadata of processes, without logs: what `status` needs of a running job."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ncclscope.capture import layout
from tests.support.writer.files import NS, ProcessFolder, Who, nonce_of
from tests.support.writer.meta import Meta
from tests.support.writer.slots import Slot, pack

_BEGAN_NS = 1_000 * NS
_RAN_NS = 900 * NS


def live_slots(
    at_ns: int, realtime_ns: int, body: Iterable[Slot], ended: bool = False
) -> list[Slot]:
    """A whole page around its slots."""
    inner = list(body)
    ends: Slot = {
        "serial": 9, "monotonic_ns": at_ns, "realtime_ns": realtime_ns, "ticks": at_ns,
        "slots": len(inner) + 2, "comms_open": 1, "mode": 3, "phase": int(ended),
    }  # fmt: skip
    first, last = ({"kind": layout.KINDS[kind], **ends} for kind in ("Live", "LiveEnd"))
    return [first, *inner, last]


def write_hang(
    capture: Path, ranks: int, culprits: frozenset[int], now_ns: int, waited_ns: int = 40 * NS,
    ranks_per_node: int = 8,
) -> None:  # fmt: skip
    """A job of which some ranks never call the hundredth AllReduce of the world; `now_ns`: wall
    clock.
    """
    end_ns = _BEGAN_NS + _RAN_NS
    for rank in range(ranks):
        who = Who(
            host=f"node{rank // ranks_per_node}", pid=10_000 + rank,
            boot_id=f"51309a7e-0000-4000-8000-{rank // ranks_per_node:012d}",
            start_ns=_BEGAN_NS, realtime_offset_ns=now_ns - end_ns, mode="full",
            nonce=nonce_of(rank),
            environment={
                "RANK": str(rank), "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": str(rank % ranks_per_node),
            },
            more={"simulation": "1", "nccl_version": "22809"},
        )  # fmt: skip
        meta, folder = Meta(who), ProcessFolder(capture, who)
        names = {text: meta.string(text) for text in ("AllReduce", "ncclFloat32", "RING", "SIMPLE")}
        meta.communicator(
            id=0x51309A7E, t0=_BEGAN_NS + 1000, comm=0, version=5, rank=rank, ranks=ranks,
            nodes=-(-ranks // ranks_per_node), tid=who.pid, mask=0xFFFF,
        )  # fmt: skip
        meta.syncs(_BEGAN_NS, end_ns, 0)
        folder.write("meta", layout.FILE_META, meta.slots())
        page = live_slots(end_ns, now_ns, _body(rank in culprits, names, end_ns - waited_ns))
        folder.write("live", layout.FILE_LIVE, pack(page))


def _body(culprit: bool, names: dict[str, int], called_ns: int) -> list[Slot]:
    shared: dict[str, Any] = {
        "comm": 0, "func": names["AllReduce"], "dtype": names["ncclFloat32"], "count": 1 << 20,
    }  # fmt: skip
    calls = 99 if culprit else 100
    comm = {
        "kind": layout.KINDS["LiveComm"], "calls": calls, "works": calls, "done": 99,
        "t_last_call": called_ns - (NS if culprit else 0), "t_last_done": called_ns - NS // 2,
        "root_or_peer": 0, **shared,
    }  # fmt: skip
    flying = {
        "kind": layout.KINDS["LiveOp"], "handle": 1, "t_call": called_ns, "t_work": called_ns,
        "order": 100, "algo": names["RING"], "proto": names["SIMPLE"], "channels": 2, "started": 2,
        "stopped": 0, "bits": 0, "peer": -1, **shared,
    }  # fmt: skip
    return [comm] if culprit else [comm, flying]
