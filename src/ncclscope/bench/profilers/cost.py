"""What a profiler costs. In: trials. Out: wall and CPU time of calls against no plugin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.bench.profilers.intervals import ResampledValue, median_of
from ncclscope.bench.profilers.profiler_table import NONE
from ncclscope.bench.profilers.selection import AGAIN
from ncclscope.bench.profilers.trials import COST, ProfilerTrial, TrialCase

Costs = Mapping[tuple[str, int], tuple[float, float]]  # wall and CPU µs by operation and bytes


@dataclass(frozen=True, slots=True)
class CostRow:
    """Wall and CPU time of a call, and both beside those of no plugin in the same round."""

    profiler: str
    operation: str  # "": all of them, by geometric mean
    size_bytes: int
    wall_us: float
    wall_ratio: ResampledValue
    added_us: ResampledValue
    cpu_us: float
    cpu_ratio: ResampledValue
    added_cpu_us: ResampledValue
    rounds: int  # that are compared


def _per_call(case: TrialCase) -> tuple[float, float]:
    """Wall time of a call on the slowest rank, and the mean CPU time of ranks, in µs."""
    wall_ns = max(rank.wall_ns for rank in case.by_rank)
    return wall_ns / 1e3, float(np.mean([rank.cpu_ns for rank in case.by_rank])) / 1e3


def cost_rows(trials: Sequence[ProfilerTrial]) -> list[CostRow]:
    """Cost by profiler and case against no plugin, round by round; last the mean of all cases."""
    rounds: dict[tuple[str, int], Costs] = {}
    for trial in trials:
        if trial.kind == COST and not trial.failure:
            rounds[trial.profiler, trial.round] = {
                (case.operation, case.size_bytes): _per_call(case) for case in trial.cases
            }
    rows = []
    for profiler in dict.fromkeys(name for name, _ in rounds):
        compared = [
            (costs, _without_plugin(rounds, profiler, number))
            for (name, number), costs in rounds.items()
            if name == profiler
        ]
        pairs = [(own, none) for own, none in compared if none]
        if profiler == NONE or not pairs:
            continue
        for key in pairs[0][0]:
            rows.append(_cost_row(profiler, key, [(own[key], none[key]) for own, none in pairs]))
        means = [(_geometric_means(own), _geometric_means(none)) for own, none in pairs]
        rows.append(_cost_row(profiler, ("", 0), means))
    return rows


def _without_plugin(
    rounds: Mapping[tuple[str, int], Costs], profiler: str, number: int
) -> Costs | None:
    """The mean of a round's runs without a plugin; for the second of them, the first alone."""
    names = (NONE,) if profiler == AGAIN else (NONE, AGAIN)
    runs = [rounds[name, number] for name in names if (name, number) in rounds]
    if not runs:
        return None
    means = {key: np.mean([run[key] for run in runs], axis=0) for key in runs[0]}
    return {key: (float(wall), float(cpu)) for key, (wall, cpu) in means.items()}


def _geometric_means(costs: Costs) -> tuple[float, float]:
    logs = np.log(np.maximum(np.array(list(costs.values())), 1e-3))
    wall, cpu = np.exp(logs.mean(axis=0))
    return float(wall), float(cpu)


def _cost_row(
    profiler: str,
    key: tuple[str, int],
    pairs: Sequence[tuple[tuple[float, float], tuple[float, float]]],
) -> CostRow:
    return CostRow(
        profiler, *key,
        float(np.median([own[0] for own, _ in pairs])),
        median_of([own[0] / none[0] for own, none in pairs]),
        median_of([own[0] - none[0] for own, none in pairs]),
        float(np.median([own[1] for own, _ in pairs])),
        median_of([own[1] / max(none[1], 1e-3) for own, none in pairs]),
        median_of([own[1] - none[1] for own, none in pairs]),
        len(pairs),
    )  # fmt: skip
