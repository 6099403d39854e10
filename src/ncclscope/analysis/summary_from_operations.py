"""The summary of a capture from its operations."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import duckdb
import numpy as np

from ncclscope.analysis import ranks
from ncclscope.analysis.groups import (
    Group,
    GroupSums,
    Key,
    group_of,
    make_tables,
    merge,
    percentiles_by_key,
    sums_by_key,
)
from ncclscope.analysis.kernel_time import KernelTime, kernel_time
from ncclscope.analysis.query import Row, create_names, rows
from ncclscope.analysis.ranks import RankRow
from ncclscope.analysis.recording_coverage import calls_made, recorded_ns
from ncclscope.analysis.report_stage import SLICES, TEXT_KEYS, ReportSums, SumsOf, sums_here
from ncclscope.analysis.sampled_operations import SampledOperations, sampled_operations
from ncclscope.analysis.selection import KEYS, Selection
from ncclscope.analysis.sum_tables import all_rows, create_sums
from ncclscope.analysis.summary import (
    CommunicatorRow,
    ScopeRow,
    Summary,
    role_rows,
    scope_rows,
    size_rows,
)
from ncclscope.analysis.training_steps import step_summary
from ncclscope.analysis.waiting.account import AccountOf, waiting_account
from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model
from ncclscope.model.periodic_steps import with_periodic_steps
from ncclscope.model.schema import GPU_SOURCES, NONE
from ncclscope.model.sql_views import open_connection
from ncclscope.threads import Threads

_FOLDED = "message sizes are grouped by powers of two: there are too many different ones"


def summarize(
    model: Model,
    selection: Selection,
    by: tuple[str, ...],
    account_of: AccountOf = waiting_account,
    sums_of: SumsOf = sums_here,
) -> Summary:
    """Everything a report shows about the selected operations. `account_of`, `sums_of`: make the
    account of waiting and the sums of operations, or have them already.
    """
    with_steps = with_periodic_steps(model) if "step" in by else model
    if with_steps is not model:
        sums_of = sums_here  # these steps are not saved: nobody else knows them
    return _summarize(with_steps, selection, by, account_of, sums_of)


def _summarize(
    model: Model,
    selection: Selection,
    by: tuple[str, ...],
    account_of: AccountOf,
    sums_of: SumsOf,
) -> Summary:
    with Threads(1) as threads:  # both run outside of the interpreter most of the time
        waiting_result = threads.submit(account_of, model, selection)
        sums = sums_of(model, selection, by)
        with open_connection() as connection:
            create_names(connection, model)
            for name in TEXT_KEYS:
                create_sums(connection, name, sums.tables[name], model)
            summary = _without_waiting(connection, model, selection, by, sums)
        account, path = waiting_result.result()
    rank_rows = ranks.with_waiting(summary.ranks or (), account)
    return replace(summary, ranks=rank_rows, waiting=account, path=path)


def _without_waiting(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    selection: Selection,
    by: tuple[str, ...],
    sums: ReportSums,
) -> Summary:
    """The summary but for the account of waiting."""
    began_ns, ended_ns = sums.span or (0, 0)
    folded = make_tables(connection, sums.tables, model, by)
    kernels = kernel_time(sums.tables, model.words["function"], by)
    rank_rows = ranks.rank_rows(connection, model.nodes)
    times = _rank_times(model, kernels, rank_rows, began_ns, ended_ns)
    sums_of = {
        -1 if key[0] is None else int(key[0]): sums
        for key, sums in sums_by_key(
            connection, ["communicator"], _column(model, "ranks"), kernels.by_communicator
        ).items()
    }
    groups = _groups(connection, model, by, kernels, times)
    sampled = sampled_operations(model, selection, by)
    if sampled:
        groups = _with_samples(model, sampled, groups, by, folded, times)
    if not folded:
        groups = _with_calls_made(groups, calls_made(model, selection, by), by)
    slices = _slices(connection)
    calls_by_communicator = calls_made(model, selection, ("communicator",))
    total = merge(sums_of.values(), sum(kernels.by_rank_ns.values()), times.of_group({}))
    communicators = _communicators(model, sums_of, slices, times, calls_by_communicator)
    scopes = scope_rows(sums_of, _column(model, "nodes"))
    sizes = size_rows(rows(connection, "sizes"))
    if sampled:
        total = sampled.with_sample(model, total, sampled.all_strata, times.of_group({}))
        communicators = _sampled_communicators(model, sampled, communicators, times)
        scopes = _sampled_scopes(model, sampled, scopes)
        sizes = size_rows(rows(connection, "sizes"), sampled.size_estimates())
    return Summary(
        model=model,
        completeness=model.completeness,
        from_counters=False,
        by=by,
        began_ns=began_ns if sums.span else None,
        ended_ns=ended_ns if sums.span else None,
        ranks_seen=len(rank_rows),
        total=replace(
            total,
            calls_counted=None
            if calls_by_communicator is None
            else sum(calls_by_communicator.values()),
        ),
        groups=tuple(replace(group, size_is_class=folded) for group in groups),
        communicators=communicators,
        scopes=scopes,
        sizes=sizes,
        untimed=_untimed(connection),
        slices=_all_slices(slices),
        ranks=rank_rows,
        waiting=None,
        path=(),
        arrivals=ranks.arrivals(connection),
        traffic=ranks.traffic_rows(connection),
        notes=(*((_FOLDED,) if folded else ()), *_calls_outside(model.completeness)),
        steps=step_summary(model),
        modules=_by_context(connection, model, selection, "module", kernels, times),
        dimensions=_by_context(connection, model, selection, "dimension", kernels, times),
        roles=() if sampled else role_rows(sums_of, model),  # sums of a sample are not of all
    )


@dataclass(frozen=True, slots=True)
class _RankTimes:
    """How long ranks are on record: a group's share of the run is a share of these times."""

    span_ns: int
    recorded_ns: dict[int, int]  # by rank, where it is less than the span
    seen: tuple[tuple[int | None, str], ...]  # ranks with their hosts
    in_communicator: dict[str, list[int]]  # ranks with GPU times, by communicator

    def _sum(self, ranks: Iterable[int | None]) -> int:
        return sum(
            self.span_ns if rank is None else self.recorded_ns.get(rank, self.span_ns)
            for rank in ranks
        )

    def of_group(self, keys: dict[str, Key]) -> int:
        """Time in ns of the ranks that a group's operations can be of."""
        if "rank" in keys:
            rank = keys["rank"]
            return self._sum([rank if isinstance(rank, int) else None])
        if keys.get("communicator") is not None:
            return self._sum(self.in_communicator.get(str(keys["communicator"]), [None]))
        if keys.get("host") is not None:
            return self._sum(rank for rank, host in self.seen if host == keys["host"])
        return self._sum(rank for rank, _ in self.seen)


def _rank_times(
    model: Model, kernels: KernelTime, seen: tuple[RankRow, ...], began_ns: int, ended_ns: int
) -> _RankTimes:
    names = model.communicator_names
    # Without kernel times, as in some imports, nobody knows how long the ranks ran. Where GPU
    # timing was switched off for a while, no share of the run is covered.
    covered = kernels.by_rank_ns and not any(row.gpu_timing_off_ns for row in model.processes)
    return _RankTimes(
        ended_ns - began_ns if covered else 0,
        recorded_ns(model, began_ns, ended_ns) if covered else {},
        tuple((row.rank, row.host) for row in seen),
        {names[row]: ranks for row, ranks in kernels.ranks_of.items()},
    )


def _column(model: Model, name: str) -> list[int]:
    numbers: list[int] = model.tables["communicators"][name].tolist()
    return numbers


def _groups(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    by: tuple[str, ...],
    kernels: KernelTime,
    times: _RankTimes,
) -> tuple[Group, ...]:
    sums_of = sums_by_key(connection, by, _column(model, "ranks"), kernels.by_function)
    percentiles = percentiles_by_key(connection, by)
    groups = []
    for key, sums in sums_of.items():
        keys = _with_names(model, by, key)
        groups.append(group_of(sums, keys, percentiles.get(key, {}), times.of_group(keys)))
    return tuple(groups)


def _with_samples(
    model: Model,
    sampled: SampledOperations,
    groups: tuple[Group, ...],
    by: tuple[str, ...],
    folded: bool,
    times: _RankTimes,
) -> tuple[Group, ...]:
    """Groups with what their timed operations say about all of them."""
    strata_of = {
        tuple(_with_names(model, by, _known_key(model, by, codes)).values()): strata
        for codes, strata in sampled.rows_by_group([KEYS[name] for name in by], folded).items()
    }
    none = np.empty(0, np.int64)
    return tuple(
        sampled.with_sample(
            model,
            group,
            strata_of.get(tuple(group.keys.values()), none),
            times.of_group(group.keys),
        )
        for group in groups
    )


def _known_key(model: Model, by: tuple[str, ...], codes: tuple[int, ...]) -> Row:
    """A group's keys as SQL gives them: names for codes, None for NONE."""
    words = model.words
    return tuple(
        None if code == NONE else words[KEYS[name]][code] if KEYS[name] in words else code
        for name, code in zip(by, codes, strict=True)
    )


def _sampled_communicators(
    model: Model,
    sampled: SampledOperations,
    communicators: tuple[CommunicatorRow, ...],
    times: _RankTimes,
) -> tuple[CommunicatorRow, ...]:
    rows = [
        replace(
            row,
            total=sampled.with_sample(
                model,
                row.total,
                np.flatnonzero(sampled.keys["communicator"] == row.row),
                times.of_group({"communicator": row.name}),
            ),
        )
        for row in communicators
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.row)))


def _sampled_scopes(
    model: Model, sampled: SampledOperations, scopes: tuple[ScopeRow, ...]
) -> tuple[ScopeRow, ...]:
    nodes = np.append(model.tables["communicators"]["nodes"], NONE)[sampled.keys["communicator"]]
    within = {"intra-node": nodes == 1, "inter-node": nodes > 1}
    return tuple(
        replace(
            row,
            total=sampled.with_sample(model, row.total, np.flatnonzero(within[row.scope]), 0),
        )
        for row in scopes
    )


def _by_context(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    selection: Selection,
    key: str,
    kernels: KernelTime,
    times: _RankTimes,
) -> tuple[Group, ...]:
    """Sums by module or dimension, without percentiles; none where there is no context."""
    if not model.has_context:
        return ()
    sums_of = sums_by_key(connection, [key], _column(model, "ranks"), kernels.by_function)
    groups = tuple(
        group_of(sums, _with_names(model, (key,), own), {}, times.of_group({}))
        for own, sums in sums_of.items()
        if own[0] is not None
    )
    sampled = sampled_operations(model, selection, (key,)) if groups else None
    return _with_samples(model, sampled, groups, (key,), False, times) if sampled else groups


def _with_calls_made(
    groups: tuple[Group, ...], calls: dict[tuple[Key, ...], int] | None, by: tuple[str, ...]
) -> tuple[Group, ...]:
    """Groups with their calls from the counters, where these have such a group."""
    if calls is None:
        return groups
    return tuple(
        replace(group, calls_counted=calls.get(tuple(group.keys[key] for key in by)))
        for group in groups
    )


def _calls_outside(completeness: Completeness) -> list[str]:
    """A note about calls that are in counters only."""
    if not completeness.calls_outside:
        return []
    outside = completeness.outside_in_words()
    return [f"{outside} are not in this report: they were counted, not recorded one by one"]


def _with_names(model: Model, by: tuple[str, ...], key: Row) -> dict[str, Key]:
    """Keys by name, with names for rows of communicators and nodes."""
    keys: dict[str, Key] = dict(zip(by, key, strict=True))
    communicator, host = keys.get("communicator"), keys.get("host")
    module = keys.get("module")
    if isinstance(module, int):
        keys["module"] = model.module_names[module]
    if isinstance(communicator, int):
        keys["communicator"] = model.communicator_names[communicator]
    if isinstance(host, int):
        keys["host"] = model.nodes[host]
    return keys


def _communicators(
    model: Model,
    sums_of: dict[int, GroupSums],
    slices: dict[int, list[int]],
    times: _RankTimes,
    calls: dict[tuple[Key, ...], int] | None,
) -> tuple[CommunicatorRow, ...]:
    table = []
    for row, sums in sums_of.items():
        if row < 0:
            continue
        name = model.communicator_names[row]
        total = merge([sums], sums.running_ns, times.of_group({"communicator": name}))
        total = replace(total, calls_counted=calls.get((name,)) if calls else None)
        table.append(CommunicatorRow.of(model, row, total, tuple(slices.get(row, [0] * SLICES))))
    return tuple(sorted(table, key=lambda row: (-row.total_ns, row.row)))


def _slices(connection: duckdb.DuckDBPyConnection) -> dict[int, list[int]]:
    """Bytes by communicator and slice of time."""
    slices: dict[int, list[int]] = {}
    for communicator, place, _, size in all_rows(connection, "over_time"):
        row = slices.setdefault(-1 if communicator is None else communicator, [0] * SLICES)
        row[min(max(place, 0), SLICES - 1)] += size or 0
    return slices


def _all_slices(slices: dict[int, list[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*slices.values(), strict=True))) if slices else ()


def _untimed(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Operations without a GPU time by reason, most first."""
    counts: dict[str, int] = {}
    for source, reason, count in all_rows(connection, "untimed_reasons"):
        if source not in GPU_SOURCES:
            text = reason or "not known"
            counts[text] = counts.get(text, 0) + count
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
