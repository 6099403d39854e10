"""Ranks that differ gradually are no fault.

GPUs of many ranks differ. The slowest of them makes others wait, and without it the next one does.
Faults of several ranks are apart from all others:

    beyond the usual   70  60  46  36  26  26  25 ...   gradual: nobody
                       70  60   4   3   3   2   2 ...   two ranks
"""

import numpy as np

from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.arrays.types import Floats

_MANY = 4  # ranks
# The excess of ranks, times that of any other. In 8 jobs of 48 ranks, up to 4 gradual ones had 1.3,
# more of them 1.9, and three quarters of these 2.6. Faults of many ranks had 44 and more.
_GAP, _GAP_OF_MANY, _GAP_OF_MOST = 2.0, 2.5, 4.0


def ranks_apart(waiting: Waiting, ranks: tuple[int, ...], excess_ns: Floats) -> tuple[int, ...]:
    """Those of several ranks that have far more beyond the usual than all others, or all of them
    where they are whole hosts: that is no chance. One rank alone is judged by its delays.
    """
    if len(ranks) < 2 or _are_whole_hosts(waiting, ranks):
        return ranks
    own = np.isin(waiting.kernels.ranks, ranks)
    others = float(excess_ns[~own].max(initial=0.0))
    if len(ranks) > _MANY and np.quantile(excess_ns[own], 0.25) >= _GAP_OF_MOST * others:
        return ranks
    excess = dict(zip(waiting.kernels.ranks.tolist(), excess_ns.tolist(), strict=True))
    kept = set(ranks)
    for rank in sorted(ranks, key=lambda rank: excess[rank]):
        gap = _GAP_OF_MANY if len(kept) > _MANY else _GAP
        if excess[rank] >= gap * others:
            break
        kept.remove(rank)
        others = max(others, excess[rank])
    return tuple(rank for rank in ranks if rank in kept)


def _are_whole_hosts(waiting: Waiting, ranks: tuple[int, ...]) -> bool:
    """Whether ranks are all ranks of some hosts, where there are other hosts."""
    node_of, everybody = waiting.run.node_of, waiting.kernels.ranks
    nodes = np.unique(node_of[np.array(ranks)])
    on_nodes = everybody[np.isin(node_of[everybody], nodes)]
    whole = set(on_nodes.tolist()) == set(ranks)
    return whole and len(nodes) < len(on_nodes) < len(everybody)
