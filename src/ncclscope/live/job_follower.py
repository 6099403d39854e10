"""Jobs whose captures are being written: found, read anew, and forgotten when they are over."""

import glob
import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.capture.header import Header, parse_header
from ncclscope.capture.housekeeping import describe, identity_of, process_folders
from ncclscope.capture.liveness import ALIVE, STOPPED
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.metadata_tail import MetadataTail
from ncclscope.capture.salvage import arena_dir
from ncclscope.diagnose.hang.communicators import communicator_states
from ncclscope.diagnose.hang.judge import judge
from ncclscope.diagnose.hang.verdict import Status
from ncclscope.errors import FormatError, UsageError
from ncclscope.live.counter_reader import CounterReader, Reading
from ncclscope.snapshot.process import ProcessSnapshot, read_snapshot

_VERDICT_PERIOD_NS = 2_000_000_000
_LOOK_PERIOD_NS = 5_000_000_000  # who has which files open: a look at all of them
_GONE_NS = 60_000_000_000  # a job without a living process is forgotten so long after its last sign


@dataclass(slots=True)
class FollowedProcess:
    """One process of this host, and what was read of it last."""

    folder: Path
    tallies: CounterReader
    meta: MetadataTail
    snapshot: ProcessSnapshot | None = None
    reading: Reading | None = None

    @property
    def header(self) -> Header | None:
        """Who the process is."""
        return self.meta.header

    @property
    def communicators(self) -> dict[int, Communicator]:
        """By number."""
        return {comm.number: comm for comm in self.meta.communicators}

    @property
    def dropped(self) -> dict[str, int]:
        """Events that are not on record, by reason."""
        found: dict[str, int] = {}
        for (name, _), count in self.meta.counters.items():
            if name.startswith("dropped_"):
                reason = name.removeprefix("dropped_")
                found[reason] = found.get(reason, 0) + count
        return found


def follow_process(folder: Path) -> FollowedProcess:
    """A process of which nothing is read yet."""
    return FollowedProcess(folder, CounterReader(folder / "tally"), MetadataTail(folder / "meta"))


@dataclass(slots=True)
class FollowedJob:
    """One capture's processes on one host."""

    capture: Path
    host: str
    run: str
    processes: dict[str, FollowedProcess] = field(default_factory=dict)
    names: dict[tuple[str, int], str] = field(default_factory=dict)  # by folder and number
    inferred: dict[str, bool] = field(default_factory=dict)
    status: Status | None = None
    judged_ns: int = 0
    read_ns: int = 0
    unreadable: int = 0

    @property
    def living(self) -> list[FollowedProcess]:
        """Processes that run."""
        return [
            p for p in self.processes.values() if p.snapshot and p.snapshot.life in (ALIVE, STOPPED)
        ]


# ---- which ----
def captures_of_this_user() -> list[Path]:
    """Captures that this user's running processes on this host write, as their memory tells."""
    found = set()
    directory = arena_dir()
    if directory.is_symlink() or not directory.is_dir():
        return []
    for path in directory.iterdir():
        try:
            with path.open("rb") as file:
                identity = parse_header(file.read(1 << 16), path).identity
        except (OSError, FormatError):
            continue
        if identity.get("capture"):
            found.add(Path(identity["capture"]))
    return sorted(path for path in found if path.is_dir())


def captures_held_open(proc: Path = Path("/proc")) -> set[Path]:
    """Captures in which this user's processes have a live page open: where /dev/shm is small, as in
    containers, recorders keep nothing there that would tell.
    """
    found = set()
    for entry in proc.glob("[0-9]*/fd/*"):
        with suppress(OSError, IndexError):  # it is gone by now, or none of our business
            target = os.readlink(entry)
            if target.endswith("/live") and entry.parents[1].stat().st_uid == os.getuid():
                found.add(Path(target).parents[1])
    return {path for path in found if path.is_dir() and process_folders(path)}


def chosen_captures(patterns: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Captures named by directory or glob, or right below a named directory; and directories that
    cannot be read: of other users, or on a file system that has gone away.
    """
    found: set[Path] = set()
    unreadable: set[Path] = set()
    for path in (Path(name) for pattern in patterns for name in glob.glob(pattern)):
        try:
            if not path.is_dir():
                continue
            itself, entries = process_folders(path), sorted(path.iterdir())
        except OSError:
            unreadable.add(path)
            continue
        found |= {path} if itself else set()
        for entry in entries if not itself else ():
            try:
                found |= {entry} if entry.is_dir() and process_folders(entry) else set()
            except OSError:
                unreadable.add(entry)
    return sorted(found), sorted(unreadable)


def check_patterns(patterns: Sequence[str]) -> None:
    """A directory that does not exist, or that cannot be read, is a mistake; an empty one, or a
    glob, may fill later.
    """
    for pattern in patterns:
        if glob.has_magic(pattern):
            continue
        if not Path(pattern).is_dir():
            message = f"cannot follow {pattern}: no such directory"
            raise UsageError(
                message, "Name a capture, a directory of captures, or a glob in quotes"
            )
        os.listdir(pattern)


# ---- reading ----
def _read_process(process: FollowedProcess, now_ns: int) -> bool:
    try:
        process.snapshot = read_snapshot(process.folder, now_ns, process.meta)
    except FormatError:
        return False
    process.reading = process.tallies.read(process.communicators, process.meta.strings)
    return True


def read_job(job: FollowedJob, folders: Sequence[Path], now_ns: int) -> None:
    """Reads everything of a job that changed; `folders`: its processes on its host."""
    job.unreadable = 0
    for folder in folders:
        if folder.name not in job.processes:
            job.processes[folder.name] = follow_process(folder)
    for name, process in list(job.processes.items()):
        if not process.folder.is_dir():
            del job.processes[name]
        elif not _read_process(process, now_ns):
            job.unreadable += 1
    job.read_ns = now_ns


def _judge(jobs: Sequence[FollowedJob], folders: Iterable[Path], now_ns: int) -> None:
    """Verdicts and names of one capture's jobs, from all its processes: those of other hosts, too,
    which nobody here may follow.
    """
    followed = {name: process for job in jobs for name, process in job.processes.items()}
    snapshots = []
    for folder in folders:
        mine = followed.get(folder.name)
        try:
            snapshots.append(
                mine.snapshot if mine and mine.snapshot else read_snapshot(folder, now_ns)
            )
        except FormatError:
            continue
    status, comm_states = judge(snapshots), communicator_states(snapshots)
    inferred = {
        comm_state.name: not any(m.rank_state.name for m in comm_state.members)
        for comm_state in comm_states
    }
    names = {
        (m.snapshot.folder, m.rank_state.number): comm_state.name
        for comm_state in comm_states
        for m in comm_state.members
    }
    for job in jobs:
        job.status, job.judged_ns = status, now_ns
        job.inferred |= inferred
        job.names |= names


# ---- all of them ----
@dataclass(slots=True)
class JobFollower:
    """All jobs that were asked for."""

    patterns: tuple[str, ...]  # none: all of this user's
    all_hosts: bool = False  # False: processes of this host alone; others are followed there
    jobs: dict[tuple[Path, str], FollowedJob] = field(default_factory=dict)
    hosts: dict[Path, str] = field(default_factory=dict)  # of process folders
    # Jobs that are over, with the last signs of life that they gave: old captures cost nothing.
    over: dict[tuple[Path, str], tuple[tuple[str, int], ...]] = field(default_factory=dict)
    unreadable: list[Path] = field(default_factory=list)  # directories that might be captures
    held_open: set[Path] = field(default_factory=set)
    looked_ns: int = 0

    def read(self) -> None:
        """Finds new jobs, reads all, forgets what is over."""
        if self.patterns:
            chosen, self.unreadable = chosen_captures(self.patterns)
        else:
            chosen, self.unreadable = self._of_this_user(time.monotonic_ns()), []
        followed = {capture for capture, _ in self.jobs}
        for capture in sorted({*chosen, *followed}):
            try:
                self._read_capture(capture, capture in chosen)
            except OSError:  # its file system is gone, or somebody took our rights away
                self.unreadable.append(capture)
                # What was read last must not look like now.
                self.jobs = {key: job for key, job in self.jobs.items() if key[0] != capture}
        known = {*chosen, *followed}
        self.hosts = {folder: host for folder, host in self.hosts.items() if folder.parent in known}
        self.over = {key: signs for key, signs in self.over.items() if key[0] in known}

    def _of_this_user(self, now_ns: int) -> list[Path]:
        if not self.looked_ns or now_ns - self.looked_ns > _LOOK_PERIOD_NS:
            self.held_open, self.looked_ns = captures_held_open(), now_ns
        return sorted({*captures_of_this_user(), *self.held_open})

    def _read_capture(self, capture: Path, chosen: bool) -> None:
        now_ns = time.time_ns()
        try:
            folders = process_folders(capture)
        except FileNotFoundError:  # it was deleted
            folders = []
        by_host = self._by_host(folders)
        for host, its in by_host.items() if chosen else ():
            if (capture, host) not in self.jobs and self.over.get((capture, host)) != _signs(its):
                self.jobs[capture, host] = FollowedJob(capture, host, _run_name(capture))
        mine = [job for (of, _), job in self.jobs.items() if of == capture]
        for job in mine:
            read_job(job, by_host.get(job.host, []), now_ns)
            if not folders or _is_over(job):
                self.over[capture, job.host] = _signs(by_host.get(job.host, []))
                del self.jobs[capture, job.host]
        if mine and now_ns - min(job.judged_ns for job in mine) >= _VERDICT_PERIOD_NS:
            _judge(mine, folders, now_ns)

    def _by_host(self, folders: Sequence[Path]) -> dict[str, list[Path]]:
        """Process folders by the hosts that are followed."""
        here = socket.gethostname()
        found: dict[str, list[Path]] = {}
        for folder in folders:
            host = self.hosts.get(folder) or identity_of(folder).get("host")
            if host:
                self.hosts[folder] = host
                if self.all_hosts or host == here:
                    found.setdefault(host, []).append(folder)
        return found


def _signs(folders: Sequence[Path]) -> tuple[tuple[str, int], ...]:
    """When processes wrote their live pages last."""
    found = []
    for folder in folders:
        try:
            found.append((folder.name, (folder / "live").stat().st_mtime_ns))
        except OSError:
            found.append((folder.name, 0))
    return tuple(found)


def _is_over(job: FollowedJob) -> bool:
    """Whether nobody lives any more; the dead are shown for a while, so that alerts see them."""
    if job.living:
        return False
    snapshots = [process.snapshot for process in job.processes.values() if process.snapshot]
    dead = [snapshot for snapshot in snapshots if snapshot.life != "ended"]
    newest_ns = max((snapshot.at_ns for snapshot in dead), default=0)
    return job.read_ns - newest_ns > _GONE_NS


def _run_name(capture: Path) -> str:
    """The job's number where a scheduler gave one, else the directory's name."""
    info = describe(capture)
    return info.job if info and info.job else os.path.basename(os.path.abspath(capture))
