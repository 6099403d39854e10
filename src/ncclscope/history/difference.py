"""A job against the last equal ones: same ranks, recording and kinds of calls (sums.shape_of)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ncclscope.analysis.run_intervals import Difference, difference, knows_spread
from ncclscope.diagnose.comparison_verdict import (
    FASTER,
    LEFT_OPEN,
    MATTERS,
    NOT_JUDGED,
    SAME,
    SLOWER,
    UNRESOLVED,
)
from ncclscope.errors import UsageError
from ncclscope.history.reader import History, Job
from ncclscope.history.tables import COMMUNICATORS, JobRow, JobSums
from ncclscope.history.writer import new_name
from ncclscope.humanize import binary_size

STEP, ROUND, MEAN_ROUND, WAITING = "a step", "a round", "a round, mean", "waiting"
LAST_EQUAL = 10  # jobs that a job is compared with, unless another number is given
LEAST_JOBS = 3  # equal ones; fewer do not show how much equal jobs differ


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One number of a job against those of equal jobs."""

    name: str
    value: float  # ns; of WAITING, a share of the time of all ranks
    equal: tuple[float, ...]  # of equal jobs, the oldest first
    change: float  # ratio to their mean; of WAITING, the difference
    low: float
    high: float
    verdict: str


@dataclass(frozen=True, slots=True)
class JobDifference:
    """A job against equal ones."""

    job: Job
    equal: tuple[Job, ...]
    measures: tuple[MeasureChange, ...]  # of the job; the first that differs decides
    kinds: tuple[MeasureChange, ...]  # medians of kinds of calls, what changed most first
    verdict: str
    reason: str  # why nothing was judged, or ""

    @property
    def bounds_loss(self) -> bool:
        """Whether the job takes no more than what does not matter beyond equal ones."""
        return not self.reason and _bounds_loss(self.measures)


def job_difference(directory: Path, label: str | None, last: int) -> tuple[JobDifference, int]:
    """The newest job, or that of this label or name, against at most `last` equal ones before it;
    and how many files were left out.
    """
    job = _chosen_job(directory, label)
    history = History(directory, shape=job.name.shape)
    history.names = [name for name in history.names if name < job.name][-last:]
    own = History(directory)
    own.names = [job.name]
    return _difference(history, job, _medians(own).get(str(job.name), {})), history.left_out


def difference_of_sums(directory: Path, sums: JobSums, last: int) -> tuple[JobDifference, int]:
    """A job that need not be in the history against at most `last` equal ones before it."""
    job = Job(new_name(sums), sums.job)
    history = earlier_jobs(directory, sums, last, sums.shape)
    medians = {
        _in_words(row.role, row.function, row.size_bytes, row.datatype): row.median_ns
        for row in sums.communicators
        if row.exact and row.median_ns
    }
    return _difference(history, job, medians), history.left_out


def earlier_jobs(directory: Path, sums: JobSums, last: int, shape: str | None = None) -> History:
    """At most the last jobs that began before this one, without itself; all of one shape where that
    is given.
    """
    history = History(directory, shape=shape)
    start = new_name(sums).start
    earlier = [name for name in history.names if name.start <= start]
    history.names = [name for name in earlier if name.identity != sums.identity][-last:]
    return history


def _difference(history: History, job: Job, medians: dict[str, float]) -> JobDifference:
    """A job against all jobs of a history. `medians`: in ns, of its kinds of calls."""
    equal = tuple(history.jobs)
    measures = _measures(job.row, [other.row for other in equal])
    reason = ""
    if len(equal) < LEAST_JOBS:
        reason = f"it takes {LEAST_JOBS} equal jobs to show how much equal jobs differ"
    elif not measures:
        reason = "the job has no rounds, steps or waiting on record: record in mode trace"
    verdict = UNRESOLVED if reason else _verdict(measures)
    return JobDifference(job, equal, measures, _kinds(history, medians), verdict, reason)


def _chosen_job(directory: Path, label: str | None) -> Job:
    history = History(directory, last=1 if label is None else None)
    named = [job for job in history.jobs if label in (None, job.row.label, str(job.name))]
    if not named:
        last_labels = ", ".join(job.row.label for job in history.jobs[-5:]) or "none"
        raise UsageError(
            f"the history has no job {label or ''}".rstrip(), f"The last are: {last_labels}"
        )
    return named[-1]


def _measures(job: JobRow, equal: Sequence[JobRow]) -> tuple[MeasureChange, ...]:
    """The numbers of the job that it and equal ones have."""
    same_round = [row for row in equal if row.round_kind == job.round_kind]
    columns = (
        (STEP, job.step_ns, [row.step_ns for row in equal]),
        (ROUND, job.round_ns, [row.round_ns for row in same_round]),
        (MEAN_ROUND, job.mean_round_ns, [row.mean_round_ns for row in same_round]),
    )
    changes = [_ratio(name, value, others) for name, value, others in columns]
    changes.append(_waiting(_waiting_share(job), [_waiting_share(row) for row in equal]))
    return tuple(change for change in changes if change is not None)


def _waiting_share(row: JobRow) -> float | None:
    return None if row.waiting_ns is None else row.waiting_ns / max(row.ranks * row.span_ns, 1)


def _ratio(name: str, value: float | None, others: Sequence[float | None]) -> MeasureChange | None:
    known = tuple(other for other in others if other)
    if not value or not known:
        return None
    interval = difference([math.log(other) for other in known], [math.log(value)], 0.0, math.inf)
    verdict = _judge(interval, math.log1p(MATTERS), math.log1p(LEFT_OPEN), len(known))
    change, low, high = (
        math.exp(min(x, 700.0)) for x in (interval.value, interval.low, interval.high)
    )
    return MeasureChange(name, value, known, change, low, high, verdict)


def _waiting(value: float | None, others: Sequence[float | None]) -> MeasureChange | None:
    known = tuple(other for other in others if other is not None)
    if value is None or not known:
        return None
    interval = difference(known, [value], 0.0, math.inf)
    verdict = _judge(interval, MATTERS, LEFT_OPEN, len(known))
    numbers = interval.value, interval.low, interval.high
    return MeasureChange(WAITING, value, known, *numbers, verdict)


def _judge(change: Difference, matters: float, left_open: float, runs: int) -> str:
    if not knows_spread(runs, 1):
        return NOT_JUDGED
    if change.low > matters:
        return SLOWER
    if change.high < -matters:
        return FASTER
    is_close = abs(change.value) <= matters and max(-change.low, change.high) < left_open
    return SAME if is_close else UNRESOLVED


def _verdict(measures: Sequence[MeasureChange]) -> str:
    """The first measure that differs decides. The same is said only where all times are: the median
    round does not see long rounds now and then.
    """
    for measure in measures:
        if measure.verdict in (SLOWER, FASTER):
            return measure.verdict
    found = {measure.verdict for measure in _times(measures) or measures} - {NOT_JUDGED}
    return SAME if found == {SAME} else UNRESOLVED


def _times(measures: Sequence[MeasureChange]) -> list[MeasureChange]:
    """What was judged of steps and rounds."""
    return [m for m in measures if m.name != WAITING and m.verdict != NOT_JUDGED]


def _bounds_loss(measures: Sequence[MeasureChange]) -> bool:
    """Waiting alone bounds nothing."""
    times = _times(measures)
    most = max((m.change for m in times), default=math.inf)
    highest = max((m.high for m in times), default=math.inf)
    return most <= 1 + MATTERS and highest <= 1 + LEFT_OPEN


def _kinds(history: History, medians: dict[str, float]) -> tuple[MeasureChange, ...]:
    """Medians of the kinds of calls that are exact, what changed most first."""
    others: dict[str, list[float]] = {}
    for by_kind in _medians(history).values():
        for kind, median_ns in by_kind.items():
            others.setdefault(kind, []).append(median_ns)
    changes = [_ratio(kind, own, others.get(kind, [])) for kind, own in medians.items()]
    given = [change for change in changes if change is not None]
    order = {SLOWER: 0, FASTER: 1}
    return tuple(sorted(given, key=lambda c: (order.get(c.verdict, 2), -abs(math.log(c.change)))))


def _medians(history: History) -> dict[str, dict[str, float]]:
    """By job and kind of call the median in ns."""
    columns = ("role", "function", "size_bytes", "datatype", "median_ns")
    medians: dict[str, dict[str, float]] = {}
    rows = history.rows(COMMUNICATORS, columns, "exact and median_ns > 0")
    for name, role, function, size_bytes, datatype, median_ns in rows:
        kind = _in_words(role, function, size_bytes, datatype)
        medians.setdefault(name, {})[kind] = median_ns
    return medians


def _in_words(role: str, function: str, size_bytes: int, datatype: str) -> str:
    return f"{role} {function} {binary_size(max(size_bytes, 0))} {datatype}"
