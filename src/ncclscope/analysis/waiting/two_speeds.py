"""Ranks of a slower speed: GPUs of an older generation, half of all at most.

Where steps vary, the slow ones are not the last in every step, and half of all ranks do not stand
out by what others wait. By the median of their own time they do, if they are of one speed and all
others of another:

    own time, ms     3.1  3.0  3.3  3.1  4.3  4.5  4.3  4.4    two speeds: the last four
                     2.6  2.9  3.0  3.1  3.3  3.5  3.8  4.1    gradual: nobody
"""

import math

import numpy as np

from ncclscope.analysis.distinct import distinct_numbers
from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.dependencies import BACKS, Dependencies
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.quantiles import member_quantiles
from ncclscope.analysis.waiting.shared_lengths import MOST_RANKS
from ncclscope.analysis.waiting.slow_ranks import STEADY
from ncclscope.analysis.waiting.usual_lengths import RUN
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints

_LEAST_GAP = 0.15  # how much longer the slow ones take at least
_TIMES_SPREAD = 2.0  # the gap against how far ranks of one speed are apart
_LEAST_SHARE = 0.3  # of all ranks: fewer stand out by themselves
_ENOUGH = 400_000  # kernels that are looked at


def slower_ranks(kernels: Kernels, dependencies: Dependencies, start_up: Bools) -> Bools:
    """Which ranks are of the slower of two speeds, of their GPUs or of their hosts; none where
    there is one speed, or many.
    """
    rows = np.flatnonzero(~start_up)
    rows = rows[rows // RUN % max(len(rows) // _ENOUGH, 1) == 0]
    for event in (START, 0):
        slow = of_slower_speed(_slowness(kernels, dependencies, rows, event))
        if slow.any():
            return slow
    return np.zeros(len(kernels.ranks), bool)


def of_slower_speed(slowness: Floats) -> Bools:
    """Which of these are far above all others, where all others are alike, and these are."""
    slow = np.zeros(len(slowness), bool)
    order = np.argsort(-slowness)
    ordered = slowness[order]
    least = max(math.ceil(_LEAST_SHARE * len(ordered)), 2)
    if len(ordered) < 2 * least or np.isnan(ordered).any():
        return slow
    gaps = ordered[:-1] / ordered[1:]
    places = np.arange(least - 1, len(ordered) // 2)
    last = int(places[gaps[places].argmax()])
    spread = max(ordered[0] / ordered[last], ordered[last + 1] / ordered[-1]) - 1
    if gaps[last] - 1 >= max(_LEAST_GAP, _TIMES_SPREAD * spread):
        slow[order[: last + 1]] = True
    return slow


def _slowness(kernels: Kernels, dependencies: Dependencies, rows: Ints, event: int) -> Floats:
    """By rank the sum, over positions, of its median own time before calls, or before starts, over
    that of the usual rank at the same positions; NaN where no position shows it.
    """
    ranks = len(kernels.ranks)
    rank = kernels.rank[rows].astype(np.int64)
    position = dependencies.position[rows].astype(np.int64)
    having = np.bincount(distinct_numbers(position * ranks + rank) // ranks)
    if event == START:
        shown = dependencies.blocked[rows] == 0
        rows, rank, position = rows[shown], rank[shown], position[shown]
    edge, back = (values[event::3][rows] for values in (dependencies.edge, dependencies.back))
    group, groups = factorize((position * 8 + edge) * BACKS + back)
    length = dependencies.length_ns[event::3][rows]
    table = member_quantiles(group.astype(np.int64), groups, rank, length, (0.5,))
    usual = table.of_usual_member(0, groups)
    position_of = np.zeros(groups, np.int64)
    position_of[group] = position
    often = table.count >= STEADY
    members = np.bincount(table.group[often], minlength=groups)
    enough = (members > 1) & (members >= MOST_RANKS * having[position_of])
    kept = often & enough[table.group]
    own = np.bincount(table.member[kept], table.quantiles[0][kept], minlength=ranks)
    of_usual = np.bincount(table.member[kept], usual[table.group[kept]], minlength=ranks)
    return np.where(of_usual > 0, own / np.maximum(of_usual, 1e-9), np.nan)
