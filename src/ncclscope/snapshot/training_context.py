"""Where in its training a process is: step, phase and module, from its live page or its events."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ncclscope.capture import layout
from ncclscope.capture.live_page import LivePage
from ncclscope.capture.process import Process
from ncclscope.humanize import printable
from ncclscope.model.process.events import events_of
from ncclscope.model.process.range_meaning import meaning_of
from ncclscope.model.process.ranges import ranges_of
from ncclscope.model.process.training_steps import meanings_of_texts, steps_of
from ncclscope.model.schema import BACKWARD, NONE

_PHASES = {
    layout.PHASE_DATA: "data",
    layout.PHASE_FORWARD: "forward",
    layout.PHASE_BACKWARD: "backward",
    layout.PHASE_OPTIMIZER: "optimizer",
}


@dataclass(frozen=True, slots=True)
class StepProgress:
    """Training steps of a process so far."""

    steps: int  # that ended
    last_ns: int  # length of the last one; 0 before the second
    data_ns: int  # waited for data, in all of them
    tokens: int  # in all of them, as the program said


def step_progress(page: LivePage) -> StepProgress | None:
    """The steps of a process; None where its ranges say none."""
    slot = page.step
    if slot is None or not int(slot["steps"]):
        return None
    return StepProgress(*(int(slot[name]) for name in ("steps", "last_ns", "data_ns", "tokens")))


def context_from_live_page(page: LivePage, texts: dict[int, str]) -> str:
    """Step, phase and module in words, as `step 812, backward, layers.17`; "" where the process
    recorded no ranges. `texts`: of ranges.
    """
    if page.step is None and not page.open_ranges:
        return ""
    phase, module = _innermost(
        (texts.get(int(slot["text"]), ""), int(slot["chan"])) for _, _, slot in page.open_ranges
    )
    step = None
    if page.step is not None:
        step = int(page.step["steps"])  # that ended; they count from 0
        phase = phase or _PHASES.get(int(page.step["phase"]), "")
    return _in_words(step, phase, module)


def context_from_events(process: Process) -> str:
    """The same from everything that the process left."""
    kinds = process.slots.kinds
    if kinds is not None and not kinds[layout.KINDS["Range"]]:
        return ""
    ranges = ranges_of(events_of(process, ("Range",)))
    if ranges is None:
        return ""
    is_open = np.flatnonzero((ranges.end_ns == NONE) & ~ranges.is_mark & ~ranges.is_loose)
    phase, module = _innermost(
        (ranges.texts[int(ranges.text[place])], int(ranges.source[place])) for place in is_open
    )
    steps = steps_of(ranges, meanings_of_texts(ranges))
    step = None
    if steps is not None and len(steps.number):
        last = int(steps.number[-1])
        step = last if steps.end_ns[-1] == NONE else last + 1
    return _in_words(step, phase, module)


def _innermost(ranges: Iterable[tuple[str, int]]) -> tuple[str, str]:
    """Phase and module of ranges that are open, outer ones first; backward stays backward."""
    phase, module = "", ""
    for text, source in ranges:
        meaning = meaning_of(text, source)
        if meaning.phase and phase != BACKWARD:
            phase = meaning.phase
        module = meaning.module or module
    return phase, module


def _in_words(step: int | None, phase: str, module: str) -> str:
    words = [f"step {step}" if step is not None else "", phase, module]
    return printable(", ".join(word for word in words if word))
