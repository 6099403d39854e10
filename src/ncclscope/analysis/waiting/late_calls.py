"""Whether a late call waited for the end of a kernel, or its host was busy with other work.

Hosts run ahead of their GPUs and wait for them now and then: every fifth step, when the loss is
printed. Then repeats of a position contradict each other, and cannot tell. The late calls alone
can: what a host does after it waited takes about the same time in each repeat, and so does what
it does instead of waiting. And a host that waited goes on right after the end. So does one that
was slow to launch the kernel, where that is short: the launch tells.

    since the last end    0.6   0.5   0.6      since the call before   91    84    97    waited
    since the last end    3.1   4.6   2.2      since the call before   20.5  20.4  20.6  was busy
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.analysis.waiting.quantiles import member_quantiles, quantile_by_group
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.threads import in_threads

BUSY, UNDECIDED = -1, 0  # else: how many calls back the kernel is that the host waited for
LONG_CALL_NS = 200_000  # since the call before: less is no wait
LATE = 4  # times the usual time since the call before, at its position or on its rank
_LEAST_LATE = 4  # late calls of a rank at a position
_STEADIER = 2.0  # how much less one varies than the other
RIGHT_AFTER = 0.1  # of the time since the call before: chance does not end a kernel just then
_LEAST_SPREAD_NS = 5_000  # clocks of hosts and GPUs agree no better


@dataclass(frozen=True, slots=True)
class LateCalls:
    """Calls that came far later than usual, and what they came after."""

    kernel: Ints
    back: Ints  # BUSY, UNDECIDED, or calls back


def late_calls(
    kernels: Kernels, end_ns: Ints, position: Numbers, usual_call_ns: Ints, calls_back: int,
    tolerance_ns: int,
) -> LateCalls:  # fmt: skip
    """The late calls of all ranks. `usual_call_ns`: by position, since the call before."""
    call = kernels.events_ns[:, 0]
    since = np.diff(call, prepend=call[:1])
    same_rank = np.diff(kernels.rank, prepend=-1) == 0
    followed = np.flatnonzero(same_rank)
    of_rank = quantile_by_group(
        kernels.rank[followed].astype(np.int64), len(kernels.ranks), since[followed], 0.5
    )
    late = since > np.maximum(LATE * usual_call_ns[position], LONG_CALL_NS)
    mixed = np.zeros(len(usual_call_ns), bool)  # positions at which some calls are late
    mixed[position[same_rank & late]] = True
    late |= (since > np.maximum(LATE * of_rank[kernels.rank], LONG_CALL_NS)) & ~mixed[position]
    rows = np.flatnonzero(same_rank & late)
    back = np.full(len(rows), UNDECIDED, np.int64)
    if not len(rows):
        return LateCalls(rows, back)
    group = factorize(kernels.rank[rows].astype(np.int64) << 32 | position[rows])[0].astype(
        np.int64
    )
    groups = int(group.max()) + 1
    count = np.bincount(group, minlength=groups)
    after = since[rows].copy()  # since the last end; nothing ended since the call before
    for number in range(1, calls_back + 1):
        place = np.maximum(rows - number, 0)
        gap = call[rows] - end_ns[place]
        later = (kernels.rank[place] == kernels.rank[rows]) & (gap >= -tolerance_ns) & (gap < after)
        after[later], back[later] = gap[later], number
    (typical_waited, waited), (typical_busy, busy) = in_threads(
        lambda values: _middle_and_spread(group, groups, values), (after, since[rows]), 2
    )
    right_after = (count > 1) & (typical_waited < RIGHT_AFTER * typical_busy)
    enough = count >= _LEAST_LATE
    is_wait = (right_after | (enough & (_STEADIER * waited < busy)))[group]
    is_busy = (enough & ~right_after & (_STEADIER * busy < waited))[group] | (back == UNDECIDED)
    is_busy |= _follow_launches(kernels, rows, usual_call_ns[position[rows]])
    return LateCalls(rows, np.where(is_busy, BUSY, np.where(is_wait, back, UNDECIDED)))


def _follow_launches(kernels: Kernels, rows: Ints, usual_call_ns: Ints) -> Bools:
    """By call whether it comes soon after the launch of the call before, which took long."""
    call, launched = kernels.events_ns[:, 0], kernels.launched_ns[rows - 1]
    since = call[rows] - launched
    in_launch = launched - call[rows - 1] > (call[rows] - call[rows - 1]) / 2
    return np.asarray(in_launch & (since >= 0) & (since <= LATE * usual_call_ns))


def _middle_and_spread(group: Ints, groups: int, values: Ints) -> tuple[Floats, Floats]:
    """By group the median, and how far values vary: between their quartiles."""
    zeros = np.zeros(len(group), np.int64)
    table = member_quantiles(group, groups, zeros, values, (0.25, 0.5, 0.75))
    low, middle, high = (table.of_usual_member(place, groups) for place in range(3))
    return middle, np.maximum(high - low, _LEAST_SPREAD_NS)
