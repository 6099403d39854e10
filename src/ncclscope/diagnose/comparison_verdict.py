"""What the measures of two jobs say together: a verdict, its reason, and whether a loss is bounded.

A job is as fast as another one only where all of its time says so: the run after its start-up. The
typical round does not see long rounds now and then, other phases, and time between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.job_samples import LEAST_ROUNDS
from ncclscope.analysis.run_intervals import Difference
from ncclscope.humanize import percent

SLOWER, FASTER, SAME, UNRESOLVED = "slower", "faster", "same", "unresolved"
NOT_COMPARABLE = "not comparable"  # of jobs that were recorded in different ways
NOT_JUDGED = "not judged"  # of kinds whose times do not carry a judgement
ROUND, MEAN_ROUND, RUN, WAITING, WIRE = "round", "mean round", "run", "waiting", "wire"
_TIMES = (ROUND, MEAN_ROUND, RUN)
MATTERS = 0.05  # a change that is worth a word
# What may be left open of what is called the same. Three runs of each that differ by 1 % leave 4 %
# open, and so do the parts of two equal runs on an H200.
LEFT_OPEN = 0.10
_LEFT_OPEN_OF_ONE_RUN = 0.25  # where the interval has the allowance for equal runs in it
_SEVERAL = "compare several runs of each: compare a1 a2 a3 -- b1 b2 b3"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of the job on both sides, by run."""

    name: str  # ROUND …
    a: tuple[float, ...]  # ns; of WAITING, of one rank in a round; of RUN, by round
    b: tuple[float, ...]
    change: float  # b / a; of WAITING, the difference as a share of a's round
    low: float
    high: float
    verdict: str


def judged(change: Difference, known: bool) -> str:
    """What an interval of logarithms or shares says. `known`: whether runs show how much equal runs
    differ; where they do not, one run on each side cannot show less than the allowance.
    """
    if change.low > np.log1p(MATTERS):
        return SLOWER
    if change.high < -np.log1p(MATTERS):
        return FASTER
    return _same(change, LEFT_OPEN if known else _LEFT_OPEN_OF_ONE_RUN)


def judged_by_record(change: Difference) -> str:
    """The same of an interval without what equal runs differ by: it claims no difference."""
    return _same(change, LEFT_OPEN)


def _same(change: Difference, left_open: float) -> str:
    """A difference that was seen and matters is not the same, whatever else may be."""
    far = max(-change.low, change.high)
    is_same = abs(change.value) <= np.log1p(MATTERS) and far < np.log1p(left_open)
    return SAME if is_same else UNRESOLVED


# ---- of all measures ----
def bounds_loss(measures: Sequence[Measure]) -> bool:
    """Whether B's run is known to take no more than what does not matter beyond A's."""
    by_name = {measure.name: measure for measure in measures}
    run = by_name.get(RUN)
    if run is None or SLOWER in (by_name[name].verdict for name in _TIMES):
        return False
    seen = max(run.change, by_name[MEAN_ROUND].change)
    return seen <= 1 + MATTERS and run.high <= 1 + LEFT_OPEN


def verdict_of(measures: Sequence[Measure]) -> str:
    """Times decide where they differ; else slower where anything is, else faster. Faster is said
    only where no loss is left open, and the same only where all of the run's time is.
    """
    verdicts = {measure.name: measure.verdict for measure in measures}
    times = {verdicts.get(name) for name in _TIMES}
    if {SLOWER, FASTER} <= times:
        return UNRESOLVED
    if SLOWER in times or (SLOWER in verdicts.values() and FASTER not in times):
        return SLOWER
    if FASTER in verdicts.values():
        return FASTER if bounds_loss(measures) else UNRESOLVED
    mean = next((m for m in measures if m.name == MEAN_ROUND), None)
    is_same = verdicts.get(RUN) == SAME and mean is not None and not _differs(mean)
    return SAME if is_same else UNRESOLVED


def _differs(measure: Measure) -> bool:
    return max(measure.change, 1 / measure.change) > 1 + MATTERS


def why_unresolved(measures: Sequence[Measure], known: bool) -> str:
    """Why a verdict is UNRESOLVED, and what to do about it."""
    by_name = {measure.name: measure for measure in measures}
    run = by_name.get(RUN)
    more = "more runs of each tell more" if known else _SEVERAL
    if run is None:
        return (
            f"it takes {LEAST_ROUNDS + 1} calls of one kind to show how long a round takes, and "
            "with fewer only the time on the wire was compared: record a longer run"
        )
    times = {by_name[name].verdict for name in _TIMES}
    if {SLOWER, FASTER} <= times:
        return f"typical rounds and all rounds together differ in opposite ways; {more}"
    chance = "that may be chance" if known else "with one run of each that may be chance"
    for name, what in ((RUN, "the run takes by round"), (MEAN_ROUND, "a round takes in the mean")):
        change = by_name[name].change - 1
        if _differs(by_name[name]):
            words = "longer" if change > 0 else "less"
            return f"{what} {percent(abs(change))} {words}, and {chance}; {more}"
    most = 100 * (max(run.high, 1 / run.low) - 1)
    shown_by = "runs differ so much" if known else "its parts differ so much"
    return (
        f"the run takes about as long, but {shown_by} that a difference of {most:.3g} % is left "
        f"open, and only less than {percent(LEFT_OPEN)} counts as the same; {more}"
    )
