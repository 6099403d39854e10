"""What a simulated job is made of."""

from dataclasses import dataclass
from functools import cached_property

from ncclscope.simulation.scenario import Range

RING_LIKE = ("RING", "PAT")
SEND_RECV = "SendRecv"


@dataclass(frozen=True)
class Work:
    """One kind of operation in the mix.

    `SendRecv` is a group of a Send to the next rank of the communicator and a Recv from the one
    before. `count` is the caller's.
    """

    func: str = "AllReduce"
    count: int = 262_144
    dtype: str = "ncclFloat32"
    algo: str = "RING"
    proto: str = "SIMPLE"
    root: int = 0  # of Broadcast and Reduce: rank in the communicator
    recv_count: int = 0  # of SendRecv, where it receives another amount
    wire_ns: tuple[int, int] = (40_000, 90_000)  # from the last arrival to the earliest end
    weight: float = 1.0


ALL_KINDS_OF_WORK = (
    Work(weight=3),
    Work("Broadcast", 1024, root=1),
    Work("Reduce", 1024, root=1),
    Work("AllGather", 4096, algo="TREE"),
    Work("SendRecv", 2048),
)


@dataclass(frozen=True)
class Straggler:
    """A rank whose calls come late; without a rank, another one each time."""

    rank: int | None
    late_ns: int
    share: float = 1.0  # of the operations


DEFAULT_MIX = (
    Work(weight=4),
    Work(count=256, proto="LL", wire_ns=(15_000, 25_000), weight=2),
    Work("AllGather", 65_536, "ncclBfloat16", wire_ns=(30_000, 60_000)),
    Work("ReduceScatter", 65_536, "ncclBfloat16", wire_ns=(30_000, 60_000)),
)


@dataclass(frozen=True)
class SyntheticSpec:
    """A simulated job. Ranges are uniform. Empty clock tuples are drawn from the seed.

    Communicators that follow each other and share no rank take turns together, as a layer: tp
    groups, then dp groups. Operation k of the job belongs to layer k modulo the layers, and each
    communicator of that layer carries it out. A rank of every layer takes part in all of them.
    """

    processes: int = 8
    operations: int = 1_000  # of the job; per rank, if each layer has all ranks
    ranks_per_process: int = 1
    one_thread: bool = True  # calls for all ranks of a process come from one thread
    ranks_per_node: int = 8
    channels: int = 2
    version: int = 5  # of the profiler interface: 5, 6 or 7
    communicators: tuple[tuple[int, ...], ...] = ()  # members; default: all ranks
    communicator_names: tuple[str, ...] = ()
    mix: tuple[Work, ...] = DEFAULT_MIX
    gap_ns: tuple[int, int] = (50_000, 150_000)  # from the last end to the next call
    end_jitter_ns: int = 3_000  # of a rank's end behind the earliest possible
    arrival_jitter_ns: int = 20_000  # of a rank's call
    launch_delay_ns: tuple[int, int] = (4_000, 9_000)  # from KernelLaunch to the kernel's start
    notice_ns: tuple[int, int] = (2_000, 6_000)  # from a stamp until the host sees it
    straggler: Straggler | None = None
    node_offsets_ns: tuple[int, ...] = ()
    node_drift_ppm: tuple[float, ...] = ()
    realtime_error_ns: int = 1_000_000  # of the nodes' CLOCK_REALTIME, at most
    gpu_offsets_ns: tuple[int, ...] = ()  # per rank, against Unix time
    gpu_drift_ppm: tuple[float, ...] = ()
    gpu_step_ns: int = 32  # resolution of stamps
    missing: frozenset[int] = frozenset()  # processes that left no folder
    killed: frozenset[int] = frozenset()  # processes without an end
    attempts: int = 1  # in one directory; all but the last were killed
    seed: int = 0
    ranges: tuple[Range, ...] = ()  # of every step
    calls_per_step: int = 1

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.processes * self.ranks_per_process

    @property
    def nodes(self) -> int:
        """Of the job."""
        return -(-self.ranks // self.ranks_per_node)

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Ranks of each communicator."""
        return self.communicators or (tuple(range(self.ranks)),)

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Communicators that take turns together, by number."""
        layers: list[list[int]] = []
        taken: set[int] = set()
        for number, members in enumerate(self.members):
            if not layers or taken & set(members):
                layers.append([])
                taken = set()
            layers[-1].append(number)
            taken |= set(members)
        return tuple(tuple(layer) for layer in layers)

    # Looked up for every process: a search each time would be quadratic in ranks.
    @cached_property
    def layer_of(self) -> dict[int, int]:
        """The layer of each communicator."""
        return {comm: number for number, layer in enumerate(self.layers) for comm in layer}

    @cached_property
    def rank_in(self) -> tuple[dict[int, int], ...]:
        """By communicator the numbers of its members in it."""
        return tuple({rank: n for n, rank in enumerate(members)} for members in self.members)

    @cached_property
    def communicators_of(self) -> dict[int, list[int]]:
        """By rank the communicators that it is a member of, in order."""
        of: dict[int, list[int]] = {}
        for comm, members in enumerate(self.members):
            for rank in dict.fromkeys(members):
                of.setdefault(rank, []).append(comm)
        return of

    @cached_property
    def nodes_of(self) -> tuple[int, ...]:
        """By communicator on how many nodes it is."""
        each = self.ranks_per_node
        return tuple(len({rank // each for rank in members}) for members in self.members)

    def __post_init__(self) -> None:
        assert self.version in (5, 6, 7), "interfaces whose events an eager call has in full"
        assert self.ranks_per_node % self.ranks_per_process == 0, "a process is on one node"
        assert self.gap_ns[0] >= 20_000, "a call must have returned before the next"
        assert all(work.wire_ns[0] >= 5_000 for work in self.mix), "kernels end after their launch"
        assert all(0 <= rank < self.ranks for members in self.members for rank in members)
