"""The report as JSON and CSV; docs/verbs/report.md describes both."""

import csv
import io
from datetime import datetime, timezone
from typing import Any

from ncclscope.analysis.groups import Group
from ncclscope.analysis.measures import Durations
from ncclscope.analysis.ranks import RankRow, TrafficRow
from ncclscope.analysis.selection import DEFAULT_BY
from ncclscope.analysis.summary import CommunicatorRow, SizeRow, Summary
from ncclscope.analysis.waiting.origins import Origin, WaitingAccount
from ncclscope.json_answers import VERSION
from ncclscope.model.topology import Topology
from ncclscope.report.kernel_exposure import exposure_json
from ncclscope.report.sample_json import bounds_json, estimate_json
from ncclscope.report.training import training_json
from ncclscope.report.what_if import path_as_json

# Keys whose name in JSON and CSV differs from the command line.
_NAMES = {"size": "size_bytes"}
_STATISTICS = ("min", "median", "mean", "p99", "max")
_NEEDS_TRACE = "needs trace"
# Numbers of all operations that have an interval where a sample was timed.
_ESTIMATES = (
    "total_ns", "median_ns", "mean_ns", "p99_ns", "algbw_gbs", "busbw_gbs", "busbw_wire_gbs",
    "wait_share", "relative_wait_share", "run_share",
)  # fmt: skip


def _duration_ns(times: Durations | None) -> dict[str, int] | None:
    if times is None:
        return None
    values = {
        "min": times.shortest_ns,
        "median": times.median_ns,
        "mean": times.mean_ns,
        "p99": times.p99_ns,
        "max": times.longest_ns,
    }
    return {name: round(ns) for name, ns in values.items() if ns is not None}


def _measures(group: Group) -> dict[str, Any]:
    times = group.durations
    return {
        "calls": group.calls,
        "calls_counted": group.calls_counted,
        "operations": group.operations,
        "in_flight": group.in_flight,
        "total_bytes": group.bytes,
        "duration_ns": _duration_ns(times),
        "duration_source": times.grade if times else None,
        "duration_is_lower_bound": times.lower_bound if times else None,
        "total_ns": round(times.total_ns) if times else None,
        "timed": times.operations if times else 0,
        "algbw_gbs": group.algbw_gbs,
        "busbw_gbs": group.busbw_gbs,
        "busbw_wire_gbs": group.busbw_wire_gbs,
        "wait_share": group.wait_share,
        "wait_known_share": group.wait_known_share,
        "relative_wait_share": group.relative_wait_share,
        "run_share": group.run_share,
        "sources": group.sources,
        "inferred": group.inferred,
        **bounds_json(group),
    }


def _keys(by: tuple[str, ...], group: Group) -> dict[str, Any]:
    names = tuple(dict.fromkeys((*DEFAULT_BY, *by)))
    return {_NAMES.get(name, name): group.keys.get(name) for name in names}


def _wall(summary: Summary, time_ns: int | None) -> str | None:
    """A time of the model as ISO 8601 in UTC."""
    if time_ns is None or not summary.model.realtime_offset_ns:  # 0: not known
        return None
    seconds = (time_ns + summary.model.realtime_offset_ns) / 1e9
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")


def _windows(summary: Summary) -> list[dict[str, Any]]:
    """When processes that paused recorded single calls."""
    processes, table = summary.model.processes, summary.model.tables["windows"]
    return [
        {
            "rank": None if processes[process].global_rank < 0 else processes[process].global_rank,
            "host": processes[process].host,
            "start": _wall(summary, start),
            "end": _wall(summary, end),
        }
        for process, start, end in zip(
            *(table[name].tolist() for name in ("process", "start_ns", "end_ns")), strict=True
        )
    ]


def _communicator(row: CommunicatorRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "name_inferred": row.name_inferred,
        "ranks": row.ranks,
        "nodes": row.nodes,
        **_measures(row.total),
        "bytes_over_time": list(row.slices) or None,
    }


def _rank(row: RankRow) -> dict[str, Any]:
    return {
        "rank": row.rank,
        "host": row.host,
        "operations": row.operations,
        "total_bytes": row.bytes,
        "times_last": row.waiting.times_last if row.waiting else None,
        "caused_wait_ns": row.waiting.origin_ns if row.waiting else None,
        "passed_on_wait_ns": row.waiting.passed_on_ns if row.waiting else None,
        "wait_ns": row.wait_ns,
        "wait_share": row.wait_share,
    }


def _origin(origin: Origin, names: list[str]) -> dict[str, Any]:
    where: dict[str, Any] = {"rank": origin.rank}
    if origin.communicator is not None:
        where = {"communicator": names[origin.communicator]}
    return {
        "kind": origin.kind,
        **where,
        "waiting_ns": origin.waiting_ns,
        "times": origin.times,
        "typical_ns": origin.typical_ns,
        "excess_ns": origin.excess_ns,
        "on_path_ns": origin.on_path_ns,
    }


def waiting_as_json(account: WaitingAccount, names: list[str]) -> dict[str, Any]:
    """The account of waiting. `total_ns` is the sum of the origins and of the parts after them."""
    return {
        "total_ns": account.total_ns,
        "origins": [_origin(origin, names) for origin in account.origins],
        "structure_ns": account.structure_ns,
        "start_up_ns": account.start_up_ns,
        "below_clock_error_ns": account.below_clock_error_ns,
        "unknown_ns": account.unknown_ns,
        "not_seen": account.unseen,
    }


def _traffic(row: TrafficRow) -> dict[str, Any]:
    return {
        "source": row.source,
        "destination": row.destination,
        "messages": row.messages,
        "total_bytes": row.bytes,
        "crosses_nodes": row.crosses_nodes,
    }


def _size(row: SizeRow) -> dict[str, Any]:
    interval = {"gpu_ns_estimate": estimate_json(row.estimate_ns)} if row.estimate_ns else {}
    return {
        "from_bytes": row.low_bytes,
        "operations": row.operations,
        "total_bytes": row.bytes,
        "gpu_ns": row.gpu_ns,
        **interval,
    }


def _gpu_timing(summary: Summary) -> dict[str, Any]:
    """Where GPU times came from, by process; nothing of captures that do not say it."""
    rows = [
        {
            "rank": None if row.global_rank < 0 else row.global_rank,
            "host": row.host,
            "in_force": row.gpu_timing,
            "asked": row.gpu_timing_asked,
            "reason": row.gpu_timing_reason or None,
            "event_excess_ns": row.event_excess_ns,
            "event_error_ns": row.event_error_ns,
            "off_ns": row.gpu_timing_off_ns,
            "changes": [
                {"in_force": timing, "after_s": after} for timing, after in row.timing_changes
            ],
        }
        for row in summary.model.processes
        if row.gpu_timing
    ]
    return {"gpu_timing": rows} if rows else {}


def _roles(summary: Summary) -> dict[str, Any]:
    """Communicators by role, where there are many of them."""
    if not summary.roles:
        return {}
    rows = [
        {
            "role": row.role,
            "communicators": row.communicators,
            "ranks": list(row.ranks),
            "nodes": list(row.nodes),
            **_measures(row.total),
        }
        for row in summary.roles
    ]
    return {"roles": rows}


def as_json(
    summary: Summary, groups: tuple[Group, ...], topology: Topology | None = None
) -> dict[str, Any]:
    """The whole report, with groups in the given order."""
    arrivals = summary.arrivals
    from_operations = not summary.from_counters
    return {
        "version": VERSION,
        "capture": str(summary.model.path),
        "made_from": "operations" if from_operations else "counters",
        "completeness": summary.completeness.as_json(),
        "windows": _windows(summary),
        **_gpu_timing(summary),
        "began": _wall(summary, summary.began_ns),
        "span_ns": summary.span_ns or None,
        "ranks_seen": summary.ranks_seen,
        "by": [_NAMES.get(key, key) for key in summary.by],
        "total": _measures(summary.total),
        "communicators": [_communicator(row) for row in summary.communicators],
        "operations": [{**_keys(summary.by, group), **_measures(group)} for group in groups],
        "scopes": [
            {"scope": row.scope, "communicators": row.communicators, **_measures(row.total)}
            for row in summary.scopes
        ],
        **_roles(summary),
        "ranks": None if summary.ranks is None else [_rank(row) for row in summary.ranks],
        "waiting": None
        if summary.waiting is None
        else waiting_as_json(summary.waiting, summary.model.communicator_names),
        "critical_path": path_as_json(summary.model, summary.path),
        "arrivals": None
        if arrivals is None
        else {
            "compared": arrivals.compared,
            "certain": arrivals.certain,
            "clock_error_ns": arrivals.error_ns,
        },
        "traffic": None if summary.traffic is None else [_traffic(row) for row in summary.traffic],
        "sizes": [_size(row) for row in summary.sizes],
        "bytes_over_time": None if summary.slices is None else list(summary.slices),
        "untimed": summary.untimed,
        "topology": topology.as_json() if topology else None,
        **training_json(summary),
        **exposure_json(summary.exposure, summary.model),
        "notes": [*summary.notes, *([] if from_operations else [_NEEDS_TRACE])],
    }


def _flat_sample(measures: dict[str, Any]) -> dict[str, Any]:
    """Columns of intervals: `total_ns_low`, `total_ns_high` …; empty of groups without a sample."""
    sample = measures.get("sample") or {}
    ends = {
        f"{name}_{end}": (sample.get(name) or {}).get(end)
        for name in _ESTIMATES
        for end in ("low", "high")
    }
    return {"sampled_operations": sample.get("operations")} | ends


def as_csv(summary: Summary, groups: tuple[Group, ...]) -> str:
    """The operations, one row a group."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, group in enumerate(groups):
        keys, measures = _keys(summary.by, group), _measures(group)
        times = measures.pop("duration_ns") or dict.fromkeys(_STATISTICS)
        sources = measures.pop("sources")
        flat = keys | {f"{name}_ns": value for name, value in times.items()} | measures
        if any(other.sample for other in groups):
            flat |= _flat_sample(measures)
        flat.pop("sample", None)
        is_upper = flat.pop("duration_is_upper_bound", False)
        if any(other.durations and other.durations.upper_bound for other in groups):
            flat["duration_is_upper_bound"] = is_upper
        flat["sources"] = " ".join(f"{name}={count}" for name, count in sources.items())
        if not number:
            writer.writerow(flat)
        writer.writerow("" if value is None else value for value in flat.values())
    return out.getvalue()
