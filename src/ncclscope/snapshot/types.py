"""What a snapshot is made of: ranks of communicators, operations in flight, open events."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ncclscope.capture import dtypes, layout
from ncclscope.model.schema import NONE
from ncclscope.nccl.events import RECV_STEP_STATES, SEND_STEP_STATES, STATE_NAMES
from ncclscope.nccl.functions import POINT_TO_POINT

USUALLY = 0.95  # of a rank's operations so far: what takes longer than these is unusual
PAIRED = POINT_TO_POINT
# What an open proxy step waits for, by the last state that it has reached.
SEND_STATES, RECV_STATES = (
    tuple(STATE_NAMES[state].removeprefix("ProxyStep") for state in states)
    for states in (SEND_STEP_STATES, RECV_STEP_STATES)
)
_DTYPES, _KINDS = dtypes.OURS.dtypes, layout.KINDS

NsBefore = Callable[[int], int]  # a counter value -> how many ns it lies before the snapshot


class Compact:
    """A dataclass with slots that is pickled as a call of its class. Ten thousand processes are
    read by workers, and a dataclass's own way takes half as long again.
    """

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class LastCall(Compact):
    """The last call on a communicator."""

    function: str
    datatype: str
    count: int
    root: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class OperationInFlight(Compact):
    """An operation that has begun and not ended on the GPU."""

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
class Step(Compact):
    """A proxy step that is open."""

    channel: int
    peer: int
    sends: bool
    step: int
    state: str  # NCCL's name, "" before the first
    since_ns: int


@dataclass(slots=True)
class OpenEvents(Compact):
    """Events of one communicator that have been open for long."""

    inside_call_ns: int | None = None  # for how long a call has not returned
    channels: list[int] = field(default_factory=list)  # whose kernels run
    steps: list[Step] = field(default_factory=list)
    proxied: bool = False  # proxy ops are open


@dataclass(frozen=True, slots=True)
class RankState(Compact):
    """One rank of a communicator."""

    number: int  # of the communicator in its process
    id: int
    name: str
    version: int  # of the profiler interface
    rank: int
    ranks: int
    gpu: str  # uuid, else bus id
    reports_kernels: bool
    opened_ns: int  # how long ago
    closed: bool
    calls: int  # of any kind
    works: int
    collectives: int | None  # calls of collectives; None: `collective_calls` looks it up
    last: LastCall | None
    done_ns: int | None  # since the last kernel ended
    in_flight: tuple[OperationInFlight, ...]
    parts: OpenEvents | None
    global_rank: int = NONE
    longest_ns: int | None = None  # of its operations; None: `longest_operation_ns` looks it up
    usual_ns: int = 0  # 19 of 20 did not take longer
    finished: int = 0  # operations that ended
    gpu_bus_id: str = ""
    closed_ns: int | None = None  # how long ago; None where it is open


def step_state(slot: Any) -> tuple[str, int]:
    """The last state that an open step has reached, and its ticks since the start."""
    bits = int(slot["states"])
    names = RECV_STATES if bits & layout.STATE_RECV else SEND_STATES
    reached = [which for which, bit in enumerate(layout.STATE_BITS) if bits & bit]
    if not reached:
        return "", 0
    latest = max(reached, key=lambda which: int(slot["dt"][which]))
    return names[latest], int(slot["dt"][latest])


def open_events_of(
    events: Iterable[tuple[int, int, Any]], ns_before: NsBefore
) -> dict[int, OpenEvents]:
    """Open events by communicator number; steps belong to proxy ops, which are open as well.
    `events`: stream, index and slot of each.
    """
    by_comm: dict[int, OpenEvents] = {}
    proxies: dict[int, Any] = {}
    steps = []
    for stream, index, raw in events:
        kind = int(raw["kind"])
        if kind == _KINDS["ProxyStep"]:
            steps.append(raw.view(_DTYPES["ProxyStep"]))
        elif kind == _KINDS["ProxyOp"]:
            slot = raw.view(_DTYPES["ProxyOp"])
            proxies[stream << layout.INDEX_BITS | index & layout.INDEX_MASK] = slot
            by_comm.setdefault(int(slot["comm"]), OpenEvents()).proxied = True
        elif kind == _KINDS["GroupApi"]:
            slot = raw.view(_DTYPES["GroupApi"])
            of_comm = by_comm.setdefault(int(slot["comm"]), OpenEvents())
            of_comm.inside_call_ns = max(of_comm.inside_call_ns or 0, ns_before(int(slot["t0"])))
        elif kind == _KINDS["KernelCh"]:
            slot = raw.view(_DTYPES["KernelCh"])
            by_comm.setdefault(int(slot["comm"]), OpenEvents()).channels.append(int(slot["chan"]))
    mask = (1 << layout.STREAM_BITS + layout.INDEX_BITS) - 1
    for slot in steps:
        proxy = proxies.get(int(slot["parent"]) & mask)
        if proxy is not None:
            state, ticks = step_state(slot)
            by_comm[int(proxy["comm"])].steps.append(
                Step(
                    channel=int(proxy["chan"]),
                    peer=int(proxy["peer"]),
                    sends=bool(proxy["flags"] & layout.FLAG_SEND),
                    step=int(slot["step"]),
                    state=state,
                    since_ns=ns_before(int(slot["t0"]) + ticks),
                )
            )
    return by_comm
