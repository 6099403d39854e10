"""What is usual of edges that one rank alone shows: no more than other repeats of the call took.

A host that is far ahead calls before an earlier kernel has ended. Where it pauses it calls after
that end, and seems to have waited for it, as nobody else ever did. Its pauses alone would say how
long that takes:

    call of one position, since the end of the kernel before
    usually, on all ranks       -2.0   the call came before that end
    rank 3, in two steps       120.0, 122.0
    usual of such edges        121.0   by themselves
    by other repeats             0.0

A call that came later than an end, and followed something else, shows at most how long it takes
from that end on.
"""

import numpy as np

from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.dependencies import CALLS_BACK, Dependencies
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.own_past import HIGH
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.quantiles import member_quantiles
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints

_MORE_REPEATS = 2  # times those that the rank alone shows


def shown_by_one_rank(group: Ints, rank: Ints) -> Bools:
    """By group of edges whether one rank alone has such."""
    groups = int(group.max(initial=0)) + 1
    least, most = np.full(groups, np.iinfo(np.int64).max), np.full(groups, -1)
    np.minimum.at(least, group, rank)
    np.maximum.at(most, group, rank)
    return np.asarray(least == most)


def lone_usual_ns(
    kernels: Kernels, dependencies: Dependencies, group: Ints, event: int, sample: Ints
) -> Floats:
    """By kernel the median and the high quantile of what other repeats took at most, since the end
    that its call or start followed; NaN where other ranks follow it as well, where it alone makes
    the call, or few repeats show it. `group`: edges of one group can be compared.
    """
    result = np.full((2, len(group)), np.nan)
    after_end = _abi.EDGE_GPU if event == START else _abi.EDGE_HOST_AFTER_SYNC
    back = dependencies.back[event::3]
    follows = (dependencies.edge[event::3] == after_end) & (back > 0) & (back <= CALLS_BACK)
    follows &= dependencies.before[event::3] % 3 == END
    rank = kernels.rank.astype(np.int64)
    position, positions = dependencies.position.astype(np.int64), dependencies.positions
    # Of a stage without peers all edges are its own: one that ends a step waits by design.
    has_peers = ~shown_by_one_rank(position, rank)[position]
    lone = np.flatnonzero(follows & has_peers & shown_by_one_rank(group, rank)[group])
    for calls_back in np.unique(back[lone]).tolist():
        own = lone[back[lone] == calls_back]
        times = np.bincount(position[own], minlength=positions)
        rows = sample[(times > 0)[position[sample]] & (sample >= calls_back)]
        rows = rows[rank[rows - calls_back] == rank[rows]]
        rows = rows[~(follows[rows] & (back[rows] == calls_back))]
        since = kernels.events_ns[rows, event] - kernels.events_ns[rows - calls_back, END]
        table = member_quantiles(
            position[rows], positions, rank[rows], np.maximum(since, 0), (0.5, HIGH)
        )
        shown = table.count_by_group(positions)
        enough = shown >= np.maximum(_MORE_REPEATS * times, LEAST_REPEATS)
        for place in (0, 1):
            usual = np.where(enough, table.of_usual_member(place, positions), np.nan)
            result[place, own] = usual[position[own]]
    return result
