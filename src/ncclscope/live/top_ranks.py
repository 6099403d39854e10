"""Ranks over all their communicators: how much each waits, and how much others wait for it.

A late rank makes its neighbours late in their other communicators. Whoever waits somewhere as long
as others wait for it passes that on; only the rest is its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ncclscope.live.top_model import Rates, TopCommunicator, TopData, TopRank


@dataclass(frozen=True, slots=True)
class TopRankTotal:
    """The row of one rank."""

    run: str
    capture: Path
    rank: int  # global
    host: str
    gpu: str
    pid: int
    life: str
    rates: Rates  # of all its communicators
    waits: float  # share of its time in which it waits for others
    blamed: float  # share of their time in which others wait for it, less what it passes on
    communicator: str  # in which they wait most
    open: int  # operations in flight
    oldest_ns: int
    dropped: int
    folder: Path


def rank_totals(data: TopData) -> tuple[TopRankTotal, ...]:
    """All ranks of all jobs, in the order of jobs and ranks."""
    totals: list[TopRankTotal] = []
    for job in data.jobs:
        own = [row for row in data.communicators if row.key.startswith(f"{job.capture}\0")]
        by_rank: dict[int, list[TopRank]] = {}
        for communicator in own:
            for row in communicator.rows:
                by_rank.setdefault(row.rank, []).append(row)
        blamed = _blamed(own, by_rank)
        totals += [
            _total(job.run, job.capture, rows, *blamed.get(rank, (0.0, "")))
            for rank, rows in sorted(by_rank.items())
        ]
    return tuple(totals)


def _total(
    run: str, capture: Path, rows: list[TopRank], blamed: float, communicator: str
) -> TopRankTotal:
    first, rates = rows[0], Rates()
    for row in rows:
        rates = Rates(max(rates.seconds, row.rates.seconds), rates.sums.plus(row.rates.sums))
    return TopRankTotal(
        run=run,
        capture=capture,
        rank=first.rank,
        host=first.host,
        gpu=first.gpu,
        pid=first.pid,
        life=first.life,
        rates=rates,
        waits=_waits(rows),
        blamed=blamed,
        communicator=communicator,
        open=sum(len(row.in_flight) for row in rows),
        oldest_ns=max(row.oldest_ns for row in rows),
        dropped=first.dropped,
        folder=first.folder,
    )


def _waits(rows: Iterable[TopRank]) -> float:
    return sum(row.excess or 0.0 for row in rows)


def _blamed(
    communicators: Iterable[TopCommunicator], by_rank: dict[int, list[TopRank]]
) -> dict[int, tuple[float, str]]:
    """By late rank the share of time that others wait for it, and in which communicator."""
    blamed: dict[int, tuple[float, str]] = {}
    for communicator in communicators:
        if communicator.late is None:
            continue
        excess = [row.excess for row in communicator.rows if row.excess is not None]
        lateness = sum(excess) / max(len(excess) - 1, 1)
        own = lateness - _waits(by_rank.get(communicator.late, []))
        if own > blamed.get(communicator.late, (0.0, ""))[0]:
            blamed[communicator.late] = (own, communicator.name)
    return blamed
