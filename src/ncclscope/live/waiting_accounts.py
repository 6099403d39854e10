"""Accounts of waiting of running jobs, made window by window by a process beside `serve`.

A job is asked about every half a minute, from where the window before ended. Where that takes the
process long, windows become smaller, and then rarer: what was not looked at is in no sum, and the
time that windows cover says how much was. A capture without an account has a reason instead.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ncclscope.capture.layout import SLOT_BYTES
from ncclscope.live.job_follower import FollowedJob
from ncclscope.live.waiting_account import JobWaiting, Window

_PERIOD_READINGS = 30  # between two windows, by default half a minute
_SHORTEST_S, _LONGEST_S = 3.0, 60.0
_CPU_SHARE = 0.025  # of a core, on average
_MOST_SLOTS = 1 << 19  # of all processes, of two files each; an operation has 6 in trace mode
_FEWEST_SLOTS = 1 << 11  # of a process
_BEFORE_SHARE = 0.5  # what is read again of what is new: what is usual is learned of it
_BEFORE_SLOTS = 1 << 14
_TIMEOUT_S = 60.0
_DEATH_S = 0.5  # after SIGKILL
_LOOK_AGAIN_S = 5.0  # where there cannot be an account
_SECOND_NS = 1_000_000_000
WAITING_FOR_FIRST = "the first window is not over"


@dataclass(slots=True)
class _Question:
    """A window that is being looked at."""

    capture: Path
    process: "subprocess.Popen[bytes]"
    answer: IO[bytes]
    scratch: "tempfile.TemporaryDirectory[str]"
    began: float
    log_bytes: dict[Path, int]
    dropped: int


@dataclass(slots=True)
class _Course:
    """How far the account of a capture is."""

    waiting: JobWaiting
    due: float
    blocked: bool = True  # there can be no account now
    since_ns: int | None = None  # wall clock: windows never overlap
    slots: int = _MOST_SLOTS  # of all processes
    log_bytes: dict[Path, int] = field(default_factory=dict)  # when the last window was read
    dropped: int | None = None


@dataclass(slots=True)
class WaitingAccounts:
    """The accounts of all jobs that `serve` follows; one window is made at a time."""

    interval_s: float = 1.0  # between readings
    courses: dict[Path, _Course] = field(default_factory=dict)
    question: _Question | None = None

    @property
    def period_s(self) -> float:
        """Between two windows of a job."""
        return min(max(_PERIOD_READINGS * self.interval_s, _SHORTEST_S), _LONGEST_S)

    def look(self, jobs: Iterable[FollowedJob], now: float) -> None:
        """Takes what is ready, asks for what is due, and gives jobs their accounts."""
        by_capture: dict[Path, list[FollowedJob]] = {}
        for job in jobs:
            by_capture.setdefault(job.capture, []).append(job)
        for capture in set(self.courses) - set(by_capture):
            del self.courses[capture]
        self._take(now)
        for capture, own in by_capture.items():
            if capture not in self.courses:
                waiting = JobWaiting(min(job.host for job in own), WAITING_FOR_FIRST)
                self.courses[capture] = _Course(waiting, now)
            for job in own:
                job.waiting = self.courses[capture].waiting
        for capture in sorted(by_capture, key=lambda capture: self.courses[capture].due):
            if self.question is None and now >= self.courses[capture].due:
                self._next(self.courses[capture], capture, by_capture[capture], now)

    def close(self) -> None:
        """Ends the process that looks at a window."""
        if self.question:
            self.question.process.kill()
            with suppress(subprocess.TimeoutExpired):  # a file system may hold it for ever
                self.question.process.wait(timeout=_DEATH_S)
            self.question.answer.close()
            self.question.scratch.cleanup()
            self.question = None

    # ---- one window ----
    def _next(
        self, course: _Course, capture: Path, jobs: Sequence[FollowedJob], now: float
    ) -> None:
        """Asks for the next window, if there can be one."""
        why = why_not(jobs)
        if why:
            course.waiting.stop(why)
            course.blocked, course.due = True, now + min(_LOOK_AGAIN_S, self.period_s)
        elif course.blocked:
            course.waiting.begin(_ranks(jobs), WAITING_FOR_FIRST)
            course.blocked, course.due = False, now + self.period_s
        else:
            self._ask(course, capture, jobs, now)

    def _ask(self, course: _Course, capture: Path, jobs: Sequence[FollowedJob], now: float) -> None:
        course.due = now + self.period_s
        folders = [process.folder for job in jobs for process in job.running]
        sizes = {folder: _log_bytes(folder) for folder in folders}
        request = {
            "capture": os.path.abspath(capture),
            "newest": {
                os.path.abspath(folder): _slots(course, folder, size, len(folders))
                for folder, size in sizes.items()
            },
            "since_ns": course.since_ns,
        }
        dropped = _dropped(jobs)
        scratch = None
        try:
            # The model is written there, and gone whatever happens to the process.
            scratch = tempfile.TemporaryDirectory(prefix="ncclscope-", ignore_cleanup_errors=True)
            process, answer = _start(scratch.name, json.dumps(request).encode())
        except OSError as error:
            course.waiting.stop(f"cannot look: {error.strerror}")
            if scratch:
                scratch.cleanup()
            return
        self.question = _Question(capture, process, answer, scratch, now, sizes, dropped)

    def _take(self, now: float) -> None:
        """Takes the answer of a process that has ended, and ends one that takes too long."""
        question = self.question
        if question is None:
            return
        if question.process.poll() is None and now - question.began < _TIMEOUT_S:
            return
        answer = _answer_of(question)
        self.close()
        course = self.courses.get(question.capture)
        if course is None:
            return
        seconds = answer.get("cpu_s", now - question.began)
        if seconds > _CPU_SHARE * _LONGEST_S:
            course.slots = max(course.slots // 2, _FEWEST_SLOTS)
        elif seconds < _CPU_SHARE * self.period_s:
            course.slots = min(course.slots * 2, _MOST_SLOTS)
        course.due = question.began + max(self.period_s, seconds / _CPU_SHARE)
        if "until_ns" not in answer:
            course.waiting.stop(answer["why"])
            return
        lost = course.dropped is not None and course.dropped != question.dropped
        course.dropped, course.log_bytes = question.dropped, question.log_bytes
        course.since_ns = answer["until_ns"]
        if lost:  # calls without a record would look as if nobody had waited
            course.waiting.stop("events were dropped")
        else:
            caused, idle = (
                {int(rank): ns for rank, ns in answer[name].items()}
                for name in ("caused_ns", "idle_ns")
            )
            length_ns = answer["until_ns"] - answer["since_ns"]
            course.waiting.add(Window(length_ns, caused, idle, answer["origins_ns"]))


def why_not(jobs: Sequence[FollowedJob]) -> str:
    """Why there can be no account of a capture's jobs; "" if there can."""
    status = jobs[0].status
    running = [process for job in jobs for process in job.running]
    if status is None or not running:
        return "no process runs"
    if len(running) < max(status.expected, status.alive):
        return "not all processes are seen here"
    if len(_ranks(jobs)) < 2:
        return "fewer than two ranks"
    for process in running:
        if not _log_bytes(process.folder):
            mode = process.snapshot.mode if process.snapshot else ""
            return "mode profile keeps no log" if mode == "profile" else "there is no log on disk"
    return ""


def _ranks(jobs: Sequence[FollowedJob]) -> set[int]:
    return {rank for job in jobs for rank in job.running_ranks}


def _dropped(jobs: Sequence[FollowedJob]) -> int:
    return sum(sum(process.dropped.values()) for job in jobs for process in job.running)


def _log_bytes(folder: Path) -> int:
    """Bytes of a process's log on disk."""
    total = 0
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.startswith("log."):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _slots(course: _Course, folder: Path, size: int, folders: int) -> int:
    """How many slots of a process are read: what is new and some before, within the limit."""
    most = max(course.slots // folders, _FEWEST_SLOTS)
    before = course.log_bytes.get(folder)
    if before is None or size < before:  # nothing is known, or old files made room
        return most
    grown = (size - before) // SLOT_BYTES
    return min(int(grown * (1 + _BEFORE_SHARE)) + _BEFORE_SLOTS, most)


# ---- the process ----
def _start(scratch: str, request: bytes) -> "tuple[subprocess.Popen[bytes], IO[bytes]]":
    """The process, and the file that its answer goes to: a pipe could be full."""
    answer = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
    with tempfile.TemporaryFile(dir=scratch) as asked:
        asked.write(request)
        asked.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "ncclscope.live.waiting_window"],
            stdin=asked,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            cwd="/",  # Python imports from the working directory first: not the job's modules
            env={**os.environ, "TMPDIR": scratch},
            start_new_session=True,
        )
    return process, answer


def _answer_of(question: _Question) -> dict[str, Any]:
    if question.process.poll() is None:
        return {"why": "looking at a window takes too long"}
    try:
        question.answer.seek(0)
        answer = json.loads(question.answer.read())
    except (OSError, ValueError):
        answer = {}
    if not isinstance(answer, dict) or not {"why", "until_ns"} & set(answer):
        return {"why": "looking at a window failed"}
    return answer
