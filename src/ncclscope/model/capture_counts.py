"""Counts over all processes of a capture, and notes for its reader: what completeness says."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from ncclscope.capture.recording_windows import windows_of
from ncclscope.humanize import duration, plural
from ncclscope.model.align.host_clocks import HostClocks
from ncclscope.model.completeness import (
    FLIGHT_RECORDER,
    SIMULATION,
    Completeness,
    impossible_sizes,
    not_read,
)
from ncclscope.model.match.registry import Registry
from ncclscope.model.process.decoded_process import DecodedProcess
from ncclscope.model.rows import ProcessRow, list_processes
from ncclscope.model.schema import Columns
from ncclscope.nccl.events import NUMBER

_MOST = 1 << 61  # that a model keeps: damaged captures may add up to more
# Counters of events that were lost after they had been recorded.
_LOSSES = {
    "rotated_out": "given up to the disk limit",
    "slots_lost": "lost in the arena",
    "write_failed": "not written to disk",
    "updates_dropped": "without their stop or state",
    "meta_dropped": "about communicators or clocks dropped",
}
# Events that calls and their sequence numbers are read from.
_CALL_EVENTS = [NUMBER[name] for name in ("Coll", "P2p", "GroupApi", "CollApi", "P2pApi")]


@dataclass(slots=True)
class CaptureCounts:
    """Counts over all processes."""

    untimed: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    stamps: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    notes: dict[str, list[str]] = field(default_factory=dict)  # processes by note
    unreadable: list[str] = field(default_factory=list)
    clock_kinds: set[str] = field(default_factory=set)
    silent: list[str] = field(default_factory=list)  # processes without a communicator
    lost: Counter[str] = field(default_factory=Counter)
    lost_in: dict[str, list[str]] = field(default_factory=dict)  # processes by reason
    incomplete: list[int] = field(default_factory=list)  # processes of which calls are missing
    end_early: int = 0  # processes whose last counts are nowhere
    simulated: bool = False

    def add(self, decoded: DecodedProcess, row: int) -> None:
        """Adds one process; `row`: of `processes`."""
        process, counts = decoded.process, decoded.counts
        self.untimed.update(counts.untimed)
        for name in ("calls", "operations", "gpu", "in_flight"):
            self.totals[name] += getattr(counts, name)
        self.stamps.update(asdict(decoded.stamp_counts))
        for (name, _), number in process.counters.items():
            if name.startswith("dropped_"):
                self.dropped[name.removeprefix("dropped_").replace("_", " ")] += number
        self.clock_kinds.add(process.header.clock)
        if not process.communicators:
            self.silent.append(process.folder)
        for reason, number in _losses(decoded).items():
            self.lost[reason] += number
            self.lost_in.setdefault(reason, []).append(process.folder)
        if _lost_calls(decoded):
            self.incomplete.append(row)
        self.end_early += process.counts_end_early
        self.simulated |= process.identity.get("simulation", "") not in ("", "0")
        for note in (*process.notes, *_damage(decoded)):
            self.notes.setdefault(note, []).append(process.folder)

    def partly_recorded(self, rows: list[ProcessRow]) -> list[int]:
        """Processes of which not all calls are on record, for whatever reason."""
        paused = {number for number, row in enumerate(rows) if row.paused}
        return sorted(paused.union(self.incomplete))


def _lost_calls(decoded: DecodedProcess) -> bool:
    """Whether calls of a process may be missing between others, or before them."""
    windows = windows_of(decoded.process)
    return bool(decoded.rows and windows.recorded_ns < windows.lived_ns) or any(
        number and (name in _LOSSES or (name.startswith("dropped_") and event in _CALL_EVENTS))
        for (name, event), number in decoded.process.counters.items()
    )


def _losses(decoded: DecodedProcess) -> Counter[str]:
    """Events of a process that were recorded and then lost, by reason."""
    process, lost = decoded.process, Counter[str]()
    lost["damaged"] = process.damage.bad_slots + decoded.impossible
    for (name, _), number in process.counters.items():
        if name in _LOSSES:
            ring = name == "rotated_out" and process.identity.get("env.NCCLSCOPE_RING")
            lost[FLIGHT_RECORDER if ring else _LOSSES[name]] += number
    return +lost


def _damage(decoded: DecodedProcess) -> list[str]:
    """What could not be read of a process, as notes."""
    damage, notes = decoded.process.damage, []
    if damage.torn_bytes:
        notes.append(f"{plural(damage.torn_bytes, 'byte')} cut off at the end")
    if decoded.unsized:
        notes.append(impossible_sizes(decoded.unsized))
    for name, number in decoded.of_unknown_datatype.items():
        notes.append(f"{plural(number, 'operation')} of unknown size: unknown datatype {name}")
    if graphs := decoded.process.graphs.at_least:
        some = plural(len(graphs), "CUDA graph")
        notes.append(f"replays of {some} are counted up to the last heartbeat: there may be more")
    return [*notes, *damage.unreadable]


def completeness_of(
    registry: Registry, counts: CaptureCounts, instances: Columns, clocks: HostClocks
) -> Completeness:
    """What was seen of a capture against what must exist."""
    rows = registry.processes.rows
    return Completeness(
        processes_found=registry.processes.count_in_last_attempt(),
        processes_expected=registry.expected_processes(),
        calls=counts.totals["calls"],
        operations=counts.totals["operations"],
        gpu_timed=counts.totals["gpu"],
        repaired=counts.stamps["repaired"] + counts.stamps["recovered"],
        in_flight=counts.totals["in_flight"],
        untimed=dict(counts.untimed.most_common()),
        dropped={name: count for name, count in counts.dropped.most_common() if count},
        stamps=dict(counts.stamps),
        missing_operations=counts.totals["missing"],
        behind_operations=counts.totals["behind"],
        mismatched_instances=int((instances["mismatch"] == 1).sum()),
        notes=[*_job_notes(counts, registry, clocks), *_process_notes(counts)],
        lost=dict(counts.lost.most_common()),
        counts_end_early=counts.end_early,
        **_outside(rows, counts.partly_recorded(rows)),
    )


def _process_notes(counts: CaptureCounts) -> list[str]:
    """What processes lost and noted; processes with the same note in one line."""
    lost = [
        f"{plural(number, 'event')} {reason}, in {_folders(counts.lost_in[reason])}"
        for reason, number in counts.lost.most_common()
    ]
    return lost + [f"{_folders(folders)}: {note}" for note, folders in counts.notes.items()]


def _folders(folders: list[str]) -> str:
    some = ", ".join(folders[:2]) + (" …" if len(folders) > 2 else "")
    return some if len(folders) == 1 else f"{len(folders):,} processes ({some})"


def _outside(rows: list[ProcessRow], partly: list[int]) -> dict[str, Any]:
    """Calls that are in counters only, and times of processes that paused; nothing where no
    process recorded single calls.
    """
    paused = [row for row in rows if row.paused]
    if not any(row.recorded_ns for row in rows):
        return {}
    numbers = {
        "calls_outside": sum(max(rows[n].calls_counted - rows[n].calls, 0) for n in partly),
        "paused_processes": len(paused),
        "lived_ns": sum(row.lived_ns for row in paused),
        "recorded_ns": sum(row.recorded_ns for row in paused),
    }
    return {name: min(number, _MOST) for name, number in numbers.items()}


def _job_notes(counts: CaptureCounts, registry: Registry, clocks: HostClocks) -> list[str]:
    """What a reader must know about the job as a whole."""
    rows, attempts = registry.processes.rows, len(registry.processes.attempts)
    notes = [SIMULATION] if counts.simulated else []
    notes += [not_read(error) for error in counts.unreadable]
    if attempts > 1:
        notes.append(
            f"{attempts} attempts of the job are in this capture, {len(rows)} processes "
            "together: totals are of all of them, communicators of earlier ones are marked @, "
            "findings are of the last one"
        )
    for what, values in (
        ("NCCL releases", {row.nccl_version for row in rows if row.nccl_version}),
        ("modes", {row.mode for row in rows if row.mode}),
        ("kinds of clock", counts.clock_kinds),
    ):
        if len(values) > 1:
            notes.append(f"processes have different {what}: {', '.join(sorted(values))}")
    if counts.silent:
        some = ", ".join(counts.silent[:3]) + (" …" if len(counts.silent) > 3 else "")
        silent = plural(len(counts.silent), "process", "processes")
        notes.append(f"{silent} without a communicator: {some}")
    untied = sum(not clock.tied for clock in clocks.nodes)
    if untied:
        notes.append(f"{plural(untied, 'node')} not tied to the first: times by the wall clock")
    if any(row.mode == "profile" for row in rows) and not any(row.recorded_ns for row in rows):
        notes.append("profile mode keeps totals only: times of single operations need trace")
    notes += _pauses(rows)
    if counts.incomplete and any(row.recorded_ns for row in rows):
        some = plural(len(counts.incomplete), "process", "processes")
        notes.append(
            f"{some} did not record all calls: on their communicators collectives are matched by "
            "NCCL's own numbers, sends and receives not at all"
        )
    return notes


def _pauses(rows: list[ProcessRow]) -> list[str]:
    """How long processes that paused recorded single calls."""
    paused = [row for row in rows if row.paused]
    if not paused or not any(row.recorded_ns for row in rows):
        return []
    recorded, lived = (
        duration(sum(getattr(row, name) for row in paused) / len(paused))
        for name in ("recorded_ns", "lived_ns")
    )
    some = plural(len(paused), "process", "processes")
    each = " each, on average" if len(paused) > 1 else ""
    return [
        f"{some} recorded single calls for {recorded} of {lived}{each}, and totals otherwise: "
        f"{list_processes(paused)}"
    ]
