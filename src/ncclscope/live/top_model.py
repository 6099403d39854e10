"""What `ncclscope top` shows, as numbers: jobs, communicators and ranks over the last seconds.

Rates are taken over the time between two heartbeats of each process, not between two readings:
pages and tallies are written once a second, at a moment of the process's own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.liveness import ALIVE, STOPPED
from ncclscope.diagnose.hang import verdict as v
from ncclscope.diagnose.hang.verdict import Verdict
from ncclscope.live.counter_reader import INTER, INTRA, UNKNOWN, CounterSums, Work
from ncclscope.live.job_follower import FollowedJob, FollowedProcess
from ncclscope.model.schema import NONE
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import LastCall, OperationInFlight, RankState

WINDOW_NS = 5_000_000_000
_LATE_SHARE = 0.1  # of the time in kernels that the others wait for one rank alone
_LATE_LEAST = 0.01  # and of all time
_FRESH_NS = 3_000_000_000
Folder = tuple[Path, str]  # capture and process


@dataclass(frozen=True, slots=True)
class Rates:
    """What was done in so many seconds, by one rank or by several."""

    seconds: float = 0.0
    sums: CounterSums = field(default_factory=CounterSums)

    @property
    def operations_per_s(self) -> float | None:
        """None before the second heartbeat."""
        return self.sums.calls / self.seconds if self.seconds > 0 else None

    @property
    def algbw_gb_s(self) -> float | None:
        """Of operations with an exact GPU time; None where there were none."""
        return self.sums.timed_bytes / self.sums.gpu_ns if self.sums.gpu_ns > 0 else None

    @property
    def busbw_gb_s(self) -> float | None:
        """The same times nccl-tests' factor."""
        return self.sums.timed_bus_bytes / self.sums.gpu_ns if self.sums.gpu_ns > 0 else None

    @property
    def gpu_share(self) -> float | None:
        """Time in NCCL's kernels by time."""
        ns = self.sums.gpu_ns + self.sums.early_ns
        return ns / 1e9 / self.seconds if self.seconds > 0 else None

    def plus(self, other: "Rates") -> "Rates":
        """Of both: rates of one are the mean, weighted by time."""
        return Rates(self.seconds + other.seconds, self.sums.plus(other.sums))


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank of a communicator."""

    rank: int  # in the job
    host: str
    gpu: str
    pid: int
    life: str
    rates: Rates
    excess: float | None  # share of time that it is in kernels longer than the rank with the least
    in_flight: tuple[OperationInFlight, ...]  # with their ages by now
    quiet_ns: int | None  # since its last operation ended
    last: LastCall | None
    calls: int
    dropped: int
    folder: Path
    number: int  # of the communicator in its process
    compared: Rates = field(default_factory=Rates)  # in what all ranks wait for the last

    @property
    def oldest_ns(self) -> int:
        """Age of the oldest operation in flight, 0 without one."""
        return max((operation.since_ns for operation in self.in_flight), default=0)


@dataclass(frozen=True, slots=True)
class CommunicatorRow:
    """One communicator with those of its ranks that live or died."""

    key: str
    run: str
    name: str
    ranks: int  # that it has
    nodes: int
    rows: tuple[RankRow, ...]
    rates: Rates
    wait_share: float | None  # of the time in kernels, beyond that of the rank with the least
    late: int | None  # the rank that the others wait for
    verdict: Verdict | None
    label: str = ""  # its name, with its job's where several are shown

    @property
    def scope(self) -> str:
        """intra, inter or unknown."""
        return UNKNOWN if self.nodes < 1 else INTRA if self.nodes == 1 else INTER

    @property
    def operations_per_s(self) -> float | None:
        """Of one rank: an operation of eight ranks is one."""
        return self.rates.operations_per_s

    @property
    def in_flight(self) -> int:
        """The most of any rank."""
        return max((len(row.in_flight) for row in self.rows), default=0)

    @property
    def oldest_ns(self) -> int:
        """Age of the oldest operation in flight on any rank."""
        return max((row.oldest_ns for row in self.rows), default=0)


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job, whole."""

    run: str
    capture: Path
    mode: str
    nccl_version: int
    simulation: bool
    processes: int
    alive: int
    expected: int
    hosts: int
    intra: Rates
    inter: Rates
    dropped: int
    unreadable: int
    verdicts: tuple[Verdict, ...]  # that are not ok, hangs first


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything at one moment."""

    jobs: tuple[JobLine, ...]
    communicators: tuple[CommunicatorRow, ...]


# ---- rates ----
@dataclass(slots=True)
class Past:
    """What each process had counted, heartbeat by heartbeat, over the window."""

    moments: dict[Folder, list[tuple[int, dict[Work, CounterSums]]]] = field(default_factory=dict)

    def note(self, folder: Folder, at_ns: int, works: dict[Work, CounterSums]) -> None:
        """A new heartbeat; the same again changes nothing but what it counted."""
        mine = self.moments.setdefault(folder, [])
        if mine and mine[-1][0] == at_ns:
            mine.pop()
        mine.append((at_ns, works))
        while len(mine) > 2 and at_ns - mine[1][0] >= WINDOW_NS:
            mine.pop(0)

    def forget(self, but: Iterable[Folder]) -> None:
        """Processes that are gone."""
        kept = set(but)
        for folder in set(self.moments) - kept:
            del self.moments[folder]

    def rates(self, folder: Folder) -> dict[Work, Rates]:
        """Of each kind of work over the window."""
        mine = self.moments.get(folder, [])
        if len(mine) < 2:
            return {}
        (began_ns, before), (ended_ns, now) = mine[0], mine[-1]
        seconds = (ended_ns - began_ns) / 1e9
        return {
            work: Rates(seconds, sums.plus(before.get(work, CounterSums()), -1))
            for work, sums in now.items()
        }


def _together(rates: Iterable[Rates]) -> Rates:
    """Kinds of work of one process: the seconds are the same."""
    found = Rates()
    for one in rates:
        found = Rates(max(found.seconds, one.seconds), found.sums.plus(one.sums))
    return found


# ---- rows ----
def overview(jobs: Sequence[FollowedJob], past: Past) -> Overview:
    """All jobs; those of one capture on several hosts are one."""
    by_capture: dict[Path, list[FollowedJob]] = {}
    for job in jobs:
        by_capture.setdefault(job.capture, []).append(job)
        for process in job.processes.values():
            if process.snapshot and process.reading:
                key = (job.capture, process.folder.name)
                past.note(key, process.snapshot.at_ns, process.reading.works)
    past.forget((job.capture, name) for job in jobs for name in job.processes)
    rows = [row for mine in by_capture.values() for row in _communicators(mine, past)]
    lines = [_job_line(mine, past) for mine in by_capture.values()]
    several = len(lines) > 1
    labelled = (
        replace(row, label=f"{row.run}/{row.name}" if several else row.name) for row in rows
    )
    return Overview(tuple(lines), tuple(labelled))


def _job_line(jobs: Sequence[FollowedJob], past: Past) -> JobLine:
    job = jobs[0]
    processes = [process for one in jobs for process in one.processes.values()]
    snapshots = [process.snapshot for process in processes if process.snapshot]
    scopes = {scope: Rates() for scope in (INTRA, INTER)}
    for process in processes:
        if process.snapshot and _lives(process.snapshot):
            for work, rates in past.rates((job.capture, process.folder.name)).items():
                if work.level != layout.LEVEL_CALL and work.scope in scopes:
                    scopes[work.scope] = scopes[work.scope].plus(rates)
    status = job.status
    verdicts = [one for one in status.verdicts if one.verdict != v.OK] if status else []
    headers = [process.header for process in processes if process.header]
    return JobLine(
        run=job.run,
        capture=job.capture,
        mode=snapshots[0].mode if snapshots else "",
        nccl_version=snapshots[0].nccl_version if snapshots else 0,
        simulation=any(
            header.identity.get("simulation", "") not in ("", "0") for header in headers
        ),
        processes=len(processes),
        alive=sum(_lives(snapshot) for snapshot in snapshots),
        expected=status.expected if status else 0,
        hosts=len({snapshot.host for snapshot in snapshots}),
        intra=scopes[INTRA],
        inter=scopes[INTER],
        dropped=sum(snapshot.dropped for snapshot in snapshots),
        unreadable=sum(one.unreadable for one in jobs),
        verdicts=tuple(sorted(verdicts, key=lambda one: (not one.hung, bool(one.because_of)))),
    )


def _lives(snapshot: ProcessSnapshot) -> bool:
    return snapshot.life in (ALIVE, STOPPED)


def _communicators(jobs: Sequence[FollowedJob], past: Past) -> Iterable[CommunicatorRow]:
    found: dict[str, list[RankRow]] = {}
    shape: dict[str, tuple[int, int]] = {}
    for job in jobs:
        for process in job.processes.values():
            snapshot = process.snapshot
            if snapshot is None or snapshot.life == "ended":
                continue
            communicators = process.communicators
            mine = past.rates((job.capture, process.folder.name))
            by_number = _by_communicator(mine)
            compared = _by_communicator({w: rates for w, rates in mine.items() if w.all_wait})
            for rank_state in snapshot.rank_states:
                name = job.names.get((process.folder.name, rank_state.number), "")
                if name and not rank_state.closed:
                    rates = by_number.get(rank_state.number, Rates(_seconds(past, job, process)))
                    row = _rank_row(job, process, snapshot, rank_state, rates)
                    if _lives(snapshot):
                        row = replace(row, compared=compared.get(rank_state.number, Rates()))
                    found.setdefault(name, []).append(row)
                    comm = communicators.get(rank_state.number)
                    shape[name] = (rank_state.ranks, comm.nodes if comm else 0)
    status = jobs[0].status
    verdicts = {one.name: one for one in status.verdicts} if status else {}
    for name, rows in found.items():
        ranks, nodes = shape[name]
        yield _communicator(jobs[0], name, ranks, nodes, rows, verdicts.get(name))


def _seconds(past: Past, job: FollowedJob, process: FollowedProcess) -> float:
    mine = past.moments.get((job.capture, process.folder.name), [])
    return (mine[-1][0] - mine[0][0]) / 1e9 if len(mine) > 1 else 0.0


def _by_communicator(rates: dict[Work, Rates]) -> dict[int, Rates]:
    found: dict[int, list[Rates]] = {}
    for work, one in rates.items():
        if work.level != layout.LEVEL_CALL:
            found.setdefault(work.communicator, []).append(one)
    return {number: _together(many) for number, many in found.items()}


def _rank_row(
    job: FollowedJob,
    process: FollowedProcess,
    snapshot: ProcessSnapshot,
    rank_state: RankState,
    rates: Rates,
) -> RankRow:
    lives = _lives(snapshot)
    # Ages are those of the last page, which is at most a second old: what was in flight then may
    # have ended. If no page comes any more, what it says is all that is known, and grows older.
    since_ns = job.read_ns - snapshot.at_ns if lives else 0
    since_ns = since_ns if since_ns > _FRESH_NS else 0
    in_flight = tuple(_aged(operation, since_ns) for operation in rank_state.in_flight)
    return RankRow(
        rank=rank_state.global_rank if rank_state.global_rank != NONE else rank_state.rank,
        host=snapshot.host,
        gpu=snapshot.gpu,
        pid=snapshot.pid,
        life=snapshot.life,
        rates=rates if lives else Rates(),
        excess=None,
        in_flight=in_flight,
        quiet_ns=None if rank_state.done_ns is None else rank_state.done_ns + since_ns,
        last=rank_state.last,
        calls=rank_state.calls,
        dropped=snapshot.dropped,
        folder=process.folder,
        number=rank_state.number,
    )


def _aged(operation: OperationInFlight, since_ns: int) -> OperationInFlight:
    return replace(operation, since_ns=operation.since_ns + since_ns)


def _communicator(
    job: FollowedJob,
    name: str,
    ranks: int,
    nodes: int,
    rows: list[RankRow],
    verdict: Verdict | None,
) -> CommunicatorRow:
    rows.sort(key=lambda row: row.rank)
    shares = [row.compared.gpu_share for row in rows]
    known = sorted(share for share in shares if share is not None)
    least = known[0] if known else 0.0
    wait_share, late = None, None
    if len(known) > 1 and sum(known) > 0:
        wait_share = sum(share - least for share in known) / sum(known)
        # Somebody is late whom all others wait for; where two are, nobody is the one.
        if known[1] - least > max(_LATE_SHARE * sum(known) / len(known), _LATE_LEAST):
            late = rows[shares.index(least)].rank
    measured = [
        replace(row, excess=None if share is None or len(known) < 2 else share - least)
        for row, share in zip(rows, shares, strict=True)
    ]
    rates = Rates()
    for row in rows:
        rates = rates.plus(row.rates)
    key = f"{job.capture}\0{name}"
    return CommunicatorRow(
        key, job.run, name, ranks, nodes, tuple(measured), rates, wait_share, late, verdict
    )
