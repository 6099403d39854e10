"""Tables of training runs: step time, calls recorded, and time of communication by profiler."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ncclscope.bench.profilers.comparison_tables import change_text, share_text
from ncclscope.bench.profilers.intervals import ResampledValue, median_of
from ncclscope.bench.profilers.profiler_table import Profiler
from ncclscope.bench.profilers.recording import Records
from ncclscope.bench.training.trials import COUNTING, TrainingTrial, none_trials
from ncclscope.humanize import NOTHING, amount, plural
from ncclscope.report.tables import Column, Table


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One profiler: medians over rounds, and intervals by resampling rounds."""

    profiler: str
    step_ms: float | None
    step_ratio: ResampledValue | None  # against no plugin in the same round
    cpu_ratio: ResampledValue | None
    calls_made: int | None  # of all ranks in a run, by the plugin that counts; None: not known
    calls_recorded: int | None
    by_function: Mapping[str, int]
    communication_s: float | None  # of a rank, as reported
    communication_share: float | None  # of the time that the records are of
    bytes_written: int
    failed: int
    runs: int  # that were begun
    remark: str


def calls_made(trials: Sequence[TrainingTrial]) -> int | None:
    """NCCL calls of all ranks in one run, as the empty plugin counts them; None: no such run."""
    totals = [sum(trial.counted) for trial in trials if trial.counted and not trial.failure]
    return int(np.median(totals)) if any(totals) else None


def _reported_ns(records: Records) -> float:
    """The time of all calls of these records; of a sample, an estimate for all of them."""
    if records.estimated_ns >= 0:
        return float(records.estimated_ns)
    times = [time_ns for time_ns in records.durations_ns if time_ns >= 0]
    if records.sampled and times:
        return float(np.mean(times)) * records.count
    return float(sum(times))


def _communication_s(trial: TrainingTrial) -> float | None:
    """Reported time of NCCL's operations, the mean of ranks."""
    times = [_reported_ns(records) for records in trial.records]
    return sum(times) / len(trial.step_ns) / 1e9 if times else None


def _communication_share(trial: TrainingTrial) -> float | None:
    """Communication by the time that the records are of: warm-up is in both, or in neither."""
    time_s = _communication_s(trial)
    if time_s is None or not trial.recorded_ns:
        return None
    return time_s / (sum(trial.recorded_ns) / len(trial.recorded_ns) / 1e9)


def _step_ms(trial: TrainingTrial, window_steps: int = 0) -> float:
    """The median step of the slowest rank, of all steps or of the last ones."""
    return max(float(np.median(steps[-window_steps:])) for steps in trial.step_ns) / 1e6


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def training_row(profiler: Profiler, trials: Sequence[TrainingTrial]) -> TrainingRow:
    """The row of one profiler."""
    own = [trial for trial in trials if trial.profiler == profiler.name]
    ended = [trial for trial in own if not trial.failure]
    window = max((trial.window_steps for trial in ended), default=0)
    without = none_trials(trials)
    pairs = [(trial, without[trial.round]) for trial in ended if trial.round in without]
    step_ratio = cpu_ratio = None
    if pairs and profiler.name != "none":
        step_ratio = median_of(
            [_step_ms(trial, window) / _step_ms(none, window) for trial, none in pairs]
        )
        cpu_ratio = median_of(
            [sum(trial.cpu_ns) / max(sum(none.cpu_ns), 1) for trial, none in pairs]
        )
    recorded = [sum(records.count for records in trial.records) for trial in ended]
    functions: Counter[str] = Counter()
    for records in ended[-1].records if ended else ():
        functions[records.function] += records.count
    return TrainingRow(
        profiler.name,
        _median(_step_ms(trial, window) for trial in ended),
        step_ratio,
        cpu_ratio,
        calls_made(trials),
        int(np.median(recorded)) if recorded and profiler.reader else None,
        dict(functions),
        _median(map(_communication_s, ended)),
        _median(map(_communication_share, ended)),
        max((trial.bytes_written for trial in ended), default=0),
        len(own) - len(ended),
        len(own),
        _remark(own, window),
    )


def _remark(trials: Sequence[TrainingTrial], window_steps: int) -> str:
    """The first thing that went wrong, and what a row is of when it is not of the whole run."""
    problems = [own.failure or own.problem for own in trials if own.failure or own.problem]
    parts = [problems[0].splitlines()[0]] if problems else []
    if window_steps:
        parts.append(
            f"the last {plural(window_steps, 'step')} alone, and with those of no plugin; CPU of "
            "the whole run"
        )
    return "; ".join(parts)


def training_rows(
    profilers: Sequence[Profiler], trials: Sequence[TrainingTrial]
) -> list[TrainingRow]:
    """The rows of all profilers."""
    return [training_row(profiler, trials) for profiler in profilers]


def training_table(title: str, rows: Sequence[TrainingRow]) -> Table:
    """Step time, calls and communication."""
    columns = (
        Column("profiler", right=False), Column("step ms"), Column("against none [95 %]"),
        Column("CPU against none [95 %]", drop=2), Column("calls made"), Column("recorded"),
        Column("share"), Column("communication s"), Column("of recorded time"),
        Column("bytes", drop=1), Column("runs"), Column("failed", drop=3),
        Column("remark", right=False, drop=4),
    )  # fmt: skip
    notes = (
        "step: median of steps on the slowest rank, median of rounds; intervals by resampling "
        "rounds",
        f"calls made: on all ranks, as the plugin `{COUNTING}` counts NCCL's own reports; warm-up "
        "and start included, as in what is recorded",
        "communication: times of all operations of a rank together, as each profiler defines them; "
        "operations may overlap with computation and with each other",
        "of recorded time: communication by the time that the records are of, which is start, "
        "warm-up and all steps, and with PyTorch's profiler its window of steps",
        "runs: those that were begun; a single one has no interval",
    )
    return Table(title, columns, tuple(map(_cells, rows)), notes)


def _cells(row: TrainingRow) -> tuple[str, ...]:
    made, recorded = row.calls_made, row.calls_recorded
    share = recorded / made if made and recorded is not None else None
    return (
        row.profiler,
        NOTHING if row.step_ms is None else f"{row.step_ms:.2f}",
        change_text(row.step_ratio) if row.step_ratio else NOTHING,
        change_text(row.cpu_ratio) if row.cpu_ratio else NOTHING,
        NOTHING if made is None else f"{made:,}",
        NOTHING if recorded is None else f"{recorded:,}",
        share_text(share) if share is None or share <= 1 else f"{100 * share:.1f} %",
        NOTHING if row.communication_s is None else f"{row.communication_s:.3f}",
        NOTHING if row.communication_share is None else f"{100 * row.communication_share:.1f} %",
        amount(row.bytes_written),
        f"{row.runs}",
        f"{row.failed}",
        row.remark,
    )


def function_table(rows: Sequence[TrainingRow]) -> Table:
    """Calls recorded by function, as figure 4a of the paper."""
    functions = sorted({name for row in rows for name in row.by_function})
    columns = (Column("profiler", right=False), *(Column(name) for name in functions))
    cells = tuple(
        (row.profiler, *(f"{row.by_function.get(name, 0):,}" for name in functions))
        for row in rows
        if row.calls_recorded is not None
    )
    return Table("calls recorded by function", columns, cells if functions else ())


def rows_as_json(rows: Sequence[TrainingRow]) -> list[dict[str, Any]]:
    """The rows as JSON objects."""
    return [asdict(row) for row in rows]
