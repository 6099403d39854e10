"""The one rank of a few that most waiting begins on.

Of two or three ranks none can stand out: there is no spread of the others. What began on one may
still be more than chance, and a replay says what its delays cost:

    rank    delays that others waited for    the run without them
    0       59, 31 ms                        239 of 263 ms
    1        9,  8 ms                        256 of 263 ms
"""

import numpy as np

from ncclscope.analysis.robust_statistics import is_no_chance
from ncclscope.analysis.waiting.origins import KINDS, Waiting
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.rank_delays import MOST_KERNELS, delays_of, pauses_of
from ncclscope.analysis.waiting.rank_sums import (
    are_significant,
    is_tied_loosely,
    steady_charges,
    sums_by_rank,
)
from ncclscope.analysis.waiting.replay import run_ns
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.arrays import _abi
from ncclscope.model.schema import NONE

_MOST_RANKS = 16  # of more, one that costs much stands out
LEAST_OF_RUN = 0.04  # that it gains
_TIMES_OTHERS = 3.0  # what the run gains without any other rank's delays
# The same, and what began on any other rank, where ranks are tied loosely or the record has gaps: a
# rank may be ahead of others there, and nobody loses time by that.
_FAR_MORE = 4.0
# The same, where others have delays of that length nearly as often: random pauses, of which most
# cost nothing. In 190 healthy random jobs the rank that gains most gained 2.4 % of the run at most,
# 1.4 times what the next one gained.
_ALONE = 6.0


def main_origin(waiting: Waiting, what_if: WhatIf) -> tuple[int, ...]:
    """This rank, where the run is much shorter without its delays, and hardly without those of any
    other one: far less where other ranks are late about as often.
    """
    ranks = waiting.kernels.ranks
    if len(ranks) > _MOST_RANKS or len(waiting.kernels) > MOST_KERNELS:
        return ()
    unclear = what_if.has_gaps or is_tied_loosely(waiting)
    times_others = _FAR_MORE if unclear else _TIMES_OTHERS
    lengths = steady_charges(waiting)[:, :2].sum(axis=1)
    began = sums_by_rank(waiting, lengths)
    # Of a few ranks one has paused by chance, which is no habit.
    habit = np.array([delays_of(waiting, rank).steady for rank in ranks.tolist()])
    if not habit.any():
        return ()
    place = int(np.argmax(np.where(habit, began, -1.0)))
    alone = np.arange(len(ranks)) == place
    others = habit & ~alone
    if unclear and began[place] < times_others * began[others].max(initial=0.0):
        return ()
    delays = delays_of(waiting, int(ranks[place]))
    if delays.kind == KINDS[_abi.EDGE_HOST_AFTER_SYNC] and not _meet_often(waiting):
        return ()  # the last of a ring ends its steps last, and begins the next ones last
    if not are_significant(waiting, lengths, place, ~others):
        return ()
    long = waiting.excess_ns.reshape(-1, 3)[:, :2] >= delays.typical_ns / 2
    long &= (waiting.charges.by_event.reshape(-1, 3)[:, :2] > 0) & ~waiting.start_up[:, None]
    times = sums_by_rank(waiting, long.sum(axis=1).astype(np.float64))
    if not is_no_chance(float(times[place]), float(times[~alone].max())):
        times_others = _ALONE

    now_ns = run_ns(waiting.arrivals.events_ns)

    def gained_ns(rank: int) -> int:
        events = what_if.events_ns(Change(ranks=(rank,)), pauses_of(waiting, (rank,)))
        return now_ns - run_ns(events)

    gained = gained_ns(int(ranks[place]))
    if gained < LEAST_OF_RUN * waiting.judged_ns:
        return ()
    others = habit if times_others < _ALONE else np.ones(len(ranks), bool)
    most = max((gained_ns(rank) for rank in ranks[others & ~alone].tolist()), default=0)
    return (int(ranks[place]),) if gained >= times_others * most else ()


def _meet_often(waiting: Waiting) -> bool:
    """Whether ranks meet in collectives, so that none stays behind the others for ever."""
    kernels = waiting.kernels
    meets = (kernels.meeting != NONE) & ~waiting.start_up
    return bool(meets.sum() >= LEAST_REPEATS * len(kernels.ranks))
