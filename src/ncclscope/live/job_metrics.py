"""Values of all metrics for a followed job, from what was read of its processes."""

import math
import os
import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.liveness import ALIVE, ENDED, STOPPED
from ncclscope.live.counter_reader import CounterSums, OperationClass
from ncclscope.live.job_follower import FollowedJob, FollowedProcess
from ncclscope.live.series import Ratio, Samples
from ncclscope.model.schema import NONE
from ncclscope.nccl.releases import release_of_code, text_of
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import RankState

_HELPER_THREAD = "ncclscope"
_STEP_WINDOW_NS = 10_000_000_000
_FEWEST_STEPS = 3
_DROP_REASONS = [
    name.removeprefix("dropped_") for name in layout.COUNTERS if name.startswith("dropped_")
]
_SECOND_NS = 1e9
# Bytes, bus bytes and ns by function and scope.
Bandwidths = dict[tuple[str, str], tuple[float, float, float]]


@dataclass(slots=True)
class PreviousReading:
    """A job's earlier readings, from which rates are computed."""

    bandwidths: Bandwidths = field(default_factory=dict)
    read_ns: int = 0
    # Moments, oldest first, and the calls of each process then, by record.
    calls: list[tuple[int, dict[str, dict[int, int]]]] = field(default_factory=list)


def job_samples(job: FollowedJob, previous: PreviousReading) -> Samples:
    """All series of a job, without the labels that they share; updates `previous`."""
    samples = Samples()
    _add_job(samples, job)
    for process in job.processes.values():
        snapshot = process.snapshot
        if snapshot is None or process.reading is None:
            continue
        if snapshot.life in (ALIVE, STOPPED):
            _add_present(samples, process, snapshot, job)
            _add_counters_of_ranks(samples, job, process, snapshot)
        elif snapshot.life != ENDED:
            samples.add("process_up", (_rank(snapshot.global_rank),), 0.0)
        # Sums over all ranks must not fall when a process ends.
        _add_counters_of_host(samples, process)
    _add_waiting(samples, job)
    _add_bandwidths(samples, job, previous)
    _add_steps(samples, job, previous)
    previous.read_ns = job.read_ns
    return samples


def _rank(number: int) -> str:
    return "unknown" if number == NONE else str(number)


# ---- the job ----
def _add_job(samples: Samples, job: FollowedJob) -> None:
    headers = [p.header for p in job.processes.values() if p.header]
    snapshots = [p.snapshot for p in job.processes.values() if p.snapshot]
    if headers and snapshots:
        version = snapshots[0].nccl_version
        labels = (
            text_of(release_of_code(version)) if version else "unknown",
            snapshots[0].mode,
            os.path.abspath(job.capture),
            "yes" if headers[0].identity.get("simulation") else "no",
        )
        samples.add("run", labels, 1.0)
    if job.status is None:
        return
    samples.add("hung", (), float(job.status.hung and not job.status.post_mortem))
    samples.add("expected_processes", (), float(job.status.expected))
    for verdict in job.status.verdicts:
        samples.values.setdefault("verdict", {})[verdict.name, verdict.verdict] = 1.0


# ---- what a process is doing ----
def add_training(samples: Samples, snapshot: ProcessSnapshot) -> None:
    """Steps of the training loop, where the process records ranges."""
    steps = snapshot.steps
    if steps is None:
        return
    rank = (_rank(snapshot.global_rank),)
    samples.add("training_steps", rank, float(steps.steps))
    samples.add("data_wait_seconds", rank, steps.data_ns / _SECOND_NS)
    if steps.tokens:
        samples.add("training_tokens", rank, float(steps.tokens))
    if steps.last_ns:
        samples.add("training_step_seconds", rank, steps.last_ns / _SECOND_NS)


def _add_present(
    samples: Samples, process: FollowedProcess, snapshot: ProcessSnapshot, job: FollowedJob
) -> None:
    by_rank: dict[str, list[RankState]] = {}
    for rank_state in snapshot.rank_states:
        by_rank.setdefault(_rank(rank_state.global_rank), []).append(rank_state)
    for rank, rank_states in by_rank.items():
        _add_rank(samples, rank, rank_states, max(job.read_ns - snapshot.at_ns, 0))
        uuid = next((rank_state.gpu for rank_state in rank_states if rank_state.gpu), "")
        samples.add("rank", (rank, str(snapshot.pid), snapshot.gpu, uuid), 1.0)
    started = process.header.identity.get("start_ticks", "") if process.header else ""
    cpu_seconds = helper_cpu_seconds(snapshot.pid, started)
    if cpu_seconds is not None:
        samples.add("recorder_cpu_seconds", (_rank(snapshot.global_rank),), cpu_seconds)
    add_training(samples, snapshot)
    communicators = process.communicators
    for rank_state in snapshot.rank_states:
        comm, name = communicators.get(rank_state.number), _name(job, process, rank_state.number)
        if comm and not rank_state.closed and name:
            inferred = "yes" if job.inferred.get(name) else "no"
            labels = (name, str(comm.ranks), str(comm.nodes), inferred)
            samples.values.setdefault("communicator", {})[labels] = 1.0


def _add_rank(samples: Samples, rank: str, rank_states: list[RankState], since_ns: int) -> None:
    """A rank's operations and progress; `since_ns` is the age of the snapshot."""
    labels = (rank,)
    in_flight = [operation.since_ns for state in rank_states for operation in state.in_flight]
    ends = [state.done_ns for state in rank_states if state.done_ns is not None]
    calls = [state.last.since_ns for state in rank_states if state.last]
    samples.add("process_up", labels, 1.0)
    if in_flight or any(state.reports_kernels for state in rank_states):
        samples.add("in_flight", labels, float(len(in_flight)))
        oldest_ns = max(in_flight) + since_ns if in_flight else 0
        samples.add("oldest_in_flight_seconds", labels, oldest_ns / _SECOND_NS)
    if ends or calls:
        quiet_ns = min([*ends, *([] if in_flight else calls)] or calls) + since_ns
        samples.add("seconds_since_progress", labels, quiet_ns / _SECOND_NS)


def _name(job: FollowedJob, process: FollowedProcess, number: int) -> str:
    return job.names.get((process.folder.name, number), "")


def helper_cpu_seconds(pid: int, started: str, proc: Path = Path("/proc")) -> float | None:
    """CPU time of a process's recorder thread; None if the process is not visible here.

    On another host or in another container, the same pid can be another process: `started` is the
    process's start in clock ticks, which must be the same.
    """
    try:
        process_fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        if process_fields[19] != started:
            return None
        tasks = list((proc / str(pid) / "task").iterdir())
        for task in tasks:
            if (task / "comm").read_text().strip() == _HELPER_THREAD:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        pass
    return None


# ---- what a process has counted ----
def _add_counters_of_ranks(
    samples: Samples, job: FollowedJob, process: FollowedProcess, snapshot: ProcessSnapshot
) -> None:
    assert process.reading
    ranks = {
        rank_state.number: _rank(rank_state.global_rank) for rank_state in snapshot.rank_states
    }
    closed = {rank_state.number for rank_state in snapshot.rank_states if rank_state.closed}
    own = _rank(snapshot.global_rank)
    has_calls = any(op_class.level == layout.LEVEL_CALL for op_class in process.reading.sums)
    for op_class, sums in process.reading.sums.items():
        rank = ranks.get(op_class.communicator, own)
        if op_class.level == layout.LEVEL_CALL or not has_calls:
            samples.add("calls", (rank, op_class.function), sums.calls)
        if op_class.level == layout.LEVEL_CALL:
            continue
        labels = (rank, op_class.function, op_class.scope)
        samples.add("operations", labels, sums.calls)
        samples.add("bytes", labels, sums.bytes)
        error = sums.all_gpu_error_ns / _SECOND_NS
        if sums.sampled:
            samples.add("estimated_gpu_seconds", labels, sums.all_gpu_ns / _SECOND_NS)
            samples.add("estimated_gpu_seconds_error", labels, error)
        if op_class.for_bandwidth:
            samples.add("gpu_seconds", labels, sums.gpu_ns / _SECOND_NS)
            samples.add("timed_bytes", labels, sums.timed_bytes)
            if op_class.bus_factor is not None:
                samples.add("timed_bus_bytes", labels, sums.timed_bus_bytes)
        else:
            samples.add("least_gpu_seconds", labels, sums.least_gpu_ns / _SECOND_NS)
        name = _name(job, process, op_class.communicator)
        if name and op_class.communicator not in closed:
            if op_class.all_wait:
                gpu_ns = sums.all_gpu_ns
                labels = (name, rank, op_class.scope)
                samples.add("communicator_gpu_seconds", labels, gpu_ns / _SECOND_NS)
                if sums.sampled:
                    samples.add("communicator_gpu_seconds_error", labels, error)
            samples.add("communicator_operations", (name,), sums.calls)


def _add_counters_of_host(samples: Samples, process: FollowedProcess) -> None:
    assert process.reading
    dropped = process.dropped
    for reason in _DROP_REASONS:  # also those with no drop: their rate is 0, not absent
        samples.add("dropped_events", (reason,), float(dropped.get(reason, 0)))
    for op_class, sums in process.reading.sums.items():
        if op_class.level == layout.LEVEL_CALL:
            continue
        samples.add("timed_operations", (), sums.timed)
        if sums.sampled:
            samples.add("sampled_operations", (), sums.sampled)
        if not op_class.for_bandwidth or op_class.bus_factor is None:
            continue
        labels = (op_class.function, op_class.size, op_class.scope)
        samples.add("sized_bus_bytes", labels, sums.timed_bus_bytes)
        samples.add("sized_gpu_seconds", labels, sums.gpu_ns / _SECOND_NS)
    for reason, count in process.reading.untimed.items():
        samples.add("untimed_operations", (reason,), float(count))
    for reason, count in process.reading.rejected.items():
        samples.add("rejected_stamps", (reason,), float(count))
    for key, histogram in process.reading.histograms.items():
        samples.add("operation_seconds", key, histogram)


def _add_waiting(samples: Samples, job: FollowedJob) -> None:
    """The account of waiting: of ranks those that run here; of the job on its first host."""
    waiting = job.waiting
    if waiting is None:
        return
    reason = "" if waiting.is_made else waiting.state
    samples.add("waiting_account_made", (reason,), float(waiting.is_made))
    for rank in job.running_ranks & set(waiting.caused_ns):
        caused_ns = waiting.caused_ns[rank]
        samples.add("waiting_caused_seconds", (_rank(rank),), caused_ns / _SECOND_NS)
        idle_ns = waiting.idle_ns.get(rank, 0)
        samples.add("waiting_for_work_seconds", (_rank(rank),), idle_ns / _SECOND_NS)
        samples.add("waiting_account_seconds", (_rank(rank),), waiting.covered_ns / _SECOND_NS)
    if job.host == waiting.first_host:
        for origin, waiting_ns in waiting.origins_ns.items():
            samples.add("waiting_seconds", (origin,), waiting_ns / _SECOND_NS)


# ---- rates ----
def _sums_of(job: FollowedJob) -> list[tuple[OperationClass, CounterSums]]:
    readings = [process.reading for process in job.processes.values() if process.reading]
    return [pair for reading in readings for pair in reading.sums.items()]


def _add_bandwidths(samples: Samples, job: FollowedJob, previous: PreviousReading) -> None:
    """Bytes / GPU time of the operations that ended since the previous reading."""
    now: Bandwidths = {}
    for op_class, sums in _sums_of(job):
        if op_class.level == layout.LEVEL_CALL or not sums.timed or not op_class.for_bandwidth:
            continue
        key = (op_class.function, op_class.scope)
        size, bus, ns = now.get(key, (0.0, 0.0, 0.0))
        now[key] = size + sums.timed_bytes, bus + sums.timed_bus_bytes, ns + sums.gpu_ns
    for key, (size, bus, ns) in now.items():
        before = previous.bandwidths.get(key, (0.0, 0.0, 0.0))
        elapsed_ns = ns - before[2]
        if previous.read_ns and elapsed_ns > 0:
            seconds = elapsed_ns / _SECOND_NS
            samples.add("algbw_bytes_per_second", key, Ratio(size - before[0], seconds))
            if not math.isnan(bus - before[1]):
                samples.add("busbw_bytes_per_second", key, Ratio(bus - before[1], seconds))
    previous.bandwidths = now


def _add_steps(samples: Samples, job: FollowedJob, previous: PreviousReading) -> None:
    """Steps a second: the median of processes, because their counters are of different moments."""
    calls = {p.folder.name: p.reading.calls for p in job.running if p.reading}
    moments = previous.calls
    moments.append((job.read_ns, calls))
    while len(moments) > 2 and job.read_ns - moments[1][0] >= _STEP_WINDOW_NS:
        moments.pop(0)
    began_ns, calls_before = moments[0]
    seconds = (job.read_ns - began_ns) / _SECOND_NS
    steps = []
    for folder, counts in calls.items():
        before = calls_before.get(folder, {})
        increases = [count - before.get(record, 0) for record, count in counts.items()]
        repeated = repetitions([increase for increase in increases if increase > 0])
        if repeated:
            steps.append(repeated)
    if steps and seconds > 0:
        samples.add("steps_per_second", (), statistics.median(steps) / seconds)


def repetitions(counts: list[int]) -> int | None:
    """How often a pattern of calls repeated, from the counts of its kinds of calls; None if there
    is no pattern.

    In most training loops many kinds of calls are made once a step, and the rest a few times: the
    most frequent count is the number of steps if the others are multiples of it, give or take one
    step. 100, 100, 100, 299 and 7 are 100 steps.
    """
    if len(counts) < 2:
        return None
    steps, kinds = Counter(counts).most_common(1)[0]
    if steps < _FEWEST_STEPS or kinds < 2:
        return None
    fitting = sum(abs(count - round(count / steps) * steps) <= max(round(count / steps), 1)
                  for count in counts if count * 2 >= steps)  # fmt: skip
    return steps if fitting * 2 > len(counts) else None
