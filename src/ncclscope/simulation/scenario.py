"""What a simulated job does and what goes wrong in it. docs/simulation.md describes every key."""

from collections.abc import Iterator
from dataclasses import dataclass

from ncclscope.nccl.datatypes import DATATYPES
from ncclscope.nccl.events import FIRST_WITH_STAMPS
from ncclscope.nccl.operation_bytes import bits_per_count
from ncclscope.nccl.releases import interface_of

# As native/harness/sim/settings.c has them.
SIMULATED_RELEASES = ("2.26", "2.27", "2.28", "2.30", "2.31", "2.32")
SIMULATED_FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "SendRecv")
STAGES = ("launch", "start", "finish", "network")
_FOR_EVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Communicators:
    """Groups of `size` ranks, `stride` apart, that share a name; size 0: one with all ranks."""

    name: str
    size: int = 0
    stride: int = 1

    def groups(self, ranks: int) -> list[tuple[int, ...]]:
        """The ranks of each communicator."""
        size = self.size or ranks
        block = size * self.stride
        starts = [at for at in range(ranks) if at % block < self.stride]
        return [tuple(range(at, at + block, self.stride)) for at in starts]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that every step makes. `size` is in bytes as nccl-tests count them."""

    communicator: str
    function: str
    size: int
    datatype: str = "float32"
    root: int = 0

    def count(self, ranks: int) -> int:
        """The count that the caller gives NCCL; at least 1."""
        bits = bits_per_count(self.function, self.datatype, ranks, in_coll=False)
        return max(self.size * 8 // (bits or 8), 1)


@dataclass(frozen=True, slots=True)
class Late:
    """A rank computes longer before a call, and so arrives late."""

    rank: int
    ms: float
    from_step: int = 0
    to_step: int = _FOR_EVER
    call: int = 0


@dataclass(frozen=True, slots=True)
class Never:
    """A rank never makes a call: it hangs before it."""

    rank: int
    step: int
    call: int = 0


@dataclass(frozen=True, slots=True)
class Wrong:
    """A rank makes another call than the others; the fields that are set say what differs."""

    rank: int
    step: int
    call: int = 0
    function: str = ""
    size: int = 0
    datatype: str = ""
    root: int = -1


@dataclass(frozen=True, slots=True)
class Dies:
    """A process kills itself before a call, or with `after` = 1 after it, before the GPU starts."""

    rank: int
    step: int
    call: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Stuck:
    """A rank does not launch, start or finish a call while others do. At `network`, what it sends
    does not arrive, so that all ranks are in the call and none progresses.
    """

    rank: int
    step: int
    call: int = 0
    at: str = "start"


@dataclass(frozen=True, slots=True)
class NeverJoins:
    """A rank hangs while a communicator is created, after all ranks have connected."""

    rank: int
    communicator: str


@dataclass(frozen=True, slots=True)
class Heavy:
    """A rank sends `factor` times as much as the others with a SendRecv."""

    rank: int
    factor: int
    call: int = 0


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Latency and bandwidth between two ranks or two hosts are `factor` times worse."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    factor: float = 10


@dataclass(frozen=True, slots=True)
class BandwidthDrop:
    """Some time after the first operation, the bandwidth of all links drops to 1 / `factor`."""

    at_ms: float
    factor: float = 4


@dataclass(frozen=True, slots=True)
class HostClock:
    """CLOCK_MONOTONIC of a simulated host, relative to the machine's."""

    host: int
    offset_ms: float = 0
    drift_ppm: float = 0


@dataclass(frozen=True, slots=True)
class GpuClock:
    """The timer of a rank's GPU, relative to Unix time."""

    rank: int
    offset_ms: float = 0
    drift_ppm: float = 0


@dataclass(frozen=True, slots=True)
class Range:
    """A range that every step of every rank has, around its calls `first` to `last`.

    Without `last` it holds no call, and takes `ms` right before call `first`; with `first` equal to
    the number of calls, it comes after all of them. A range is inside those before it in the list
    that hold it. `{step}` in its text is the number of the step. In a scenario's file the text is
    percent-encoded: `Optimizer.step%23Adam`.
    """

    text: str
    first: int = 0
    last: int = -1
    ms: float = 0
    source: int = 1  # as the capture format numbers them: 1 NVTX, 2 record_function …
    mark: int = 0  # 1: a mark
    payload: int = 0  # of a mark; 0: none

    def label(self, step: int) -> str:
        """The text in a step."""
        return self.text.replace("{step}", str(step))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job of `steps`: in each, ranks compute, make all calls in order, and wait for their end."""

    name: str = "scenario"
    release: str = "2.28"
    ranks: int = 4
    ranks_per_host: int = 0  # 0: all on one
    channels: int = 2
    latency_us: float = 10
    bandwidth_gb_s: float = 2
    steps: int = 20
    compute_ms: float = 2
    give_up_s: float = 5  # without progress for this long, the job is killed; 0: never
    communicators: tuple[Communicators, ...] = (Communicators("world"),)
    calls: tuple[Call, ...] = (Call("world", "AllReduce", 1 << 20),)
    late: tuple[Late, ...] = ()
    never: tuple[Never, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    dies: tuple[Dies, ...] = ()
    stuck: tuple[Stuck, ...] = ()
    never_joins: tuple[NeverJoins, ...] = ()
    heavy: tuple[Heavy, ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    bandwidth_drops: tuple[BandwidthDrop, ...] = ()
    host_clocks: tuple[HostClock, ...] = ()
    gpu_clocks: tuple[GpuClock, ...] = ()
    ranges: tuple[Range, ...] = ()

    @property
    def hosts(self) -> int:
        """Number of simulated hosts."""
        return -(-self.ranks // self.ranks_per_host) if self.ranks_per_host else 1

    def host_of(self, rank: int) -> int:
        """The simulated host of a rank."""
        return rank // self.ranks_per_host if self.ranks_per_host else 0

    @property
    def interface(self) -> int:
        """The profiler interface of the simulated release."""
        major, minor = map(int, self.release.split("."))
        return interface_of((major, minor, 0)) or 0

    @property
    def made_communicators(self) -> tuple[Communicators, ...]:
        """The communicators that the job creates: first one of all ranks, then splits of it."""
        world = [comms for comms in self.communicators if comms.size in (0, self.ranks)]
        others = (comms for comms in self.communicators if comms not in world[:1])
        return (world[0] if world else Communicators("world"), *others)

    def late_ms(self, rank: int, step: int, call: int) -> float:
        """How much longer than others a rank computes before a call."""
        delays = (late for late in self.late if late.rank == rank and late.call == call)
        return sum(late.ms for late in delays if late.from_step <= step <= late.to_step)

    def sends_times(self, rank: int, call: int) -> int:
        """The factor by which a rank sends more than the call's size."""
        factors = (h.factor for h in self.heavy if (h.rank, h.call) == (rank, call))
        return next(factors, 1)

    def call_of(self, rank: int, step: int, call: int) -> Call:
        """The call that a rank makes, wrong ones included."""
        right = self.calls[call]
        for wrong in self.wrong:
            if (wrong.rank, wrong.step, wrong.call) == (rank, step, call):
                return Call(
                    right.communicator,
                    wrong.function or right.function,
                    wrong.size or right.size,
                    wrong.datatype or right.datatype,
                    right.root if wrong.root < 0 else wrong.root,
                )
        return right


# Keys that can be repeated: the field that collects their entries, and its class.
LISTS: dict[str, tuple[str, type]] = {
    "communicator": ("communicators", Communicators),
    "call": ("calls", Call),
    "late": ("late", Late),
    "never": ("never", Never),
    "wrong": ("wrong", Wrong),
    "dies": ("dies", Dies),
    "stuck": ("stuck", Stuck),
    "never_joins": ("never_joins", NeverJoins),
    "heavy": ("heavy", Heavy),
    "slow_link": ("slow_links", SlowLink),
    "bandwidth_drop": ("bandwidth_drops", BandwidthDrop),
    "host_clock": ("host_clocks", HostClock),
    "gpu_clock": ("gpu_clocks", GpuClock),
    "range": ("ranges", Range),
}


def problems(s: Scenario) -> Iterator[str]:
    """Why a scenario cannot be run."""
    names = [comms.name for comms in s.communicators]
    if s.release not in SIMULATED_RELEASES:
        yield f"release is one of {', '.join(SIMULATED_RELEASES)}, not {s.release}"
    if s.ranks < 1 or s.steps < 0 or s.ranks_per_host < 0 or s.channels < 1:
        yield "ranks and channels are at least 1"
    if s.bandwidth_gb_s <= 0:
        yield "bandwidth_gb_s is above 0"
    if len(set(names)) < len(names):
        yield "two communicators have the same name"
    for comm in s.communicators:
        if comm.size < 0 or comm.stride < 1 or s.ranks % ((comm.size or s.ranks) * comm.stride):
            yield f"{s.ranks} ranks do not divide into communicators {comm.name}"
    for call in s.calls:
        if call.communicator not in names:
            yield f"there is no communicator {call.communicator}"
    made: tuple[Call | Wrong, ...] = (*s.calls, *s.wrong)
    for entry in made:
        is_call = isinstance(entry, Call)
        if entry.function not in SIMULATED_FUNCTIONS and (entry.function or is_call):
            yield f"function is one of {', '.join(SIMULATED_FUNCTIONS)}, not {entry.function}"
        if entry.datatype not in DATATYPES and (entry.datatype or is_call):
            yield f"there is no datatype {entry.datatype}"
    faults: tuple[Late | Never | Wrong | Dies | Stuck | Heavy, ...] = (
        *s.late, *s.never, *s.wrong, *s.dies, *s.stuck, *s.heavy,
    )  # fmt: skip
    for fault in faults:
        if not 0 <= fault.rank < s.ranks or not 0 <= fault.call < len(s.calls):
            yield f"there is no rank {fault.rank} or no call {fault.call}"
    for stuck in s.stuck:
        if stuck.at not in STAGES:
            yield f"at is one of {', '.join(STAGES)}, not {stuck.at}"
    made_names = [comms.name for comms in s.made_communicators]
    for absent in s.never_joins:
        if absent.communicator not in made_names or not 0 <= absent.rank < s.ranks:
            yield f"there is no rank {absent.rank} or no communicator {absent.communicator}"
        # The version with stamps also gives the names of communicators.
        if s.release in SIMULATED_RELEASES and s.interface < FIRST_WITH_STAMPS:
            yield "never_joins needs release 2.27 or later: names of communicators"
    for heavy in s.heavy:
        if heavy.factor < 1 or s.calls[heavy.call].function != "SendRecv":
            yield "heavy has a factor and is of a SendRecv"
    for marked in s.ranges:
        if not 0 <= marked.first <= len(s.calls) or not -1 <= marked.last < len(s.calls):
            yield f"range {marked.text} is around calls that do not exist"
        if 0 <= marked.last < marked.first:
            yield f"range {marked.text} ends before it begins"
    for link in s.slow_links:
        if sorted((len(link.ranks), len(link.hosts))) != [0, 2]:
            yield "slow_link has ranks=A,B or hosts=A,B"
