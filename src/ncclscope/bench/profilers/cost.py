"""What a profiler costs. In: trials. Out: wall and CPU time of calls against no plugin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.bench.profilers.intervals import ResampledValue, median_of
from ncclscope.bench.profilers.profiler_table import NONE
from ncclscope.bench.profilers.trials import COST, ProfilerTrial, TrialCase


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


def _per_call(case: TrialCase) -> tuple[float, float]:
    """Wall time of a call on the slowest rank, and the mean CPU time of ranks, in µs."""
    wall_ns = max(rank.wall_ns for rank in case.by_rank)
    return wall_ns / 1e3, float(np.mean([rank.cpu_ns for rank in case.by_rank])) / 1e3


def cost_rows(trials: Sequence[ProfilerTrial]) -> list[CostRow]:
    """Cost by profiler and case against no plugin, round by round; last the mean of all cases."""
    rounds: dict[tuple[str, int], dict[tuple[str, int], tuple[float, float]]] = {}
    for trial in trials:
        if trial.kind == COST and not trial.failure:
            rounds[trial.profiler, trial.round] = {
                (case.operation, case.size_bytes): _per_call(case) for case in trial.cases
            }
    rows = []
    for profiler in dict.fromkeys(name for name, _ in rounds):
        pairs = [
            (costs, rounds[NONE, number])
            for (name, number), costs in rounds.items()
            if name == profiler and (NONE, number) in rounds
        ]
        if profiler == NONE or not pairs:
            continue
        for key in pairs[0][0]:
            rows.append(_cost_row(profiler, key, [(own[key], none[key]) for own, none in pairs]))
        means = [(_geometric_means(own), _geometric_means(none)) for own, none in pairs]
        rows.append(_cost_row(profiler, ("", 0), means))
    return rows


def _geometric_means(costs: Mapping[tuple[str, int], tuple[float, float]]) -> tuple[float, float]:
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
    )  # fmt: skip
