"""How long a rank's own work takes before a kernel, where another kernel hides it.

A kernel that starts right behind one that waited for other ranks does not show when its own rank
was ready. Nor does one behind a transfer that took long: work went on beside it. Other ranks and
steps show it:

    position   on a free rank or in a free step    hidden                       own course
    R2         2.4 after the start of R1           right after the end of R1    the same
    R1         7.2 after the end of A4             right after the end of X     7.2 after A4
    R3         nobody and nothing is ever free     right after the end of R2    as other kernels
                                                                                of its kind
    R4         5.0 after A began to move data      2.0 after the end of A,      5.0 after A began
                                                   which took 8.0               to move data
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.dependencies import BACKS
from ncclscope.analysis.waiting.kernels import Numbers
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays import _abi
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

_LEAST_FREE = 3  # starts that show a course
_LONG = 1.3  # times the usual transfer: work beside it is hidden
_LONG_NS = 50_000  # and at least this much more


@dataclass(frozen=True, slots=True)
class OwnCourses:
    """By kernel whose own work is hidden the event that this work follows (NONE for others), and
    how long it takes.
    """

    event: Numbers
    own_ns: Ints
    hidden: Ints  # kernels of which nothing shows how long
    most_ns: Ints  # as own_ns; of these, as long as it can have taken


def own_courses(waiting: Waiting) -> OwnCourses:
    """The own courses of all kernels."""
    dependencies, usual = waiting.dependencies, waiting.usual.median_ns
    count = len(waiting.kernels)
    event, own = np.full(count, NONE, np.int32), np.zeros(count, np.int64)
    long = _behind_long_ones(waiting)
    _from_free_starts(waiting, long, event, own)
    rows = np.flatnonzero(dependencies.blocked)
    hidden = rows
    if len(rows):
        ends = dependencies.before[3 * rows + START]
        overlapped = dependencies.blocked[rows] == _abi.BLOCKED_OVERLAPPED
        course = usual[3 * rows + START] + np.where(overlapped, 0.0, usual[ends])
        event[rows], own[rows] = ends - END + START, np.nan_to_num(course)
        free = _free(waiting, long)
        position = dependencies.position.astype(np.int64)
        is_open = ~_is_shown(waiting, rows, free)
        for group in (position, waiting.kernels.transfer_kind.astype(np.int64)):
            taken = _from_others(waiting, rows[is_open], free, group, event, own)
            is_open[np.flatnonzero(is_open)[taken]] = False
        hidden = rows[is_open]
    rows = np.flatnonzero(event != NONE)
    measured = waiting.time_ns[3 * rows + START] - waiting.time_ns[event[rows]]
    own[rows] = np.clip(own[rows], 0, measured)
    most = own
    if len(hidden):
        most = own.copy()
        most[hidden] = measured[np.searchsorted(rows, hidden)]
    return OwnCourses(event, own, hidden, most)


def _behind_long_ones(waiting: Waiting) -> Bools:
    """By kernel whether its start followed the end of one whose transfer took much longer than
    usual. Whether work runs beside waiting is known: overlap.py.
    """
    dependencies = waiting.dependencies
    before = dependencies.before[START::3]
    follows = (dependencies.edge[START::3] == _abi.EDGE_GPU) & (before % 3 == END)
    usual = np.nan_to_num(waiting.usual.median_ns[END::3], nan=np.inf)
    long = dependencies.length_ns[END::3] > np.maximum(_LONG * usual, usual + _LONG_NS)
    return np.asarray(follows & long[before // 3])


def _from_free_starts(waiting: Waiting, long: Bools, event: Numbers, own: Ints) -> None:
    """Fills in, behind transfers that took long, the time since the transfer began at the same
    position behind transfers that did not.
    """
    dependencies = waiting.dependencies
    before = dependencies.before[START::3]
    follows = (dependencies.edge[START::3] == _abi.EDGE_GPU) & (before % 3 == END)
    rows = np.flatnonzero(follows & (dependencies.blocked == 0))
    if not long[rows].any():
        return
    key = dependencies.position[rows].astype(np.int64) * BACKS + dependencies.back[START::3][rows]
    group = factorize(key)[0].astype(np.int64)
    groups = int(group.max(initial=-1)) + 1
    start, last = waiting.arrivals.events_ns[:, START], waiting.arrivals.last
    course = start[rows] - start[last[before[rows] // 3]]
    free = ~long[rows] & ~waiting.start_up[rows]
    usual = quantile_by_group(group[free], groups, course[free], 0.5)
    shown = np.bincount(group[free], minlength=groups) >= _LEAST_FREE
    hidden = long[rows] & shown[group]
    chosen = rows[hidden]
    event[chosen] = 3 * last[before[chosen] // 3] + START
    own[chosen] = usual[group[hidden]]


def _key(waiting: Waiting, rows: Ints, group: Ints) -> Ints:
    """Of starts that follow another kernel: group, calls back, and whether its start or end."""
    before = waiting.dependencies.before[3 * rows + START]
    from_start = (before % 3 == START).astype(np.int64)
    back = waiting.dependencies.back[3 * rows + START].astype(np.int64)
    return np.asarray((group[rows] * BACKS + back) * 2 + from_start)


def _free(waiting: Waiting, long: Bools) -> Ints:
    """Kernels whose start followed another kernel, and was not hidden by it."""
    dependencies = waiting.dependencies
    follows = dependencies.edge[START::3] == _abi.EDGE_GPU
    return np.flatnonzero(follows & (dependencies.blocked == 0) & ~long & ~waiting.start_up)


def _is_shown(waiting: Waiting, rows: Ints, free: Ints) -> Bools:
    """By kernel that was held back whether free ones at its position followed the same kernel."""
    position = waiting.dependencies.position.astype(np.int64)
    shown = np.unique(_key(waiting, free, position) // 2)
    return np.isin(_key(waiting, rows, position) // 2, shown)


def _from_others(
    waiting: Waiting, rows: Ints, free: Ints, group: Ints, event: Numbers, own: Ints
) -> Bools:
    """Fills in the most frequent course of free kernels of the same group; which rows have one."""
    taken = np.zeros(len(rows), bool)
    if not len(rows) or not len(free):
        return taken
    keys, first, times = np.unique(
        _key(waiting, free, group), return_index=True, return_counts=True
    )
    most = np.lexsort((-times, keys // (2 * BACKS)))
    of_group = keys[most] // (2 * BACKS)
    best = most[np.flatnonzero(np.diff(of_group, prepend=-1))]
    best = best[times[best] >= _LEAST_FREE]
    if not len(best):
        return taken
    known = keys[best] // (2 * BACKS)
    place = np.minimum(np.searchsorted(known, group[rows]), len(known) - 1)
    taken = known[place] == group[rows]
    key, shown = keys[best][place], free[first[best]][place]
    back, from_start = key // 2 % BACKS, key % 2 == 1
    other = rows - back
    ranks = waiting.kernels.rank
    taken &= (other >= 0) & (ranks[np.maximum(other, 0)] == ranks[rows]) & (back > 0)
    chosen = rows[taken]
    event[chosen] = 3 * other[taken] + np.where(from_start[taken], START, END)
    course = waiting.usual.median_ns[3 * shown[taken] + START]
    own[chosen] = np.nan_to_num(course)
    return np.asarray(taken)
