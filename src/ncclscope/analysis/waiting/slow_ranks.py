"""How long work takes where slow ranks alone show it, because others are held back.

A rank is slow that takes about as much longer than others at all positions that most ranks show.
Work beside NCCL kernels is as slow, from when it began. It began with the first of a chain of
kernels that follow each other at once: ranks that are held back start right behind the last of
them, so their own work did not wait for it.

                   chain of kernels   until the next start   work    at the usual speed
    slow by 1.4    0.8                2.0                    2.8     2.0: 1.2 behind the chain
    held back      2.8                0.0                    hidden
"""

import numpy as np

from ncclscope.analysis.distinct import distinct_numbers
from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.dependencies import (
    MOST_AT_ONCE,
    Dependencies,
    follows_at_once,
)
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.overlap import TIGHT_NS
from ncclscope.analysis.waiting.quantiles import member_quantiles, quantile_by_group
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints

_SLOW_RANK = 1.15  # times as long as others at positions that can be compared
MOST_RANKS = 0.6  # of those that have a position
_HAVE_TURNS = 0.25  # of the ranks that have a position, at most
_MOST_STEPS = 0.75  # of a rank: slow in more of them, it is slow all the time
_ALIKE = 1.2  # how far these may differ from each other
STEADY = 6  # edges of a rank, or of another member, at one position: fewer show no habit
_NEXT = 6  # starts of a rank that show how slow it is at the time
_NEARLY_ALL = 0.9  # of the starts that show how long something takes are of slow ranks


def without_slowness(
    kernels: Kernels, dependencies: Dependencies, usual: Floats, place: tuple[Ints, Ints],
    sample: Ints,
) -> Floats:  # fmt: skip
    """Usual lengths of starts, median and high, at the usual speed where slow ranks alone show how
    long they are. `place`: group, and position, of which a group has the starts of one kind.
    """
    group, position = place
    edge, length = dependencies.edge[START::3], dependencies.length_ns[START::3]
    rank = kernels.rank.astype(np.int64)
    shows = (length > TIGHT_NS) & (edge != _abi.EDGE_ROOT) & (usual[0] > 0)
    free = sample[shows[sample]]
    if not len(free):
        return usual
    having = _ranks_having(group, position, rank, sample)
    factor = _slowness((group, having), rank, length, usual[0], (sample, free))
    factor = np.maximum(factor, _slowness_in_turn(group, rank, length, usual[0], (sample, free)))
    slow = free[factor[group[free]] > 1]
    if not len(slow):
        return usual
    groups = len(factor)
    overlapped = np.nan_to_num(
        quantile_by_group(group[slow], groups, _overlapped_ns(kernels, dependencies, slow), 0.5)
    )
    return np.maximum((usual + overlapped[group]) / factor[group] - overlapped[group], 0.0)


def _overlapped_ns(kernels: Kernels, dependencies: Dependencies, rows: Ints) -> Ints:
    """By kernel how long the work before it can have run before the end that it followed: since the
    first of a chain of kernels that followed each other at once.
    """
    edge, before = dependencies.edge[START::3], dependencies.before[START::3].astype(np.int64)
    follows = (edge == _abi.EDGE_GPU) & (before % 3 == END)
    at_once = follows_at_once(dependencies)
    time = kernels.events_ns
    first = before[rows] // 3
    for _ in range(MOST_AT_ONCE):
        first = np.where(at_once[first], before[first] // 3, first)
    end = time[before[rows] // 3, END]
    return np.where(follows[rows], np.maximum(end - time[first, START], 0), 0)


def _ranks_having(group: Ints, position: Ints, rank: Ints, sample: Ints) -> Ints:
    """By group how many ranks have its position: of a slow rank, a start may follow something else
    there than of the others, and its group has slow ranks alone.
    """
    ranks, groups = int(rank.max()) + 1, int(group.max()) + 1
    of_position = np.bincount(distinct_numbers(position[sample] * ranks + rank[sample]) // ranks)
    having = np.zeros(groups, np.int64)
    having[group[sample]] = of_position[position[sample]]
    return having


def _slowness(
    place: tuple[Ints, Ints], rank: Ints, length: Ints, usual: Floats, rows: tuple[Ints, Ints]
) -> Floats:
    """By group of starts how much too long what is usual is, where slow ranks alone show it; else
    1. `place`: group, and by group the ranks that have its position; `rows`: all starts that count,
    and those that were not held back.
    """
    (group, having), free = place, rows[1]
    groups, ranks = int(group.max()) + 1, int(rank.max()) + 1
    table = member_quantiles(group[free], groups, rank[free], length[free], (0.5,))
    usual_of = np.full(groups, np.nan)
    usual_of[group[free]] = usual[free]
    ratio = table.quantiles[0] / np.maximum(usual_of[table.group], 1.0)
    by_most = _is_shown_by_most(group, rank, rows, 1, having)[table.group]
    slow = _slow_members(table.member, ratio, by_most & (table.count >= STEADY), ranks)
    of_slow = ~np.isnan(slow[table.member])
    quick = np.bincount(table.group, ~of_slow, minlength=groups)
    alone = np.flatnonzero(of_slow & (quick[table.group] == 0))
    of_group = np.ones(groups)
    if not len(alone):
        return of_group
    alone = alone[np.lexsort((slow[table.member[alone]], table.group[alone]))]
    first, count = np.unique(table.group[alone], return_index=True, return_counts=True)[1:]
    middle = alone[first + (count - 1) // 2]
    of_group[table.group[middle]] = slow[table.member[middle]]
    return of_group


def _slowness_in_turn(
    group: Ints, rank: Ints, length: Ints, usual: Floats, rows: tuple[Ints, Ints]
) -> Floats:
    """As `_slowness`, of ranks that are slow for a while: one after the other, each of them alone
    shows how long work takes in its turn. How slow a rank is then show its starts next to these, at
    positions that most ranks show.

        rank 1, at a position of all    1.3  1.3  1.3  1.0  1.0  1.0
        where others are held back      3.9  3.9  3.9  hidden …        usual: 3.9 / 1.3
        rank 2, at a position of all    1.0  1.0  1.0  1.3  1.3  1.3
        where others are held back      hidden …       3.9  3.9  3.9

    A turn may be as short as a step. Then the last start before shows it. That is one start, and
    counts where few ranks have turns: of many, it is each time the one that chance made slow. A
    rank that is slow there in every step has no turns: one layer of its may be slow.
    """
    free = rows[1]
    by_most = _is_shown_by_most(group, rank, rows, STEADY)[group[free]]
    known, hidden = free[by_most], free[~by_most]
    groups = int(group.max()) + 1
    if len(known) < _NEXT or not len(hidden):
        return np.ones(groups)
    ratio = length[known] / np.maximum(usual[known], 1.0)
    # Rows are in the order of ranks and calls, so that starts next to one are next to its row.
    behind = np.searchsorted(known, hidden)
    places = np.clip(behind - _NEXT // 2, 0, len(known) - _NEXT)[:, None] + np.arange(_NEXT)
    own = rank[known[places]] == rank[hidden][:, None]
    ordered = np.sort(np.where(own, ratio[places], np.inf), axis=1)
    near = ordered[np.arange(len(hidden)), np.maximum(own.sum(axis=1) - 1, 0) // 2]
    # In the first or last step of a turn half of them are of another one.
    half = np.where(own, ratio[places], 1.0).reshape(len(hidden), 2, -1).min(axis=2)
    near = np.maximum(near, half.max(axis=1))
    near[own.sum(axis=1) < _NEXT // 2] = 1.0
    before = np.maximum(behind - 1, 0)
    last = np.where((behind > 0) & (rank[known[before]] == rank[hidden]), ratio[before], 1.0)
    last[_share_slow(group[known], rank[known], ratio)[before] > _MOST_STEPS] = 1.0
    last[~_is_shown_by_few(group, rank, rows[0], hidden)[group[hidden]]] = 1.0
    of_turns, of_steps = (
        _too_long(group[hidden], groups, slowness, usual[hidden] / np.maximum(length[hidden], 1))
        for slowness in (near, last)
    )
    return np.where(of_turns > 1, of_turns, of_steps)


def _too_long(group: Ints, groups: int, slowness: Floats, usual: Floats) -> Floats:
    """By group of starts how much too long what is usual is, where nearly all that show it are of
    ranks that are slow at the time; else 1. `slowness`: by start how slow its rank is, `usual`:
    what is usual, as a share of the start's length. Where usual lengths are those of other ranks,
    slow ones are as much longer as they are slow.
    """
    slow = slowness > _SLOW_RANK
    count, of_slow = (np.bincount(rows, minlength=groups) for rows in (group, group[slow]))
    too_long = (1000 * slowness[slow] * usual[slow]).astype(np.int64)
    middle = quantile_by_group(group[slow], groups, too_long, 0.5)
    enough = (of_slow >= STEADY) & (of_slow >= _NEARLY_ALL * count) & (middle > 1000 * _SLOW_RANK)
    return np.where(enough, middle / 1000, 1.0)


def _share_slow(group: Ints, rank: Ints, ratio: Floats) -> Floats:
    """By start the share of its rank's starts of its group that are slow."""
    place = np.unique(group * (int(rank.max()) + 1) + rank, return_inverse=True)[1].reshape(-1)
    share = np.bincount(place, ratio > _SLOW_RANK) / np.bincount(place)
    return np.asarray(share[place])


def _is_shown_by_few(group: Ints, rank: Ints, sample: Ints, shown: Ints) -> Bools:
    """By group whether nearly all of these starts are of few of the ranks that have it, each often.
    `sample`: all starts that count.
    """
    groups, ranks = int(group.max()) + 1, int(rank.max()) + 1
    everybody = distinct_numbers(group[sample] * ranks + rank[sample])
    cells, count = np.unique(group[shown] * ranks + rank[shown], return_counts=True)
    often, of_group = count >= STEADY, cells // ranks
    few = np.bincount(of_group[often], minlength=groups) <= _HAVE_TURNS * np.bincount(
        everybody // ranks, minlength=groups
    )
    starts, theirs = (np.bincount(of_group, n, groups) for n in (count, count * often))
    return np.asarray(few & (theirs >= _NEARLY_ALL * starts))


def _is_shown_by_most(
    group: Ints, rank: Ints, rows: tuple[Ints, Ints], least: int, having: Ints | None = None
) -> Bools:
    """By group whether most of the ranks that have it show how long it takes, each by at least so
    many starts. `rows`: as of `_slowness`; `having`: by group how many ranks have it.
    """
    groups, ranks = int(group.max()) + 1, int(rank.max()) + 1
    sample, free = (group[own] * ranks + rank[own] for own in rows)
    everybody = np.bincount(distinct_numbers(sample) // ranks, minlength=groups)
    everybody = everybody if having is None else having
    cells, count = np.unique(free, return_counts=True)
    often = cells[count >= least]
    shown = np.bincount(often // ranks, minlength=groups)
    return np.asarray((shown > 1) & (shown > MOST_RANKS * everybody))


def _slow_members(member: Ints, ratio: Floats, shown: Bools, members: int) -> Floats:
    """By member how many times as long as usual it takes where most show that; NaN where it does
    not take longer, or not about as much everywhere.
    """
    slow = np.full(members, np.nan)
    rows = np.flatnonzero(shown)
    rows = rows[np.lexsort((ratio[rows], member[rows]))]
    own, first, count = np.unique(member[rows], return_index=True, return_counts=True)
    if len(own):
        middle = ratio[rows[first + count // 2]]
        least, most = ratio[rows[first]], ratio[rows[first + count - 1]]
        alike = (least > middle / _ALIKE) & (most < middle * _ALIKE)
        slow[own] = np.where(alike & (middle > _SLOW_RANK), middle, np.nan)
    return slow
