"""How long unchanged ranks took at calls that were short for all of them.

Steps differ: sequences become longer, some batches are small. What is usual over all steps is too
long for a short one, and a slow rank would gain nothing in it. Other ranks show how long the same
call took them:

    calls of one position     1st   2nd   3rd
    ranks 0 to 2              1.0   2.0   3.0
    rank 3                    1.3   2.6   3.9
    usual of the position     2.0   2.0   3.0    shared_lengths.py raises it where all took longer
    as others took            1.0

Ranks that waited before had less to do yet, which is no short step: what they waited counts.
"""

import numpy as np

from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.dependencies import BACKS
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.own_past import HIGH
from ncclscope.analysis.waiting.shared_lengths import LEAST_RANKS, equal_calls
from ncclscope.arrays.types import Floats

_SHORTER, _SHORTER_NS = 0.9, 20_000  # than usual: less is noise
_LONGEST = np.iinfo(np.int64).max


def short_steps_ns(waiting: Waiting, ranks: tuple[int, ...], worked_ns: Floats) -> Floats:
    """By kernel how long the 90th percentile of ranks that are not changed took before its start;
    NaN where that is not much shorter than usual, or where few show it. GPUs of one step have equal
    work; hosts take each their own time. `worked_ns`: by kernel what its rank did of it before.
    """
    kernels, dependencies = waiting.kernels, waiting.dependencies
    others = ~np.isin(kernels.ranks, ranks)
    result = np.full(len(kernels), np.nan)
    length = dependencies.length_ns[START::3] + worked_ns
    usual = waiting.usual.median_ns[START::3]
    limit = np.minimum(_SHORTER * usual, usual - _SHORTER_NS)
    edge = dependencies.edge[START::3].astype(np.int64) * BACKS + dependencies.back[START::3]
    for rows in equal_calls(kernels):
        of_others = others[kernels.rank[rows[:, 0]]]
        if of_others.all() or of_others.sum() < LEAST_RANKS:
            continue
        enough = max(LEAST_RANKS, int(of_others.sum()) // 2)
        shown = dependencies.blocked[rows] == 0
        short = (shown & (length[rows] < limit[rows]))[of_others].sum(axis=0)
        calls = np.flatnonzero(short >= enough)
        rows, shown = rows[:, calls], shown[:, calls]
        edges = edge[rows]
        # The edge of most ranks: others cannot be compared with it.
        most = np.sort(edges[of_others], axis=0)[(int(of_others.sum()) - 1) // 2]
        alike = (shown & (edges == most))[of_others]
        lengths = np.where(alike, length[rows][of_others], _LONGEST)
        members = alike.sum(axis=0)
        high = np.ceil(np.maximum(members - 1, 0) * HIGH).astype(np.int64)
        took = np.sort(lengths, axis=0)[high, np.arange(len(calls))]
        fits = (edges == most) & (members >= enough) & (took < limit[rows])
        result[rows] = np.where(fits, took, np.nan)
    return result
