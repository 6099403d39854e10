"""Tables of training runs: step time, calls recorded, and time of communication by profiler."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ncclscope.bench.profilers.comparison_tables import (
    ROUNDS_NOTE,
    change_text,
    share_text,
    with_label,
)
from ncclscope.bench.profilers.intervals import ResampledValue, median_of
from ncclscope.bench.profilers.profiler_table import NONE, Profiler
from ncclscope.bench.profilers.selection import AGAIN
from ncclscope.bench.training.steps_share import StepsShare, steps_share
from ncclscope.bench.training.trials import COUNTING, TrainingTrial, without_plugin
from ncclscope.humanize import NOTHING, amount, plural
from ncclscope.report.tables import Column, Table


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One profiler: medians over rounds, with their ranges or intervals."""

    profiler: str
    step_ms: float | None
    step_ratio: ResampledValue | None  # against no plugin in the same round
    cpu_ratio: ResampledValue | None
    calls_made: int | None  # of all ranks in a run, by the plugin that counts; None: not known
    calls_recorded: int | None  # in the run with the median number
    by_function: Mapping[str, int]  # of the same run
    reported_ms: float | None  # communication of a measured step, mean of ranks, as reported
    mean_step_ms: float | None  # of the same steps
    share_of_steps: ResampledValue | None  # one by the other; may exceed 1
    bytes_written: int
    failed: int
    runs: int  # that were begun
    compared: int  # rounds that are compared with no plugin
    remark: str


def calls_made(trials: Sequence[TrainingTrial]) -> int | None:
    """NCCL calls of all ranks in one run, as the empty plugin counts them; None: no such run."""
    totals = [sum(trial.counted) for trial in trials if trial.counted and not trial.failure]
    return int(np.median(totals)) if any(totals) else None


def _step_ms(trial: TrainingTrial, window_steps: int = 0) -> float:
    """The median step of the slowest rank, of all steps or of the last ones."""
    return max(float(np.median(steps[-window_steps:])) for steps in trial.step_ns) / 1e6


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _ratios(
    trial: TrainingTrial, without: Sequence[TrainingTrial], window: int
) -> tuple[float, float]:
    """Step and CPU time of a run, by the mean of its round's runs without a plugin."""
    step_ms = float(np.mean([_step_ms(none, window) for none in without]))
    cpu_ns = float(np.mean([sum(none.cpu_ns) for none in without]))
    return _step_ms(trial, window) / step_ms, sum(trial.cpu_ns) / max(cpu_ns, 1.0)


def _calls_of(trial: TrainingTrial) -> int:
    return sum(records.count for records in trial.records)


def _functions(trial: TrainingTrial) -> dict[str, int]:
    functions: Counter[str] = Counter()
    for records in trial.records:
        functions[records.function] += records.count
    return dict(functions)


def training_row(profiler: Profiler, trials: Sequence[TrainingTrial], warm_up: int) -> TrainingRow:
    """The row of one profiler."""
    own = [trial for trial in trials if trial.profiler == profiler.name]
    ended = [trial for trial in own if not trial.failure]
    window = max((trial.window_steps for trial in ended), default=0)
    without = without_plugin(trials, profiler.name)
    ratios = [
        _ratios(trial, without[trial.round], window)
        for trial in ended
        if trial.round in without and profiler.name != NONE
    ]
    recording = sorted(ended, key=_calls_of) if profiler.reader else []
    typical = recording[(len(recording) - 1) // 2] if recording else None
    made = calls_made(trials)
    shares = [steps_share(trial, profiler.reader, warm_up, made) for trial in recording]
    known = [own.share for own in shares if own.share is not None]
    return TrainingRow(
        profiler.name,
        _median(_step_ms(trial, window) for trial in ended),
        median_of([step for step, _ in ratios]) if ratios else None,
        median_of([cpu for _, cpu in ratios]) if ratios else None,
        made,
        _calls_of(typical) if typical else None,
        _functions(typical) if typical else {},
        _median(own.reported_ms for own in shares),
        _median(own.step_ms for own in shares),
        median_of(known) if known else None,
        max((trial.bytes_written for trial in ended), default=0),
        len(own) - len(ended),
        len(own),
        len(ratios),
        _remark(own, window, shares),
    )


def _remark(
    trials: Sequence[TrainingTrial], window_steps: int, shares: Sequence[StepsShare]
) -> str:
    """The first thing that went wrong, what a row is of, and what its times are."""
    problems = [own.failure or own.problem for own in trials if own.failure or own.problem]
    parts = [problems[0].splitlines()[0]] if problems else []
    if window_steps:
        parts.append(
            f"the last {plural(window_steps, 'step')} alone, and with those of no plugin; CPU of "
            "the whole run"
        )
    for text, runs in Counter(own.remark for own in shares if own.remark).items():
        some = "" if runs == len(shares) else f"in {runs} of {plural(len(shares), 'run')}: "
        parts.append(some + text)
    return "; ".join(parts)


def training_rows(
    profilers: Sequence[Profiler], trials: Sequence[TrainingTrial], warm_up: int
) -> list[TrainingRow]:
    """The rows of all profilers; so many steps of warm-up were made before the measured ones."""
    return [training_row(profiler, trials, warm_up) for profiler in profilers]


def training_table(title: str, rows: Sequence[TrainingRow]) -> Table:
    """Step time, calls and communication."""
    compared, runs = [row.compared for row in rows], [row.runs - row.failed for row in rows]
    columns = (
        Column("profiler", right=False), Column("step ms"),
        Column(with_label("against none", compared)),
        Column(with_label("CPU against none", compared), drop=2), Column("calls made"),
        Column("recorded"), Column("recorded by made"), Column("reported ms a step"),
        Column(with_label("of the steps", runs)), Column("bytes", drop=1), Column("runs"),
        Column("failed", drop=3),
    )  # fmt: skip
    notes = (
        "each number is the median of rounds; step: the median step of the slowest rank",
        f"none: the mean of no plugin and `{AGAIN}` in the same round, where both are there; "
        f"`{AGAIN}` is compared with the first alone, and shows the noise",
        ROUNDS_NOTE,
        f"calls made: on all ranks, as the plugin `{COUNTING}` counts NCCL's own reports; warm-up "
        "and start included, as in what is recorded, which is of the run with the median number",
        "reported: times of the calls of the measured steps, as each profiler defines them, by "
        "steps, mean of ranks. Of the steps: by the wall time of these steps. It may overlap with "
        "computation; waiting for late ranks is included; it may exceed 100 %",
        "runs: those that were begun",
        *(f"{row.profiler}: {row.remark}" for row in rows if row.remark),
    )
    return Table(title, columns, tuple(map(_cells, rows)), notes)


def _percent_text(share: ResampledValue | None) -> str:
    """A share with its brackets. 28.4 % [26.0, 31.2]"""
    if share is None:
        return NOTHING
    low, value, high = (100 * part for part in (share.low, share.value, share.high))
    return f"{value:.1f} %" + (f" [{low:.1f}, {high:.1f}]" if low < high else "")


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
        NOTHING if row.reported_ms is None else f"{row.reported_ms:.2f}",
        _percent_text(row.share_of_steps),
        amount(row.bytes_written),
        f"{row.runs}",
        f"{row.failed}",
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
