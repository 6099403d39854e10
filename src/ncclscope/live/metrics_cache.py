"""Reads all jobs and keeps the texts that clients of `ncclscope serve` get.

The texts are ready before a client asks, so that requests cost next to nothing.
"""

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncclscope.live.exposition import OPENMETRICS, TEXT, exposition
from ncclscope.live.inspector_metrics import Window, add_inspector_metrics
from ncclscope.live.job_follower import FollowedJob, JobFollower
from ncclscope.live.job_metrics import PreviousReading, job_samples
from ncclscope.live.metrics import BY_NAME, OWN_METRICS, Metric
from ncclscope.live.series import Labels, Samples, SeriesLimit, Value, with_run
from ncclscope.live.system_metrics import SystemMetrics
from ncclscope.live.waiting_accounts import WaitingAccounts
from ncclscope.report.status import as_json

_STALE_S = 15.0  # without a reading for this long, `serve` is not healthy
_STALE_READINGS = 3  # the same in intervals, where they are long
Series = list[tuple[Metric, Labels, Value]]
JobKey = tuple[Path, str]  # capture and host


@dataclass(slots=True)
class MetricsCache:
    """All series at the last reading, and their texts."""

    follower: JobFollower
    series_limit: int
    inspector_names: bool = False
    system_metrics: SystemMetrics | None = None
    interval_s: float = 1.0  # between readings
    previous: dict[JobKey, PreviousReading] = field(default_factory=dict)
    limits: dict[JobKey, SeriesLimit] = field(default_factory=dict)
    windows: dict[JobKey, Window] = field(default_factory=dict)
    run_names: dict[Path, str] = field(default_factory=dict)  # by capture: the label `run`
    by_run: dict[str, Series] = field(default_factory=dict)
    accounts: WaitingAccounts | None = None  # None: nobody asks for them
    of_hosts: Series = field(default_factory=list)  # system counters
    statuses: dict[str, Any] = field(default_factory=dict)  # by run
    series: Series = field(default_factory=list)  # all of them
    texts: dict[str, bytes] = field(default_factory=dict)  # by content type
    read_at: float = 0.0  # time.monotonic
    failure: str = ""  # why the last reading failed

    def read_again(self) -> None:
        """Reads all jobs; says so in a line where that fails, and where it works again. Memory or
        files may run short for a while, and a server goes on.
        """
        last_failure, self.failure = self.failure, ""
        try:
            self.read()
        except OSError as error:
            self.failure = error.strerror or str(error)
        except MemoryError:
            self.failure = "not enough memory"
        if self.failure != last_failure:
            now = f"reading fails: {self.failure}. It goes on trying"
            with suppress(OSError, ValueError):  # stderr may be gone
                message = now if self.failure else "reading works again"
                print(f"ncclscope: {message}", file=sys.stderr, flush=True)

    def read(self) -> None:
        """Reads all jobs, and renders the texts."""
        began = time.monotonic()
        self.follower.read()
        self._drop_state_of_finished_jobs()
        if self.accounts:
            self.accounts.look(self.follower.jobs.values(), began)
        self._read_jobs()
        if self.system_metrics:
            captures = (capture for capture, _ in self.follower.jobs)
            self.of_hosts = list(self.system_metrics.read(captures).in_order())
        self.read_at = time.monotonic()
        series = sort_series([entry for run in self.by_run.values() for entry in run])
        series += self.of_hosts
        series += self._own(self.read_at - began)
        self.series = series
        self.texts = {
            TEXT: exposition(series).encode(),
            OPENMETRICS: exposition(series, openmetrics=True).encode(),
        }

    def _drop_state_of_finished_jobs(self) -> None:
        states: tuple[dict[JobKey, Any], ...] = (self.previous, self.limits, self.windows)
        for state in states:
            for key in set(state) - set(self.follower.jobs):
                del state[key]

    def _read_jobs(self) -> None:
        by_run: dict[str, Series] = {}
        statuses = {}
        jobs = self.follower.jobs
        self.run_names = name_runs(self.run_names, jobs.values())
        for key, job in jobs.items():
            samples = job_samples(job, self.previous.setdefault(key, PreviousReading()))
            if self.inspector_names:
                add_inspector_metrics(samples, job, self.windows.setdefault(key, Window()))
            limit = self.limits.setdefault(key, SeriesLimit(self.series_limit))
            run = self.run_names[job.capture]
            by_run.setdefault(run, []).extend(
                (metric, with_run(labels, run, job.host), value)
                for metric, labels, value in limit.fold(samples).in_order()
            )
            if job.status:
                statuses[run] = as_json(job.status, os.path.abspath(job.capture))
        self.by_run, self.statuses = by_run, statuses

    def _own(self, seconds: float) -> Series:
        """Metrics about `serve` itself."""
        times = os.times()
        samples = Samples()
        samples.add("runs", (), float(len(self.follower.jobs)))
        samples.add("reading_seconds", (), seconds)
        samples.add("serve_cpu_seconds", (), times.user + times.system)
        unreadable = sum(job.unreadable for job in self.follower.jobs.values())
        samples.add("unreadable_processes", (), float(unreadable))
        samples.add("unreadable_captures", (), float(len(self.follower.unreadable)))
        return [(metric, (), samples.values[metric.name][()]) for metric in OWN_METRICS]

    @property
    def healthy(self) -> bool:
        """Whether the last reading is recent."""
        stale_s = max(_STALE_S, _STALE_READINGS * self.interval_s)
        return time.monotonic() - self.read_at < stale_s


def name_runs(previous: dict[Path, str], jobs: Iterable[FollowedJob]) -> dict[Path, str]:
    """Names of runs by capture, the label `run`.

    Two captures can have the same name, as those of a requeued job do: the later one is named by
    its path. A run keeps its name while it is followed, because new labels would be new series.
    """
    present = {job.capture: job.run for job in jobs}
    names = {capture: name for capture, name in previous.items() if capture in present}
    for capture, name in present.items():
        taken = set(names.values())
        names.setdefault(capture, name if name not in taken else os.path.abspath(capture))
    return names


def sort_series(series: Series) -> Series:
    """Series sorted by metric, in the order of `METRICS`."""
    place = {name: number for number, name in enumerate(BY_NAME)}
    return sorted(series, key=lambda entry: place[entry[0].name])
