"""Transfers of a communicator without peers, compared with its own past; and work of a pipeline's
stage without peers.

A link that becomes slow shows in the communicator that uses it. Where no other communicator has
such transfers, its own faster times are what is usual. Its transfers are cut into blocks of equal
number in the order of time. A good block counts where many transfers take much longer than those
in it. The same holds of a GPU that becomes slow, where no other rank does what its stage does.

    blocks (medians)   1.0  1.1  3.9  4.0  4.1  3.9  4.0  4.1   usual: 1.1
                       4.0  4.1  3.9  4.0  4.1  3.9  4.0  4.1   usual: 4.0, nothing to compare with
"""

import numpy as np

from ncclscope.analysis.waiting.quantiles import member_quantiles
from ncclscope.arrays.types import Floats, Ints

_BLOCKS, _MORE_BLOCKS = 8, 12
_MANY = 96  # transfers of a kind: more blocks show a shorter past
_GOOD = 1  # the second best block: one may be fast by chance
_LEAST = 24  # transfers of a kind
_SLOWER = 1.3  # times what is long in the good block
_SHARE = 0.2  # of all transfers that are slower than that
HIGH = 0.9  # quantile of lengths that are long


def own_past(kind: Ints, member: Ints, length: Ints, end_ns: Ints, rows: Ints) -> Floats:
    """By kind the median and the high quantile of transfers in a good block; NaN where the kind
    has several members, few transfers, or no block that is much faster than others.
    """
    kinds = int(kind.max(initial=0)) + 1
    result = np.full((2, kinds), np.nan)
    own = kind[rows]
    one, other = np.full(kinds, np.iinfo(np.int64).max), np.full(kinds, -1)
    np.minimum.at(one, own, member[rows])
    np.maximum.at(other, own, member[rows])
    count = np.bincount(own, minlength=kinds)
    alone = (one == other) & (count >= _LEAST)
    rows = rows[alone[own]]
    if not len(rows):
        return result
    rows = rows[np.lexsort((end_ns[rows], kind[rows]))]
    own = kind[rows]
    first = np.searchsorted(own, np.arange(kinds))
    blocks = np.where(count >= _MANY, _MORE_BLOCKS, _BLOCKS)
    block = (np.arange(len(rows)) - first[own]) * blocks[own] // count[own]
    table = member_quantiles(own, kinds, block, length[rows], (0.5, HIGH))
    order = np.lexsort((table.quantiles[0], table.group))
    good = order[np.searchsorted(table.group[order], np.flatnonzero(alone)) + _GOOD]
    limit = np.full(kinds, np.inf)
    limit[table.group[good]] = _SLOWER * table.quantiles[1][good]
    slow = np.bincount(own, length[rows] > limit[own], minlength=kinds)
    good = good[slow[table.group[good]] > _SHARE * count[table.group[good]]]
    for place in (0, 1):
        result[place, table.group[good]] = table.quantiles[place][good]
    return result
