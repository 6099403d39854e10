"""Groups of a report whose times come from a sample: how many were timed, and intervals."""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.groups import Group
from ncclscope.analysis.measures import GRADES, PERCENTS, Durations
from ncclscope.analysis.sampling import (
    Estimate,
    GroupSample,
    Strata,
    StrataTotals,
    WeightedTimes,
    strata_totals,
    total_of,
)
from ncclscope.arrays.types import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class SampledStrata:
    """All strata of a summary."""

    strata: Strata
    times: WeightedTimes
    timed: Ints  # operations, by stratum
    exact: Bools  # by stratum: times good enough for bandwidth, and a known size
    bytes: Floats  # of all operations, by stratum
    bus_bytes: Floats  # NaN where nccl-tests define none
    totals: StrataTotals

    @staticmethod
    def of(
        strata: Strata,
        times: WeightedTimes,
        timed: Ints,
        exact: Bools,
        size_bytes: Floats,
        bus_factor: Floats,
    ) -> "SampledStrata":
        """`size_bytes`: of one operation."""
        moved = np.maximum(size_bytes, 0.0) * strata.population.astype(np.float64)
        return SampledStrata(
            strata, times, timed, exact, moved, moved * bus_factor, strata_totals(strata)
        )

    def total_ns(self, rows: Ints) -> Estimate:
        """The time of those strata together."""
        return total_of(self.strata, self.totals, rows)

    def totals_by(self, key: Ints) -> dict[int, Estimate]:
        """The time of strata by a key of each; of those of which nothing was timed nothing is
        known.
        """
        known = np.flatnonzero(self.strata.is_known)
        return {
            value: self.total_ns(known[key[known] == value])
            for value in np.unique(key[known]).tolist()
        }

    def sample(self, rows: Ints, run_ns: float = 0.0) -> GroupSample | None:
        """What is known of those strata together; None where nothing of them was timed. `run_ns`:
        what their time is a share of.
        """
        rows = rows[self.strata.is_known[rows]]
        timed = int(self.timed[rows].sum())
        if not timed:
            return None
        total = self.total_ns(rows)
        times = self.times.of_strata(rows)
        error_ns = float(self.strata.error_ns[rows].max())
        median, p99 = (times.percentile(percent, error_ns) for percent in PERCENTS)
        exact = rows[self.exact[rows]]
        exact_total = self.total_ns(exact) if len(exact) else None
        moved, bus = float(self.bytes[exact].sum()), float(self.bus_bytes[exact].sum())
        return GroupSample(
            timed=timed,
            operations=int(self.strata.population[rows].sum()),
            total_ns=total,
            median_ns=median,
            p99_ns=p99,
            algbw_gbs=exact_total.rate(moved) if exact_total else None,
            busbw_gbs=exact_total.rate(bus) if exact_total and not np.isnan(bus) else None,
            run_share=_at_most_all(total.scaled(1 / run_ns)) if run_ns > 0 else None,
        )


def _at_most_all(share: Estimate) -> Estimate:
    low, high = (None if end is None else min(end, 1.0) for end in (share.low, share.high))
    return Estimate(min(share.value, 1.0), low, high)


def with_sample(group: Group, sample: GroupSample | None) -> Group:
    """The group with numbers for all its operations in place of sums over the timed ones."""
    if sample is None or group.durations is None or sample.timed == sample.operations:
        return group
    return replace(
        group,
        durations=_durations(group.durations, sample),
        algbw_gbs=_value(sample.algbw_gbs),
        busbw_gbs=_value(sample.busbw_gbs),
        busbw_wire_gbs=_value(sample.busbw_wire_gbs),
        wait_share=_value(sample.wait_share),
        relative_wait_share=_value(sample.relative_wait_share),
        run_share=_value(sample.run_share),
        sample=sample,
    )


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _durations(durations: Durations, sample: GroupSample) -> Durations:
    """Shortest and longest stay those of the timed operations."""
    if durations.grade != GRADES[0]:
        return durations
    return replace(
        durations,
        operations=sample.timed,
        total_ns=round(sample.total_ns.value),
        mean_ns=sample.total_ns.value / sample.operations,
        median_ns=_within(durations, sample.median_ns),
        p99_ns=_within(durations, sample.p99_ns),
    )


def _within(durations: Durations, estimate: Estimate | None) -> float | None:
    if estimate is None:
        return None
    return min(max(estimate.value, durations.shortest_ns), durations.longest_ns)
