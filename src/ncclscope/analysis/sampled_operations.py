"""The strata of a capture's operations, where a sample of them was timed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.groups import Group
from ncclscope.analysis.measures import GRADE_OF, IS_EXACT, bus_factors, size_class
from ncclscope.analysis.sampled_groups import SampledStrata, with_sample
from ncclscope.analysis.sampling import (
    FEWEST_VALUES,
    Estimate,
    GroupSample,
    Strata,
    WeightedTimes,
    is_sampled,
    ratio_of_sums,
)
from ncclscope.analysis.selection import DEFAULT_BY, KEYS, Selection
from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.joins import factorize, running_count
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import (
    DONE,
    EVENT_SOURCES,
    NONE,
    SOURCES,
    TIMING_OFF,
    UNKNOWN,
    Columns,
)

_BY_GPU = np.array([*(GRADE_OF.get(name) == 0 for name in SOURCES), False])
_BY_EVENTS = np.array([*(name in EVENT_SOURCES for name in SOURCES), False])
_CARRIED_OUT = (DONE, UNKNOWN)


@dataclass(frozen=True, slots=True)
class SampledOperations:
    """Strata of the selected operations, and where the operations of each group are."""

    strata: SampledStrata
    keys: Columns  # columns of `operations` by stratum
    rows: Ints  # timed operations
    weight: Floats  # what each of those stands for

    def rows_by_group(self, columns: Sequence[str], folded: bool) -> dict[tuple[int, ...], Ints]:
        """Strata of each group, by codes of its keys. `folded`: sizes are powers of two."""
        codes = [self.keys[name] for name in columns]
        if folded:
            codes = [
                size_class(values) if name == "size_bytes" else values
                for name, values in zip(columns, codes, strict=True)
            ]
        group = _numbers(codes, len(self.strata.timed))
        order = np.argsort(group, kind="stable")
        cuts = np.flatnonzero(np.diff(group[order])) + 1
        parts = np.split(order, cuts) if len(order) else []
        return {tuple(int(values[part[0]]) for values in codes): part for part in parts}

    @property
    def all_strata(self) -> Ints:
        """All strata."""
        return np.arange(len(self.strata.timed))

    def with_sample(self, model: Model, group: Group, strata: Ints, run_ns: float) -> Group:
        """The group of those strata with numbers for all its operations. `run_ns`: what its time
        is a share of.
        """
        return with_sample(group, self.sample(model, strata, run_ns))

    def size_estimates(self) -> dict[int, Estimate]:
        """The GPU time of all operations, by class of sizes."""
        return self.strata.totals_by(size_class(np.maximum(self.keys["size_bytes"], 0)))

    def sample(self, model: Model, strata: Ints, run_ns: float) -> GroupSample | None:
        """What is known of those strata together."""
        sample = self.strata.sample(strata, run_ns)
        if sample is None:
            return None
        own = np.isin(self.strata.times.stratum, strata)
        timed, weight = self.rows[own], self.weight[own]
        return replace(
            sample,
            busbw_wire_gbs=_wire_bandwidth(model, timed, weight),
            wait_share=_wait_share(model, "wait_ns", timed, weight),
            relative_wait_share=_wait_share(model, "relative_wait_ns", timed, weight),
        )


def _column(model: Model, name: str, rows: Ints) -> Floats:
    return np.asarray(model.tables["operations"][name])[rows].astype(np.float64)


def _wait_share(model: Model, column: str, rows: Ints, weight: Floats) -> Estimate | None:
    """The share of durations that is waiting, where that is known."""
    waits = _column(model, column, rows)
    known = waits != NONE
    return ratio_of_sums(
        waits[known], _column(model, "duration_ns", rows)[known], weight[known], most=1.0
    )


def _wire_bandwidth(model: Model, rows: Ints, weight: Floats) -> Estimate | None:
    """Bus bandwidth after the last arrival, over operations that count for bandwidth."""
    wire, size = _column(model, "wire_ns", rows), _column(model, "size_bytes", rows)
    source = np.asarray(model.tables["operations"]["source"])[rows]
    is_exact = (wire != NONE) & (size != NONE) & IS_EXACT[source]
    moved = (size * bus_factors(model, rows))[is_exact]
    if not is_exact.any() or np.isnan(moved).any():
        return None
    time_of_a_byte = ratio_of_sums(wire[is_exact], moved, weight[is_exact])
    return time_of_a_byte.rate(1.0) if time_of_a_byte else None


def _numbers(columns: Sequence[Ints], length: int) -> Ints:
    """A number for each distinct combination of values."""
    numbers = np.zeros(length, np.int64)
    for values in columns:
        own, count = factorize(np.asarray(values, np.int64) - NONE)  # NONE is a value as others
        both, _ = factorize(numbers * max(count, 1) + own)
        numbers = both.astype(np.int64)
    return numbers


def _population(model: Model, selection: Selection) -> Ints:
    """Rows of the selected operations that could have been timed: none of those for which the
    sample does not stand, because sampling was switched off.
    """
    table, parts = model.tables["operations"], [np.empty(0, np.int64)]
    reasons = model.words.get("reason", [])
    off = [code for code, text in enumerate(reasons) if text == TIMING_OFF]
    for rows in row_chunks(len(table["event"])):
        keep = selection.rows(model, rows) & (np.asarray(table["part_of"][rows]) == NONE)
        keep &= np.isin(table["state"][rows], _CARRIED_OUT)
        keep &= ~np.isin(table["reason"][rows], off)
        parts.append(rows.start + np.flatnonzero(keep))
    return np.concatenate(parts)


def _codes(model: Model, name: str, rows: Ints) -> Ints:
    """A key's codes of operations. The dimension is that of their communicator."""
    operations = model.tables["operations"]
    if name == "dimension":
        of_communicator = np.append(np.asarray(model.tables["communicators"][name]), NONE)
        return of_communicator[operations["communicator"][rows]].astype(np.int64)
    return np.asarray(operations[name])[rows].astype(np.int64)


def sampled_operations(
    model: Model, selection: Selection, by: tuple[str, ...]
) -> SampledOperations | None:
    """The strata of the selected operations; None where nothing was sampled."""
    if not is_sampled(model):
        return None
    table, rows = model.tables["operations"], _population(model, selection)
    names = dict.fromkeys(["process", *(KEYS[name] for name in (*DEFAULT_BY, *by))])
    keys = {name: _codes(model, name, rows) for name in names}
    stratum = _numbers(list(keys.values()), len(rows))
    count = int(stratum.max(initial=-1)) + 1
    first_of = np.full(count, len(rows), np.int64)
    np.minimum.at(first_of, stratum, np.arange(len(rows)))
    by_stratum = {name: values[first_of] for name, values in keys.items()}
    source = np.asarray(table["source"])[rows]
    timed = _BY_GPU[source] & (np.asarray(table["duration_ns"])[rows] != NONE)
    is_first = _first_calls(stratum, timed, count)
    own = np.flatnonzero(timed)
    time_ns = np.asarray(table["duration_ns"])[rows[own]].astype(np.float64)
    error_ns = np.array([float(row.event_error_ns) for row in model.processes] or [0.0])
    by_events = np.bincount(stratum, timed & _BY_EVENTS[source], count) > 0
    values = _Values(
        stratum[own], time_ns, is_first[own], np.bincount(stratum, minlength=count), count
    )
    key = [values for name, values in by_stratum.items() if name != "process"]
    strata = values.strata(
        key=_numbers(key, count),
        pool=_numbers([by_stratum["function"]], count),
        error_ns=np.where(by_events, error_ns[by_stratum["process"]], 0.0),
    )
    exact = np.bincount(stratum[own], IS_EXACT[source[own]], count)
    number = values.timed
    weight = values.weights(strata)
    sampled = SampledStrata.of(
        strata,
        WeightedTimes(stratum[own], time_ns, time_ns, weight, np.ones(len(own))),
        number,
        (2 * exact >= number) & (number > 0) & (by_stratum["size_bytes"] != NONE),
        by_stratum["size_bytes"].astype(np.float64),
        bus_factors(model, rows[first_of]),
    )
    return SampledOperations(sampled, by_stratum, rows[own], weight)


def _first_calls(stratum: Ints, timed: Bools, count: int) -> Bools:
    """Operations that are timed like all before them in their stratum."""
    place = running_count(stratum)
    untimed = np.full(count, len(stratum), np.int64)
    np.minimum.at(untimed, stratum[~timed], place[~timed])
    return np.asarray(timed & (place < untimed[stratum]))


@dataclass(frozen=True, slots=True)
class _Values:
    """Times of timed operations, with their strata."""

    stratum: Ints
    time_ns: Floats
    is_first: Bools
    population: Ints  # by stratum
    count: int

    @property
    def timed(self) -> Ints:
        """Timed operations by stratum."""
        return np.bincount(self.stratum, minlength=self.count)

    def _sum(self, values: Floats | Bools) -> Floats:
        return np.bincount(self.stratum, values.astype(np.float64), self.count).astype(np.float64)

    def strata(self, key: Ints, pool: Ints, error_ns: Floats) -> Strata:
        """What these times say about their strata."""
        firsts = self._sum(self.is_first).astype(np.int64)
        sampled = self.timed - firsts
        few = sampled < FEWEST_VALUES
        place = running_count(self.stratum)
        settled = self.is_first & few[self.stratum] & (place >= firsts[self.stratum] // 2)
        shows = np.asarray(~self.is_first | settled)
        values = self._sum(shows).astype(np.int64)
        mean_ns = self._sum(np.where(shows, self.time_ns, 0.0)) / np.maximum(values, 1)
        apart = np.where(shows, self.time_ns - mean_ns[self.stratum], 0.0)
        return Strata(
            key=key,
            pool=pool,
            population=self.population,
            firsts=firsts,
            firsts_ns=self._sum(np.where(self.is_first, self.time_ns, 0.0)),
            sampled=sampled,
            values=values,
            mean_ns=mean_ns,
            squares=self._sum(apart**2),
            cubes=self._sum(apart**3),
            error_ns=error_ns,
        )

    def weights(self, strata: Strata) -> Floats:
        """Operations that each timed one stands for."""
        of_rest = strata.rest / np.maximum(strata.sampled, 1)
        return np.where(self.is_first, 1.0, of_rest[self.stratum])
