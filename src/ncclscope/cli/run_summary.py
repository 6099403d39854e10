"""What `ncclscope run` says when the job has ended."""

from collections import Counter
from collections.abc import Container
from pathlib import Path

from ncclscope.capture.contents import ProcessContents, contents_of_capture
from ncclscope.capture.liveness import ENDED, FATES, life_in
from ncclscope.cli import suggested_commands
from ncclscope.humanize import amount, plural, printable

_NOTES_SHOWN = 3


def _note_lines(tallies: list[ProcessContents]) -> list[str]:
    """What the recorder said went wrong; of a large job, the first few."""
    notes = [note for tally in tallies for note in tally.notes]
    lines = [f"           note: {printable(note)}" for note in notes[:_NOTES_SHOWN]]
    if len(notes) > _NOTES_SHOWN:
        lines.append(f"           and {plural(len(notes) - _NOTES_SHOWN, 'more note')}")
    return lines


def summary_lines(capture: Path, tallies: list[ProcessContents]) -> list[str]:
    """What was recorded, in a few lines, and what to do next."""
    if not tallies:
        return [
            "ncclscope: nothing recorded: no NCCL communicator was created, or its NCCL did not "
            "load the plugin",
            f"           next: {suggested_commands.command('doctor')}",
        ]
    calls, events = sum(t.calls for t in tallies), sum(t.events for t in tallies)
    dropped = sum(t.dropped for t in tallies)
    lives = [life_in(capture / tally.folder) for tally in tallies if not tally.ended]
    fates = Counter(FATES[life] for life in lives if life != ENDED)
    size = amount(sum(t.bytes for t in tallies))
    counts = f"{plural(calls, 'call')}, {plural(events, 'event')}, {dropped:,} dropped, {size}"
    ends = "".join(f", {count} of them {fate}" for fate, count in sorted(fates.items()))
    return [
        f"ncclscope: {plural(len(tallies), 'process', 'processes')}{ends}; {counts} in {capture}",
        *_note_lines(tallies),
        f"           next: {suggested_commands.command('report', capture)}",
    ]


def sum_up(capture: Path, earlier: Container[str], sampled: str) -> list[str]:
    """Lines about this run; `earlier` are folders that were there before it."""
    tallies = [tally for tally in contents_of_capture(capture) if tally.folder not in earlier]
    lines = summary_lines(capture, tallies)
    lines[1:1] = [f"           {printable(sampled)}"] if sampled else []
    return lines
