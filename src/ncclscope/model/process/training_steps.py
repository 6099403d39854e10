"""When the training steps of one process began, from the best source that its ranges give.

In this order: marks of `ncclscope.torch.step`, ends of the optimizer's step, ranges with one rising
number in their texts (`iteration 12`), calls of the root module. Jobs without ranges have steps by
the period of their calls: model/periodic_steps.py.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import layout
from ncclscope.model.process.range_meaning import (
    OPTIMIZER_STEP,
    ROOT_CALL,
    STEP_MARK,
    Meaning,
    meaning_of,
    number_in,
)
from ncclscope.model.process.ranges import Ranges
from ncclscope.model.schema import BACKWARD, DATA, FORWARD, NONE, OPTIMIZER

_LARGEST_STEP = (1 << 31) - 2
_FEWEST_NUMBERED = 3  # ranges that make a series
# As many times the usual number of optimizer calls between two batches are calls of several steps:
# their batches were worked on in a CUDA graph, whose replays push no ranges.
_STEPS_OF_A_GRAPH = 4


@dataclass(frozen=True, slots=True)
class TrainingSteps:
    """Steps in order; each lasts until the next begins. The last may have no end: NONE."""

    origin: str  # how they are known: one of schema.ORIGINS
    number: Ints
    start_ns: Ints
    end_ns: Ints

    def at(self, times_ns: Ints) -> Ints:
        """The place of the step at each time; NONE before the first and after the last."""
        if not len(self.start_ns):
            return np.full(len(times_ns), NONE, np.int64)
        place = np.searchsorted(self.start_ns, times_ns, side="right") - 1
        ended = self.end_ns[np.maximum(place, 0)]
        return np.where((ended != NONE) & (times_ns > ended), NONE, place)


def meanings_of_texts(ranges: Ranges) -> list[Meaning]:
    """What each text means."""
    return [
        meaning_of(text, source)
        for text, source in zip(ranges.texts, ranges.sources_of_texts(), strict=True)
    ]


def steps_of(ranges: Ranges, meanings: list[Meaning]) -> TrainingSteps | None:
    """The steps of a process; None where its ranges say nothing about them."""
    role = [meaning.step for meaning in meanings]
    phase = [meaning.phase for meaning in meanings]
    return (
        _from_marks(ranges, role, phase)
        or _from_optimizer(ranges, role, phase)
        or _from_numbers(ranges, meanings)
        or _from_root_calls(ranges, role)
    )


def _with(ranges: Ranges, values: list[str], *wanted: str) -> Bools:
    """Which ranges have a text with one of these values."""
    by_text = np.array([value in wanted for value in values], bool)
    return by_text[ranges.text] if len(by_text) else np.zeros(len(ranges), bool)


def _until(
    ranges: Ranges, phase: list[str], ends: Ints, numbers: Ints, origin: str
) -> TrainingSteps:
    """Steps that end at these times. The first begins with the first work on a batch, a last one
    without an end exists where forward or backward came after the last end.
    """
    works = _with(ranges, phase, DATA, FORWARD, BACKWARD, OPTIMIZER) & (ranges.start_ns <= ends[0])
    first = int(ranges.start_ns[works].min()) if works.any() else int(ends[0])
    starts = np.concatenate([[first], ends[:-1]])
    goes_on = _with(ranges, phase, FORWARD, BACKWARD) & (ranges.start_ns > ends[-1])
    if goes_on.any():
        starts, ends = np.append(starts, ends[-1]), np.append(ends, NONE)
        numbers = np.append(numbers, numbers[-1] + 1)
    return TrainingSteps(origin, numbers, starts, ends)


def _from_marks(ranges: Ranges, role: list[str], phase: list[str]) -> TrainingSteps | None:
    marks = np.flatnonzero(_with(ranges, role, STEP_MARK))
    if not len(marks):
        return None
    marks = marks[np.argsort(ranges.start_ns[marks], kind="stable")]
    given = ranges.payload_type[marks] != layout.PAYLOAD_NONE
    counted = np.arange(len(marks))
    numbers = np.where(given.all(), ranges.payload[marks], counted)
    if (np.diff(numbers) <= 0).any() or numbers.min() < 0 or numbers.max() > _LARGEST_STEP:
        numbers = counted
    return _until(ranges, phase, ranges.start_ns[marks], numbers.astype(np.int64), "marks")


def _from_optimizer(ranges: Ranges, role: list[str], phase: list[str]) -> TrainingSteps | None:
    """Ends of the optimizer that was seen first. Several calls without work on a batch between
    them, as of several optimizers of one class, are one step.
    """
    of_any = np.flatnonzero(_with(ranges, role, OPTIMIZER_STEP) & (ranges.end_ns != NONE))
    if not len(of_any):
        return None
    first = of_any[np.argmin(ranges.start_ns[of_any])]
    own = of_any[ranges.text[of_any] == ranges.text[first]]
    ends = np.sort(ranges.end_ns[own])
    works = np.sort(ranges.start_ns[_with(ranges, phase, DATA, FORWARD, BACKWARD)])
    if len(works):
        ends = ends[_last_calls(np.searchsorted(works, ends))]
    return _until(ranges, phase, ends, np.arange(len(ends)), "optimizer")


def _last_calls(works_before: Ints) -> Ints:
    """Places of the optimizer's last call in each step.

    `works_before`: ranges of work on a batch before each call. 2 2 4 4 6 6 are two optimizers and
    three steps: 1, 3, 5. 5 5 5 5 5 are steps of a graph, which was captured before the first.
    """
    last = np.flatnonzero(np.append(np.diff(works_before) > 0, True))
    lengths = np.diff(last, prepend=-1)
    usual = int(np.median(lengths)) if len(lengths) > 1 else 1
    graphs = np.flatnonzero(lengths >= _STEPS_OF_A_GRAPH * usual)
    within = [np.arange(last[run] - lengths[run] + usual, last[run], usual) for run in graphs]
    return np.unique(np.concatenate([last, *within]))


def _from_numbers(ranges: Ranges, meanings: list[Meaning]) -> TrainingSteps | None:
    """The longest series of ranges whose texts differ by one number that rises by one."""
    series: dict[str, list[tuple[int, int]]] = {}  # by the rest of the text: number, place
    numbers = [
        None if meaning.phase or meaning.module else number_in(text)
        for text, meaning in zip(ranges.texts, meanings, strict=True)
    ]
    has_number = np.array([number is not None for number in numbers], bool)
    for place in np.flatnonzero(has_number[ranges.text] & ~ranges.is_mark).tolist():
        numbered = numbers[ranges.text[place]]
        if numbered:
            series.setdefault(numbered[0], []).append((numbered[1], place))
    best: list[tuple[int, int]] = []
    for members in series.values():
        rises = all(b[0] - a[0] == 1 for a, b in pairwise(members))
        if rises and len(members) >= max(_FEWEST_NUMBERED, len(best) + 1):
            best = members
    if not best:
        return None
    number, place = np.array(best, np.int64).T
    starts = ranges.start_ns[place]
    if (np.diff(starts) <= 0).any():
        return None
    return TrainingSteps("ranges", number, starts, np.append(starts[1:], ranges.end_ns[place[-1]]))


def _from_root_calls(ranges: Ranges, role: list[str]) -> TrainingSteps | None:
    calls = np.flatnonzero(_with(ranges, role, ROOT_CALL))
    if not len(calls):
        return None
    starts = np.sort(ranges.start_ns[calls])
    ends = np.append(starts[1:], NONE)
    return TrainingSteps("root calls", np.arange(len(starts)), starts, ends)
