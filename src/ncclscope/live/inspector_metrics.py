"""NCCL Inspector's Prometheus metrics from our counts, for dashboards that were made for it.

Names, labels and their values are Inspector's; the numbers are ours: all sizes, bandwidths as
Σ bytes / Σ time, stamps that were checked. A window without operations has no series.
"""

from dataclasses import dataclass, field

import numpy as np

from ncclscope.capture import layout
from ncclscope.capture.liveness import ALIVE, STOPPED
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.live.job_follower import FollowedJob, FollowedProcess
from ncclscope.live.series import Labels, Ratio, Samples
from ncclscope.nccl.bandwidth import bus_factor
from ncclscope.nccl.functions import COUNTS_ONE_RANK
from ncclscope.nccl.operation_bytes import bits_per_count
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import PAIRED

_WINDOW_NS = 30_000_000_000  # as often as Inspector writes
_SNAPSHOT_NS = 5_000_000_000
_FORMAT = "v5.1"  # of Inspector's metrics
_UNITS = ("B", "KB", "MB", "GB", "TB")
Record = tuple[str, int]  # folder and number of a tally record
Counts = dict[Record, tuple[float, float]]  # timed operations and ns on the GPU


@dataclass(frozen=True, slots=True)
class Kind:
    """What a record counts, as Inspector would call it."""

    labels: Labels
    pair: bool
    size_bytes: float  # of one operation, as nccl-tests count
    bus_factor: float


@dataclass(slots=True)
class Window:
    """What was counted up to 30 s ago."""

    snapshots: list[tuple[int, Counts]] = field(default_factory=list)
    kinds: dict[Record, Kind] = field(default_factory=dict)

    def since(self, now_ns: int, counts: Counts) -> Counts:
        """What came in the window; {} at first, when nobody knows how old the counts are."""
        if not self.snapshots or now_ns - self.snapshots[-1][0] >= _SNAPSHOT_NS:
            self.snapshots.append((now_ns, counts))
        while len(self.snapshots) > 1 and now_ns - self.snapshots[1][0] >= _WINDOW_NS:
            self.snapshots.pop(0)
        before = self.snapshots[0][1]
        if before is counts:
            return {}
        more = {}
        for record, (timed, gpu_ns) in counts.items():
            past = before.get(record, (0.0, 0.0))
            if timed > past[0] and gpu_ns > past[1]:
                more[record] = timed - past[0], gpu_ns - past[1]
        return more


def message_size(size_bytes: float) -> str:
    """Inspector's classes are one unit wide: 1-2MB, 512-513KB."""
    if size_bytes < 1:
        return "0B"
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes, unit = size_bytes / 1024, unit + 1
    return f"{int(size_bytes)}-{int(size_bytes) + 1}{_UNITS[unit]}"


def add_inspector_names(samples: Samples, job: FollowedJob, window: Window) -> None:
    """The series of processes that live."""
    counts: Counts = {}
    for process in job.processes.values():
        snapshot, reading = process.snapshot, process.reading
        if not snapshot or not reading or reading.records is None:
            continue
        if snapshot.life not in (ALIVE, STOPPED):
            continue
        records = reading.records[reading.records["times"]["gpu_count"] > 0]
        times = records["times"]
        communicators = process.communicators
        numbers = records["tally"]["check"].tolist()
        timed, gpu_ns = times["gpu_count"].tolist(), times["gpu_sum_ns"].tolist()
        for at, number in enumerate(numbers):
            key = (process.folder.name, number)
            if key not in window.kinds:
                kind = _kind(job, process, snapshot, communicators, records[at]["tally"])
                if kind is None:
                    continue
                window.kinds[key] = kind
            counts[key] = float(timed[at]), float(gpu_ns[at])
    window.kinds = {key: kind for key, kind in window.kinds.items() if key in counts}
    for key, (timed_more, gpu_more) in window.since(job.read_ns, counts).items():
        _add(samples, window.kinds[key], timed_more, gpu_more)


def _add(samples: Samples, kind: Kind, timed: float, gpu_ns: float) -> None:
    size = kind.size_bytes * timed  # bytes by ns are GB/s
    time = Ratio(gpu_ns / 1e3, timed)
    if kind.pair:
        samples.add("p2p_bus_bandwidth_gbs", kind.labels, Ratio(size * kind.bus_factor, gpu_ns))
        samples.add("p2p_exec_time_microseconds", kind.labels, time)
    else:
        samples.add("bus_bandwidth_gbs", kind.labels, Ratio(size * kind.bus_factor, gpu_ns))
        samples.add("algorithm_bandwidth_gbs", kind.labels, Ratio(size, gpu_ns))
        samples.add("collective_exec_time_microseconds", kind.labels, time)


def _kind(
    job: FollowedJob,
    process: FollowedProcess,
    snapshot: ProcessSnapshot,
    communicators: dict[int, Communicator],
    tally: np.void,
) -> Kind | None:
    """None while names have not reached the disk, and for calls."""
    communicator = communicators.get(int(tally["comm"]))
    v1 = bool(tally["bits"] & layout.TALLY_NUMBERS)
    texts = ProcessStrings(process.meta.strings)
    function = texts.function(int(tally["func"]), v1)
    if (
        not communicator
        or not function
        or tally["level"] == layout.LEVEL_CALL
        or not tally["calls"]
    ):
        return None
    datatype = texts.datatype(int(tally["dtype"]), v1)
    bits = bits_per_count(function, datatype, communicator.ranks, in_coll=True)
    if bits is None:
        return None
    size = float(tally["count_sum"]) / float(tally["calls"]) * bits / 8
    parts = max(communicator.ranks, 1) if function in COUNTS_ONE_RANK else 1
    identity = process.header.identity if process.header else {}
    name = communicator.name or job.names.get((process.folder.name, communicator.number), "")
    about = (
        _FORMAT,
        identity.get("env.SLURM_JOB_ID", "unknown"),
        snapshot.host,
        f"GPU{snapshot.gpu}" if snapshot.gpu.isdigit() else snapshot.gpu or "unknown",
        name or "unknown",
        str(communicator.nodes),
        str(communicator.ranks),
    )
    message = message_size(size / parts)
    algorithm = [texts.plain(int(tally[field])) for field in ("algo", "proto")]
    pair = function in PAIRED
    labels = (
        (*about, function, message) if pair else (*about, function, message, "_".join(algorithm))
    )
    return Kind(labels, pair, size, bus_factor(function, communicator.ranks) or 0.0)
