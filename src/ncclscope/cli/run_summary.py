"""The summary that `ncclscope run` prints when the job has ended."""

from collections import Counter
from collections.abc import Container
from pathlib import Path

from ncclscope.capture.contents import ProcessContents, contents_of_capture
from ncclscope.capture.liveness import ENDED, FATES, life_in
from ncclscope.cli import suggested_commands
from ncclscope.humanize import amount, plural, printable

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
        *_note_lines(processes),
        f"           next: {suggested_commands.command('report', capture)}",
    ]


def _note_lines(processes: list[ProcessContents]) -> list[str]:
    """The recorder's notes about what went wrong; only the first few."""
    notes = [note for process in processes for note in process.notes]
    lines = [f"           note: {printable(note)}" for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        lines.append(f"           and {plural(len(notes) - _MOST_NOTES, 'more note')}")
    return lines
