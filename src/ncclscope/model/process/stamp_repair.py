"""Which GPU stamps to believe, and whose they are.

NCCL's host side and the device both count the works of a channel; the kernel event of work number i
carries the stamp that the device wrote for its number i. When the device counts a work that the
host does not, every later kernel event of that channel carries the stamp of an earlier work: it
lags, by a number of works that never falls. NCCL says nothing. What is known: a work cannot start
before its launch, and how many works the host did not count. Bounds on the lag from both sides are
carried along each channel; where they meet, the right stamp is the one that a later event brought.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.model.schema import NONE, STAMPS

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
VALID, REPAIRED, RECOVERED, REJECTED, MISSING = range(len(STAMPS))
# A kernel that starts so soon after its launch was not waiting for another one.
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
    """For each claim: what became of its stamps, whose stamps are its own, and why not."""

    stamp: npt.NDArray[np.int8]
    owner: Ints  # place of the claim that brought this claim's true stamps, NONE
    reason: npt.NDArray[np.int8]
    left_over: Ints  # places of claims whose stamps belong to no claim, in order
    certain: bool  # no claim of the channel is ambiguous


def repair(claims: ChannelEvents) -> StampAssignment:
    """Finds each claim's own stamps."""
    count = len(claims.gpu_start)
    order = np.lexsort((claims.gpu_stop, claims.gpu_start))
    first = _first_of_work(claims, order)
    work = np.cumsum(first) - 1  # of each claim, in order
    leaders = order[first]  # one claim for each work
    low, up = _lag_bounds(claims, leaders)
    lag = np.where(low == up, low, 0)
    target = np.arange(len(leaders)) + lag
    delivered = target < len(leaders)
    reason = np.select(
        [low > up, low < up, ~delivered], [CONFLICT, AMBIGUOUS, NEVER_DELIVERED], OK
    ).astype(np.int8)
    owner = leaders[np.where(delivered, target, 0)]
    backwards = claims.gpu_stop[owner] < claims.gpu_start[owner]
    reason[(reason == OK) & backwards] = BACKWARDS
    _reject_overlaps(claims, leaders, owner, reason)
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


def _first_of_work(claims: ChannelEvents, order: Ints) -> Bools:
    """Marks, in order, the first claim of each work: a send and a receive may share one."""
    same = np.zeros(len(order), bool)
    a, b = order[:-1], order[1:]
    same[1:] = (
        (claims.gpu_start[a] == claims.gpu_start[b])
        & (claims.gpu_stop[a] == claims.gpu_stop[b])
        & (claims.group[a] == claims.group[b])
        & (claims.group[a] != NONE)
    )
    return ~same


def _lag_bounds(claims: ChannelEvents, leaders: Ints) -> tuple[Ints, Ints]:
    """Least and largest lag of each work, in order."""
    number = np.arange(len(leaders))
    latest_start = claims.latest_start_ns[leaders]
    not_before = claims.not_before_ns[leaders]
    # Stamps grow with their order, but for the jitter of the clock mapping.
    possible = np.searchsorted(np.maximum.accumulate(latest_start), not_before)
    low = np.maximum(np.maximum.accumulate(possible - number), 0)
    uncounted = claims.uncounted_before[leaders]
    up = uncounted.copy()
    cap = np.where(
        _starts_promptly(claims, leaders, possible, low),
        possible - number - uncounted,
        FAR_FUTURE // 2,
    )
    up = np.minimum(up, np.minimum.accumulate(cap) + uncounted)
    up = np.minimum.accumulate(up[::-1])[::-1]
    return low, up


def _starts_promptly(claims: ChannelEvents, leaders: Ints, possible: Ints, low: Ints) -> Bools:
    """Works that began right after their launch on an idle channel: their stamp is sure."""
    count = len(leaders)
    number = np.arange(count)
    group = claims.group[leaders]
    first_of_launch = np.ones(count, bool)
    first_of_launch[1:] = (group[1:] != group[:-1]) | (group[1:] == NONE)
    there = possible < count
    at = np.where(there, possible, 0)
    before = np.maximum(at - 1, 0)
    not_before = claims.not_before_ns[leaders]
    idle = (at == 0) | (claims.latest_stop_ns[leaders[before]] < not_before)
    soon = claims.latest_start_ns[leaders[at]] <= claims.launch_end_ns[leaders] + PROMPT_NS
    return np.asarray(
        there
        & first_of_launch
        & ~claims.uncounted_in_group[leaders]
        & idle
        & soon
        & (possible - number >= low)
        & (not_before > FAR_PAST)
        & (claims.launch_end_ns[leaders] < FAR_FUTURE)
    )


def _reject_overlaps(
    claims: ChannelEvents, leaders: Ints, owner: Ints, reason: npt.NDArray[np.int8]
) -> None:
    """Works of different launches cannot run on one channel at the same time."""
    fine = np.flatnonzero(reason == OK)
    if len(fine) < 2:
        return
    a, b = fine[:-1], fine[1:]
    overlap = (claims.gpu_stop[owner[a]] > claims.gpu_start[owner[b]]) & (
        claims.group[leaders[a]] != claims.group[leaders[b]]
    )
    reason[a[overlap]] = OVERLAP
    reason[b[overlap]] = OVERLAP
