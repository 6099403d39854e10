"""What happens in a simulated job: kernels, the operations that they are part of, and faults at
work.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.support.laboratory.faults import Fault

STREAM_GAP_NS = 2_000  # from the end of a kernel to the start of the next one that needs it
SYNC_NS = 20_000  # from the end of a kernel until its host goes on
LAUNCH_NS = 7_000  # from the call of one operation to its launch
PART_NS = 600  # and so much longer for each further one of a group
CALL_NS = 14_000  # from the launch until the call has returned
FIRST_LAUNCH_NS = (4_000, 9_000)  # from the launch to the start on an idle stream
END_SPREAD = 0.002  # of the time on the wire, by which ranks end apart


@dataclass(frozen=True, slots=True)
class Machine:
    """Bandwidths and latencies."""

    ranks_per_host: int = 8
    gb_s: float = 100.0  # between ranks of a host
    net_gb_s: float = 25.0  # between hosts
    latency_us: float = 8.0
    hop_us: float = 1.0  # for each rank of a ring
    eager_bytes: int = 65_536  # a send of no more than this ends without its receiver
    host_us: float = 12.0  # of the host for each compute kernel


@dataclass(slots=True)
class Communicator:
    """Ranks of the job that call together."""

    name: str
    members: tuple[int, ...]
    number: int
    inter_node: bool
    rng: Random
    collectives: list["Instance"] = field(default_factory=list)
    pairs: dict[tuple[int, int], list["Instance"]] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)  # collectives by rank
    sequence: dict[tuple[int, str], int] = field(default_factory=dict)  # by rank and function
    pair_calls: dict[tuple[int, int, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Part:
    """One call of a group: a collective, or a send or receive with its peer (rank of the job)."""

    function: str
    size_bytes: int
    peer: int = -1
    root: int = -1  # rank of the job
    sequence: int = 0
    instance: "Instance | None" = None
    end_ns: float = -1.0


class Waiter(Protocol):
    """A host that waits for the end of a kernel."""

    def woken(self) -> None:
        """The kernel has ended."""


@dataclass(slots=True, eq=False)
class Kernel:
    """What a stream carries out. Without a communicator it is compute, which nobody records."""

    rank: int
    stream: str
    call_ns: float
    launch_ns: float  # of an operation: when its launch began
    ready_ns: float
    step: int
    need: int = 0  # predecessors that have not ended
    compute_ns: float = 0.0
    communicator: Communicator | None = None
    parts: tuple[Part, ...] = ()
    start_ns: float = -1.0
    end_ns: float = -1.0
    stamp_end_ns: float = -1.0  # what the GPU's stamp says; earlier than the end for trees
    open_parts: int = 0
    next: list["Kernel"] = field(default_factory=list)
    waiter: "Waiter | None" = None


@dataclass(slots=True, eq=False)
class Instance:
    """An operation on all its ranks; of a pair, the sender's and the receiver's kernel."""

    wire_ns: float
    spread: tuple[float, ...]
    kernels: dict[int, Kernel] = field(default_factory=dict)  # that have started, by rank
    last_ns: float = -1.0


@dataclass(slots=True)
class Planted:
    """What a fault really did."""

    fault: Fault
    delay_ns: float = 0.0
    times: int = 0
    communicators: set[str] = field(default_factory=set)
    exchanges: bool = False  # of a transfer: it slows sends and receives

    def add(self, delay_ns: float, communicator: str = "") -> None:
        """Counts one more delay."""
        self.delay_ns += delay_ns
        self.times += 1
        if communicator:
            self.communicators.add(communicator)
