"""Operations summed up by group: calls, bytes, waiting, times; percentiles by percentiles.sql."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb

from ncclscope.analysis.kernel_time import Overlaps
from ncclscope.analysis.measures import (
    EARLY_SOURCE,
    EXACT_SOURCES,
    GRADE_OF,
    GRADES,
    SIZE_CLASS_SQL,
    UPPER_SOURCE,
    Durations,
)
from ncclscope.analysis.query import Row, rows
from ncclscope.analysis.sampling import GroupSample
from ncclscope.analysis.selection import KEYS
from ncclscope.analysis.sum_columns import SumTable
from ncclscope.analysis.sum_tables import create_sums
from ncclscope.model.model import Model
from ncclscope.nccl.bandwidth import bandwidth_gbs, bus_bytes

Key = str | int | None
MOST_GROUPS = 20_000
_MEASURES = (
    "calls", "operations", "in_flight", "bytes", "timed", "timed_bytes", "duration_ns",
    "sized_ns", "shortest_ns", "longest_ns", "wait_ns", "waited_of_ns", "relative_wait_ns",
    "relative_of_ns", "wire_ns", "wire_bytes", "inferred",
)  # fmt: skip
_ADDED = (
    "calls", "operations", "in_flight", "bytes", "wait_ns", "waited_of_ns", "relative_wait_ns",
    "relative_of_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """One row of a report. Calls, operations and bytes are totals over all ranks."""

    keys: dict[str, Key]
    calls: int
    operations: int
    in_flight: int
    bytes: int
    durations: Durations | None
    algbw_gbs: float | None
    busbw_gbs: float | None
    busbw_wire_gbs: float | None
    wait_share: float | None  # of the time whose waiting is known
    wait_known_share: float | None  # how much of the time that is
    relative_wait_share: float | None  # by durations alone: needs no common clock
    run_share: float | None
    sources: dict[str, int]
    inferred: bool
    calls_counted: int | None = None  # by counters, where not all calls are on record
    size_is_class: bool = False  # the size is a power of two, and stands for sizes up to the next
    sample: GroupSample | None = (
        None  # its times come from a sample: intervals of the numbers above
    )


@dataclass(slots=True)
class GroupSums:
    """Sums over a group's operations, which `group_of` turns into a Group."""

    totals: Counter[str] = field(default_factory=Counter)  # by name of a measure
    sources: Counter[str] = field(default_factory=Counter)
    # By grade: operations, total, shortest and longest ns.
    times: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    early: bool = False
    upper: bool = False
    inferred: bool = False
    # Bus bytes of what counts for bandwidth; None where a function has no bus bandwidth.
    exact_bus: float | None = 0.0
    wire_bus: float | None = 0.0
    running_ns: float = 0.0

    def add_times(self, source: str, count: int, total: int, shortest: int, longest: int) -> None:
        """Adds times in ns of operations from one source."""
        grade = GRADE_OF.get(source, 3)
        before = self.times.get(grade, (0, 0, shortest, longest))
        least, most = min(before[2], shortest), max(before[3], longest)
        self.times[grade] = (before[0] + count, before[1] + total, least, most)
        self.early |= source == EARLY_SOURCE
        self.upper |= source == UPPER_SOURCE

    def add_exact(self, function: str, ranks: int, timed_bytes: int, duration_ns: int) -> None:
        """Adds bytes and times that count for bandwidth."""
        self.totals.update(exact_bytes=timed_bytes, exact_ns=duration_ns)
        self.exact_bus = _plus(self.exact_bus, bus_bytes(function, ranks, timed_bytes))


def _plus(sum_: float | None, more: float | None) -> float | None:
    return None if sum_ is None or more is None else sum_ + more


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _durations(sums: GroupSums, percentiles: dict[int, tuple[float, float]]) -> Durations | None:
    if not sums.times:
        return None
    grade = min(sums.times)
    count, total, shortest, longest = sums.times[grade]
    median, p99 = (
        None if value is None else min(max(value, shortest), longest)
        for value in percentiles.get(grade, (None, None))
    )
    return Durations(
        grade=GRADES[grade],
        operations=count,
        total_ns=total,
        shortest_ns=shortest,
        median_ns=median,
        mean_ns=total / count,
        p99_ns=p99,
        longest_ns=longest,
        lower_bound=sums.early and grade == 0,
        upper_bound=sums.upper and grade == 0,
    )


def group_of(
    sums: GroupSums,
    keys: dict[str, Key],
    percentiles: dict[int, tuple[float, float]],
    run_ns: float,
) -> Group:
    """The group of these sums. `percentiles`: by grade; `run_ns`: the run x its ranks."""
    totals, bus, wire = sums.totals, sums.exact_bus, sums.wire_bus
    return Group(
        keys=keys,
        calls=totals["calls"],
        operations=totals["operations"],
        in_flight=totals["in_flight"],
        bytes=totals["bytes"],
        durations=_durations(sums, percentiles),
        algbw_gbs=bandwidth_gbs(totals["exact_bytes"], totals["exact_ns"]),
        busbw_gbs=None if bus is None else bandwidth_gbs(bus, totals["exact_ns"]),
        busbw_wire_gbs=None if wire is None else bandwidth_gbs(wire, totals["wire_ns"]),
        wait_share=_share(totals["wait_ns"], totals["waited_of_ns"]),
        wait_known_share=_share(totals["waited_of_ns"], sums.times.get(0, (0, 0))[1]),
        relative_wait_share=_share(totals["relative_wait_ns"], totals["relative_of_ns"]),
        run_share=_share(sums.running_ns, run_ns) if 0 in sums.times else None,
        sources=dict(sums.sources.most_common()),
        inferred=sums.inferred,
    )


def merge(groups: Iterable[GroupSums], running_ns: float | None = None, run_ns: float = 0) -> Group:
    """One group of several, without percentiles. `running_ns`: instead of the sum of theirs."""
    whole = GroupSums()
    for sums in groups:
        whole.totals.update(sums.totals)
        whole.sources.update(sums.sources)
        for grade, times in sums.times.items():
            whole.add_times(GRADES[grade], *times)
        whole.early |= sums.early
        whole.upper |= sums.upper
        whole.inferred |= sums.inferred
        whole.exact_bus = _plus(whole.exact_bus, sums.exact_bus)
        whole.wire_bus = _plus(whole.wire_bus, sums.wire_bus)
        whole.running_ns += sums.running_ns
    if running_ns is not None:
        whole.running_ns = running_ns
    return group_of(whole, {}, {}, run_ns)


def make_tables(
    connection: duckdb.DuckDBPyConnection,
    tables: Mapping[str, SumTable],
    model: Model,
    by: Sequence[str],
) -> bool:
    """Makes the tables `sums` and `histogram`, from which all other numbers come. True where
    sizes were folded into powers of two, because there are too many groups.
    """
    keys = ", ".join(KEYS[name] for name in by)
    for name in ("sums", "histogram"):
        create_sums(connection, f"all_{name}", tables[name], model)
    groups = f"select count(*) from (select distinct {keys} from all_sums)"
    counted = connection.execute(groups).fetchone()
    folds = "size" in by and counted is not None and counted[0] > MOST_GROUPS
    replaced = f" replace ({SIZE_CLASS_SQL} as size_bytes)" if folds else ""
    for name in ("sums", "histogram"):
        connection.execute(f"create temp view {name} as select *{replaced} from all_{name}")
    return folds


def sums_by_key(
    connection: duckdb.DuckDBPyConnection,
    by: Sequence[str],
    ranks_of: Sequence[int],
    running: Overlaps,
) -> dict[Row, GroupSums]:
    """Sums of each group."""
    columns = list(dict.fromkeys([KEYS[name] for name in by] + ["communicator", "function"]))
    groups: dict[Row, GroupSums] = {}
    places = {name: place for place, name in enumerate([*columns, "source", *_MEASURES])}
    summed = rows(connection, "rollup", keys=", ".join(columns))
    # In order: sums of doubles depend on it, and the database's own differs from run to run.
    for row in sorted(summed, key=lambda row: _in_order(row[: len(columns) + 1])):
        value = {name: row[place] for name, place in places.items()}
        sums = groups.setdefault(row[: len(by)], GroupSums())
        _add(sums, value, ranks_of, running)
    return groups


def _in_order(keys: Row) -> list[tuple[bool, Key]]:
    """What rows with these keys are sorted by: unknown ones last."""
    return [(key is None, 0 if key is None else key) for key in keys]


def _add(
    sums: GroupSums,
    value: dict[str, Key],
    ranks_of: Sequence[int],
    running: Overlaps,
) -> None:
    """Adds one row of rollup.sql."""
    number = {name: int(value[name] or 0) for name in _MEASURES}
    source, function = str(value["source"] or "none"), str(value["function"] or "")
    communicator = -1 if value["communicator"] is None else int(value["communicator"])
    ranks = ranks_of[communicator] if communicator >= 0 else 0
    sums.totals.update({name: number[name] for name in _ADDED})
    sums.inferred |= bool(number["inferred"])
    if number["operations"]:
        sums.sources[source] += number["operations"]
    total = number["duration_ns"]
    if number["timed"]:
        sums.add_times(source, number["timed"], total, number["shortest_ns"], number["longest_ns"])
    if GRADE_OF.get(source) == 0:
        # Whole ns, so that the sum does not depend on the order of rows.
        sums.running_ns += round(total * running.share(communicator, function))
    if source in EXACT_SOURCES:
        sums.add_exact(function, ranks, number["timed_bytes"], number["sized_ns"])
        sums.totals["wire_ns"] += number["wire_ns"]
        sums.wire_bus = _plus(sums.wire_bus, bus_bytes(function, ranks, number["wire_bytes"]))


def percentiles_by_key(
    connection: duckdb.DuckDBPyConnection, by: Sequence[str]
) -> dict[Row, dict[int, tuple[float, float]]]:
    """Median and 99th percentile in ns, by group and grade."""
    groups: dict[Row, dict[int, tuple[float, float]]] = {}
    width = len(by)
    for row in rows(connection, "percentiles", keys=", ".join(KEYS[name] for name in by)):
        groups.setdefault(row[:width], {})[int(row[width])] = (row[width + 1], row[width + 2])
    return groups
