"""The summary of a capture from its counters: what profile mode records instead of events.

Calls and bytes are exact. Times were added up by the recorder: they cannot be repaired any more.
What needs single operations (waiting, ranks that came last, traffic) is not there.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from ncclscope.analysis.counted_completeness import with_counts
from ncclscope.analysis.counter_totals import (
    CounterKey,
    CounterTotals,
    Histograms,
    counter_totals,
)
from ncclscope.analysis.groups import Group, GroupSums, Key, group_of, merge
from ncclscope.analysis.measures import EXACT_SOURCES, GRADE_OF, size_class
from ncclscope.analysis.sampled_counters import SampledCounters, sampled_counters
from ncclscope.analysis.sampled_groups import with_sample
from ncclscope.analysis.sampling import Estimate
from ncclscope.analysis.selection import Selection, function_names
from ncclscope.analysis.summary import (
    CommunicatorRow,
    ScopeRow,
    Summary,
    role_rows,
    scope_of,
    scope_rows,
    size_rows,
)
from ncclscope.arrays.types import Ints
from ncclscope.errors import UsageError
from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.nccl.functions import COUNTS_ONE_RANK

KEYS = ("communicator", "function", "size", "datatype", "algorithm", "protocol", "rank", "host")

_RUNNING = "of processes that have not ended, calls that are not timed yet count as in flight"
_SHARES = (
    "this NCCL did not tell how many ranks a communicator has: bytes of AllGather and "
    "ReduceScatter are one rank's share"
)


@dataclass(slots=True)
class _Total:
    """Sums and histograms by grade of one group."""

    sums: GroupSums = field(default_factory=GroupSums)
    histograms: dict[int, Ints] = field(default_factory=dict)
    folded: bool = False
    places: list[int] = field(default_factory=list)  # of its totals


def summarize(
    model: Model, communicators: tuple[int, ...] | None, functions: list[str] | None,
    by: tuple[str, ...],
) -> Summary:  # fmt: skip
    """What a report can show of counters."""
    unknown = [key for key in by if key not in KEYS]
    if unknown:
        message = f"cannot group {model.path} by {', '.join(unknown)}: it has totals only"
        raise UsageError(message, f"Group by {', '.join(KEYS)}, or record with --mode trace")
    histograms = Histograms(model)
    totals = list(counter_totals(model, histograms))
    if functions:
        counted = sorted({key.function for key, _ in totals if key.function})
        names = function_names(counted, functions)
        totals = [(key, total) for key, total in totals if key.function in names]
    if communicators is not None:
        totals = [(key, total) for key, total in totals if key.communicator in communicators]
    return _summary(model, by, totals, histograms)


def calls_by_key(
    model: Model, selection: Selection, by: tuple[str, ...]
) -> dict[tuple[Key, ...], int] | None:
    """Calls that were counted, by group; None where sizes were too many to be counted apart."""
    totals = [
        (key, total)
        for key, total in counter_totals(model, Histograms(model))
        if (selection.communicators is None or key.communicator in selection.communicators)
        and (selection.functions is None or key.function in selection.functions)
    ]
    if "size" in by and any(total.folded for _, total in totals):
        return None
    calls: Counter[tuple[Key, ...]] = Counter()
    for key, total in totals:
        calls[_group_keys(model, key, by)] += total.calls
    return calls


def _group_keys(model: Model, key: CounterKey, by: tuple[str, ...]) -> tuple[Key, ...]:
    names = model.communicator_names
    values: dict[str, Key] = {
        "communicator": None if key.communicator is None else names[key.communicator],
        "function": key.function,
        "size": key.size_bytes,
        "datatype": key.datatype,
        "algorithm": key.algorithm,
        "protocol": key.protocol,
        "rank": key.rank,
        "host": key.host,
    }
    return tuple(values[name] for name in by)


def _add(group: _Total, key: CounterKey, total: CounterTotals, ranks: int) -> None:
    sums = group.sums
    sums.totals.update(
        calls=total.calls,
        operations=total.operations,
        in_flight=total.in_flight,
        bytes=total.bytes,
    )
    sums.sources.update(total.sources)
    group.folded |= total.folded
    for source, times in total.times.items():
        sums.add_times(source, times.count, times.total_ns, times.shortest_ns, times.longest_ns)
        grade = GRADE_OF[source]
        before = group.histograms.get(grade)
        if times.histogram is not None:
            group.histograms[grade] = times.histogram + (0 if before is None else before)
        if source in EXACT_SOURCES and key.size_bytes is not None:
            size = round(total.mean_bytes * times.count)
            sums.add_exact(key.function or "", ranks, size, times.total_ns)


def _group_totals(
    model: Model, totals: list[tuple[CounterKey, CounterTotals]], by: tuple[str, ...]
) -> dict[tuple[Key, ...], _Total]:
    ranks_of = model.tables["communicators"]["ranks"]
    groups: dict[tuple[Key, ...], _Total] = {}
    for place, (key, total) in enumerate(totals):
        ranks = 0 if key.communicator is None else int(ranks_of[key.communicator])
        group = groups.setdefault(_group_keys(model, key, by), _Total())
        group.places.append(place)
        _add(group, key, total, ranks)
    return groups


def _group(
    by: tuple[str, ...],
    keys: tuple[Key, ...],
    total: _Total,
    histograms: Histograms,
    sampled: SampledCounters | None,
) -> Group:
    percentiles = {grade: histograms.percentiles(w) for grade, w in total.histograms.items()}
    group = group_of(total.sums, dict(zip(by, keys, strict=True)), percentiles, 0)
    group = replace(group, size_is_class=total.folded and "size" in by)
    return _with_sample(group, sampled, total.places)


def _with_sample(group: Group, sampled: SampledCounters | None, places: list[int]) -> Group:
    """The group with what its timed operations say about all of them."""
    if sampled is None:
        return group
    return with_sample(group, sampled.strata.sample(sampled.strata_of(places)))


def _summary(
    model: Model,
    by: tuple[str, ...],
    totals: list[tuple[CounterKey, CounterTotals]],
    histograms: Histograms,
) -> Summary:
    sampled = sampled_counters(model, totals)
    groups = tuple(
        _group(by, keys, total, histograms, sampled)
        for keys, total in _group_totals(model, totals, by).items()
    )
    names = {name: row for row, name in enumerate(model.communicator_names)}
    by_communicator = {
        names[str(key)] if key is not None else -1: total
        for (key,), total in _group_totals(model, totals, ("communicator",)).items()
    }
    sums_of = {row: total.sums for row, total in by_communicator.items()}
    whole = _with_sample(merge(sums_of.values()), sampled, list(range(len(totals))))
    untimed: Counter[str] = Counter()
    for _, total in totals:
        untimed.update(total.untimed)
    reasons = {reason: count for reason, count in untimed.most_common() if count}
    started = [row.started_ns for row in model.processes]
    return Summary(
        model=model,
        completeness=with_counts(model.completeness, [total for _, total in totals]),
        from_counters=True,
        by=by,
        began_ns=min(started) - model.realtime_offset_ns if started else None,
        ended_ns=None,
        ranks_seen=len({(key.rank, key.host) for key, _ in totals}),
        total=whole,
        groups=groups,
        communicators=_communicators(model, by_communicator, sampled),
        scopes=_scopes(model, by_communicator, sampled),
        sizes=size_rows(
            (
                (key.size_bytes, total.operations, total.bytes, total.gpu_ns)
                for key, total in totals
            ),
            _size_estimates(totals, sampled),
        ),
        untimed=reasons,
        slices=None,
        ranks=None,
        waiting=None,
        path=(),
        arrivals=None,
        traffic=None,
        notes=(
            *((_SHARES,) if _has_shares(model, totals) else ()),
            *((_RUNNING,) if whole.in_flight and not all(r.ended for r in model.processes) else ()),
            *_on_record(model.completeness),
        ),
        roles=() if sampled else role_rows(sums_of, model),
    )


def _scopes(
    model: Model, totals: dict[int, _Total], sampled: SampledCounters | None
) -> tuple[ScopeRow, ...]:
    """Communicators on one node against those on several."""
    nodes = model.tables["communicators"]["nodes"].tolist()
    places: dict[str, list[int]] = {}
    for row, total in totals.items():
        if row >= 0 and nodes[row] > 0:
            places.setdefault(scope_of(nodes[row]), []).extend(total.places)
    sums_of = {row: total.sums for row, total in totals.items()}
    return tuple(
        replace(row, total=_with_sample(row.total, sampled, places[row.scope]))
        for row in scope_rows(sums_of, nodes)
    )


def _size_estimates(
    totals: list[tuple[CounterKey, CounterTotals]], sampled: SampledCounters | None
) -> dict[int, Estimate]:
    """The GPU time of all operations by class of sizes, where a sample was timed."""
    if sampled is None:
        return {}
    size = size_class(np.array([key.size_bytes or 0 for key, _ in totals], np.int64))
    own = sampled.place != NONE
    key = np.zeros(int(own.sum()), np.int64)
    key[sampled.place[own]] = size[own]
    estimates = sampled.strata.totals_by(key)
    for place in np.flatnonzero(~own).tolist():  # what NCCL timed beside the sample
        before, gpu_ns = estimates.get(int(size[place])), totals[place][1].gpu_ns
        if before and gpu_ns:
            estimates[int(size[place])] = before.plus(gpu_ns)
    return estimates


def _on_record(completeness: Completeness) -> list[str]:
    """What there is besides counters."""
    if not completeness.paused_processes:
        return []
    outside = completeness.outside_in_words()
    return [
        f"from counters, which are exact: {outside} are in them only; --since 0 reports the others"
    ]


def _has_shares(model: Model, totals: list[tuple[CounterKey, CounterTotals]]) -> bool:
    """Whether bytes are one rank's share, because the number of ranks is not known."""
    ranks = model.tables["communicators"]["ranks"]
    return any(
        key.function in COUNTS_ONE_RANK
        and (key.communicator is None or ranks[key.communicator] <= 0)
        for key, _ in totals
    )


def _communicators(
    model: Model, totals: dict[int, _Total], sampled: SampledCounters | None
) -> tuple[CommunicatorRow, ...]:
    rows = [
        CommunicatorRow.of(model, row, _with_sample(merge([total.sums]), sampled, total.places), ())
        for row, total in totals.items()
        if row >= 0
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.row)))
