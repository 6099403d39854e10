"""The summary of a capture from its operations."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import duckdb

from ncclscope.analysis import ranks
from ncclscope.analysis.busy import Busy, busy_times
from ncclscope.analysis.groups import (
    Group,
    Key,
    Sums,
    finished,
    make_tables,
    merged,
    percentiles_by_key,
    sums_by_key,
)
from ncclscope.analysis.query import Row, connect, rows
from ncclscope.analysis.ranks import RankRow
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary import (
    SLICES,
    CommunicatorRow,
    Summary,
    scope_rows,
    size_rows,
)
from ncclscope.model.model import Model
from ncclscope.model.tables import GPU_SOURCES, NONE

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
        asked = beside.submit(busy_times, model, chosen)
        folded = make_tables(connection, by)
        busy = asked.result()
    # Of an import without times of kernels nobody knows how long they ran together.
    run_ns = span if busy.by_rank_ns else 0
    rank_rows = ranks.rank_rows(connection, model.nodes)
    people = _ranks(model, busy, rank_rows)
    sums_of = {
        -1 if key[0] is None else int(key[0]): sums
        for key, sums in sums_by_key(
            connection, ["communicator"], _column(model, "ranks"), _overlaps(busy)
        ).items()
    }
    groups = _groups(connection, model, by, busy, people, run_ns)
    width = max(span // SLICES + 1, 1)
    slices = _slices(connection, began, width)
    total = merged(sums_of.values(), sum(busy.by_rank_ns.values()), run_ns * len(rank_rows))
    return Summary(
        model=model,
        completeness=model.completeness,
        from_counters=False,
        by=by,
        began_ns=began if found else None,
        ended_ns=ended if found else None,
        ranks_seen=len(rank_rows),
        total=total,
        groups=tuple(replace(group, size_is_class=folded) for group in groups),
        communicators=_communicators(model, sums_of, slices, people, run_ns),
        scopes=scope_rows(sums_of, _column(model, "nodes")),
        sizes=size_rows(rows(connection, "sizes")),
        untimed=_untimed(connection),
        slices=_all_slices(slices),
        ranks=rank_rows,
        arrivals=ranks.arrivals(connection),
        traffic=ranks.traffic_rows(connection),
        notes=(_FOLDED,) if folded else (),
    )


@dataclass(frozen=True, slots=True)
class _Ranks:
    """How many ranks there are: a group's share of the run is taken of its ranks' time."""

    all: int
    on_host: Counter[str]
    in_communicator: dict[str, int]  # with GPU times

    def behind(self, keys: dict[str, Key]) -> int:
        """Ranks behind one group."""
        if "rank" in keys:
            return 1
        if keys.get("communicator") is not None:
            return self.in_communicator.get(str(keys["communicator"]), 1)
        if keys.get("host") is not None:
            return self.on_host[str(keys["host"])]
        return self.all


def _ranks(model: Model, busy: Busy, seen: tuple[RankRow, ...]) -> _Ranks:
    names = model.communicator_names
    return _Ranks(
        len(seen),
        Counter(row.host for row in seen),
        {names[row]: count for row, count in busy.ranks_of.items()},
    )


def _column(model: Model, name: str) -> list[int]:
    numbers: list[int] = model.tables["communicators"][name].tolist()
    return numbers


def _overlaps(busy: Busy) -> dict[tuple[int, str], float]:
    """Share of durations that is left once operations that ran at the same time count once."""
    return {
        key: union / total if total else 1.0 for key, (union, total) in busy.by_function_ns.items()
    }


def _groups(
    connection: duckdb.DuckDBPyConnection,
    model: Model,
    by: tuple[str, ...],
    busy: Busy,
    people: _Ranks,
    span: int,
) -> tuple[Group, ...]:
    found = sums_by_key(connection, by, _column(model, "ranks"), _overlaps(busy))
    percentiles = percentiles_by_key(connection, by)
    groups = []
    for key, sums in found.items():
        keys = _shown(model, by, key)
        run_ns = span * people.behind(keys)
        groups.append(finished(sums, keys, percentiles.get(key, {}), run_ns))
    return tuple(groups)


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
    sums_of: dict[int, Sums],
    slices: dict[int, list[int]],
    people: _Ranks,
    span: int,
) -> tuple[CommunicatorRow, ...]:
    found = []
    for row, sums in sums_of.items():
        if row < 0:
            continue
        run_ns = span * people.behind({"communicator": model.communicator_names[row]})
        total = merged([sums], sums.running_ns, run_ns)
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
    for source, reason, count in rows(connection, "reasons"):
        if source not in GPU_SOURCES:
            text = reason or "not known"
            found[text] = found.get(text, 0) + count
    return dict(sorted(found.items(), key=lambda item: -item[1]))
