"""A followed job as samples: pure sums over what was read of its processes."""

import os
import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.liveness import ALIVE, ENDED, STOPPED
from ncclscope.live.counter_reader import CounterSums, Work
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
Bandwidths = dict[tuple[str, str], tuple[float, float, float]]  # bytes, bus bytes, ns


@dataclass(slots=True)
class PreviousReading:
    """What a job's rates are measured against."""

    bandwidths: Bandwidths = field(default_factory=dict)
    read_ns: int = 0
    # What each process had called, by time: records and their counts by folder.
    called: list[tuple[int, dict[str, dict[int, int]]]] = field(default_factory=list)


def measure(job: FollowedJob, earlier: PreviousReading) -> Samples:
    """All series of a job but the labels that they share."""
    samples = Samples()
    _about_job(samples, job)
    for process in job.processes.values():
        snapshot = process.snapshot
        if snapshot is None or process.reading is None:
            continue
        if snapshot.life in (ALIVE, STOPPED):
            _moment(samples, process, snapshot, job)
            _work_by_rank(samples, job, process, snapshot)
        elif snapshot.life != ENDED:
            samples.add("process_up", (_rank(snapshot.global_rank),), 0.0)
        # Sums over all ranks must not fall when a process ends.
        _sums_of_host(samples, process)
    _bandwidth(samples, job, earlier)
    _steps(samples, job, earlier)
    earlier.read_ns = job.read_ns
    return samples


def _rank(number: int) -> str:
    return "unknown" if number == NONE else str(number)


# ---- the job ----
def _about_job(samples: Samples, job: FollowedJob) -> None:
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


# ---- one process, now ----
def _moment(
    samples: Samples, process: FollowedProcess, snapshot: ProcessSnapshot, job: FollowedJob
) -> None:
    by_rank: dict[str, list[RankState]] = {}
    for rank_state in snapshot.rank_states:
        by_rank.setdefault(_rank(rank_state.global_rank), []).append(rank_state)
    for rank, rank_states in by_rank.items():
        labels = (rank,)
        since_ns = max(job.read_ns - snapshot.at_ns, 0)
        in_flight = [
            operation.since_ns for rank_state in rank_states for operation in rank_state.in_flight
        ]
        ends = [rank_state.done_ns for rank_state in rank_states if rank_state.done_ns is not None]
        calls = [rank_state.last.since_ns for rank_state in rank_states if rank_state.last]
        samples.add("process_up", labels, 1.0)
        samples.add("in_flight", labels, float(len(in_flight)))
        oldest_ns = max(in_flight) + since_ns if in_flight else 0
        samples.add("oldest_in_flight_seconds", labels, oldest_ns / _SECOND_NS)
        if ends or calls:
            quiet_ns = min([*ends, *([] if in_flight else calls)] or calls) + since_ns
            samples.add("seconds_since_progress", labels, quiet_ns / _SECOND_NS)
        uuid = next((rank_state.gpu for rank_state in rank_states if rank_state.gpu), "")
        samples.add("rank", (rank, str(snapshot.pid), snapshot.gpu, uuid), 1.0)
    started = process.header.identity.get("start_ticks", "") if process.header else ""
    cpu_seconds = helper_cpu_seconds(snapshot.pid, started)
    if cpu_seconds is not None:
        samples.add("recorder_cpu_seconds", (_rank(snapshot.global_rank),), cpu_seconds)
    communicators = process.communicators
    for rank_state in snapshot.rank_states:
        comm, name = communicators.get(rank_state.number), _name(job, process, rank_state.number)
        if comm and not rank_state.closed and name:
            inferred = "yes" if job.inferred.get(name) else "no"
            labels4 = (name, str(comm.ranks), str(comm.nodes), inferred)
            samples.values.setdefault("communicator", {})[labels4] = 1.0


def _name(job: FollowedJob, process: FollowedProcess, number: int) -> str:
    return job.names.get((process.folder.name, number), "")


def helper_cpu_seconds(pid: int, started: str, proc: Path = Path("/proc")) -> float | None:
    """CPU time of a process's recorder thread; None where it cannot be seen: the same number may be
    another process here, when its own is on another host or in another container.
    """
    try:
        whole = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        if whole[19] != started:
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
def _work_by_rank(
    samples: Samples, job: FollowedJob, process: FollowedProcess, snapshot: ProcessSnapshot
) -> None:
    assert process.reading
    ranks = {
        rank_state.number: _rank(rank_state.global_rank) for rank_state in snapshot.rank_states
    }
    closed = {rank_state.number for rank_state in snapshot.rank_states if rank_state.closed}
    own = _rank(snapshot.global_rank)
    has_calls = any(work.level == layout.LEVEL_CALL for work in process.reading.works)
    for work, sums in process.reading.works.items():
        rank = ranks.get(work.communicator, own)
        if work.level == layout.LEVEL_CALL or not has_calls:
            samples.add("calls", (rank, work.function), sums.calls)
        if work.level == layout.LEVEL_CALL:
            continue
        labels = (rank, work.function, work.scope)
        samples.add("operations", labels, sums.calls)
        samples.add("bytes", labels, sums.bytes)
        if work.sound:
            samples.add("gpu_seconds", labels, sums.gpu_ns / _SECOND_NS)
            samples.add("timed_bytes", labels, sums.timed_bytes)
            samples.add("timed_bus_bytes", labels, sums.timed_bus_bytes)
        else:
            samples.add("least_gpu_seconds", labels, sums.early_ns / _SECOND_NS)
        name = _name(job, process, work.communicator)
        if name and work.communicator not in closed:
            if work.all_wait:
                held = (name, rank, work.scope)
                samples.add("communicator_gpu_seconds", held, sums.gpu_ns / _SECOND_NS)
            samples.add("communicator_operations", (name,), sums.calls)


def _sums_of_host(samples: Samples, process: FollowedProcess) -> None:
    assert process.reading
    dropped = process.dropped
    for reason in _DROP_REASONS:  # those that never happened, too: their rates are 0, not absent
        samples.add("dropped_events", (reason,), float(dropped.get(reason, 0)))
    for work, sums in process.reading.works.items():
        if work.level == layout.LEVEL_CALL:
            continue
        samples.add("timed_operations", (), sums.timed)
        if not work.sound:
            continue
        sized = (work.function, work.size, work.scope)
        samples.add("sized_bus_bytes", sized, sums.timed_bus_bytes)
        samples.add("sized_gpu_seconds", sized, sums.gpu_ns / _SECOND_NS)
    for reason, count in process.reading.untimed.items():
        samples.add("untimed_operations", (reason,), float(count))
    for reason, count in process.reading.rejected.items():
        samples.add("rejected_stamps", (reason,), float(count))
    for key, histogram in process.reading.histograms.items():
        samples.add("operation_seconds", key, histogram)


# ---- rates ----
def _works(job: FollowedJob) -> list[tuple[Work, CounterSums]]:
    readings = [process.reading for process in job.processes.values() if process.reading]
    return [pair for reading in readings for pair in reading.works.items()]


def _bandwidth(samples: Samples, job: FollowedJob, earlier: PreviousReading) -> None:
    """Bytes by GPU time of what ended since the reading before."""
    now: Bandwidths = {}
    for work, sums in _works(job):
        if work.level == layout.LEVEL_CALL or not sums.timed or not work.sound:
            continue
        key = (work.function, work.scope)
        size, bus, ns = now.get(key, (0.0, 0.0, 0.0))
        now[key] = size + sums.timed_bytes, bus + sums.timed_bus_bytes, ns + sums.gpu_ns
    for key, (size, bus, ns) in now.items():
        before = earlier.bandwidths.get(key, (0.0, 0.0, 0.0))
        elapsed_ns = ns - before[2]
        if earlier.read_ns and elapsed_ns > 0:
            seconds = elapsed_ns / _SECOND_NS
            samples.add("algbw_bytes_per_second", key, Ratio(size - before[0], seconds))
            samples.add("busbw_bytes_per_second", key, Ratio(bus - before[1], seconds))
    earlier.bandwidths = now


def _steps(samples: Samples, job: FollowedJob, earlier: PreviousReading) -> None:
    """Each process by itself: their tallies are of different moments."""
    called = {p.folder.name: p.reading.called for p in job.living if p.reading}
    earlier.called.append((job.read_ns, called))
    while len(earlier.called) > 2 and job.read_ns - earlier.called[1][0] >= _STEP_WINDOW_NS:
        earlier.called.pop(0)
    began_ns, before = earlier.called[0]
    seconds = (job.read_ns - began_ns) / _SECOND_NS
    found = []
    for folder, counts in called.items():
        past = before.get(folder, {})
        more = [count - past.get(record, 0) for record, count in counts.items()]
        steps = repetitions([delta for delta in more if delta > 0])
        if steps:
            found.append(steps)
    if found and seconds > 0:
        samples.add("steps_per_second", (), statistics.median(found) / seconds)


def repetitions(counts: list[int]) -> int | None:
    """How often a pattern of calls repeated, by how often each kind of call was made.

    In most training loops many sizes are called once a step, and the rest a few times: the most
    frequent count is the number of steps if the others are multiples of it, give or take one step.
    None where that cannot be said.
    """
    if len(counts) < 2:
        return None
    steps, kinds = Counter(counts).most_common(1)[0]
    if steps < _FEWEST_STEPS or kinds < 2:
        return None
    fitting = sum(abs(count - round(count / steps) * steps) <= max(round(count / steps), 1)
                  for count in counts if count * 2 >= steps)  # fmt: skip
    return steps if fitting * 2 > len(counts) else None
