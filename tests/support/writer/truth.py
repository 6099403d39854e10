"""What really happened in a simulated job, on one clock."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tests.support.writer.spec import SyntheticSpec

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clocks:
    """Clocks against the true one: shown = true + offset + drift × (true − origin)."""

    origin_ns: int
    offset_ns: Ints
    drift_ppm: Floats

    def at(self, number: int | npt.NDArray[np.int64], true_ns: Ints) -> Ints:
        """What clock `number` shows."""
        drift_ns = (true_ns - self.origin_ns) * (self.drift_ppm[number] * 1e-6)
        return true_ns + self.offset_ns[number] + np.rint(drift_ns).astype(np.int64)


@dataclass(frozen=True)
class Truth:
    """Times by rank and operation of the job; −1 where the rank takes no part, or never came that far."""

    spec: SyntheticSpec
    call_ns: Ints  # the user's call
    start_ns: Ints  # of the kernel, over all channels
    end_ns: Ints  # of the kernel, as the thread sees it that writes the stamp
    work: npt.NDArray[np.int16]  # by operation: place in the mix
    layer: npt.NDArray[np.int16]  # by operation
    seq: Ints  # by operation: NCCL's sequence number
    late_rank: npt.NDArray[np.int32]  # by operation: the straggler, or −1
    comm_of: npt.NDArray[np.int32]  # by layer and rank: communicator, or −1
    comm_ids: tuple[int, ...]
    hosts: Clocks  # by node: CLOCK_MONOTONIC
    gpus: Clocks  # by rank: the GPU's timer; stamps are cut to its step
    realtime_error_ns: Ints  # by node
    # The smallest end − start over all channels, pairs of ranks and ring-like operations.
    one_way_ns: int
    earlier: tuple["Truth", ...] = field(default=())  # attempts before
    wrong_work: dict[tuple[int, int], int] = field(default_factory=dict)  # by rank and operation
    unlaunched: frozenset[tuple[int, int]] = frozenset()  # rank and operation: inside the call
    unopened: frozenset[tuple[int, int]] = frozenset()  # rank and communicator that it never made
    dropped: dict[int, tuple[int, int]] = field(default_factory=dict)  # by rank: operations
    over_ns: tuple[int, ...] = ()  # by rank: when its process was gone; default: after the last end

    def node_of(self, rank: int) -> int:
        """The node that a rank is on."""
        return rank // self.spec.ranks_per_node

    def work_of(self, rank: Ints, number: Ints) -> npt.NDArray[np.int16]:
        """What a rank really called, as a place in the mix."""
        work = self.work[number].copy()
        for (who, when), other in self.wrong_work.items():
            work[(rank == who) & (number == when)] = other
        return work

    def host_ns(self, rank: int, true_ns: Ints) -> Ints:
        """CLOCK_MONOTONIC of a rank's node."""
        return self.hosts.at(self.node_of(rank), true_ns)
