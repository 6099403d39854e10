"""The strata of a capture's counters, where the recorder timed a sample by CUDA events.

A stratum is one key on one process, as in `sampled_operations`. Its values are known by bucket of a
histogram only, 12.5 % wide at most and cut to the shortest and longest time: the middle of a
bucket, at most 6 % off, stands for all of them where their spread is computed. Percentiles are
taken within their bucket, as if its times lay evenly in it, and their intervals contain the whole
bucket. The mean is exact.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.counter_totals import CounterKey, CounterTotals
from ncclscope.analysis.measures import EXACT_SOURCES
from ncclscope.analysis.sampled_groups import SampledStrata
from ncclscope.analysis.sampling import FEWEST_VALUES, Strata, WeightedTimes
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, NOT_SAMPLED, SOURCES
from ncclscope.nccl.bandwidth import bus_factor

_LAUNCH_NOT_TIMED = "launch not timed"
Totals = list[tuple[CounterKey, CounterTotals]]


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Buckets of one stratum, where there is something in them."""

    low_ns: Floats
    high_ns: Floats
    works: Ints
    firsts: Ints

    @property
    def time_ns(self) -> Floats:
        """What stands for their times."""
        return (self.low_ns + self.high_ns) / 2


class _Histograms:
    """The rows of `counter_histograms` with times by CUDA events."""

    def __init__(self, model: Model) -> None:
        table = model.tables["counter_histograms"]
        own = np.flatnonzero(np.asarray(table["source"]) == SOURCES.index("gpu-event"))
        own = own[np.argsort(np.asarray(table["counter"])[own], kind="stable")]
        low, high = (np.asarray(table[name])[own] for name in ("from_ns", "to_ns"))
        self._counter = np.asarray(table["counter"])[own]
        self._low = low.astype(np.float64)
        self._high = np.where(high == NONE, np.inf, high)
        counters = model.tables["counters"]
        self._least, self._most = (
            np.asarray(counters[name]) for name in ("event_min_ns", "event_max_ns")
        )
        self._works, self._firsts = (np.asarray(table[name])[own] for name in ("works", "firsts"))

    def of(self, counters: list[int], excess_ns: int) -> _Buckets:
        """Buckets of some counters."""
        parts = [
            slice(*np.searchsorted(self._counter, (row, row + 1)).tolist()) for row in counters
        ]
        rows = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        of = self._counter[rows]
        low, high = (
            np.clip(edge[rows] - excess_ns, self._least[of], np.maximum(self._most, 0)[of])
            for edge in (self._low, self._high)
        )
        return _Buckets(np.maximum(low, 0.0), high, self._works[rows], self._firsts[rows])


@dataclass(frozen=True, slots=True)
class SampledCounters:
    """Strata of the totals that have times by CUDA events."""

    strata: SampledStrata
    place: Ints  # stratum of each total, NONE

    def strata_of(self, places: list[int]) -> Ints:
        """Strata of some totals."""
        strata = self.place[places]
        return np.asarray(strata[strata != NONE])


def sampled_counters(model: Model, totals: Totals) -> SampledCounters | None:
    """The strata of these totals; None where nothing was timed by CUDA events."""
    chosen = [place for place, (_, total) in enumerate(totals) if total.counters]
    if not chosen:
        return None
    histograms = _Histograms(model)
    rows, parts = [], []
    for stratum, place in enumerate(chosen):
        total = totals[place][1]
        process = model.processes[total.process]
        buckets = histograms.of(total.counters, process.event_excess_ns)
        row, weight = _stratum(total, buckets)
        row["error_ns"] = float(process.event_error_ns)
        rows.append(row)
        parts += _weighted(stratum, buckets, weight)
    key_numbers: dict[object, int] = {}
    pool_numbers: dict[object, int] = {}
    for place, row in zip(chosen, rows, strict=True):
        key = totals[place][0]
        own = (key.communicator, key.function, key.size_bytes, key.datatype, key.algorithm)
        row["key"] = key_numbers.setdefault(own, len(key_numbers))
        row["pool"] = pool_numbers.setdefault(key.function, len(pool_numbers))
    strata = Strata(**{name: np.array([row[name] for row in rows]) for name in Strata.__slots__})
    place_of = np.full(len(totals), NONE, np.int64)
    place_of[chosen] = np.arange(len(chosen))
    ranks = model.tables["communicators"]["ranks"]
    listed = [totals[place] for place in chosen]
    sampled = SampledStrata.of(
        strata,
        WeightedTimes(*(np.concatenate(column) for column in zip(*parts, strict=True))),
        np.array([total.sampled["event_count"] for _, total in listed]),
        np.array([_is_exact(key, total) for key, total in listed]),
        np.array([total.mean_bytes for _, total in listed]),
        np.array([_factor(key, ranks) for key, _ in listed]),
    )
    return SampledCounters(sampled, place_of)


def _is_exact(key: CounterKey, total: CounterTotals) -> bool:
    return key.size_bytes is not None and any(name in EXACT_SOURCES for name in total.times)


def _factor(key: CounterKey, ranks: Ints) -> float:
    count = 0 if key.communicator is None else int(ranks[key.communicator])
    factor = bus_factor(key.function or "", count)
    return float("nan") if factor is None else factor


def _stratum(total: CounterTotals, buckets: _Buckets) -> tuple[dict[str, float], float]:
    """A row of Strata, and what one of the rest stands for."""
    count, firsts = total.sampled["event_count"], total.sampled["event_firsts"]
    unseen = sum(total.untimed.get(name, 0) for name in (NOT_SAMPLED, _LAUNCH_NOT_TIMED))
    population, sampled = count + unseen, count - firsts
    firsts_ns = float(total.sampled["event_firsts_ns"])
    shows = buckets.works - buckets.firsts
    mean_ns = (total.sampled["event_sum_ns"] - firsts_ns) / sampled if sampled else 0.0
    if sampled < FEWEST_VALUES:  # the shorter half of the first calls stands in for the rest
        shows = shows + _shorter_half(buckets)
        mean_ns = float((shows * buckets.time_ns).sum() / max(shows.sum(), 1))
    apart = buckets.time_ns - mean_ns
    row = {
        "population": population,
        "firsts": firsts,
        "firsts_ns": firsts_ns,
        "sampled": sampled,
        "values": int(shows.sum()),
        "mean_ns": mean_ns,
        "squares": float((shows * apart**2).sum()),
        "cubes": float((shows * apart**3).sum()),
    }
    return row, (population - firsts) / max(sampled, 1)


def _shorter_half(buckets: _Buckets) -> Ints:
    """The shorter half of the first calls, by bucket: their order is not on record."""
    order = np.argsort(buckets.time_ns, kind="stable")
    running = np.cumsum(buckets.firsts[order])
    half = (int(buckets.firsts.sum()) + 1) // 2
    kept = np.diff(np.minimum(running, half), prepend=0)
    out = np.zeros_like(buckets.firsts)
    out[order] = kept
    return out


def _weighted(
    stratum: int, buckets: _Buckets, weight: float
) -> list[tuple[Ints, Floats, Floats, Floats, Floats]]:
    """Columns of WeightedTimes: first calls stand for themselves."""
    parts = []
    for counts, own in ((buckets.firsts, 1.0), (buckets.works - buckets.firsts, weight)):
        used = counts > 0
        rows = int(used.sum())
        parts.append(
            (
                np.full(rows, stratum, np.int64),
                buckets.low_ns[used],
                buckets.high_ns[used],
                np.full(rows, own),
                counts[used].astype(np.float64),
            )
        )
    return parts
