"""What a last moment is made of: places in communicators, operations in flight, open events."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ncclscope.capture import dtypes, layout
from ncclscope.model.schema import NONE
from ncclscope.nccl.events import RECV_STEP_STATES, SEND_STEP_STATES, STATE_NAMES

USUALLY = 0.95
PAIRED = ("Send", "Recv", "SendRecv")  # functions that only two ranks take part in
# What an open proxy step waits for, by the last state that it has reached.
SEND_STATES, RECV_STATES = (
    tuple(STATE_NAMES[state].removeprefix("ProxyStep") for state in states)
    for states in (SEND_STEP_STATES, RECV_STEP_STATES)
)
_DTYPES, _KINDS = dtypes.OURS.dtypes, layout.KINDS
_STATE_BITS = (layout.STATE_FIRST, layout.STATE_SECOND, layout.STATE_THIRD)

Ago = Callable[[int], int]  # ns from a counter value until the moment


@dataclass(frozen=True, slots=True)
class LastCall:
    """The last call on a communicator."""

    function: str
    datatype: str
    count: int
    root: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class OperationInFlight:
    """An operation that was begun and has not ended on the GPU."""

    order: int  # among the works of its communicator, from 1
    function: str
    datatype: str
    algorithm: str
    count: int
    peer: int | None  # of a send or receive, where it is known
    channels: int
    started: int
    stopped: int
    replay: bool
    since_ns: int


@dataclass(frozen=True, slots=True)
class Step:
    """A proxy step that is open."""

    channel: int
    peer: int
    sends: bool
    step: int
    state: str  # NCCL's name, "" before the first
    since_ns: int


@dataclass(slots=True)
class OpenEvents:
    """Events of one communicator that have been open for long."""

    inside_call_ns: int | None = (
        None  # how long the process has been in a call that has not returned
    )
    channels: list[int] = field(default_factory=list)  # whose kernels run
    steps: list[Step] = field(default_factory=list)
    proxied: bool = False  # proxy ops are open


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank of a communicator."""

    number: int  # of the communicator in its process
    id: int
    name: str
    version: int  # of the profiler interface
    rank: int
    ranks: int
    gpu: str  # uuid, else bus id
    reports_kernels: bool
    opened_ns: int  # ago
    closed: bool
    calls: int  # of any kind
    works: int
    collectives: int | None  # calls of collectives; None: to be counted if it matters
    last: LastCall | None
    done_ns: int | None  # since the last kernel ended
    in_flight: tuple[OperationInFlight, ...]
    parts: OpenEvents | None
    global_rank: int = NONE
    longest_ns: int | None = None  # of its operations so far; None: to be looked up if it matters
    usual_ns: int = 0  # 19 of 20 did not take longer
    finished: int = 0  # operations that ended
    gpu_bus_id: str = ""


def step_state(slot: Any) -> tuple[str, int]:
    """The last state that an open step has reached, and its ticks since the start."""
    bits = int(slot["states"])
    names = RECV_STATES if bits & layout.STATE_RECV else SEND_STATES
    reached = [which for which, bit in enumerate(_STATE_BITS) if bits & bit]
    if not reached:
        return "", 0
    latest = max(reached, key=lambda which: int(slot["dt"][which]))
    return names[latest], int(slot["dt"][latest])


def open_events_of(events: Iterable[tuple[int, int, Any]], ago: Ago) -> dict[int, OpenEvents]:
    """Open events by communicator number; steps belong to proxy ops, which are open as well."""
    found: dict[int, OpenEvents] = {}
    proxies: dict[int, Any] = {}
    steps = []
    for stream, index, raw in events:
        kind = int(raw["kind"])
        if kind == _KINDS["ProxyStep"]:
            steps.append(raw.view(_DTYPES["ProxyStep"]))
        elif kind == _KINDS["ProxyOp"]:
            slot = raw.view(_DTYPES["ProxyOp"])
            proxies[stream << layout.INDEX_BITS | index & layout.INDEX_MASK] = slot
            found.setdefault(int(slot["comm"]), OpenEvents()).proxied = True
        elif kind == _KINDS["GroupApi"]:
            slot = raw.view(_DTYPES["GroupApi"])
            parts = found.setdefault(int(slot["comm"]), OpenEvents())
            parts.inside_call_ns = max(parts.inside_call_ns or 0, ago(int(slot["t0"])))
        elif kind == _KINDS["KernelCh"]:
            slot = raw.view(_DTYPES["KernelCh"])
            found.setdefault(int(slot["comm"]), OpenEvents()).channels.append(int(slot["chan"]))
    mask = (1 << layout.STREAM_BITS + layout.INDEX_BITS) - 1
    for slot in steps:
        proxy = proxies.get(int(slot["parent"]) & mask)
        if proxy is not None:
            state, ticks = step_state(slot)
            found[int(proxy["comm"])].steps.append(
                Step(
                    channel=int(proxy["chan"]),
                    peer=int(proxy["peer"]),
                    sends=bool(proxy["flags"] & layout.FLAG_SEND),
                    step=int(slot["step"]),
                    state=state,
                    since_ns=ago(int(slot["t0"]) + ticks),
                )
            )
    return found
