"""How long a rank usually takes for what no other rank does: its own quick repeats.

The only root of a communicator, a parameter server, updates between Reduce and Broadcast. Compared
with other ranks, which do nothing there, it would always be late. It is late where it takes longer
than it does at other times:

    between Reduce and Broadcast   1.5  1.5  1.6  13.2  13.8  13.4  13.6   usual: 1.5
                                   1.5  1.5  1.6  1.5   1.5   1.6   1.5    usual: 1.5
"""

import numpy as np

from ncclscope.analysis.waiting.own_past import HIGH
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays.types import Bools, Floats, Ints

_LOW = 0.15  # quantile of the repeats that are surely quick: a server may be slow most of the time
_AS_QUICK, _AS_QUICK_NS = 1.5, 50_000  # times that, or so much more, is noise


def with_own_roles(serves: Bools, group: Ints, length: Ints, usual: Floats, sample: Ints) -> Floats:
    """Usual lengths, median and high, where edges in a role are as long as in its quick repeats.
    `serves`: by edge whether it is in a role; `group`: those of one group can be compared.
    """
    rows = sample[serves[sample]]
    if not len(rows):
        return usual
    groups = int(group.max()) + 1
    low_ns = quantile_by_group(group[rows], groups, length[rows], _LOW)[group[rows]]
    quick = rows[length[rows] <= np.maximum(_AS_QUICK * low_ns, low_ns + _AS_QUICK_NS)]
    enough = np.bincount(group[rows], minlength=groups) >= LEAST_REPEATS
    own = np.flatnonzero(serves & enough[group])
    result: Floats = usual.copy()
    for place, quantile in enumerate((0.5, HIGH)):
        quick_ns = quantile_by_group(group[quick], groups, length[quick], quantile)
        result[place, own] = quick_ns[group[own]]
    return result
