"""Jobs against each other: is B slower than A, by how much and how surely, and what of it changed.

The job is judged first: how long a round takes, how much of it ranks wait, and the time on the
wire. Kinds of calls follow. Each judgement needs an interval that holds between runs: runs of one
job differ by more than calls within a run show (analysis/run_intervals.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.job_samples import JobSamples, Key, KindSamples, Rounds, rhythm_of
from ncclscope.analysis.measures import percentiles
from ncclscope.analysis.origin_changes import (
    WEIGHT,
    Accounts,
    OriginChange,
    job_account,
    origin_changes,
)
from ncclscope.analysis.run_intervals import (
    difference,
    half_width,
    half_width_of_ratio,
    knows_spread,
)
from ncclscope.analysis.waiting.account import AccountOf, waiting_account
from ncclscope.analysis.waiting.windows import MOST_AT_ONCE
from ncclscope.arrays.types import Floats
from ncclscope.diagnose.comparable import simulated, why_not_comparable
from ncclscope.diagnose.comparison_verdict import (
    FASTER,
    MEAN_ROUND,
    NOT_COMPARABLE,
    NOT_JUDGED,
    ROUND,
    RUN,
    SAME,
    SLOWER,
    UNRESOLVED,
    WAITING,
    WIRE,
    Measure,
    bounds_loss,
    judged,
    judged_by_record,
    verdict_of,
    why_unresolved,
)
from ncclscope.model.model import Model
from ncclscope.threads import Threads

LEAST = 8  # calls of a kind on each side
# What equal runs differ by where too few runs show it. Six equal jobs on an H200: rounds 4 %,
# waiting 8 % of a round, all kinds together 7 %, single kinds 42 %.
_ALLOWANCES = {ROUND: 0.10, MEAN_ROUND: 0.25, WAITING: 0.15, WIRE: 0.15}
_KIND_ALLOWANCE = 0.50
_ALIKE = 0.01  # runs with as many calls, but for some that were dropped, had the same work
_AT_ONCE = 2  # runs of which samples, or accounts of waiting, are made
Halves = dict[Key, list[float]]  # half-widths of medians by kind, of each run


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one kind of call in one or several runs, in ns."""

    calls: int
    total: float
    median: float
    p99: float
    shortest: float
    longest: float
    wait: float  # median of what the longest rank took beyond the shortest


@dataclass(frozen=True, slots=True)
class Change:
    """One kind of call in both jobs."""

    key: Key
    a: Spread
    b: Spread
    ratio: float  # of medians, b / a
    low: float  # its interval
    high: float
    verdict: str
    weight: float  # share of the time of all calls, the larger of both


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything."""

    measures: tuple[Measure, ...]  # of the job; what decides first
    origins: tuple[OriginChange, ...]  # of waiting; what changed most first
    changes: tuple[Change, ...]  # of kinds; what changed most first
    appeared: tuple[tuple[Key, int], ...]  # with calls
    vanished: tuple[tuple[Key, int], ...]
    verdict: str
    reason: str  # why nothing could be judged, or nothing told of the whole; else ""
    bounds_loss: bool  # whether B takes no more than what does not matter beyond A
    ratio: float | None  # of the time on the wire of what both have
    rhythm: Key | None  # whose calls mark the rounds
    runs: tuple[int, int]
    span_ns: tuple[tuple[int, ...], tuple[int, ...]]  # by run, start-up included
    incomplete: tuple[str, str]  # what is missing of each
    timed: tuple[int, int] = (0, 0)  # calls with a time, of each
    simulated: tuple[bool, bool] = (False, False)

    @property
    def knows_spread(self) -> bool:
        """Whether there are enough runs to show how much equal runs differ."""
        return knows_spread(*self.runs)


def compare(
    a: Sequence[Model], b: Sequence[Model], account_of: AccountOf = waiting_account
) -> Comparison:
    """Runs of job b against runs of job a, at least one of each. `account_of`: makes the account of
    waiting, or has it already.
    """
    first, second = [JobSamples(model) for model in a], [JobSamples(model) for model in b]
    jobs = first + second
    longest = max(len(job.run.operations["event"]) for job in jobs)
    # Outside of the interpreter mostly. Windows of a long run have threads, and memory, of their
    # own: one run after the other.
    with Threads(1 if longest > MOST_AT_ONCE else _AT_ONCE) as threads:
        for kinds in [threads.submit(lambda job: job.kinds, job) for job in jobs]:
            kinds.result()
        rhythm = rhythm_of(jobs)
        # Only those of rounds are shown.
        accounts = [threads.submit(job_account, job, account_of) for job in jobs] if rhythm else []
        return _compare(a, b, first, second, rhythm, accounts)


def _compare(
    a: Sequence[Model],
    b: Sequence[Model],
    first: list[JobSamples],
    second: list[JobSamples],
    rhythm: Key | None,
    accounts: Accounts,
) -> Comparison:
    jobs = first + second
    measures = _rounds(first, second, rhythm) if rhythm else []
    halves = _halves(jobs)
    changes = _changes(first, second, halves)
    wire = _wire(first, second, changes, halves)
    measures += [wire] if wire else []
    why_not = why_not_comparable(a, b)
    reason = why_not or _why_not_compared(first, second, measures)
    verdict = verdict_of(measures)
    is_bounded = bounds_loss(measures) and not reason
    if not reason and verdict == UNRESOLVED:
        reason = why_unresolved(measures, knows_spread(len(a), len(b)))
    elif reason:
        verdict = NOT_COMPARABLE if why_not else UNRESOLVED
        measures = [replace(measure, verdict=NOT_JUDGED) for measure in measures]
        changes = [replace(change, verdict=NOT_JUDGED) for change in changes]
    single = all(job.kinds for job in jobs)
    kinds = [_calls(side, single) for side in (first, second)]
    return Comparison(
        measures=tuple(measures),
        origins=origin_changes(first, second, rhythm, accounts) if rhythm else (),
        changes=tuple(changes),
        appeared=tuple((key, kinds[1][key]) for key in kinds[1] if key not in kinds[0]),
        vanished=tuple((key, kinds[0][key]) for key in kinds[0] if key not in kinds[1]),
        verdict=verdict,
        reason=reason,
        bounds_loss=is_bounded,
        ratio=wire.change if wire else None,
        rhythm=rhythm,
        runs=(len(first), len(second)),
        span_ns=(tuple(j.span_ns for j in first), tuple(j.span_ns for j in second)),
        incomplete=(_missing(a), _missing(b)),
        timed=(_timed(first), _timed(second)),
        simulated=(simulated(a), simulated(b)),
    )


def _missing(models: Sequence[Model]) -> str:
    return "; ".join(text for model in models for text in model.completeness.missing())


def _timed(jobs: list[JobSamples]) -> int:
    return sum(samples.calls for job in jobs for samples in job.kinds.values())


def _calls(jobs: list[JobSamples], single: bool = True) -> dict[Key, int]:
    """Calls by kind in the first run that has the kind; without `single`, by the counters of all
    ranks, which every mode has.
    """
    calls: dict[Key, int] = {}
    for job in jobs:
        timed = {key: samples.calls for key, samples in job.kinds.items()}
        calls = (timed if single else job.counted) | calls
    return calls


# ---- whether anything can be compared ----
def _why_not_compared(
    first: list[JobSamples], second: list[JobSamples], measures: list[Measure]
) -> str:
    """Why nothing of the job could be judged; "" where something was."""
    if measures:
        return ""
    untimed = [name for name, jobs in (("A", first), ("B", second)) if not _timed(jobs)]
    if untimed:
        has = "has" if len(untimed) == 1 else "have"
        return f"{' and '.join(untimed)} {has} no times of single calls: record in mode trace"
    if not any(key in job.kinds for key in _calls(first) for job in second):
        return "A and B have no call in common (communicator, function, bytes, datatype)"
    return f"too few calls, or no exact times: it takes {LEAST} of a kind on each side"


# ---- the job ----
def _rounds(first: list[JobSamples], second: list[JobSamples], rhythm: Key) -> list[Measure]:
    """How long rounds take, and how much of them ranks wait."""
    sides = [[job.rounds(rhythm) for job in jobs] for jobs in (first, second)]
    usual = [[float(np.median(r.block_ns)) for r in side] for side in sides]
    mean = [[r.mean_ns for r in side] for side in sides]
    waits = [[float(np.median(r.wait_ns)) for r in side] for side in sides]
    runs = [r for side in sides for r in side]
    within = _within([np.log(np.maximum(r.block_ns, 1.0)) for r in runs])
    round_ns = float(np.exp(np.mean(np.log(np.maximum(usual[0] + usual[1], 1.0)))))
    shares = [[wait / round_ns for wait in side] for side in waits]
    return [
        _ratio(ROUND, usual[0], usual[1], within),
        _ratio(MEAN_ROUND, mean[0], mean[1], within),
        _run(first, second, sides),
        _waiting(waits, shares, runs, round_ns),
    ]


def _run(first: list[JobSamples], second: list[JobSamples], rounds: list[list[Rounds]]) -> Measure:
    """The time of the run after its start-up, by round. With too few runs the interval is what
    their own parts show: nothing is claimed by it, so that it needs no allowance.
    """
    jobs = first + second
    calls = [job.parts.calls for job in jobs]
    are_alike = max(calls) <= (1 + _ALIKE) * min(calls)
    sides = [
        [
            float(job.parts.ns.sum()) / r.settled if are_alike else r.to_end_ns
            for job, r in zip(side, of_side, strict=True)
        ]
        for side, of_side in zip((first, second), rounds, strict=True)
    ]
    parts = [
        [
            job.parts.ns if are_alike else r.settled_block_ns
            for job, r in zip(side, own, strict=True)
        ]
        for side, own in zip((first, second), rounds, strict=True)
    ]
    within = max(half_width_of_ratio(a, b, are_alike) for a in parts[0] for b in parts[1])
    logs = [np.log(np.maximum(side, 1.0)).tolist() for side in sides]
    change = difference(logs[0], logs[1], within, 0.0)
    known = knows_spread(len(first), len(second))
    verdict = judged(change, known) if known else judged_by_record(change)
    low, value, high = np.exp([change.low, change.value, change.high]).tolist()
    return Measure(RUN, tuple(sides[0]), tuple(sides[1]), value, low, high, verdict)


def _waiting(
    waits: list[list[float]], shares: list[list[float]], runs: list[Rounds], round_ns: float
) -> Measure:
    within = _within([r.wait_ns / round_ns for r in runs])
    known = knows_spread(len(waits[0]), len(waits[1]))
    change = difference(shares[0], shares[1], within, _ALLOWANCES[WAITING])
    a, b = tuple(waits[0]), tuple(waits[1])
    verdict = judged(change, known)
    return Measure(WAITING, a, b, change.value, change.low, change.high, verdict)


def _within(values: list[Floats]) -> float:
    """What single runs leave open, together."""
    return _together([half_width(v) for v in values])


def _together(halves: list[float]) -> float:
    return float(np.sqrt(np.mean([half**2 for half in halves]) * 2))


def _halves(jobs: list[JobSamples]) -> Halves:
    """What single runs leave open of the kinds that all have."""
    common = [key for key in jobs[0].kinds if all(key in job.kinds for job in jobs[1:])]
    return {
        key: [half_width(np.log(job.kinds[key].times_ns)) for job in jobs]
        for key in common
        if min(len(job.kinds[key].times_ns) for job in jobs) >= LEAST
    }


def _ratio(name: str, a: list[float], b: list[float], within: float) -> Measure:
    logs = [np.log(np.maximum(side, 1.0)).tolist() for side in (a, b)]
    change = difference(logs[0], logs[1], within, float(np.log1p(_ALLOWANCES[name])))
    verdict = judged(change, knows_spread(len(a), len(b)))
    low, value, high = np.exp([change.low, change.value, change.high]).tolist()
    return Measure(name, tuple(a), tuple(b), value, low, high, verdict)


# ---- the wire ----
def _spread(runs: list[KindSamples]) -> Spread:
    times = np.concatenate([samples.times_ns for samples in runs])
    median, p99 = percentiles(times)
    waits = np.concatenate([samples.waits_ns for samples in runs])
    calls = sum(samples.calls for samples in runs)
    return Spread(
        calls=calls,
        total=float(times.mean()) * calls,
        median=median,
        p99=p99,
        shortest=float(times.min()),
        longest=float(times.max()),
        wait=percentiles(waits)[0],
    )


def _changes(first: list[JobSamples], second: list[JobSamples], halves: Halves) -> list[Change]:
    """Kinds that all runs have, what changed most first."""
    jobs = first + second
    both = [key for key in jobs[0].kinds if all(key in job.kinds for job in jobs[1:])]
    sides = [[[job.kinds[key] for job in side] for key in both] for side in (first, second)]
    spreads = [[_spread(runs) for runs in side] for side in sides]
    whole = [max(sum(spread.total for spread in side), 1.0) for side in spreads]
    changes = []
    for key, a, b, of_a, of_b in zip(both, *sides, *spreads, strict=True):
        weight = max(of_a.total / whole[0], of_b.total / whole[1])
        changes.append(_change(key, a, b, of_a, of_b, weight, halves.get(key)))
    order = {SLOWER: 0, FASTER: 1, UNRESOLVED: 2, SAME: 3, NOT_JUDGED: 4}
    changes.sort(key=lambda c: (order[c.verdict], -c.weight * abs(np.log(max(c.ratio, 1e-9)))))
    return changes


def _change(
    key: Key,
    a: list[KindSamples],
    b: list[KindSamples],
    of_a: Spread,
    of_b: Spread,
    weight: float,
    halves: list[float] | None,
) -> Change:
    """`halves`: what each run leaves open; None where one has too few calls."""
    medians = [[float(np.log(percentiles(s.times_ns)[0])) for s in side] for side in (a, b)]
    ratio = float(np.exp(np.mean(medians[1]) - np.mean(medians[0])))
    runs = a + b
    if halves is None:
        return Change(key, of_a, of_b, ratio, 0.0, np.inf, UNRESOLVED, weight)
    within, allowance = _together(halves), float(np.log1p(_KIND_ALLOWANCE))
    change = difference(medians[0], medians[1], within, allowance)
    verdict = judged(change, knows_spread(len(a), len(b)))
    if not all(samples.exact for samples in runs):
        verdict = NOT_JUDGED
    low, high = float(np.exp(change.low)), float(np.exp(change.high))
    return Change(key, of_a, of_b, ratio, low, high, verdict, weight)


def _wire(
    first: list[JobSamples], second: list[JobSamples], changes: list[Change], halves_of: Halves
) -> Measure | None:
    """Time on the wire of the kinds that all runs have, at their mean numbers of calls."""
    judged = [c for c in changes if c.verdict != NOT_JUDGED and np.isfinite(c.high)]
    if not judged:
        return None
    jobs = first + second
    calls = {c.key: sum(j.kinds[c.key].calls for j in jobs) / len(jobs) for c in judged}

    def total(job: JobSamples) -> float:
        return sum(n * float(np.median(job.kinds[key].times_ns)) for key, n in calls.items())

    sums = [[total(job) for job in side] for side in (first, second)]
    weights = np.array([change.weight for change in judged])
    runs = [halves_of[change.key] for change in judged]
    halves = np.sqrt(np.mean(np.square(runs), axis=1) * 2)
    within = float(np.sqrt(np.sum((weights / weights.sum() * halves) ** 2)))
    measure = _ratio(WIRE, sums[0], sums[1], within)
    changed = abs(float(np.mean(sums[1]) - np.mean(sums[0])))
    span_ns = float(np.mean([job.span_ns for job in jobs]))
    if measure.verdict in (SLOWER, FASTER) and changed < WEIGHT * span_ns:
        return replace(measure, verdict=UNRESOLVED)
    return measure
