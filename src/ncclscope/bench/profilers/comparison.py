"""The comparison's tables, computed from trials: coverage, reported times, cost, and loss.

Coverage counts a profiler's records against the calls that the benchmark made. A call may be
recorded in several forms, because NCCL itself makes sends and receives of some calls:

    AlltoAll of 4 KiB on 2 ranks  ->  1 AlltoAll of 4 KiB, or 2 sends and 2 receives of 2 KiB each
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.bench.profilers.cost import CostRow, cost_rows
from ncclscope.bench.profilers.intervals import ResampledValue, Times, median_ratio
from ncclscope.bench.profilers.profiler_table import Profiler
from ncclscope.bench.profilers.recording import Records
from ncclscope.bench.profilers.trials import KILL, TIMES, ProfilerTrial, TrialCase

Form = tuple[tuple[str, int, int], ...]  # function, bytes and number of a call's records
Pool = Counter[tuple[str, int]]  # records by function and bytes
_QUANTILES = (5, 50, 95)
SOURCE_REMARKS = {  # what times of these sources are
    "gpu-early": "a lower bound: NCCL's stop stamp comes before the end",
    "host": "the host's times",
    "proxy": "network transfers' times",
    "enqueue": "until the call was queued",
}


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """Calls of one operation and size on one rank, of all runs together."""

    profiler: str
    operation: str
    size_bytes: int
    rank: int
    made: int
    recorded: float  # of a call that is several records, a part may be there

    @property
    def share(self) -> float:
        """The share of calls on record."""
        return self.recorded / self.made if self.made else 0.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of times of single calls, in ns."""

    p5_ns: float
    median_ns: float
    p95_ns: float


@dataclass(frozen=True, slots=True)
class TimesRow:
    """Times that a profiler reports, beside the benchmark's own of the same run."""

    profiler: str
    operation: str
    size_bytes: int
    calls: int  # that are compared
    own: Quantiles | None
    reported: Quantiles | None  # None: no times, or a mean alone
    ratio: ResampledValue | None  # reported / own
    source: str
    remark: str


@dataclass(frozen=True, slots=True)
class LossRow:
    """What a profiler leaves on disk, and what a SIGKILL takes."""

    profiler: str
    records: bool  # whether it is meant to record calls
    bytes_per_call: float | None  # None: no run to its end
    files: int
    killed_made: int
    killed_recorded: float
    failed: int  # runs that a rank's death ended
    runs: int
    failures: tuple[str, ...]  # each different one once
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProfilerComparison:
    """All tables."""

    profilers: tuple[Profiler, ...]
    coverage: tuple[CoverageRow, ...]
    times: tuple[TimesRow, ...]
    cost: tuple[CostRow, ...]
    loss: tuple[LossRow, ...]

    def coverage_of(self, profiler: str, operation: str = "") -> tuple[int, float]:
        """Calls made and recorded, of one operation or all."""
        rows = [
            row
            for row in self.coverage
            if row.profiler == profiler and operation in ("", row.operation)
        ]
        return sum(row.made for row in rows), sum(row.recorded for row in rows)


def forms_of(case: TrialCase) -> tuple[Form, ...]:
    """The forms in which a call can be on record, the best first."""
    size, ranks = case.size_bytes, case.ranks
    if case.function == "SendRecv":
        return ((("Send", size, 1), ("Recv", size, 1)),)
    whole: Form = ((case.function, size, 1),)
    if case.function == "AlltoAll":
        return (whole, (("Send", size // ranks, ranks), ("Recv", size // ranks, ranks)))
    return (whole,)


def recorded_calls(trial: ProfilerTrial) -> Iterator[tuple[TrialCase, int, float]]:
    """By case and rank, the number of calls on record. No record counts for two cases."""
    for rank in range(max((case.ranks for case in trial.cases), default=0)):
        pool: Pool = Counter()
        for records in trial.records:
            if records.rank == rank:
                pool[records.function, records.size_bytes] += records.count
        taken = [_take(case, pool) for case in trial.cases]
        for case, recorded in zip(trial.cases, taken, strict=True):
            missing = case.made - recorded
            if missing > 0:
                recorded += _take_other_sizes(case, missing, pool, trial.cases)
            yield case, rank, recorded


def _take(case: TrialCase, pool: Pool) -> float:
    """Takes the records of a case out of the pool, in the form that has most."""

    def available(form: Form) -> float:
        there = sum(min(pool[name, size], case.made * per) for name, size, per in form)
        return there / sum(per for _, _, per in form)

    best = max(forms_of(case), key=available)
    recorded = available(best)
    for name, size, per in best:
        pool[name, size] -= min(pool[name, size], case.made * per)
    return recorded


def _take_other_sizes(
    case: TrialCase, missing: float, pool: Pool, cases: Sequence[TrialCase]
) -> float:
    """Takes records with sizes that no case has: some profilers know ranges of sizes only."""
    sizes = {size for other in cases for form in forms_of(other) for _, size, _ in form}
    taken = 0.0
    for (function, size), count in list(pool.items()):
        if function == case.function and size not in sizes and taken < missing:
            number = min(float(count), missing - taken)
            pool[function, size] -= int(number)
            taken += number
    return taken


def coverage_rows(trials: Sequence[ProfilerTrial]) -> list[CoverageRow]:
    """Calls made and recorded, in runs that came to their end."""
    made: Counter[tuple[str, str, int, int]] = Counter()
    recorded: dict[tuple[str, str, int, int], float] = {}
    for trial in trials:
        if trial.failure or trial.kind == KILL:
            continue
        for case, rank, number in recorded_calls(trial):
            key = trial.profiler, case.operation, case.size_bytes, rank
            made[key] += case.made
            recorded[key] = recorded.get(key, 0.0) + number
    return [CoverageRow(*key, number, recorded[key]) for key, number in made.items()]


# ---- times ----
def _positions(trial: ProfilerTrial, case: TrialCase, records: Records) -> list[int] | None:
    """The place of each record among the calls of its case; None where it cannot be told."""
    if records.sequences:
        before = 0
        for other in trial.cases:
            if other is case:
                break
            before += other.made if other.function == case.function else 0
        return [number - before for number in records.sequences]
    return list(range(records.count)) if records.count == case.made else None


def _compared_calls(
    trial: ProfilerTrial, case: TrialCase, records: Records
) -> tuple[Times, Times, bool]:
    """Reported and own times of one rank's timed calls, and whether they are pairs."""
    own = np.asarray(case.by_rank[records.rank].gpu_ns, np.float64)
    reported = np.asarray(records.durations_ns, np.float64)
    countable = case.grouped == 1 and not records.sampled
    positions = _positions(trial, case, records) if countable else None
    if positions is None:
        return reported[reported >= 0], own, False
    timed = [
        (place, number - case.warm_up)
        for place, number in enumerate(positions)
        if 0 <= number - case.warm_up < len(own) and reported[place] >= 0
    ]
    places, calls = [place for place, _ in timed], [call for _, call in timed]
    return reported[places], own[calls], True


def times_rows(trials: Sequence[ProfilerTrial]) -> list[TimesRow]:
    """Reported times beside the benchmark's own, case by case."""
    rows = []
    for trial in trials:
        if trial.kind == TIMES and not trial.failure and trial.records:
            rows += [_times_row(trial, case) for case in trial.cases]
    return rows


def own_times(case: TrialCase) -> Times:
    """The benchmark's own times of all ranks."""
    return np.concatenate([np.asarray(rank.gpu_ns, np.float64) for rank in case.by_rank])


def _records_of(trial: ProfilerTrial, case: TrialCase) -> list[Records]:
    """The records whose times are those of a case's calls."""
    function, size, _ = forms_of(case)[0][0]
    return [
        records
        for records in trial.records
        if (records.function, records.size_bytes) == (function, size)
        and 0 <= records.rank < case.ranks
    ]


def compared_calls_of(trial: ProfilerTrial, case: TrialCase) -> tuple[Times, Times, bool] | None:
    """Reported and own times of all ranks, and whether they are pairs; None: no times reported."""
    parts = [
        _compared_calls(trial, case, records)
        for records in _records_of(trial, case)
        if records.durations_ns
    ]
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return None
    reported, own = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return reported, own, all(part[2] for part in parts)


def _times_row(trial: ProfilerTrial, case: TrialCase) -> TimesRow:
    same = _records_of(trial, case)
    source = Counter(records.source for records in same).most_common(1)[0][0] if same else ""
    compared = compared_calls_of(trial, case)
    if compared is None:
        own = own_times(case)
        remark = _why_no_times(trial, case, same)
        return TimesRow(
            trial.profiler, case.operation, case.size_bytes, 0,
            _quantiles(own) if len(own) else None, None, None, source, remark,
        )  # fmt: skip
    reported, own, pairs = compared
    remark = SOURCE_REMARKS.get(source, "")
    if not remark and not pairs:
        sampled = any(records.sampled for records in same)
        remark = "a sample, in buckets of 12 %" if sampled else "cannot be matched with calls"
    ratio = median_ratio(reported, own, pairs) if np.median(own) > 0 else None
    return TimesRow(
        trial.profiler, case.operation, case.size_bytes, len(reported), _quantiles(own),
        _quantiles(reported), ratio, source, remark,
    )  # fmt: skip


def _why_no_times(trial: ProfilerTrial, case: TrialCase, same: Sequence[Records]) -> str:
    if same:
        return "no times"
    functions = {records.function for records in trial.records}
    if case.function == "AlltoAll" and functions & {"Send", "Recv"}:
        return "sends and receives instead"
    sizes = {size for other in trial.cases for form in forms_of(other) for _, size, _ in form}
    own = {records.size_bytes for records in trial.records if records.function == case.function}
    if own - sizes:
        return "of other sizes, or of ranges of sizes"
    return "not recorded"


def _quantiles(times: Times) -> Quantiles:
    return Quantiles(*(float(value) for value in np.percentile(times, _QUANTILES)))


# ---- loss ----
def loss_rows(trials: Sequence[ProfilerTrial], profilers: Sequence[Profiler]) -> list[LossRow]:
    """Bytes, failures, and calls that are on record after a SIGKILL."""
    return [_loss_row(profiler, trials) for profiler in profilers]


def _loss_row(profiler: Profiler, trials: Sequence[ProfilerTrial]) -> LossRow:
    own = [trial for trial in trials if trial.profiler == profiler.name]
    ended = [trial for trial in own if not trial.failure and trial.kind != KILL]
    calls = sum(case.made * case.ranks for trial in ended for case in trial.cases)
    written = sum(trial.bytes_written for trial in ended)
    killed = [
        (case.made, recorded)
        for trial in own
        if trial.kind == KILL and not trial.failure
        for case, _, recorded in recorded_calls(trial)
    ]
    return LossRow(
        profiler.name,
        bool(profiler.reader),
        written / calls if calls and profiler.reader else None,
        max((trial.files for trial in ended), default=0),
        sum(made for made, _ in killed),
        sum(recorded for _, recorded in killed),
        sum(bool(trial.failure) for trial in own),
        len(own),
        tuple(dict.fromkeys(trial.failure for trial in own if trial.failure)),
        tuple(dict.fromkeys(trial.problem for trial in own if trial.problem)),
    )


def compare(trials: Sequence[ProfilerTrial], profilers: Sequence[Profiler]) -> ProfilerComparison:
    """All tables of these trials, with profilers in the given order."""
    places = {profiler.name: place for place, profiler in enumerate(profilers)}
    ordered = sorted(trials, key=lambda trial: places[trial.profiler])
    return ProfilerComparison(
        tuple(profilers),
        tuple(coverage_rows(ordered)),
        tuple(times_rows(ordered)),
        tuple(cost_rows(ordered)),
        tuple(loss_rows(ordered, profilers)),
    )
