"""Stacks of ranks as text and as JSON. Ranks whose threads are at the same place are shown once."""

from collections.abc import Iterator, Sequence
from typing import Any

from ncclscope.humanize import plural, printable, ranks_in_words
from ncclscope.model.schema import NONE
from ncclscope.snapshot.stacks import ProcessStacks, ThreadStack

_MOST_FRAMES = 16  # of a thread; --json has all
_MAIN = "MainThread"


def stack_lines(stacks: Sequence[ProcessStacks]) -> Iterator[str]:
    """The main thread of every live rank, then other threads of Python."""
    if not stacks:
        yield "no stacks: no process of the job is alive"
        return
    yield "stacks, the innermost call first:"
    for threads in (True, False):
        groups: dict[ThreadStack, list[ProcessStacks]] = {}
        for process in stacks:
            for thread in process.threads:
                if (thread.name == _MAIN) == threads:
                    groups.setdefault(thread, []).append(process)
        for thread, processes in groups.items():
            yield f"  {_who(processes)}, {printable(thread.name)}:"
            for frame in thread.frames[:_MOST_FRAMES]:
                yield f"      {printable(str(frame))}"
            if len(thread.frames) > _MOST_FRAMES:
                yield f"      … {plural(len(thread.frames) - _MOST_FRAMES, 'more call')}: --json"
    reasons: dict[str, list[ProcessStacks]] = {}
    for process in stacks:
        if process.why_not:
            reasons.setdefault(process.why_not, []).append(process)
    for why_not, processes in reasons.items():
        yield f"  no stack of {_who(processes)}: {printable(why_not)}"


def _who(processes: Sequence[ProcessStacks]) -> str:
    known = tuple(process.rank for process in processes if process.rank != NONE)
    if known:
        return ranks_in_words(known)
    return f"pid {', '.join(str(process.pid) for process in processes)}"


def stacks_json(stacks: Sequence[ProcessStacks]) -> list[dict[str, Any]]:
    """One object for each process."""
    return [
        {
            "rank": None if process.rank == NONE else process.rank,
            "host": process.host,
            "pid": process.pid,
            "threads": [
                {
                    "name": thread.name,
                    "frames": [
                        {
                            "function": frame.function,
                            "file": frame.file,
                            "line": frame.line or None,
                        }
                        for frame in thread.frames
                    ],
                }
                for thread in process.threads
            ],
            "why_not": process.why_not or None,
        }
        for process in stacks
    ]
