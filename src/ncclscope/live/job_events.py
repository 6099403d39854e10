"""What hooks are called for: a job begins to hang, or one of its ranks makes the others wait.

Each is reported once when it begins, again only after it was over, and at most once in `pause_s`
for one job and kind. A straggler must have been late in every reading for `straggler_s`.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncclscope.json_answers import VERSION
from ncclscope.live.job_follower import FollowedJob
from ncclscope.live.top_model import LATE_SHARE, RateHistory, TopData, top_data
from ncclscope.live.top_ranks import rank_totals
from ncclscope.report.status import line

HANG, STRAGGLER = "hang", "straggler"
KINDS = (HANG, STRAGGLER)
JobKind = tuple[Path, str]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """What a hook gets."""

    kind: str
    run: str
    capture: str
    communicator: str
    ranks: tuple[int, ...]  # to blame; none where that cannot be told
    hosts: tuple[str, ...]  # of these ranks
    sentence: str
    simulation: bool = False

    def as_json(self) -> dict[str, Any]:
        """The object that commands read on stdin and webhooks get; `text` is what chats show."""
        return {
            "version": VERSION,
            "event": self.kind,
            "run": self.run,
            "capture": self.capture,
            "communicator": self.communicator or None,
            "ranks": list(self.ranks),
            "hosts": list(self.hosts),
            "sentence": self.sentence,
            "simulation": self.simulation,
            "at_unix_s": round(time.time(), 3),
            "text": f"ncclscope: {self.kind} in {self.run}: {self.sentence}",
        }


@dataclass(slots=True)
class EventFinder:
    """Finds the events in one reading after the other."""

    kinds: tuple[str, ...] = KINDS
    straggler_s: float = 30.0
    pause_s: float = 600.0
    history: RateHistory = field(default_factory=RateHistory)
    under_way: dict[JobKind, float] = field(default_factory=dict)  # since when; time.monotonic
    reported: dict[JobKind, float] = field(default_factory=dict)  # when last
    silent: set[JobKind] = field(default_factory=set)  # under way and reported

    def find(self, jobs: Sequence[FollowedJob], now: float) -> list[JobEvent]:
        """Events that are to be reported now; `now` is time.monotonic."""
        current = {(Path(event.capture), event.kind): event for event in self._current(jobs)}
        for key in set(self.under_way) - set(current):
            del self.under_way[key]
            self.silent.discard(key)
        due = []
        for key, event in current.items():
            since = self.under_way.setdefault(key, now)
            patience_s = self.straggler_s if event.kind == STRAGGLER else 0.0
            recently = key in self.reported and now - self.reported[key] < self.pause_s
            if key not in self.silent and now - since >= patience_s and not recently:
                self.silent.add(key)
                self.reported[key] = now
                due.append(event)
        return due

    def _current(self, jobs: Sequence[FollowedJob]) -> Iterator[JobEvent]:
        if HANG in self.kinds:
            yield from _hangs(jobs)
        if STRAGGLER in self.kinds:
            accounted = {job.capture: job for job in jobs if job.waiting and job.waiting.is_made}
            yield from _accounted_stragglers(accounted.values(), jobs)
            rest = [job for job in jobs if job.capture not in accounted]
            yield from _stragglers(top_data(rest, self.history))


def _hangs(jobs: Sequence[FollowedJob]) -> Iterator[JobEvent]:
    """The hang of each capture: its first cause."""
    for job in {job.capture: job for job in jobs}.values():
        status = job.status
        if status is None or not status.hung or status.post_mortem:
            continue
        hung = [verdict for verdict in status.verdicts if verdict.hung]
        verdict = next((verdict for verdict in hung if not verdict.because_of), hung[0])
        blamed = [row for row in verdict.activities if row.rank in verdict.culprits]
        yield JobEvent(
            HANG,
            job.run,
            os.path.abspath(job.capture),
            verdict.name,
            verdict.culprits,
            tuple(dict.fromkeys(row.host for row in blamed)),
            line(verdict, status.post_mortem),
            status.simulated,
        )


def _accounted_stragglers(
    captures: Iterable[FollowedJob], jobs: Sequence[FollowedJob]
) -> Iterator[JobEvent]:
    """The rank of each capture that the account of waiting blames."""
    for job in captures:
        late = job.waiting.late_rank(LATE_SHARE) if job.waiting else None
        if late is None:
            continue
        rank, share = late
        hosts = tuple(
            own.host for own in jobs if own.capture == job.capture and rank in own.running_ranks
        )
        yield JobEvent(
            STRAGGLER,
            job.run,
            os.path.abspath(job.capture),
            "",
            (rank,),
            hosts,
            f"rank {rank} ({', '.join(hosts)}) makes the others wait: they spend "
            f"{100 * share:.0f} % of their time waiting for it",
            bool(job.status and job.status.simulated),
        )


def _stragglers(data: TopData) -> Iterator[JobEvent]:
    """The worst late rank of each job."""
    totals = rank_totals(data)
    for job in data.jobs:
        own = [row for row in totals if row.capture == job.capture]
        worst = max(own, key=lambda row: row.blamed, default=None)
        if worst is None or worst.blamed <= LATE_SHARE:
            continue
        yield JobEvent(
            STRAGGLER,
            job.run,
            os.path.abspath(job.capture),
            worst.communicator,
            (worst.rank,),
            (worst.host,),
            f"rank {worst.rank} ({worst.host}) makes {worst.communicator} wait: the others spend "
            f"{100 * worst.blamed:.0f} % of their time waiting for it",
            job.simulation,
        )
