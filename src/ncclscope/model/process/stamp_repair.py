"""Which GPU stamps to believe, and whose they are.

NCCL's host side and the device both count the works of a channel; the kernel event of work number i
carries the stamp that the device wrote for its number i. When the device counts a work that the
host does not, every later kernel event of that channel carries the stamp of an earlier work: it
lags, by a number of works that never falls. NCCL says nothing. What is known: a work cannot start
before its launch, and how many works the host did not count. Bounds on the lag from both sides are
carried along each channel; where they meet, the right stamp is the one that a later event brought.

Example, times in µs. A channel carries out A, B, X, C, D; the host did not count X.

    work   launched   starts   its event brings
    A           100      105   105
    B           200      205   205
    X           300      305   (it has no event)
    C           400      405   305, which is X's
    D           500      505   405, which is C's

Sorted by stamps, the events of A, B, C, D have the numbers 0 to 3.

- From below: C was launched at 400, and the first stamp that is not older is number 3, so C's lag
  is at least 3 - 2 = 1. For A and B it is at least 0.
- From above: no work was uncounted before A and B, one was before C and D, so their lags are at
  most 0, 0, 1, 1.
- Both agree. C's own stamp is number 2 + 1 = 3, which D's event brought: 405, repaired. D's would
  be number 4, but no event brought it: D has no time. Stamp number 2, which is 305, is left over;
  `gpu_stamps` gives it to X, which was launched before it.

If nothing showed that X ran, C's lag would be at most 0 and at least 1: the stamps contradict each
other. If C had been launched at 290, its lag could be 0 or 1: they are ambiguous. In both cases C
has no time: stamps are never guessed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE, STAMPS

VALID, REPAIRED, RECOVERED, REJECTED, MISSING = range(len(STAMPS))
# A kernel that starts this soon after its launch was not waiting for another one. Chosen on
# recorded jobs (H200), where no wrong stamp is accepted (test_operations.py); test_gpu_stamps.py
# pins it.
PROMPT_NS = 25_000
FAR_PAST = np.iinfo(np.int64).min // 4
FAR_FUTURE = np.iinfo(np.int64).max // 4
REASONS = (
    "",
    "stamp never delivered",
    "stamps are ambiguous",
    "stamps contradict each other",
    "stop before start",
    "overlaps another work",
)
WRONG_STAMP_REASONS = REASONS[1:]
OK, NEVER_DELIVERED, AMBIGUOUS, CONFLICT, BACKWARDS, OVERLAP = range(len(REASONS))


@dataclass(frozen=True, slots=True)
class ChannelEvents:
    """Kernel events of one communicator's channel, in any order; stamps are GPU ns."""

    gpu_start: Ints
    gpu_stop: Ints
    latest_start_ns: Ints  # host time of gpu_start, at latest
    latest_stop_ns: Ints
    group: Ints  # events of one group with equal stamps are one work
    not_before_ns: Ints  # its launch; FAR_PAST where nothing is known
    launch_end_ns: Ints  # FAR_FUTURE where nothing is known
    uncounted_before: Ints  # works that the host did not count, before this one
    uncounted_in_group: Bools


@dataclass(frozen=True, slots=True)
class StampAssignment:
    """For each event: what became of its work's stamps, where they were, and why there are none."""

    stamp: npt.NDArray[np.int8]
    owner: Ints  # place of the event that brought the true stamps, NONE
    reason: npt.NDArray[np.int8]
    left_over: Ints  # places of events whose stamps belong to no event's work, in order
    certain: bool  # no event of the channel is ambiguous


def repair(events: ChannelEvents) -> StampAssignment:
    """The stamps of each event's work."""
    count = len(events.gpu_start)
    order = np.lexsort((events.gpu_stop, events.gpu_start))
    first = _first_of_work(events, order)
    work = np.cumsum(first) - 1  # of each event, in order
    leaders = order[first]  # one event for each work
    low, up = _lag_bounds(events, leaders)
    lag = np.where(low == up, low, 0)
    target = np.arange(len(leaders)) + lag
    delivered = target < len(leaders)
    reason = np.select(
        [low > up, low < up, ~delivered], [CONFLICT, AMBIGUOUS, NEVER_DELIVERED], OK
    ).astype(np.int8)
    owner = leaders[np.where(delivered, target, 0)]
    backwards = events.gpu_stop[owner] < events.gpu_start[owner]
    reason[(reason == OK) & backwards] = BACKWARDS
    _reject_overlaps(events, leaders, owner, reason)
    stamp = np.select(
        [reason == NEVER_DELIVERED, reason != OK, lag == 0], [MISSING, REJECTED, VALID], REPAIRED
    ).astype(np.int8)
    taken = np.zeros(len(leaders), bool)
    taken[target[reason == OK]] = True
    certain = not np.isin(reason, (AMBIGUOUS, CONFLICT)).any()
    left_over = leaders[~taken] if certain else np.empty(0, np.int64)
    out_stamp, out_reason = np.empty(count, np.int8), np.empty(count, np.int8)
    out_owner = np.full(count, NONE, np.int64)
    out_stamp[order], out_reason[order] = stamp[work], reason[work]
    out_owner[order] = np.where(reason[work] == OK, owner[work], NONE)
    return StampAssignment(out_stamp, out_owner, out_reason, left_over, certain)


def _first_of_work(events: ChannelEvents, order: Ints) -> Bools:
    """Marks, in order, the first event of each work: a send and a receive may share one."""
    same = np.zeros(len(order), bool)
    a, b = order[:-1], order[1:]
    same[1:] = (
        (events.gpu_start[a] == events.gpu_start[b])
        & (events.gpu_stop[a] == events.gpu_stop[b])
        & (events.group[a] == events.group[b])
        & (events.group[a] != NONE)
    )
    return ~same


def _lag_bounds(events: ChannelEvents, leaders: Ints) -> tuple[Ints, Ints]:
    """Least and largest lag of each work, in order."""
    number = np.arange(len(leaders))
    latest_start = events.latest_start_ns[leaders]
    not_before = events.not_before_ns[leaders]
    # Stamps grow with their order, but for the jitter of the clock mapping.
    possible = np.searchsorted(np.maximum.accumulate(latest_start), not_before)
    low = np.maximum(np.maximum.accumulate(possible - number), 0)
    uncounted = events.uncounted_before[leaders]
    up = uncounted.copy()
    cap = np.where(
        _starts_promptly(events, leaders, possible, low),
        possible - number - uncounted,
        FAR_FUTURE // 2,
    )
    up = np.minimum(up, np.minimum.accumulate(cap) + uncounted)
    up = np.minimum.accumulate(up[::-1])[::-1]
    return low, up


def _starts_promptly(events: ChannelEvents, leaders: Ints, possible: Ints, low: Ints) -> Bools:
    """Marks works that began right after their launch on an idle channel: their stamp is sure."""
    count = len(leaders)
    number = np.arange(count)
    group = events.group[leaders]
    first_of_launch = np.ones(count, bool)
    first_of_launch[1:] = (group[1:] != group[:-1]) | (group[1:] == NONE)
    there = possible < count
    at = np.where(there, possible, 0)
    before = np.maximum(at - 1, 0)
    not_before = events.not_before_ns[leaders]
    idle = (at == 0) | (events.latest_stop_ns[leaders[before]] < not_before)
    soon = events.latest_start_ns[leaders[at]] <= events.launch_end_ns[leaders] + PROMPT_NS
    return np.asarray(
        there
        & first_of_launch
        & ~events.uncounted_in_group[leaders]
        & idle
        & soon
        & (possible - number >= low)
        & (not_before > FAR_PAST)
        & (events.launch_end_ns[leaders] < FAR_FUTURE)
    )


def _reject_overlaps(
    events: ChannelEvents, leaders: Ints, owner: Ints, reason: npt.NDArray[np.int8]
) -> None:
    """Rejects stamps of works that would overlap: works of different launches cannot run on one
    channel at the same time.
    """
    fine = np.flatnonzero(reason == OK)
    if len(fine) < 2:
        return
    a, b = fine[:-1], fine[1:]
    overlap = (events.gpu_stop[owner[a]] > events.gpu_start[owner[b]]) & (
        events.group[leaders[a]] != events.group[leaders[b]]
    )
    reason[a[overlap]] = OVERLAP
    reason[b[overlap]] = OVERLAP
