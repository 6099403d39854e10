"""When collectives became slower in the course of a run, for how long, and on which communicators.

The time on the wire of a collective is divided by the median of the same function and size on the
same communicator. Changes of that ratio are found by its ranks, so single outliers do not matter.
What is worth a finding is decided in diagnose/rules/degradation.py.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.gradual_change import Rise, rise_of
from ncclscope.analysis.robust_statistics import (
    certainly_larger,
    change_point,
    is_no_chance,
    refine_change_point,
    robust_spread,
)
from ncclscope.analysis.run import Run
from ncclscope.analysis.synchronized_instances import SynchronizedInstances
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.wire_times import WireTimes, wire_times
from ncclscope.arrays.types import Bools, Floats, Ints

_LEAST = 24  # instances of a communicator that is slow now and then
_LEAST_ON_A_SIDE = 6  # of a change
_LEAST_AROUND = 3  # before a time in which they are slower, and after it
_CHANCE = 1e-6  # that a series looks changed, at most
_EPISODE_LEVEL = np.log(2.0)  # above the median: less is noise of a busy network
_LOW_LEVEL = np.log(1.4)  # of a stretch whose lower quartile is as far above nearly all others
_TIMES_NOISE = 1.5  # the step, over the spread before and after it
_MOST_EPISODES = 4  # more are slow now and then
_LEAST_OF_LEVEL = 0.2  # of a communicator that is slow in stretches: instances of either level
_LEVELS_APART = np.log(1.25)  # lower quartile of the slow ones, and nearly all others
_AROUND = 5  # instances whose median is the level
_LEAST_TURNS = 3  # of these: one is a change, two are an episode
_LONG_STRETCH = 6  # instances, on average
# Of those that are slow now and then, the others: this quantile is at most so far above the median.
# Read off 99 jobs with known truth: "Jobs of others" in docs/measurements/diagnosis.md.
_HIGH, _QUIET = 0.95, np.log(1.3)

INTER_NODE, INTRA_NODE = "inter-node", "intra-node"


@dataclass(frozen=True, slots=True)
class CommunicatorChange:
    """A communicator that became slower."""

    communicator: int
    factor: float  # of its time on the wire; in the end, where it became slower and slower
    lost_ns: float  # by that, until it ended
    rise: Rise | None = None  # where it became slower and slower


@dataclass(frozen=True, slots=True)
class AtTimes:
    """Instances that were far slower than others before and after them."""

    communicator: Ints
    began_ns: Ints
    ended_ns: Ints
    of_all: int  # instances of these communicators


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Communicators that became slower at the same time."""

    began_ns: int
    changes: tuple[CommunicatorChange, ...]
    scope: str | None  # INTER_NODE or INTRA_NODE, where only communicators of one scope changed
    ended_ns: int | None = None  # None: it lasted until the end of the run
    at_times: AtTimes | None = None  # it came and went

    @property
    def is_gradual(self) -> bool:
        """Whether they became slower and slower, rather than at once."""
        return any(change.rise is not None for change in self.changes)


def slowdowns(
    run: Run, instances: SynchronizedInstances, least_factor: float, waiting: Waiting | None = None
) -> tuple[Slowdown, ...]:
    """Times in which communicators were slower; then changes that last, of all communicators
    together, then of those between or within nodes, then of each; then those that are slower now
    and then.

    Looking at many at once finds what noise hides in one. Which of them changed is asked
    afterwards; a communicator belongs to one slowdown only. `waiting` has Broadcasts, too.
    """
    times = wire_times(run, instances, waiting)
    rows_of = _rows_by_communicator(times)
    nodes = run.model.tables["communicators"]["nodes"].tolist()
    across = [row for row in rows_of if nodes[row] > 1]
    within = [row for row in rows_of if nodes[row] <= 1]
    slow: list[Slowdown] = list(slow_episodes(times, rows_of, least_factor))
    explained = {change.communicator for slowdown in slow for change in slowdown.changes}
    for pool in ([*rows_of], across, within, *([row] for row in rows_of)):
        open_ = [row for row in pool if row not in explained]
        first = _first_slow(times, [rows_of[row] for row in open_], least_factor)
        if first is None:
            continue
        at_ns = int(times.end_ns[first])
        changes = [_change(times, rows_of[row], at_ns, least_factor) for row in open_]
        slower = tuple(change for change in changes if change is not None)
        explained |= {change.communicator for change in slower}
        if slower:
            # What is slow ends late: it began when the first slow one had only data to move.
            began_ns = at_ns - int(times.wire_ns[first])
            slower = _with_rises(times, rows_of, slower, at_ns)
            rises = [change.rise for change in slower if change.rise is not None]
            began_ns = min([began_ns, *(rise.stretches[0].began_ns for rise in rises)])
            scope = _scope(times, rows_of, {c.communicator for c in slower}, at_ns, nodes)
            slow.append(Slowdown(began_ns, slower, scope))
    many = {row: own for row, own in rows_of.items() if len(own) >= _LEAST}
    open_rows = {row: own for row, own in many.items() if row not in explained}
    return (*slow, *slow_at_times(times, open_rows))


def slow_episodes(
    times: WireTimes, rows_of: dict[int, Ints], least_factor: float
) -> tuple[Slowdown, ...]:
    """Times in the middle of the run in which communicators were slower: all together, then each:
    many that stay as they are hide a single one.
    """
    slow: list[Slowdown] = []
    left = {row: np.sort(own) for row, own in rows_of.items()}
    for pool in ([*left], *([row] for row in left)):
        while len(slow) < _MOST_EPISODES:
            rows = np.sort(np.concatenate([*(left[row] for row in pool), np.empty(0, np.int64)]))
            inside = _slow_stretch(times.relative[rows])
            if inside is None:
                break
            first, last = rows[inside.start], rows[inside.stop - 1]
            began_ns = int(times.end_ns[first] - times.wire_ns[first])
            ended_ns = int(times.end_ns[last])
            changes = [
                _change(times, own, began_ns, least_factor, ended_ns) for own in left.values()
            ]
            slower = tuple(change for change in changes if change is not None)
            if not slower:
                break
            slow.append(Slowdown(began_ns, slower, None, ended_ns))
            for row in {*pool, *(change.communicator for change in slower)}:
                end_ns = times.end_ns[left[row]]
                left[row] = left[row][(end_ns < began_ns) | (end_ns > ended_ns)]
    return tuple(slow)


def slow_at_times(times: WireTimes, rows_of: dict[int, Ints]) -> tuple[Slowdown, ...]:
    """Communicators that are far slower now and then, and as ever in between: more often than
    others, or at the same time as others. All else is the usual noise of the network. What comes
    and goes in long stretches may be slow for most of the run.
    """
    above, slow_of, found = {}, {}, []
    for row, own in rows_of.items():
        values = times.relative[own]
        high = _in_stretches(values)
        above[row] = values - np.median(values if high is None else values[~high])
        slow_of[row] = above[row] > _EPISODE_LEVEL if high is None else high
        if high is not None or _comes_and_goes(above[row], slow_of[row]):
            found.append(row)
    changes = []
    for row in found:
        own, values, slow = rows_of[row], above[row], slow_of[row]
        if not (_is_alone(slow_of, row, found) or _is_together(times, rows_of, slow_of, row)):
            continue
        factor = float(np.exp(np.median(values[slow])))
        lost = float((times.wire_ns[own] * (1 - np.exp(-values)))[slow].sum())
        changes.append((own[slow], CommunicatorChange(row, factor, lost)))
    if not changes:
        return ()
    rows = np.concatenate([own for own, _ in changes])
    began, ended = times.end_ns[rows] - times.wire_ns[rows].astype(np.int64), times.end_ns[rows]
    of_all = sum(len(rows_of[change.communicator]) for _, change in changes)
    return (
        Slowdown(
            int(began.min()), tuple(change for _, change in changes), None, int(ended.max()),
            AtTimes(times.communicator[rows], began, ended, of_all),
        ),
    )  # fmt: skip


def _in_stretches(values: Floats) -> Bools | None:
    """Which values are of the higher of two levels, where long stretches of both take turns; else
    None. Single values that are far from their neighbours are of no level.

        0.4 0.4 2.1 0.4 … 1.0 1.1 1.0 … 0.4 0.4 … 1.1 1.0 …     the median is of the higher level
    """
    around = np.pad(values, _AROUND // 2, mode="edge")
    level = np.median(np.lib.stride_tricks.sliding_window_view(around, _AROUND), axis=1)
    ordered = np.sort(level)
    first, last = (int(share * len(values)) for share in (_LEAST_OF_LEVEL, 1 - _LEAST_OF_LEVEL))
    at = first + int(np.argmax(np.diff(ordered[first : last + 1])))
    high = level > (ordered[at] + ordered[at + 1]) / 2
    turns = np.count_nonzero(np.diff(high))
    if not (_LEAST_TURNS <= turns <= len(values) / _LONG_STRETCH):
        return None
    apart = np.quantile(level[high], 0.25) - np.quantile(level[~high], 0.95)
    return high if apart > _LEVELS_APART else None


def _comes_and_goes(values: Floats, slow: Bools) -> bool:
    """Whether some of a communicator's instances are slow, and the others as ever."""
    if not _LEAST_ON_A_SIDE <= slow.sum() <= len(slow) // 2:
        return False
    # Where noise is heavy, some are far slower than the median, and others nearly so.
    return bool(np.quantile(values[~slow], _HIGH) <= _QUIET)


def _is_alone(slow_of: dict[int, Bools], row: int, found: list[int]) -> bool:
    """Whether a communicator is slow far more often than any that does not come and go, or, where
    all do, than any other.
    """
    quiet = slow_of.keys() - set(found)
    usual = max((slow_of[other].mean() for other in quiet or slow_of.keys() - {row}), default=0.0)
    slow = slow_of[row]
    return is_no_chance(float(slow.sum()), float(usual) * len(slow))


def _is_together(
    times: WireTimes, rows_of: dict[int, Ints], slow_of: dict[int, Bools], row: int
) -> bool:
    """Whether other communicators are slow when this one is, far more than when it is not: each of
    their instances counts with the one of this communicator that is nearest in time.
    """
    end_ns, slow = times.end_ns[rows_of[row]], slow_of[row]
    between_ns = (end_ns[1:] + end_ns[:-1]) // 2
    inside = outside = slow_inside = slow_outside = 0
    for other in rows_of.keys() - {row}:
        together = slow[np.searchsorted(between_ns, times.end_ns[rows_of[other]])]
        inside, outside = inside + int(together.sum()), outside + int((~together).sum())
        slow_inside += int((slow_of[other] & together).sum())
        slow_outside += int((slow_of[other] & ~together).sum())
    return is_no_chance(slow_inside, slow_outside / max(outside, 1) * inside)


def _slow_stretch(values: Floats) -> slice | None:
    """Where, between the ends of a series, nearly all values are larger than nearly all others: the
    stretch with the largest sum above a level. A low level would join two stretches, so it is
    tried last.

        1.0 1.1 0.9 7.8 8.1 7.9 1.0 1.1     the level is 2, the stretch 7.8 to 7.9
    """
    if len(values) < 2 * _LEAST_ON_A_SIDE:
        return None
    return _stretch_above(values, _EPISODE_LEVEL) or _stretch_above(values, _LOW_LEVEL)


def _stretch_above(values: Floats, level: float) -> slice | None:
    above = np.clip(values - np.median(values) - level, -1.0, 1.0)
    sums = np.concatenate([[0.0], np.cumsum(above)])
    gain = sums - np.minimum.accumulate(sums)
    last = int(np.argmax(gain))
    first = int(np.argmin(sums[: last + 1]))
    outside = np.concatenate([values[:first], values[last:]])
    if last - first < _LEAST_ON_A_SIDE or last - first > len(values) // 2:
        return None
    if min(first, len(values) - last) < _LEAST_AROUND:
        return None
    return slice(first, last) if _are_apart(values[first:last], outside) else None


def _are_apart(slow: Floats, others: Floats) -> bool:
    """Whether nearly all of some values are far above nearly all others."""
    return bool(np.quantile(slow, 0.25) > np.quantile(others, 0.95) + _LOW_LEVEL)


def _rows_by_communicator(times: WireTimes) -> dict[int, Ints]:
    """Rows of communicators with enough of them for a change."""
    order = np.argsort(times.communicator, kind="stable")
    split = np.flatnonzero(np.diff(times.communicator[order])) + 1
    groups = np.split(order, split) if len(order) else []
    least = 2 * _LEAST_ON_A_SIDE
    return {int(times.communicator[rows[0]]): rows for rows in groups if len(rows) >= least}


def _first_slow(times: WireTimes, groups: list[Ints], least_factor: float) -> int | None:
    """The first of these instances from which on they take longer; None where they do not. A test
    of ranks is sure of no change in fewer than about 40: there nearly all must be far apart.
    """
    if not groups:
        return None
    rows = np.sort(np.concatenate(groups))
    values = times.relative[rows]
    at, chance = change_point(values)
    before, after = values[:at], values[at:]
    if min(len(before), len(after)) < _LEAST_ON_A_SIDE:
        return None
    if chance > _CHANCE and not _are_apart(after, before):
        return None
    step = float(np.median(after) - np.median(before))
    noise = max(robust_spread(before), robust_spread(after))
    if step < np.log(least_factor) or step < _TIMES_NOISE * noise:
        return None
    return int(rows[refine_change_point(values, at)])


def _change(
    times: WireTimes, rows: Ints, at_ns: int, least_factor: float, ended_ns: int | None = None
) -> CommunicatorChange | None:
    """How a communicator changed at a given time, if it did; `ended_ns`: until then."""
    later = times.end_ns[rows] >= at_ns
    if ended_ns is not None:
        later &= times.end_ns[rows] <= ended_ns
    before, after = times.relative[rows[~later]], times.relative[rows[later]]
    if min(len(before), len(after)) < _LEAST_ON_A_SIDE:
        return None
    step = float(np.median(after) - np.median(before))
    if step < np.log(least_factor):
        return None
    if not (certainly_larger(after, before) or _are_apart(after, before)):
        return None
    factor = float(np.exp(step))
    lost = float(times.wire_ns[rows[later]].sum()) * (1 - 1 / factor)
    return CommunicatorChange(int(times.communicator[rows[0]]), factor, lost)


def _with_rises(
    times: WireTimes,
    rows_of: dict[int, Ints],
    changes: tuple[CommunicatorChange, ...],
    at_ns: int,
) -> tuple[CommunicatorChange, ...]:
    """The same changes; where most communicators became slower and slower, compared with the
    beginning.
    """
    rises = {}
    for change in changes:
        rows = rows_of[change.communicator]
        later = int(np.searchsorted(times.end_ns[rows], at_ns))
        rise = rise_of(times.relative[rows], times.wire_ns[rows], times.end_ns[rows], later)
        if rise is not None:
            rises[change.communicator] = rise
    if 2 * len(rises) <= len(changes):
        return changes
    return tuple(
        CommunicatorChange(change.communicator, rise.factor, rise.lost_ns, rise)
        if (rise := rises.get(change.communicator)) is not None
        else change
        for change in changes
    )


def _scope(
    times: WireTimes, rows_of: dict[int, Ints], slower: set[int], at_ns: int, nodes: list[int]
) -> str | None:
    """Whether only communicators between nodes, or only those within nodes, became slower."""
    others = [row for row in rows_of if row not in slower]
    scopes = {nodes[row] > 1 for row in slower}
    if len(scopes) != 1 or not others or _became_slower(times, [rows_of[r] for r in others], at_ns):
        return None
    across = scopes.pop()
    if any((nodes[row] > 1) == across for row in others):
        return None
    return INTER_NODE if across else INTRA_NODE


def _became_slower(times: WireTimes, groups: list[Ints], at_ns: int) -> bool:
    """Whether communicators that hardly changed did change, taken together: where latency counts
    most, less bandwidth shows little.
    """
    rows = np.concatenate(groups)
    later = times.end_ns[rows] >= at_ns
    return certainly_larger(times.relative[rows[later]], times.relative[rows[~later]])
