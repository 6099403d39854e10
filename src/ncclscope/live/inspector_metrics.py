"""NCCL Inspector's Prometheus metrics from ncclscope's counters, for dashboards made for Inspector.

Names, labels and label values are Inspector's, and as in Inspector every GPU time counts, early
stop stamps included. Bytes and bus factors are those of all other metrics. Bandwidths are sums of
bytes over sums of time of all timed operations; wrong stamps are left out. A window without
operations has no series.
"""

from dataclasses import dataclass, field

import numpy as np

from ncclscope.capture import layout
from ncclscope.capture.liveness import ALIVE, STOPPED
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.live.counter_reader import OperationKey, Records, event_sums, operation_key
from ncclscope.live.job_follower import FollowedJob, FollowedProcess
from ncclscope.live.series import Labels, Ratio, Samples
from ncclscope.nccl.functions import COUNTS_ONE_RANK
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import PAIRED

_WINDOW_NS = 30_000_000_000  # Inspector's period of writing
_STEP_NS = 5_000_000_000
_FORMAT = "v5.1"  # of Inspector's metrics
_UNITS = ("B", "KB", "MB", "GB", "TB")
RecordId = tuple[str, int]  # process folder and number of the record
Counts = dict[RecordId, tuple[float, float]]  # timed operations, and their ns on the GPU


@dataclass(frozen=True, slots=True)
class InspectorSeries:
    """The series that a record belongs to."""

    labels: Labels
    p2p: bool
    size_bytes: float  # of one operation, as nccl-tests count them
    bus_factor: float


@dataclass(slots=True)
class Window:
    """Counts of the last 30 s."""

    moments: list[tuple[int, Counts]] = field(default_factory=list)  # oldest first
    series: dict[RecordId, InspectorSeries] = field(default_factory=dict)

    def increase(self, now_ns: int, counts: Counts) -> Counts:
        """What was added in the window; {} at the first call, when the counts' age is unknown."""
        if not self.moments or now_ns - self.moments[-1][0] >= _STEP_NS:
            self.moments.append((now_ns, counts))
        while len(self.moments) > 1 and now_ns - self.moments[1][0] >= _WINDOW_NS:
            self.moments.pop(0)
        before = self.moments[0][1]
        if before is counts:
            return {}
        added = {}
        for record, (timed, gpu_ns) in counts.items():
            timed_before, gpu_ns_before = before.get(record, (0.0, 0.0))
            if timed > timed_before and gpu_ns > gpu_ns_before:
                added[record] = timed - timed_before, gpu_ns - gpu_ns_before
        return added


def message_size(size_bytes: float) -> str:
    """Inspector's class of a message size, one unit wide: 1-2MB, 512-513KB."""
    if size_bytes < 1:
        return "0B"
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes, unit = size_bytes / 1024, unit + 1
    return f"{int(size_bytes)}-{int(size_bytes) + 1}{_UNITS[unit]}"


def add_inspector_metrics(samples: Samples, job: FollowedJob, window: Window) -> None:
    """Adds the series of a job's running processes."""
    counts: Counts = {}
    for process in job.processes.values():
        snapshot, reading = process.snapshot, process.reading
        if not snapshot or not reading or reading.records is None:
            continue
        if snapshot.life not in (ALIVE, STOPPED):
            continue
        events = event_sums(reading.records["times"], reading.excess)
        timed_by_any = (reading.records["times"]["gpu_count"] > 0) | (events.count > 0)
        chosen = np.flatnonzero(timed_by_any)
        records = reading.records[chosen]
        _find_series(window, job, process, snapshot, records)
        times = records["times"]
        numbers = records["tally"]["check"].tolist()
        timed = (times["gpu_count"] + events.count[chosen]).tolist()
        gpu_ns = (times["gpu_sum_ns"] + events.sum_ns[chosen]).tolist()
        for number, *values in zip(numbers, timed, gpu_ns, strict=True):
            record = (process.folder.name, number)
            if record in window.series:
                counts[record] = float(values[0]), float(values[1])
    window.series = {record: s for record, s in window.series.items() if record in counts}
    for record, (timed_more, gpu_ns_more) in window.increase(job.read_ns, counts).items():
        _add(samples, window.series[record], timed_more, gpu_ns_more)


def _add(samples: Samples, series: InspectorSeries, timed: float, gpu_ns: float) -> None:
    size = series.size_bytes * timed  # bytes / ns are GB/s
    busbw = Ratio(size * series.bus_factor, gpu_ns)
    time_us = Ratio(gpu_ns / 1e3, timed)
    if series.p2p:
        samples.add("p2p_bus_bandwidth_gbs", series.labels, busbw)
        samples.add("p2p_exec_time_microseconds", series.labels, time_us)
    else:
        samples.add("bus_bandwidth_gbs", series.labels, busbw)
        samples.add("algorithm_bandwidth_gbs", series.labels, Ratio(size, gpu_ns))
        samples.add("collective_exec_time_microseconds", series.labels, time_us)


def _find_series(
    window: Window,
    job: FollowedJob,
    process: FollowedProcess,
    snapshot: ProcessSnapshot,
    records: Records,
) -> None:
    """Finds the series of records that have none yet; calls have none, nor do records whose names
    have not reached the disk.
    """
    communicators = process.communicators
    strings = ProcessStrings(process.meta.strings)
    for place, number in enumerate(records["tally"]["check"].tolist()):
        record = (process.folder.name, number)
        if record in window.series:
            continue
        row = records[place]["tally"]
        if row["level"] == layout.LEVEL_CALL or not row["calls"]:
            continue
        key = operation_key(row, communicators, strings)
        mean_count = float(row["count_sum"]) / float(row["calls"])
        per_count = key.bytes_per_count
        if key.communicator and key.function and per_count is not None:
            labels = _process_labels(job, process, snapshot, key.communicator)
            window.series[record] = _series(labels, key, mean_count * per_count)


def _series(process_labels: Labels, key: OperationKey, size_bytes: float) -> InspectorSeries:
    # Inspector's sizes are those of one rank's share.
    shares = max(key.ranks, 1) if key.function in COUNTS_ONE_RANK else 1
    labels = (*process_labels, key.function, message_size(size_bytes / shares))
    p2p = key.function in PAIRED
    if not p2p:
        labels = (*labels, f"{key.algorithm}_{key.protocol}")
    return InspectorSeries(labels, p2p, size_bytes, key.bus_factor or 0.0)


def _process_labels(
    job: FollowedJob,
    process: FollowedProcess,
    snapshot: ProcessSnapshot,
    communicator: Communicator,
) -> Labels:
    identity = process.header.identity if process.header else {}
    name = communicator.name or job.names.get((process.folder.name, communicator.number), "")
    return (
        _FORMAT,
        identity.get("env.SLURM_JOB_ID", "unknown"),
        snapshot.host,
        f"GPU{snapshot.gpu}" if snapshot.gpu.isdigit() else snapshot.gpu or "unknown",
        name or "unknown",
        str(communicator.nodes),
        str(communicator.ranks),
    )
