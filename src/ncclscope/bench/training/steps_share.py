"""Communication's share of the measured steps, by what a profiler reports of one run.

A step ends when the GPU has carried out all of its work, so that its calls lie in it. Of each rank,
function and size the last calls are those of the measured steps:

    36 Broadcasts of 968 bytes, 5 steps of warm-up, 30 measured ones
        ->  one in each step, one at the start; the last 30 count

What is reported may overlap with computation and with each other, and contains waiting for late
ranks: a share may exceed 100 %.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.bench.profilers.comparison import SOURCE_REMARKS
from ncclscope.bench.profilers.recording import Records
from ncclscope.bench.training.trials import TrainingTrial

# What a profiler's times contain, where their source does not say it; by reader.
_READER_REMARKS = {"flight-recorder": "waiting in the stream included"}
_NOT_OF_THE_GPU = ("host", "enqueue")
SAMPLE = (
    "a sample, most of it of the first eight calls of a size, which are warm-up: their mean stands "
    "for the calls of the steps"
)
NOT_ALL = "calls are missing, or not alike in each step: no share"
NO_TIMES = "no time for each call: no share"


@dataclass(frozen=True, slots=True)
class StepsShare:
    """Reported time of the calls of the measured steps beside the time of these steps."""

    reported_ms: float | None  # of a step, mean of ranks; None: not known
    step_ms: float  # mean of these steps and of ranks
    share: float | None  # reported by steps, mean of ranks
    remark: str  # why there is no share, or what its times are


def calls_a_step(count: int, steps: int, others: int) -> int | None:
    """How many of these calls each step makes; 0: all are the start's; None: it cannot be told.

    Up to `others` of them may be too many or too few: the start makes some, and the first step may
    make different ones (DistributedDataParallel chooses its buckets anew after it).
    """
    each = round(count / steps)
    return each if abs(count - each * steps) <= others else None


def _measured_ns(records: Records, each: int, steps: int) -> float | None:
    """The reported time of the calls of the last steps; None: not all of them have one."""
    number = each * steps
    if not number:
        return 0.0
    if records.sampled:
        return _estimated_mean_ns(records, number)
    last = records.durations_ns[-number:]
    return float(sum(last)) if len(last) == number and min(last) >= 0 else None


def _estimated_mean_ns(records: Records, number: int) -> float | None:
    """The time of so many calls, each as long as the sample's estimate of the mean call."""
    if records.estimated_ns >= 0:
        return records.estimated_ns * number / records.count
    times = [time_ns for time_ns in records.durations_ns if time_ns >= 0]
    return float(np.mean(times)) * number if times else None


def _rank_ns(
    records: Sequence[Records], steps: int, warm_up: int, expected: float
) -> tuple[float | None, str]:
    """The reported time of one rank's calls in the last steps, or why it is not known."""
    if not records or sum(own.count for own in records) < expected - warm_up:
        return None, NOT_ALL
    total_ns = 0.0
    for own in records:
        each = calls_a_step(own.count, steps + warm_up, warm_up)
        if each is None:
            return None, NOT_ALL
        time_ns = _measured_ns(own, each, steps)
        if time_ns is None:
            return None, NO_TIMES
        total_ns += time_ns
    return total_ns, ""


def _remarks(reader: str, records: Iterable[Records]) -> list[str]:
    """What the times of these records are."""
    remarks: dict[str, None] = {}  # each once, in order
    for own in records:
        for remark in (SAMPLE if own.sampled else "", SOURCE_REMARKS.get(own.source, "")):
            remarks[remark] = None
    remarks[_READER_REMARKS.get(reader, "")] = None
    return [remark for remark in remarks if remark]


def steps_share(
    trial: TrainingTrial, reader: str, warm_up: int, calls_made: int | None
) -> StepsShare:
    """Communication's share of a run's measured steps; of a window of steps, of these.

    `calls_made` of all ranks in a run: where records are fewer than the start may lack, whole kinds
    of calls may be missing. None: not known.
    """
    window = trial.window_steps
    steps = [times[-window:] for times in trial.step_ns]
    step_ms = float(np.mean(steps)) / 1e6
    if not trial.records:
        return StepsShare(None, step_ms, None, "")
    remarks = _remarks(reader, trial.records)
    if any(records.source in _NOT_OF_THE_GPU for records in trial.records):
        return StepsShare(None, step_ms, None, "; ".join([*remarks, "no share"]))
    ranks, shares, reported_ms = len(steps), [], []
    # A window records its own steps alone, and what it should hold is in no count.
    before, expected = (0, 0.0) if window else (warm_up, (calls_made or 0) / ranks)
    for rank, times in enumerate(steps):
        own = [records for records in trial.records if records.rank == rank]
        time_ns, why = _rank_ns(own, len(times), before, expected)
        if time_ns is None:
            return StepsShare(None, step_ms, None, "; ".join([*remarks, why]))
        shares.append(time_ns / sum(times))
        reported_ms.append(time_ns / len(times) / 1e6)
    return StepsShare(
        float(np.mean(reported_ms)), step_ms, float(np.mean(shares)), "; ".join(remarks)
    )
