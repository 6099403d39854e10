"""The numbers that `ncclscope top` shows: jobs, communicators and ranks over the last seconds.

Rates are taken between two heartbeats of a process, not between two readings: each process writes
its live page and counters once a second, at moments of its own.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.liveness import ALIVE, ENDED, STOPPED
from ncclscope.diagnose.hang.verdict import OK, Verdict
from ncclscope.live.counter_reader import INTER, INTRA, UNKNOWN, CounterSums, OperationClass
from ncclscope.live.job_follower import FollowedJob, FollowedProcess
from ncclscope.model.schema import NONE
from ncclscope.nccl.bandwidth import bandwidth_gbs
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import LastCall, OperationInFlight, RankState

WINDOW_NS = 5_000_000_000
# A rank is late if all others wait for it, for this share of the time in kernels and of all time.
# The alert NcclStraggler of ncclscope-rules.yml has the same number.
LATE_SHARE = 0.1
_LATE_LEAST = 0.01
_FRESH_NS = 3_000_000_000
ProcessKey = tuple[Path, str]  # capture and process folder


@dataclass(frozen=True, slots=True)
class Rates:
    """What one rank, or several, did in some seconds."""

    seconds: float = 0.0
    sums: CounterSums = field(default_factory=CounterSums)

    @property
    def operations_per_s(self) -> float | None:
        """Operations a second; None before the second heartbeat."""
        return self.sums.calls / self.seconds if self.seconds > 0 else None

    @property
    def algbw_gb_s(self) -> float | None:
        """Algorithm bandwidth; None if no operation counts for it."""
        return bandwidth_gbs(self.sums.timed_bytes, self.sums.gpu_ns)

    @property
    def busbw_gb_s(self) -> float | None:
        """Bus bandwidth; None if no operation counts for it, or nccl-tests define none for one."""
        bus_bytes = self.sums.timed_bus_bytes
        return None if math.isnan(bus_bytes) else bandwidth_gbs(bus_bytes, self.sums.gpu_ns)

    @property
    def gpu_share(self) -> float | None:
        """The share of time in NCCL's kernels. Of a sample it is the difference of two estimates,
        which can be below 0.
        """
        share = self.sums.all_gpu_ns / 1e9 / self.seconds if self.seconds > 0 else None
        return None if share is None else max(share, 0.0)

    @property
    def gpu_share_error(self) -> float:
        """Half of the 95 % interval of that share; 0 where every operation was timed."""
        return self.sums.all_gpu_error_ns / 1e9 / self.seconds if self.seconds > 0 else 0.0

    def plus(self, other: "Rates") -> "Rates":
        """Rates of two ranks together: their means, weighted by time."""
        return Rates(self.seconds + other.seconds, self.sums.plus(other.sums))


@dataclass(frozen=True, slots=True)
class TopRank:
    """The row of one rank of a communicator."""

    rank: int  # global
    host: str
    gpu: str
    pid: int
    life: str
    rates: Rates
    excess: float | None  # share of time in kernels beyond that of the rank with the least
    in_flight: tuple[OperationInFlight, ...]  # with their present ages
    quiet_ns: int | None  # since its last operation ended
    last: LastCall | None
    calls: int
    dropped: int
    folder: Path
    number: int  # of the communicator in its process
    compared: Rates = field(default_factory=Rates)  # in functions whose ranks all wait for the last

    @property
    def oldest_ns(self) -> int:
        """Age of the oldest operation in flight; 0 if there is none."""
        return max((operation.since_ns for operation in self.in_flight), default=0)


@dataclass(frozen=True, slots=True)
class TopCommunicator:
    """The row of one communicator, with its ranks that run or died."""

    key: str
    run: str
    name: str
    ranks: int  # of the communicator, on record or not
    nodes: int
    rows: tuple[TopRank, ...]
    rates: Rates
    wait_share: float | None  # of the time in kernels: what is beyond the rank with the least
    late: int | None  # the rank that all others wait for
    verdict: Verdict | None
    label: str = ""  # its name, with its run's if several jobs are shown

    @property
    def scope(self) -> str:
        """intra, inter or unknown."""
        return UNKNOWN if self.nodes < 1 else INTRA if self.nodes == 1 else INTER

    @property
    def operations_per_s(self) -> float | None:
        """Operations a second of one rank: an AllReduce of eight ranks is one operation."""
        return self.rates.operations_per_s

    @property
    def in_flight(self) -> int:
        """Operations in flight on the rank that has most."""
        return max((len(row.in_flight) for row in self.rows), default=0)

    @property
    def oldest_ns(self) -> int:
        """Age of the oldest operation in flight on any rank."""
        return max((row.oldest_ns for row in self.rows), default=0)


@dataclass(frozen=True, slots=True)
class TopJob:
    """The line of one job."""

    run: str
    capture: Path
    mode: str
    nccl_version: int
    simulation: bool
    processes: int
    running: int
    expected: int
    hosts: int
    intra: Rates
    inter: Rates
    dropped: int
    unreadable: int
    verdicts: tuple[Verdict, ...]  # those that are not ok, hangs first


@dataclass(frozen=True, slots=True)
class TopData:
    """All jobs and communicators at one moment."""

    jobs: tuple[TopJob, ...]
    communicators: tuple[TopCommunicator, ...]


# ---- rates ----
ClassSums = dict[OperationClass, CounterSums]


@dataclass(slots=True)
class RateHistory:
    """Sums of each process at its heartbeats within the window."""

    moments: dict[ProcessKey, list[tuple[int, ClassSums]]] = field(default_factory=dict)

    def add(self, process: ProcessKey, at_ns: int, sums: ClassSums) -> None:
        """Adds a process's heartbeat, or replaces the last one if that is of the same time."""
        moments = self.moments.setdefault(process, [])
        if moments and moments[-1][0] == at_ns:
            moments.pop()
        moments.append((at_ns, sums))
        while len(moments) > 2 and at_ns - moments[1][0] >= WINDOW_NS:
            moments.pop(0)

    def keep_only(self, processes: Iterable[ProcessKey]) -> None:
        """Drops all other processes."""
        for process in set(self.moments) - set(processes):
            del self.moments[process]

    def seconds(self, process: ProcessKey) -> float:
        """The time that a process's rates are taken over; 0 before its second heartbeat."""
        moments = self.moments.get(process, [])
        return (moments[-1][0] - moments[0][0]) / 1e9 if len(moments) > 1 else 0.0

    def rates(self, process: ProcessKey) -> dict[OperationClass, Rates]:
        """Rates of each class of operations; {} before the second heartbeat."""
        moments = self.moments.get(process, [])
        if len(moments) < 2:
            return {}
        before, now = moments[0][1], moments[-1][1]
        seconds = self.seconds(process)
        return {
            op_class: Rates(seconds, sums.plus(before.get(op_class, CounterSums()), -1))
            for op_class, sums in now.items()
        }


def _sum_classes(rates: Iterable[Rates]) -> Rates:
    """Rates of several classes of one process, all over the same time."""
    total = Rates()
    for part in rates:
        total = Rates(max(total.seconds, part.seconds), total.sums.plus(part.sums))
    return total


# ---- rows ----
def top_data(jobs: Sequence[FollowedJob], history: RateHistory) -> TopData:
    """All jobs; those of one capture on several hosts are one job. Updates `history`."""
    by_capture: dict[Path, list[FollowedJob]] = {}
    for job in jobs:
        by_capture.setdefault(job.capture, []).append(job)
        for process in job.processes.values():
            if process.snapshot and process.reading:
                key = (job.capture, process.folder.name)
                history.add(key, process.snapshot.at_ns, process.reading.sums)
    history.keep_only((job.capture, name) for job in jobs for name in job.processes)
    captures = by_capture.values()
    rows = [row for capture in captures for row in _communicators(capture, history)]
    several = len(captures) > 1
    labelled = (
        replace(row, label=f"{row.run}/{row.name}" if several else row.name) for row in rows
    )
    return TopData(tuple(_job(capture, history) for capture in captures), tuple(labelled))


def _job(jobs: Sequence[FollowedJob], history: RateHistory) -> TopJob:
    job = jobs[0]
    processes = [process for on_host in jobs for process in on_host.processes.values()]
    snapshots = [process.snapshot for process in processes if process.snapshot]
    scopes = {scope: Rates() for scope in (INTRA, INTER)}
    for process in processes:
        if process.snapshot and _is_running(process.snapshot):
            for op_class, rates in history.rates((job.capture, process.folder.name)).items():
                if op_class.level != layout.LEVEL_CALL and op_class.scope in scopes:
                    scopes[op_class.scope] = scopes[op_class.scope].plus(rates)
    status = job.status
    verdicts = [verdict for verdict in status.verdicts if verdict.verdict != OK] if status else []
    headers = [process.header for process in processes if process.header]
    return TopJob(
        run=job.run,
        capture=job.capture,
        mode=snapshots[0].mode if snapshots else "",
        nccl_version=snapshots[0].nccl_version if snapshots else 0,
        simulation=any(
            header.identity.get("simulation", "") not in ("", "0") for header in headers
        ),
        processes=len(processes),
        running=sum(_is_running(snapshot) for snapshot in snapshots),
        expected=status.expected if status else 0,
        hosts=len({snapshot.host for snapshot in snapshots}),
        intra=scopes[INTRA],
        inter=scopes[INTER],
        dropped=sum(snapshot.dropped for snapshot in snapshots),
        unreadable=sum(on_host.unreadable for on_host in jobs),
        verdicts=tuple(sorted(verdicts, key=lambda v: (not v.hung, bool(v.because_of)))),
    )


def _is_running(snapshot: ProcessSnapshot) -> bool:
    return snapshot.life in (ALIVE, STOPPED)


def _communicators(jobs: Sequence[FollowedJob], history: RateHistory) -> Iterable[TopCommunicator]:
    ranks_of: dict[str, list[TopRank]] = {}
    shape_of: dict[str, tuple[int, int]] = {}  # ranks and nodes
    for job in jobs:
        for process in job.processes.values():
            communicators = process.communicators
            for name, rank_state, row in _ranks_of_process(job, process, history):
                ranks_of.setdefault(name, []).append(row)
                comm = communicators.get(rank_state.number)
                shape_of[name] = (rank_state.ranks, comm.nodes if comm else 0)
    status = jobs[0].status
    verdicts = {verdict.name: verdict for verdict in status.verdicts} if status else {}
    for name, rows in ranks_of.items():
        ranks, nodes = shape_of[name]
        yield _communicator(jobs[0], name, ranks, nodes, rows, verdicts.get(name))


def _ranks_of_process(
    job: FollowedJob, process: FollowedProcess, history: RateHistory
) -> Iterable[tuple[str, RankState, TopRank]]:
    """A process's ranks, with the names of their communicators."""
    snapshot = process.snapshot
    if snapshot is None or snapshot.life == ENDED:
        return
    key = (job.capture, process.folder.name)
    rates = history.rates(key)
    by_number = _by_communicator(rates)
    compared = _by_communicator({c: rate for c, rate in rates.items() if c.all_wait})
    for rank_state in snapshot.rank_states:
        name = job.names.get((process.folder.name, rank_state.number), "")
        if name and not rank_state.closed:
            no_operations = Rates(history.seconds(key))
            rank_rates = by_number.get(rank_state.number, no_operations)
            row = _rank(job, process, snapshot, rank_state, rank_rates)
            if _is_running(snapshot):
                row = replace(row, compared=compared.get(rank_state.number, Rates()))
            yield name, rank_state, row


def _by_communicator(rates: dict[OperationClass, Rates]) -> dict[int, Rates]:
    by_number: dict[int, list[Rates]] = {}
    for op_class, class_rates in rates.items():
        if op_class.level != layout.LEVEL_CALL:
            by_number.setdefault(op_class.communicator, []).append(class_rates)
    return {number: _sum_classes(classes) for number, classes in by_number.items()}


def _rank(
    job: FollowedJob,
    process: FollowedProcess,
    snapshot: ProcessSnapshot,
    rank_state: RankState,
    rates: Rates,
) -> TopRank:
    running = _is_running(snapshot)
    # Ages are those of the last live page, which is usually less than a second old: an operation in
    # flight then may have ended. If pages stop coming, the operations of the last one grow older.
    since_ns = job.read_ns - snapshot.at_ns if running else 0
    since_ns = since_ns if since_ns > _FRESH_NS else 0
    in_flight = tuple(_with_age(operation, since_ns) for operation in rank_state.in_flight)
    return TopRank(
        rank=rank_state.global_rank if rank_state.global_rank != NONE else rank_state.rank,
        host=snapshot.host,
        gpu=snapshot.gpu,
        pid=snapshot.pid,
        life=snapshot.life,
        rates=rates if running else Rates(),
        excess=None,
        in_flight=in_flight,
        quiet_ns=None if rank_state.done_ns is None else rank_state.done_ns + since_ns,
        last=rank_state.last,
        calls=rank_state.calls,
        dropped=snapshot.dropped,
        folder=process.folder,
        number=rank_state.number,
    )


def _with_age(operation: OperationInFlight, since_ns: int) -> OperationInFlight:
    return replace(operation, since_ns=operation.since_ns + since_ns)


def _communicator(
    job: FollowedJob,
    name: str,
    ranks: int,
    nodes: int,
    rows: list[TopRank],
    verdict: Verdict | None,
) -> TopCommunicator:
    rows.sort(key=lambda row: row.rank)
    shares = [row.compared.gpu_share for row in rows]
    measured = sorted(share for share in shares if share is not None)
    least = measured[0] if measured else 0.0
    wait_share, late = None, None
    # Where a sample is timed, some seconds may be too few to tell ranks apart.
    errors = sum(row.compared.gpu_share_error for row in rows)
    if errors > sum(share - least for share in measured):
        shares, measured = [None] * len(rows), []
    if len(measured) > 1 and sum(measured) > 0:
        wait_share = sum(share - least for share in measured) / sum(measured)
        # A rank is late if all others wait for it: if the second one waits too, it is not alone.
        if measured[1] - least > max(LATE_SHARE * sum(measured) / len(measured), _LATE_LEAST):
            late = rows[shares.index(least)].rank
    rows = [
        replace(row, excess=None if share is None or len(measured) < 2 else share - least)
        for row, share in zip(rows, shares, strict=True)
    ]
    rates = Rates()
    for row in rows:
        rates = rates.plus(row.rates)
    key = f"{job.capture}\0{name}"
    return TopCommunicator(
        key, job.run, name, ranks, nodes, tuple(rows), rates, wait_share, late, verdict
    )
