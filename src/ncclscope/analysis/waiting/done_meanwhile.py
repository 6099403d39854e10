"""What was done beside a kernel while it waited, of the gap behind it until the next call.

The GPU works beside the kernel, and the host waits for both. The gap shrinks by what was done
meanwhile, which is no more than there is to do. The rank that others wait for has all of its work
before it then, and is not slower:

    last rank    wait 0, gap 3.5
    others       wait 2, gap 1.5
    others       wait 9, gap 0.5    all of 3.0 was done

A rank may be the last one in nearly every step, by its place in a pipeline, so that no rank shows
both. Then others tell, where they waited longer than its gap, and nothing is left of theirs:

    last rank    wait 0, gap 1.3
    others       wait 4, gap 0.1    only a host that waits for both has such gaps
"""

import numpy as np

from ncclscope.analysis.waiting.overlap import LEAST_TELLING, LITTLE_WAIT, LONGER_WAIT, TIGHT_NS
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.analysis.waiting.slopes import slopes
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints

_OVERLAPPED = 0.7  # by how much a gap shrinks with waiting, where work runs beside it: 1
_SHORT, _LONG = 0.1, 0.9  # quantiles of gaps: what is between them can be done meanwhile
_NO_WAIT_NS = 20_000  # by a short gap
_GONE = 0.15  # of that gap: what is left for the host, which wakes up and calls
_FEW_SHORT = 0.2  # of the gaps of last ranks, by chance
_GONE_SHARE = 0.9  # of the gaps after such waits
_MOST_WAITS = 0.5


def done_while_waiting(group: Ints, rank: Ints, length: Ints, wait: Ints, rows: Ints) -> Ints:
    """By call how much of the gap before it was done while the kernel before it waited. `wait`: of
    that kernel; `rows`: calls that tell.
    """
    gone_ns = _gone_behind_others(group, length, wait, rows)
    rows = rows[length[rows] > TIGHT_NS]
    # By rank: one that is late for a while has long gaps then, and waits when others are late.
    ranks, groups = int(rank.max(initial=0)) + 1, int(group.max(initial=0)) + 1
    key, keys = factorize(group[rows] * ranks + rank[rows])
    place = key.astype(np.int64)
    of_key = np.zeros(keys, np.int64)
    of_key[place] = group[rows]
    nobody = np.zeros(len(rows), np.int64)

    def shrinking(done: Ints) -> Bools:
        """By key whether its gaps shrink by what was done, as those of most ranks of the group."""
        slope = slopes(place, keys, nobody, length[rows], done)
        known = np.bincount(of_key[~np.isnan(slope)], minlength=groups)
        shrink = slope < -_OVERLAPPED
        times = np.bincount(of_key[shrink], minlength=groups)
        return np.asarray(shrink & ((known > 1) & (2 * times > known))[of_key])

    short, long = (quantile_by_group(place, keys, length[rows], q) for q in (_SHORT, _LONG))
    most = (long - short).astype(np.int64)
    capped = shrinking(np.minimum(wait[rows], most[place]))
    most_of_group = np.nan_to_num(quantile_by_group(of_key[capped], groups, most[capped], 0.5))
    # Where gaps shrink by all of the waiting, work varies by more than these quantiles show.
    most_of_group[of_key[shrinking(wait[rows])]] = np.inf
    return np.minimum(wait, np.maximum(most_of_group, gone_ns)[group]).astype(np.int64)


def _gone_behind_others(group: Ints, length: Ints, wait: Ints, rows: Ints) -> Floats:
    """By group the gap of ranks that did not wait, where next to nothing is left of gaps after
    waits that are longer than it; 0 for others.
    """
    groups, of = int(group.max(initial=0)) + 1, group[rows]
    # Short gaps count: of ranks that seldom have one, those would be pauses.
    last = rows[wait[rows] < np.maximum(LITTLE_WAIT * length[rows], _NO_WAIT_NS)]
    seen = np.bincount(group[last], minlength=groups)
    low, gap, high = (
        np.nan_to_num(quantile_by_group(group[last], groups, length[last], share), nan=np.inf)
        for share in (_FEW_SHORT, 0.5, _LONG)
    )
    telling = wait[rows] > LONGER_WAIT * high[of]
    gone = telling & (length[rows] < _GONE * gap[of])
    count = np.bincount(of[telling], minlength=groups)
    shown = (seen >= LEAST_TELLING) & (count >= LEAST_TELLING) & (gap > TIGHT_NS)
    shown &= low >= gap / 2  # a rank that became late had short gaps before
    # A late rank makes others wait longer than usual when it is later than usual.
    waited = np.bincount(of[wait[rows] > gap[of] / 2], minlength=groups)
    shown &= count >= _MOST_WAITS * waited
    shown &= np.bincount(of[gone], minlength=groups) >= _GONE_SHARE * count
    return np.where(shown, gap, 0.0)
