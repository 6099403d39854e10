"""Follows running jobs: finds captures that are being written, reads them again and again, and
drops them when their job is over.
"""

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
from ncclscope.live.waiting_account import JobWaiting
from ncclscope.model.process.launch_times import event_excess
from ncclscope.regular_files import open_binary
from ncclscope.snapshot.process import ProcessSnapshot, read_snapshot

_VERDICT_PERIOD_NS = 2_000_000_000
_SEARCH_PERIOD_NS = 5_000_000_000  # of open files, which goes through all of this user's processes
_GONE_NS = 60_000_000_000  # a job is dropped this long after its last live page


@dataclass(slots=True)
class FollowedProcess:
    """One process, and what was read of it last."""

    folder: Path
    counters: CounterReader
    meta: MetadataTail
    snapshot: ProcessSnapshot | None = None
    reading: Reading | None = None

    @property
    def header(self) -> Header | None:
        """The header of its metadata; None before it was read."""
        return self.meta.header

    @property
    def communicators(self) -> dict[int, Communicator]:
        """Its communicators by number."""
        return {comm.number: comm for comm in self.meta.communicators}

    @property
    def dropped(self) -> dict[str, int]:
        """Events that were dropped, by reason."""
        counts: dict[str, int] = {}
        for (name, _), count in self.meta.counters.items():
            if name.startswith("dropped_"):
                reason = name.removeprefix("dropped_")
                counts[reason] = counts.get(reason, 0) + count
        return counts


def follow_process(folder: Path) -> FollowedProcess:
    """A process of which nothing has been read yet."""
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
    waiting: JobWaiting | None = None  # of all hosts; None: nobody asked

    @property
    def running(self) -> list[FollowedProcess]:
        """Processes that are running."""
        return [
            p for p in self.processes.values() if p.snapshot and p.snapshot.life in (ALIVE, STOPPED)
        ]

    @property
    def running_ranks(self) -> set[int]:
        """Global ranks of the processes that are running."""
        return {
            state.global_rank
            for process in self.running
            for state in (process.snapshot.rank_states if process.snapshot else ())
            if state.global_rank >= 0
        }


# ---- which captures ----
def captures_of_this_user() -> list[Path]:
    """Captures that this user's processes on this host write, by their arenas in shared memory."""
    captures = set()
    directory = arena_dir()
    if directory.is_symlink() or not directory.is_dir():
        return []
    for path in directory.iterdir():
        try:
            with open_binary(path) as file:
                identity = parse_header(file.read(1 << 16), path).identity
        except (OSError, FormatError):
            continue
        if identity.get("capture"):
            captures.add(Path(identity["capture"]))
    return sorted(path for path in captures if path.is_dir())


def captures_with_open_files(proc: Path = Path("/proc")) -> set[Path]:
    """Captures in which this user's processes have a live page open. Where /dev/shm is small, as in
    containers, recorders have no arena there that would name the capture.
    """
    captures = set()
    for entry in proc.glob("[0-9]*/fd/*"):
        with suppress(OSError, IndexError):  # the process has ended, or is another user's
            target = os.readlink(entry)
            if target.endswith("/live") and entry.parents[1].stat().st_uid == os.getuid():
                captures.add(Path(target).parents[1])
    return {path for path in captures if path.is_dir() and process_folders(path)}


def matching_captures(patterns: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Captures that match: a directory, a glob, or the captures right below either; and directories
    that cannot be read: those of other users, or on a file system that has gone away.
    """
    captures: set[Path] = set()
    unreadable: set[Path] = set()
    for path in (Path(name) for pattern in patterns for name in glob.glob(pattern)):
        try:
            if not path.is_dir():
                continue
            folders, entries = process_folders(path), sorted(path.iterdir())
        except OSError:
            unreadable.add(path)
            continue
        captures |= {path} if folders else set()
        for entry in entries if not folders else ():
            try:
                captures |= {entry} if entry.is_dir() and process_folders(entry) else set()
            except OSError:
                unreadable.add(entry)
    return sorted(captures), sorted(unreadable)


def check_patterns(patterns: Sequence[str]) -> None:
    """Raises if a named directory does not exist or cannot be read. An empty directory is accepted,
    and a glob without matches: captures may appear later.
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
    process.reading = process.counters.read(
        process.communicators, process.meta.strings, event_excess(process.meta.event_clocks)
    )
    return True


def read_job(job: FollowedJob, folders: Sequence[Path], now_ns: int) -> None:
    """Reads everything of a job that changed; `folders` are those of its processes on its host."""
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
    """Sets verdicts and names for one capture's jobs. They need all its processes, those on hosts
    that are not followed here included.
    """
    followed = {name: process for job in jobs for name, process in job.processes.items()}
    snapshots = []
    for folder in folders:
        process = followed.get(folder.name)
        snapshot = process.snapshot if process else None
        with suppress(FormatError):
            snapshots.append(snapshot or read_snapshot(folder, now_ns))
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


# ---- all jobs ----
LastWrites = tuple[tuple[str, int], ...]  # by process folder: when its live page was written last


@dataclass(slots=True)
class JobFollower:
    """All jobs that the user asked for."""

    patterns: tuple[str, ...]  # none: all jobs of this user
    all_hosts: bool = False  # False: processes on this host only
    jobs: dict[tuple[Path, str], FollowedJob] = field(default_factory=dict)  # by capture and host
    hosts: dict[Path, str] = field(default_factory=dict)  # of process folders
    # Jobs that are over. They are read again only if one of their live pages is written.
    finished: dict[tuple[Path, str], LastWrites] = field(default_factory=dict)
    unreadable: list[Path] = field(default_factory=list)  # directories that might be captures
    open_captures: set[Path] = field(default_factory=set)  # at the last search of open files
    searched_ns: int = 0
    other_hosts: set[str] = field(default_factory=set)  # whose processes are left out

    def read(self) -> None:
        """Finds new jobs, reads all jobs, drops those that are over."""
        if self.patterns:
            matching, self.unreadable = matching_captures(self.patterns)
        else:
            matching, self.unreadable = self._of_this_user(time.monotonic_ns()), []
        captures = {*matching, *(capture for capture, _ in self.jobs)}
        for capture in sorted(captures):
            try:
                self._read_capture(capture, capture in matching)
            except OSError:  # its file system is gone, or its permissions were changed
                self.unreadable.append(capture)
                # Old values must not look like present ones.
                self.jobs = {key: job for key, job in self.jobs.items() if key[0] != capture}
        self.hosts = {folder: h for folder, h in self.hosts.items() if folder.parent in captures}
        self.finished = {key: w for key, w in self.finished.items() if key[0] in captures}

    def _of_this_user(self, now_ns: int) -> list[Path]:
        if not self.searched_ns or now_ns - self.searched_ns > _SEARCH_PERIOD_NS:
            self.open_captures, self.searched_ns = captures_with_open_files(), now_ns
        return sorted({*captures_of_this_user(), *self.open_captures})

    def _read_capture(self, capture: Path, matches: bool) -> None:
        now_ns = time.time_ns()
        try:
            folders = process_folders(capture)
        except FileNotFoundError:  # it was deleted
            folders = []
        by_host = self._by_host(folders)
        if folders and not any(folder in self.hosts for folder in folders):
            self.unreadable.append(capture)
        for host, on_host in by_host.items() if matches else ():
            key = (capture, host)
            if key not in self.jobs and self.finished.get(key) != _last_writes(on_host):
                self.jobs[key] = FollowedJob(capture, host, _run_name(capture))
        jobs = [job for key, job in self.jobs.items() if key[0] == capture]
        for job in jobs:
            read_job(job, by_host.get(job.host, []), now_ns)
            if not folders or _is_over(job):
                self.finished[capture, job.host] = _last_writes(by_host.get(job.host, []))
                del self.jobs[capture, job.host]
        if jobs and now_ns - min(job.judged_ns for job in jobs) >= _VERDICT_PERIOD_NS:
            _judge(jobs, folders, now_ns)

    def _by_host(self, folders: Sequence[Path]) -> dict[str, list[Path]]:
        """Process folders by host, of the hosts that are followed."""
        here = socket.gethostname()
        by_host: dict[str, list[Path]] = {}
        for folder in folders:
            host = self.hosts.get(folder) or identity_of(folder).get("host")
            if host:
                self.hosts[folder] = host
                if self.all_hosts or host == here:
                    by_host.setdefault(host, []).append(folder)
                else:
                    self.other_hosts.add(host)
        return by_host


def _last_writes(folders: Sequence[Path]) -> LastWrites:
    writes = []
    for folder in folders:
        try:
            writes.append((folder.name, (folder / "live").stat().st_mtime_ns))
        except OSError:
            writes.append((folder.name, 0))
    return tuple(writes)


def _is_over(job: FollowedJob) -> bool:
    """Whether no process runs any more. Dead ones are kept for a while, so that alerts see them."""
    if job.running:
        return False
    snapshots = [process.snapshot for process in job.processes.values() if process.snapshot]
    dead = [snapshot for snapshot in snapshots if snapshot.life != "ended"]
    newest_ns = max((snapshot.at_ns for snapshot in dead), default=0)
    return job.read_ns - newest_ns > _GONE_NS


def _run_name(capture: Path) -> str:
    """The scheduler's number of the job if there is one, else the directory's name."""
    info = describe(capture)
    return info.job if info and info.job else os.path.basename(os.path.abspath(capture))
