"""The summary of a capture from its operations."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import duckdb

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
from ncclscope.analysis.kernel_time import KernelTime, kernel_times
from ncclscope.analysis.query import Row, connect, rows
from ncclscope.analysis.ranks import RankRow
from ncclscope.analysis.recording_coverage import calls_made, recorded_ns
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary import (
    SLICES,
    CommunicatorRow,
    Summary,
    scope_rows,
    size_rows,
)
from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE

_FOLDED = "message sizes are grouped by powers of two: there are too many different ones"


def summarize(model: Model, chosen: Selection, by: tuple[str, ...]) -> Summary:
    """Everything a report shows about the selected operations."""
    with connect(model, chosen) as connection:
        return _summarize(connection, model, chosen, by)


def extent(model: Model, chosen: Selection) -> tuple[int, int] | None:
    """When the run began and ended, within the selection's window: its first and last operation,
    whichever others are selected. None without any.
    """
    window = Selection(since_ns=chosen.since_ns, until_ns=chosen.until_ns)
    if window == Selection():
        operations = model.tables["operations"]
        first, last = (operations[name] for name in ("call_ns", "end_ns"))
        # Every operation has what extent.sql looks at first.
        if len(first) and first.min() != NONE != last.min():
            return int(first.min()), max(int(last.max()), int(first.min()))
    with connect(model, window) as connection:
        first, last, _ = rows(connection, "extent")[0]
    return None if first is None else (first, max(last, first))


def _summarize(
    connection: duckdb.DuckDBPyConnection, model: Model, chosen: Selection, by: tuple[str, ...]
) -> Summary:
    found = extent(model, chosen)
    began, ended = found or (0, 0)
    span = ended - began
    with ThreadPoolExecutor(1) as beside:  # neither needs the interpreter much
        asked = beside.submit(kernel_times, model, chosen)
        folded = make_tables(connection, by)
        busy = asked.result()
    rank_rows = ranks.rank_rows(connection, model.nodes)
    time = _time(model, busy, rank_rows, began, ended)
    sums_of = {
        -1 if key[0] is None else int(key[0]): sums
        for key, sums in sums_by_key(
            connection, ["communicator"], _column(model, "ranks"), _overlaps(busy)
        ).items()
    }
    groups = _groups(connection, model, by, busy, time)
    if not folded:
        groups = _with_calls_made(groups, calls_made(model, chosen, by), by)
    width = max(span // SLICES + 1, 1)
    slices = _slices(connection, began, width)
    total = merge(sums_of.values(), sum(busy.by_rank_ns.values()), time.behind({}))
    made = calls_made(model, chosen, ("communicator",))
    return Summary(
        model=model,
        completeness=model.completeness,
        from_counters=False,
        by=by,
        began_ns=began if found else None,
        ended_ns=ended if found else None,
        ranks_seen=len(rank_rows),
        total=replace(total, calls_counted=None if made is None else sum(made.values())),
        groups=tuple(replace(group, size_is_class=folded) for group in groups),
        communicators=_communicators(model, sums_of, slices, time, made),
        scopes=scope_rows(sums_of, _column(model, "nodes")),
        sizes=size_rows(rows(connection, "sizes")),
        untimed=_untimed(connection),
        slices=_all_slices(slices),
        ranks=rank_rows,
        arrivals=ranks.arrivals(connection),
        traffic=ranks.traffic_rows(connection),
        notes=(*((_FOLDED,) if folded else ()), *_on_record(model.completeness)),
    )


@dataclass(frozen=True, slots=True)
class _Time:
    """Time of ranks on record, of which a group's share of the run is taken."""

    span_ns: int
    recorded_ns: dict[int, int]  # by rank, where it is less
    seen: tuple[tuple[int | None, str], ...]  # ranks with their hosts
    in_communicator: dict[str, list[int]]  # with GPU times

    def _of(self, ranks: Iterable[int | None]) -> int:
        return sum(
            self.span_ns if rank is None else self.recorded_ns.get(rank, self.span_ns)
            for rank in ranks
        )

    def behind(self, keys: dict[str, Key]) -> int:
        """Of the ranks behind one group, in ns."""
        if "rank" in keys:
            rank = keys["rank"]
            return self._of([rank if isinstance(rank, int) else None])
        if keys.get("communicator") is not None:
            return self._of(self.in_communicator.get(str(keys["communicator"]), [None]))
        if keys.get("host") is not None:
            return self._of(rank for rank, host in self.seen if host == keys["host"])
        return self._of(rank for rank, _ in self.seen)


def _time(
    model: Model, busy: KernelTime, seen: tuple[RankRow, ...], began_ns: int, ended_ns: int
) -> _Time:
    names = model.communicator_names
    return _Time(
        # Of an import without times of kernels nobody knows how long they ran together.
        ended_ns - began_ns if busy.by_rank_ns else 0,
        recorded_ns(model, began_ns, ended_ns) if busy.by_rank_ns else {},
        tuple((row.rank, row.host) for row in seen),
        {names[row]: ranks for row, ranks in busy.ranks_of.items()},
    )


def _column(model: Model, name: str) -> list[int]:
    numbers: list[int] = model.tables["communicators"][name].tolist()
    return numbers


def _overlaps(busy: KernelTime) -> dict[tuple[int, str], float]:
    """Share of durations that is left once operations that ran at the same time count once."""
    return {
        key: union / total if total else 1.0 for key, (union, total) in busy.by_function_ns.items()
    }


def _groups(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    by: tuple[str, ...],
    busy: KernelTime,
    time: _Time,
) -> tuple[Group, ...]:
    found = sums_by_key(connection, by, _column(model, "ranks"), _overlaps(busy))
    percentiles = percentiles_by_key(connection, by)
    groups = []
    for key, sums in found.items():
        keys = _shown(model, by, key)
        groups.append(group_of(sums, keys, percentiles.get(key, {}), time.behind(keys)))
    return tuple(groups)


def _with_calls_made(
    groups: tuple[Group, ...], made: dict[tuple[Key, ...], int] | None, by: tuple[str, ...]
) -> tuple[Group, ...]:
    """Groups with the calls that counters have of them, where they know such a group."""
    if made is None:
        return groups
    return tuple(
        replace(group, calls_counted=made.get(tuple(group.keys[key] for key in by)))
        for group in groups
    )


def _on_record(completeness: Completeness) -> list[str]:
    """What times are not of."""
    if not completeness.calls_outside:
        return []
    outside = completeness.outside_in_words()
    return [f"{outside} are not in this report: they were counted, not recorded one by one"]


def _shown(model: Model, by: tuple[str, ...], key: Row) -> dict[str, Key]:
    """Keys with names for rows."""
    shown: dict[str, Key] = dict(zip(by, key, strict=True))
    communicator, host = shown.get("communicator"), shown.get("host")
    if isinstance(communicator, int):
        shown["communicator"] = model.communicator_names[communicator]
    if isinstance(host, int):
        shown["host"] = model.nodes[host]
    return shown


def _communicators(
    model: Model,
    sums_of: dict[int, GroupSums],
    slices: dict[int, list[int]],
    time: _Time,
    made: dict[tuple[Key, ...], int] | None,
) -> tuple[CommunicatorRow, ...]:
    found = []
    for row, sums in sums_of.items():
        if row < 0:
            continue
        name = model.communicator_names[row]
        total = merge([sums], sums.running_ns, time.behind({"communicator": name}))
        total = replace(total, calls_counted=made.get((name,)) if made else None)
        found.append(CommunicatorRow.of(model, row, total, tuple(slices.get(row, [0] * SLICES))))
    return tuple(sorted(found, key=lambda row: (-row.total_ns, row.row)))


def _slices(
    connection: duckdb.DuckDBPyConnection, origin_ns: int, width_ns: int
) -> dict[int, list[int]]:
    """Bytes by communicator and slice of time."""
    found: dict[int, list[int]] = {}
    for communicator, place, _, size in rows(
        connection, "over_time", origin_ns=origin_ns, width_ns=width_ns
    ):
        row = found.setdefault(-1 if communicator is None else communicator, [0] * SLICES)
        row[min(max(place, 0), SLICES - 1)] += size or 0
    return found


def _all_slices(slices: dict[int, list[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*slices.values(), strict=True))) if slices else ()


def _untimed(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    found: dict[str, int] = {}
    for source, reason, count in rows(connection, "untimed_reasons"):
        if source not in GPU_SOURCES:
            text = reason or "not known"
            found[text] = found.get(text, 0) + count
    return dict(sorted(found.items(), key=lambda item: -item[1]))
