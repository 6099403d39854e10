"""What is known of a capture as a whole: counts over its processes, and notes for its reader."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from ncclscope.capture import layout
from ncclscope.capture.recording_windows import windows_of
from ncclscope.humanize import duration, plural, ranks_in_words
from ncclscope.model.align.bounds import Steps
from ncclscope.model.align.host_clocks import HostClocks
from ncclscope.model.completeness import FLIGHT_RECORDER, SIMULATION, Completeness
from ncclscope.model.match.registry import ProcessRow, Registry
from ncclscope.model.process.decoded_process import DecodedProcess
from ncclscope.model.schema import NONE, Columns

_MOST = 1 << 61  # that a model keeps: damaged captures may add up to more
# Counters of events that were lost after they had been recorded.
_LOSSES = {
    "rotated_out": "given up to the disk limit",
    "slots_lost": "lost in the arena",
    "write_failed": "not written to disk",
    "updates_dropped": "without their stop or state",
    "meta_dropped": "about communicators or clocks dropped",
}
# NCCL's bits of the events that calls and their sequence numbers are read from.
_CALL_EVENTS = [layout.KINDS[name] - 1 for name in ("Coll", "P2p", "GroupApi", "CollApi", "P2pApi")]


@dataclass(slots=True)
class CaptureCounts:
    """Counts over all processes."""

    untimed: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    stamps: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    wall_ns: dict[int, int] = field(default_factory=dict)  # by node
    rows: list[slice] = field(default_factory=list)  # of operations, by process
    notes: dict[str, list[str]] = field(default_factory=dict)  # processes that say the same
    unreadable: list[str] = field(default_factory=list)
    clock_kinds: set[str] = field(default_factory=set)
    silent: list[str] = field(default_factory=list)  # processes without a communicator
    lost: Counter[str] = field(default_factory=Counter)
    losers: dict[str, list[str]] = field(default_factory=dict)  # processes by what they lost
    broken: list[int] = field(default_factory=list)  # processes of which calls are missing
    simulated: bool = False
    sends: list[Steps] = field(default_factory=list)
    receives: list[Steps] = field(default_factory=list)


def add_process(sums: CaptureCounts, part: DecodedProcess, registry: Registry) -> None:
    """Adds what completeness needs to know of one process."""
    process, counts = part.process, part.counts
    sums.untimed.update(counts.untimed)
    for name in ("calls", "operations", "gpu", "in_flight"):
        sums.totals[name] += getattr(counts, name)
    sums.stamps.update(asdict(part.stamp_counts))
    for (name, _), number in process.counters.items():
        if name.startswith("dropped_"):
            sums.dropped[name.removeprefix("dropped_").replace("_", " ")] += number
    sums.clock_kinds.add(process.header.clock)
    if not process.communicators:
        sums.silent.append(process.folder)
    node = registry.processes[-1].node
    sums.wall_ns.setdefault(node, process.clock.realtime_offset_ns)
    for reason, number in _losses(part).items():
        sums.lost[reason] += number
        sums.losers.setdefault(reason, []).append(process.folder)
    if _lost_calls(part):
        sums.broken.append(len(registry.processes) - 1)
    sums.simulated |= process.identity.get("simulation", "") not in ("", "0")
    for note in (*process.notes, *_damage(part)):
        sums.notes.setdefault(note, []).append(process.folder)


def _lost_calls(part: DecodedProcess) -> bool:
    """Whether calls of a process may be missing between others, or before them."""
    process = part.process
    windows = windows_of(process)
    return bool(part.rows and windows.recorded_ns < windows.lived_ns) or any(
        number and (name in _LOSSES or (name.startswith("dropped_") and event in _CALL_EVENTS))
        for (name, event), number in process.counters.items()
    )


def _losses(part: DecodedProcess) -> Counter[str]:
    """Events of a process that were on record and are not any more, by reason."""
    process, lost = part.process, Counter[str]()
    lost["damaged"] = process.damage.bad_slots + part.impossible
    for (name, _), number in process.counters.items():
        if name in _LOSSES:
            ring = name == "rotated_out" and process.identity.get("env.NCCLSCOPE_RING")
            lost[FLIGHT_RECORDER if ring else _LOSSES[name]] += number
    return +lost


def _damage(part: DecodedProcess) -> list[str]:
    """What could not be read of a process, in words."""
    damage, notes = part.process.damage, []
    if damage.torn_bytes:
        notes.append(f"{plural(damage.torn_bytes, 'byte')} cut off at the end")
    if part.unsized:
        notes.append(f"{plural(part.unsized, 'operation')} with an impossible size")
    for name, number in part.of_unknown_datatype.items():
        notes.append(f"{plural(number, 'operation')} of unknown size: unknown datatype {name}")
    return [*notes, *damage.unreadable]


def completeness_of(
    registry: Registry, sums: CaptureCounts, instances: Columns, clocks: HostClocks
) -> Completeness:
    return Completeness(
        processes_found=registry.found_processes(),
        processes_expected=registry.expected_processes(),
        calls=sums.totals["calls"],
        operations=sums.totals["operations"],
        gpu_timed=sums.totals["gpu"],
        repaired=sums.stamps["repaired"] + sums.stamps["recovered"],
        in_flight=sums.totals["in_flight"],
        untimed=dict(sums.untimed.most_common()),
        dropped={name: count for name, count in sums.dropped.most_common() if count},
        stamps=dict(sums.stamps),
        missing_operations=sums.totals["missing"],
        behind_operations=sums.totals["behind"],
        mismatched_instances=int((instances["mismatch"] == 1).sum()),
        notes=[*_job_notes(sums, registry, clocks), *_process_notes(sums)],
        lost=dict(sums.lost.most_common()),
        **_outside(registry.processes, partly_recorded(sums, registry)),
    )


def partly_recorded(sums: CaptureCounts, registry: Registry) -> list[int]:
    """Processes of which not all calls are on record, for whatever reason."""
    paused = {number for number, row in enumerate(registry.processes) if row.paused}
    return sorted(paused.union(sums.broken))


def _process_notes(sums: CaptureCounts) -> list[str]:
    """What processes say, and what they lost; those that say the same in one line."""
    lost = [
        f"{plural(number, 'event')} {reason}, in {_folders(sums.losers[reason])}"
        for reason, number in sums.lost.most_common()
    ]
    return lost + [f"{_folders(folders)}: {note}" for note, folders in sums.notes.items()]


def _folders(folders: list[str]) -> str:
    some = ", ".join(folders[:2]) + (" …" if len(folders) > 2 else "")
    return some if len(folders) == 1 else f"{len(folders):,} processes ({some})"


def _outside(rows: list[ProcessRow], partly: list[int]) -> dict[str, Any]:
    """Calls that processes counted and have not on record, where any recorded single calls."""
    paused = [row for row in rows if row.paused]
    if not any(row.recorded_ns for row in rows):
        return {}
    found = {
        "calls_outside": sum(max(rows[n].calls_counted - rows[n].calls, 0) for n in partly),
        "paused_processes": len(paused),
        "lived_ns": sum(row.lived_ns for row in paused),
        "recorded_ns": sum(row.recorded_ns for row in paused),
    }
    return {name: min(number, _MOST) for name, number in found.items()}


def _job_notes(sums: CaptureCounts, registry: Registry, clocks: HostClocks) -> list[str]:
    """What a reader must know about the job as a whole."""
    rows = registry.processes
    notes = [SIMULATION] if sums.simulated else []
    notes += [f"not read: {text}" for text in sums.unreadable]
    if registry.attempts() > 1:
        notes.append(
            f"{registry.attempts()} attempts of the job are in this capture, {len(rows)} processes "
            "together: totals are of all of them, communicators of earlier ones are marked @, "
            "findings are of the last one"
        )
    for what, values in (
        ("NCCL releases", {row.nccl_version for row in rows if row.nccl_version}),
        ("modes", {row.mode for row in rows if row.mode}),
        ("kinds of clock", sums.clock_kinds),
    ):
        if len(values) > 1:
            notes.append(f"processes have different {what}: {', '.join(sorted(values))}")
    if sums.silent:
        some = ", ".join(sums.silent[:3]) + (" …" if len(sums.silent) > 3 else "")
        silent = plural(len(sums.silent), "process", "processes")
        notes.append(f"{silent} without a communicator: {some}")
    untied = sum(not clock.tied for clock in clocks.nodes)
    if untied:
        notes.append(f"{plural(untied, 'node')} not tied to the first: times by the wall clock")
    if any(row.mode == "profile" for row in rows) and not any(row.recorded_ns for row in rows):
        notes.append("profile mode keeps totals only: times of single operations need trace")
    notes += _pauses(rows)
    if sums.broken and any(row.recorded_ns for row in rows):
        some = plural(len(sums.broken), "process", "processes")
        notes.append(
            f"{some} did not record all calls: on their communicators collectives are matched by "
            "NCCL's own numbers, sends and receives not at all"
        )
    return notes


def _pauses(rows: list[ProcessRow]) -> list[str]:
    """How long processes that did not always do so recorded single calls."""
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


def list_processes(rows: list[ProcessRow]) -> str:
    """The first few processes by rank, or by folder where they have none."""
    ranks = [row.global_rank for row in rows]
    if NONE not in ranks and len(set(ranks)) == len(ranks):
        return ranks_in_words(tuple(sorted(ranks)))
    names = [
        row.folder if r == NONE else f"rank {r}" for row, r in zip(rows[:8], ranks, strict=False)
    ]
    return ", ".join(names) + (" …" if len(rows) > 8 else "")
