"""The tables of a report with groups of operations: times, bandwidth and waiting."""

from ncclscope.analysis.groups import Group
from ncclscope.analysis.measures import Durations
from ncclscope.analysis.summary import CommunicatorRow, Summary
from ncclscope.humanize import NOTHING, percent, plural
from ncclscope.report.estimates import ESTIMATED, LEGEND, bandwidth_cell, marked, run_cell
from ncclscope.report.tables import Bar, Cell, Column, Table, without_empty
from ncclscope.report.units import microseconds, size

_MAY_BE_MISSING = ("counted", "wire", "wait", "run")
_LEAST_KNOWN = 0.5  # of the time of kernels: of less, the share of waiting is not shown
_KEY_TITLES = {"size": "size", "datatype": "type", "communicator": "communicator"}


def wait_cell(group: Group) -> str:
    """The share of waiting: by one clock, else by durations alone, marked with ~. Where it is known
    of little of the time, it says nothing about the rest.
    """
    mark = ESTIMATED if group.sample else ""
    if (group.wait_known_share or 0.0) < _LEAST_KNOWN and group.wait_share is not None:
        return NOTHING
    if group.wait_share is not None:
        return mark + percent(group.wait_share)
    if group.relative_wait_share is not None:
        return mark + "~" + percent(group.relative_wait_share)
    return NOTHING


def _key_cell(group: Group, key: str) -> str:
    value = group.keys.get(key)
    if value is None:
        return NOTHING
    if key == "size":
        return size(int(value)) + ("+" if group.size_is_class else "")
    if key == "function" and group.inferred:
        return f"{value}*"
    return str(value)


def _times(times: Durations | None, estimated: bool) -> tuple[str, ...]:
    """Shortest, median, mean, 99th percentile and longest. Of a sample the first and the last are
    those of the timed operations.
    """
    if times is None:
        return (NOTHING,) * 5
    mark = "≥" if times.lower_bound else "≤" if times.upper_bound else ""
    mark = mark if times.grade == "gpu" else "~"
    of_all = mark + (ESTIMATED if estimated and times.grade == "gpu" else "")
    return (
        marked(mark, microseconds(times.shortest_ns)),
        marked(of_all, microseconds(times.median_ns)),
        marked(of_all, microseconds(times.mean_ns)),
        marked(of_all, microseconds(times.p99_ns)),
        marked(mark, microseconds(times.longest_ns)),
    )


def operations(
    title: str, keys: tuple[str, ...], groups: tuple[Group, ...], whole_ns: int
) -> Table:
    """Groups one by one; `whole_ns` is what their time is a share of."""
    same = all(group.calls == group.operations for group in groups)
    return without_empty([_operations(title, keys, groups, whole_ns, same)], _MAY_BE_MISSING)[0]


def _operations(
    title: str, keys: tuple[str, ...], groups: tuple[Group, ...], whole_ns: int, same: bool
) -> Table:
    """All columns; `same`: calls and operations are the same in all tables."""
    columns = (
        *(Column(_KEY_TITLES.get(key, key), right=key in ("size", "rank", "tag")) for key in keys),
        Column("calls"), Column("counted"), Column("ops", drop=10 if same else 5),
        Column("min", drop=7),
        Column("median"), Column("mean", drop=6), Column("p99"), Column("max", drop=4),
        Column("algbw", drop=9),
        Column("busbw"), Column("wire", drop=2), Column("wait", drop=1), Column("run", drop=3),
        Column("time", right=False, drop=8),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        total = group.durations.total_ns if group.durations else 0
        rows.append(
            (
                *(_key_cell(group, key) for key in keys),
                f"{group.calls:,}",
                NOTHING if group.calls_counted is None else f"{group.calls_counted:,}",
                f"{group.operations:,}", *_times(group.durations, group.sample is not None),
                bandwidth_cell(group, group.algbw_gbs), bandwidth_cell(group, group.busbw_gbs),
                bandwidth_cell(group, group.busbw_wire_gbs), wait_cell(group), run_cell(group),
                Bar(total / whole_ns if whole_ns else 0.0),
            )
        )  # fmt: skip
    return Table(title, columns, tuple(rows))


def operation_tables(summary: Summary, groups: tuple[Group, ...], most: int) -> list[Table]:
    """One table for each communicator where that is the first key, else one. `most`: rows."""
    whole = max((g.durations.total_ns for g in groups if g.durations), default=0)
    if summary.by[:1] != ("communicator",) or len(summary.by) == 1:
        return [operations("operations", summary.by, groups[:most], whole)] if groups else []
    same = all(group.calls == group.operations for group in groups)
    tables, left = [], most
    for row in summary.communicators:
        own = tuple(group for group in groups if group.keys["communicator"] == row.name)
        if own and left > 0:
            title = f"{row.name}: {_place(row)}"
            tables.append(_operations(title, summary.by[1:], own[:left], whole, same))
            left -= len(own)
    return without_empty(tables, _MAY_BE_MISSING)


def _place(row: CommunicatorRow) -> str:
    ranks = "ranks not known" if row.ranks is None else plural(row.ranks, "rank")
    return ranks if row.nodes is None else f"{ranks} on {plural(row.nodes, 'node')}"


def operation_notes(groups: tuple[Group, ...], shown: int) -> list[str]:
    """What the marks mean that occur in the tables."""
    times = [group.durations for group in groups if group.durations]
    notes = ["calls over all ranks; times in µs, on one rank; bandwidth in GB/s as in nccl-tests"]
    if any(group.calls_counted is not None for group in groups):
        notes.append("counted: calls that were made; calls and all the rest: those on record")
    if any(group.busbw_wire_gbs is not None for group in groups):
        notes.append("wire: busbw from the last rank's arrival on; wait: share of time before it")
    if any(group.wait_share is None and group.relative_wait_share is not None for group in groups):
        notes.append("~ wait: from durations alone, without a common clock")
    if any(time.lower_bound for time in times):
        notes.append(
            "≥: the GPU's stop stamp may come early; such operations count for no bandwidth"
        )
    if any(group.sample for group in groups):
        notes.append(f"{LEGEND}; min and max are of the timed ones")
    if any(time.upper_bound for time in times):
        notes.append(
            "≤: at most: CUDA events around launches that several operations share, or whose "
            "excess is not known; such operations count for no bandwidth"
        )
    if any(time.grade != "gpu" for time in times):
        notes.append("~ time: as the host saw it, not the GPU")
    if any(group.inferred for group in groups):
        notes.append("*: inferred from a group of sends and receives")
    if any(group.size_is_class for group in groups):
        notes.append("+: sizes from here to below twice that")
    if shown < len(groups):
        notes.append(f"{plural(len(groups) - shown, 'more row')}: --comm, --op and --csv show them")
    return notes
