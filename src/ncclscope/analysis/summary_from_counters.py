"""The summary of a capture from its counters: what profile mode records instead of events.

Calls and bytes are exact. Times were joined by the recorder: they can be checked but not repaired,
and what needs single operations (waiting, ranks that came last, traffic) is not there.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from ncclscope.analysis.counter_totals import (
    CounterKey,
    CounterTotals,
    counter_totals_of,
    percentiles,
)
from ncclscope.analysis.groups import Group, GroupSums, Key, group_of, merge
from ncclscope.analysis.measures import EXACT_SOURCES, GRADE_OF
from ncclscope.analysis.selection import Selection, function_names
from ncclscope.analysis.summary import CommunicatorRow, Summary, scope_rows, size_rows
from ncclscope.capture.reader import open_capture
from ncclscope.errors import UsageError
from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES
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
    histograms: dict[int, np.ndarray] = field(default_factory=dict)
    folded: bool = False


def has_counters_only(model: Model) -> bool:
    """Whether every process that is on record was recorded in mode profile."""
    return bool(model.processes) and all(row.mode == "profile" for row in model.processes)


def summarize(
    model: Model, communicators: tuple[int, ...] | None, functions: list[str] | None,
    by: tuple[str, ...],
) -> Summary:  # fmt: skip
    """Everything a report can show of counters."""
    unknown = [key for key in by if key not in KEYS]
    if unknown:
        message = f"cannot group {model.path} by {', '.join(unknown)}: it has totals only"
        raise UsageError(message, f"Group by {', '.join(KEYS)}, or record with --mode trace")
    found = _leaves(model)
    if functions:
        known = sorted({leaf.function for leaf, _ in found if leaf.function})
        names = function_names(known, functions)
        found = [(leaf, entry) for leaf, entry in found if leaf.function in names]
    if communicators is not None:
        found = [(leaf, entry) for leaf, entry in found if leaf.communicator in communicators]
    return _summary(model, by, found)


def calls_by_key(
    model: Model, chosen: Selection, by: tuple[str, ...]
) -> dict[tuple[Key, ...], int] | None:
    """Calls that were counted, by group; None where sizes were too many to be counted apart."""
    found = [
        (leaf, entry)
        for leaf, entry in _leaves(model)
        if (chosen.communicators is None or leaf.communicator in chosen.communicators)
        and (chosen.functions is None or leaf.function in chosen.functions)
    ]
    if "size" in by and any(entry.folded for _, entry in found):
        return None
    calls: Counter[tuple[Key, ...]] = Counter()
    for leaf, entry in found:
        calls[_key(model, leaf, by)] += entry.calls
    return calls


def _leaves(model: Model) -> list[tuple[CounterKey, CounterTotals]]:
    rows = {row.folder: number for number, row in enumerate(model.processes)}
    found: list[tuple[CounterKey, CounterTotals]] = []
    for process in open_capture(model.path).processes:
        if process.folder in rows:
            found.extend(counter_totals_of(model, rows[process.folder], process))
    return found


def _key(model: Model, leaf: CounterKey, by: tuple[str, ...]) -> tuple[Key, ...]:
    names = model.communicator_names
    values: dict[str, Key] = {
        "communicator": None if leaf.communicator is None else names[leaf.communicator],
        "function": leaf.function,
        "size": leaf.size_bytes,
        "datatype": leaf.datatype,
        "algorithm": leaf.algorithm,
        "protocol": leaf.protocol,
        "rank": leaf.rank,
        "host": leaf.host,
    }
    return tuple(values[key] for key in by)


def _add(total: _Total, leaf: CounterKey, entry: CounterTotals, ranks: int) -> None:
    sums = total.sums
    sums.totals.update(
        calls=entry.calls,
        operations=entry.operations,
        in_flight=entry.in_flight,
        bytes=entry.bytes,
    )
    sums.sources.update(entry.sources)
    total.folded |= entry.folded
    for source, times in entry.times.items():
        sums.add_times(source, times.count, times.total_ns, times.shortest_ns, times.longest_ns)
        grade = GRADE_OF[source]
        before = total.histograms.get(grade)
        total.histograms[grade] = times.histogram + (0 if before is None else before)
        if source in EXACT_SOURCES:
            size = round(entry.mean_bytes * times.count)
            sums.add_exact(leaf.function or "", ranks, size, times.total_ns)


def _totals(
    model: Model, found: list[tuple[CounterKey, CounterTotals]], by: tuple[str, ...]
) -> dict[tuple[Key, ...], _Total]:
    ranks_of = model.tables["communicators"]["ranks"]
    totals: dict[tuple[Key, ...], _Total] = {}
    for leaf, entry in found:
        ranks = 0 if leaf.communicator is None else int(ranks_of[leaf.communicator])
        _add(totals.setdefault(_key(model, leaf, by), _Total()), leaf, entry, ranks)
    return totals


def _group(by: tuple[str, ...], key: tuple[Key, ...], total: _Total) -> Group:
    marks = {grade: percentiles(counts) for grade, counts in total.histograms.items()}
    group = group_of(total.sums, dict(zip(by, key, strict=True)), marks, 0)
    return replace(group, size_is_class=total.folded and "size" in by)


def _summary(
    model: Model, by: tuple[str, ...], found: list[tuple[CounterKey, CounterTotals]]
) -> Summary:
    groups = tuple(_group(by, key, total) for key, total in _totals(model, found, by).items())
    names = {name: row for row, name in enumerate(model.communicator_names)}
    sums_of = {
        names[str(key)] if key is not None else -1: total.sums
        for (key,), total in _totals(model, found, ("communicator",)).items()
    }
    whole = merge(sums_of.values())
    untimed: Counter[str] = Counter()
    for _, entry in found:
        untimed.update(entry.untimed)
    reasons = {reason: count for reason, count in untimed.most_common() if count}
    started = [row.started_ns for row in model.processes]
    return Summary(
        model=model,
        completeness=replace(
            model.completeness,
            calls=whole.calls,
            operations=whole.operations,
            gpu_timed=sum(whole.sources.get(name, 0) for name in GPU_SOURCES),
            in_flight=whole.in_flight,
            untimed=reasons,
            calls_outside=0,  # of those that are counted
        ),
        from_counters=True,
        by=by,
        began_ns=min(started) - model.realtime_offset_ns if started else None,
        ended_ns=None,
        ranks_seen=len({(leaf.rank, leaf.host) for leaf, _ in found}),
        total=whole,
        groups=groups,
        communicators=_communicators(model, sums_of),
        scopes=scope_rows(sums_of, model.tables["communicators"]["nodes"].tolist()),
        sizes=size_rows(
            (leaf.size_bytes, entry.operations, entry.bytes, entry.gpu_ns) for leaf, entry in found
        ),
        untimed=reasons,
        slices=None,
        ranks=None,
        arrivals=None,
        traffic=None,
        notes=(
            *((_SHARES,) if _has_shares(model, found) else ()),
            *((_RUNNING,) if whole.in_flight and not all(r.ended for r in model.processes) else ()),
            *_on_record(model.completeness),
        ),
    )


def _on_record(completeness: Completeness) -> list[str]:
    """What there is besides counters."""
    if not completeness.paused_processes:
        return []
    outside = completeness.outside_in_words()
    return [
        f"from counters, which are exact: {outside} are in them only; --since 0 reports the others"
    ]


def _has_shares(model: Model, found: list[tuple[CounterKey, CounterTotals]]) -> bool:
    """Whether bytes of all ranks would have to be known from a number of ranks that nobody told."""
    ranks = model.tables["communicators"]["ranks"]
    return any(
        leaf.function in COUNTS_ONE_RANK
        and (leaf.communicator is None or ranks[leaf.communicator] <= 0)
        for leaf, _ in found
    )


def _communicators(model: Model, sums_of: dict[int, GroupSums]) -> tuple[CommunicatorRow, ...]:
    found = [
        CommunicatorRow.of(model, row, merge([sums]), ())
        for row, sums in sums_of.items()
        if row >= 0
    ]
    return tuple(sorted(found, key=lambda row: (-row.total_ns, row.row)))
