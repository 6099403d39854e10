"""Hosts all of whose ranks take longer than any other rank.

Where steps vary and a host is slow in some of them, as when something else heats it, no rank of it
stands out: now one and now another is the last. Together they do:

    longer than usual, ms     host 0 to 2: 0.5 to 16     host 3: 44, 45, 45, 46, 47, 47, 49, 49
"""

from dataclasses import replace

import numpy as np

from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.main_origin import LEAST_OF_RUN
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.rank_delays import delays_of
from ncclscope.analysis.waiting.rank_sums import steady_charges, sums_by_rank
from ncclscope.analysis.waiting.replay import run_ns
from ncclscope.analysis.waiting.standing_out import HABIT, MOST_OF_HOST
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.arrays.types import Bools

_SO_MANY_RANKS = 4  # of the host; of fewer all are the longest by chance
_LONGER = 1.5  # times the longest rank of other hosts
_LEAST_BEGUN = 0.1  # of the waiting that began on single ranks


def whole_host(waiting: Waiting, what_if: WhatIf, others: Change) -> tuple[int, ...]:
    """The ranks of the one such host without whose delays the run is notably shorter; else none.
    `others`: causes that are known already.
    """
    ranks = waiting.kernels.ranks
    node_of, known = waiting.run.node_of[ranks], np.isin(ranks, others.ranks)
    longer = np.where(known, 0.0, sums_by_rank(waiting, waiting.own_excess_ns))
    first = node_of == node_of[int(np.argmax(longer))]
    if what_if.has_gaps or first.sum() < _SO_MANY_RANKS or 2 * first.sum() > len(ranks):
        return ()
    compared = ~first & ~known
    if not compared.any():
        return ()  # with nobody left to compare with, nobody takes longer
    least = max(_LONGER * longer[compared].max(), HABIT * waiting.judged_ns)
    if longer[first].min() < least:
        return ()
    own = tuple(ranks[first].tolist())
    if others.ranks and not _is_waited_for(waiting, first):
        return ()
    habits = [delays_of(waiting, rank, of_last_arrivals=False).steady for rank in own]
    if sum(habits) < MOST_OF_HOST * len(own):
        return ()  # late_hosts.py has hosts whose ranks are late in turn
    with_host = what_if.events_ns(replace(others, ranks=(*others.ranks, *own)))
    gained_ns = run_ns(what_if.events_ns(others)) - run_ns(with_host)
    return own if gained_ns >= LEAST_OF_RUN * waiting.judged_ns else ()


def _is_waited_for(waiting: Waiting, own: Bools) -> bool:
    """Whether a notable part of the waiting for single ranks began on these. Behind a late rank all
    ranks of another host may look slow, as they did their work while they waited for it.
    """
    charged = steady_charges(waiting)
    began = sums_by_rank(waiting, charged[:, 0] + charged[:, START])
    return bool(began[own].sum() >= _LEAST_BEGUN * began.sum())
