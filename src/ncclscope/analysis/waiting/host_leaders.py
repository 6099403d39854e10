"""Ranks that have the same place on every host, such as the first one: leaders of their hosts.

They write checkpoints, read data for others or log. That all of them are late is the job's design:

    longer than usual, ms    host 0          host 1          host 2
                             140, 2, 1, 2    150, 1, 2, 2    144, 2, 180, 1    rank 10 alone
"""

import numpy as np

from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.rank_sums import sums_by_rank

_LEAST_HOSTS = 3
_MORE = 2.0  # times as long as the other leaders: late for another reason as well


def without_leaders(waiting: Waiting, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """These ranks less leaders of hosts: all ranks of a place that each host has, where most other
    ranks are not among them.
    """
    everybody = waiting.kernels.ranks
    nodes, node = np.unique(waiting.run.node_of[everybody], return_inverse=True)
    if len(nodes) < _LEAST_HOSTS or len(ranks) < len(nodes):
        return ranks
    order = np.argsort(node, kind="stable")
    first = np.searchsorted(node[order], np.arange(len(nodes)))
    place = np.empty(len(everybody), np.int64)
    place[order] = np.arange(len(everybody)) - first[node[order]]
    is_named = np.isin(everybody, ranks)
    if 2 * is_named.sum() >= len(everybody):
        return ranks
    excess = sums_by_rank(waiting, waiting.own_excess_ns)
    left_out: set[int] = set()
    for number in np.unique(place[is_named]).tolist():
        at_place = place == number
        if at_place.sum() < len(nodes) or not is_named[at_place].all():
            continue
        usual = np.median(excess[at_place])
        left_out |= set(everybody[at_place & (excess <= _MORE * usual)].tolist())
    return tuple(rank for rank in ranks if rank not in left_out)
