"""The summary that `ncclscope run` prints when the job has ended."""

from collections import Counter
from collections.abc import Container
from pathlib import Path

from ncclscope.capture.contents import ProcessContents, contents_of_capture
from ncclscope.capture.liveness import (
    ALIVE,
    ENDED,
    FATES,
    STOPPED,
    counts_end_early,
    life_in,
)
from ncclscope.capture.timing_changes import off_in_words
from ncclscope.cli import suggested_commands
from ncclscope.humanize import amount, plural, printable
from ncclscope.launch.environment import why_not_writable
from ncclscope.nccl.gpu_timing import Spans, kernel_sentence
from ncclscope.nccl.releases import Release, release_of_code

_MOST_NOTES = 3


def summary_lines(capture: Path, earlier: Container[str], sampled: str) -> list[str]:
    """What this run recorded, and what to do next. `earlier` are process folders that were there
    before it, `sampled` is the sampler's summary.
    """
    processes = [p for p in contents_of_capture(capture) if p.folder not in earlier]
    lines = contents_lines(capture, processes)
    lines[1:1] = [f"           {printable(sampled)}"] if sampled else []
    return lines


def contents_lines(capture: Path, processes: list[ProcessContents]) -> list[str]:
    """What these processes recorded, and what to do next."""
    cause = why_not_writable(capture) if not processes else ""
    if cause:
        return [
            f"ncclscope: nothing recorded: cannot write into {printable(str(capture))}: {cause}",
            "           next: record again with another directory, -o DIR",
        ]
    if not processes:
        return [
            "ncclscope: nothing recorded: no NCCL communicator was created, or its NCCL did not "
            "load the plugin",
            f"           next: {suggested_commands.command('doctor')}",
        ]
    calls, events = sum(p.calls for p in processes), sum(p.events for p in processes)
    dropped = sum(p.dropped for p in processes)
    lives = [life_in(capture / process.folder) for process in processes if not process.ended]
    fates = Counter(FATES[life] for life in lives if life != ENDED)
    size = amount(sum(p.bytes for p in processes))
    counts = f"{plural(calls, 'call')}, {plural(events, 'event')}, {dropped:,} dropped, {size}"
    ends = "".join(f", {count} of them {fate}" for fate, count in sorted(fates.items()))
    count = plural(len(processes), "process", "processes")
    return [
        f"ncclscope: {count}{ends}; {counts} in {capture}",
        *_early_lines(capture, processes),
        *(f"           {printable(line)}" for line in timing_lines(processes)),
        *_note_lines(processes),
        f"           next: {suggested_commands.command(_next_verb(fates), capture)}",
    ]


def _next_verb(fates: Counter[str]) -> str:
    """What to look at: why a job did not end as it should, else what it did."""
    if fates[FATES[ALIVE]] or fates[FATES[STOPPED]]:
        return "status"
    return "diagnose" if fates else "report"


def _early_lines(capture: Path, processes: list[ProcessContents]) -> list[str]:
    """How many processes were gone before they could write their last counts."""
    early = sum(counts_end_early(capture / p.folder, p.ended) for p in processes)
    some = plural(early, "process", "processes")
    return [f"           counts of {some} end early, at the last heartbeat"] if early else []


def timing_lines(processes: list[ProcessContents]) -> list[str]:
    """Which GPU timing was in force, and what it costs; nothing of recorders that do not say it."""
    identities = [process.identity for process in processes]
    policies = Counter(
        (identity["gpu_timing.in_force"], identity.get("gpu_timing.reason", ""))
        for identity in identities
        if identity.get("gpu_timing.in_force")
    )
    lines = []
    for (policy, reason), _ in policies.most_common():
        because = f" ({reason})" if reason else ""
        if policy == "kernel":
            because += f"; {kernel_sentence(_release(identities), _spans(processes))}"
        lines.append(f"GPU timing {policy}{because}")
    switched = Counter(filter(None, (off_in_words(p.timing_changes) for p in processes)))
    for periods, count in switched.most_common(_MOST_NOTES):
        some = f" in {plural(count, 'process', 'processes')}" if count < len(processes) else ""
        lines.append(f"GPU timing was switched {periods}{some}, by ctl")
    return lines


def _spans(processes: list[ProcessContents]) -> Spans:
    """What NCCL says about the communicators; what it does not say may be both."""
    nodes = {count for process in processes for count in process.comm_nodes}
    unknown = not nodes or any(count < 1 for count in nodes)
    return Spans(unknown or 1 in nodes, unknown or any(count > 1 for count in nodes))


def _release(identities: list[dict[str, str]]) -> Release | None:
    """NCCL's release, where a process says it."""
    codes = [identity.get("nccl_version", "") for identity in identities]
    numbers = [int(code) for code in codes if code.isdigit()]
    return release_of_code(numbers[0]) if numbers else None


def _note_lines(processes: list[ProcessContents]) -> list[str]:
    """The recorder's notes about what went wrong; only the first few."""
    notes = [note for process in processes for note in process.notes]
    lines = [f"           note: {printable(note)}" for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        lines.append(f"           and {plural(len(notes) - _MOST_NOTES, 'more note')}")
    return lines
