"""Processes' last moments, made by hand."""

from pathlib import Path
from typing import Any

from ncclscope.capture.liveness import ALIVE
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import LastCall, OpenEvents, OperationInFlight, RankState, Step

S = 1_000_000_000
NOW_NS = 1_794_722_400 * S
COUNT = 262_144


def operation(
    order: int, since_s: float = 40, function: str = "AllReduce", **more: Any
) -> OperationInFlight:
    """An operation in flight: one MiB on two channels, started."""
    fields: dict[str, Any] = {
        "order": order, "function": function, "datatype": "float32", "algorithm": "RING",
        "count": COUNT, "peer": None, "channels": 2, "started": 2, "stopped": 0, "replay": False,
        "since_ns": int(since_s * S),
    }  # fmt: skip
    return OperationInFlight(**fields | more)


def last(since_s: float = 40, function: str = "AllReduce", **more: Any) -> LastCall:
    """A last call of one MiB."""
    fields: dict[str, Any] = {
        "function": function, "datatype": "float32", "count": COUNT, "root": 0,
        "since_ns": int(since_s * S),
    }  # fmt: skip
    return LastCall(**fields | more)


def rank_state(
    rank: int,
    ranks: int,
    calls: int = 100,
    in_flight: tuple[OperationInFlight, ...] = (),
    id: int = 7,
    **more: Any,
) -> RankState:
    """A rank that has made this many calls; all that are not in flight have ended."""
    fields: dict[str, Any] = {
        "number": 0, "id": id, "name": "dp", "version": 5, "rank": rank, "ranks": ranks,
        "gpu": f"gpu{rank}", "reports_kernels": True, "opened_ns": 900 * S, "closed": False,
        "calls": calls, "works": calls, "collectives": calls, "last": last() if calls else None,
        "done_ns": 40 * S, "in_flight": in_flight, "parts": None, "global_rank": rank,
        "longest_ns": S // 1000, "usual_ns": S // 1000, "finished": calls - len(in_flight),
    }  # fmt: skip
    return RankState(**fields | more)


def snapshot(rank: int, *rank_states: RankState, **more: Any) -> ProcessSnapshot:
    """A process on a node of eight."""
    fields: dict[str, Any] = {
        "folder": f"node{rank // 8}.{1000 + rank}.1", "host": f"node{rank // 8}", "pid": 1000 + rank,
        "gpu": str(rank % 8), "global_rank": rank, "world": 0, "restarts": 0, "mode": "full",
        "nccl_version": 22809, "at_ns": NOW_NS, "life": ALIVE, "how": "its process runs",
        "dropped": 0, "started_ns": NOW_NS - 1000 * S, "rank_states": rank_states, "path": Path("/nowhere"),
        "strings": {},
    }  # fmt: skip
    return ProcessSnapshot(**fields | more)


def recv_wait(peer: int, step: int = 0, channel: int = 0) -> Step:
    """Waits to receive."""
    return Step(channel, peer, False, step, "RecvWait", 40 * S)


def send_wait(peer: int, step: int = 0, channel: int = 0) -> Step:
    """Waits for the network."""
    return Step(channel, peer, True, step, "SendWait", 40 * S)


def inside(since_s: float = 40) -> OpenEvents:
    """A call that has not returned."""
    return OpenEvents(inside_call_ns=int(since_s * S))
