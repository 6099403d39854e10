"""How long a host takes from the end of a collective to its next call, where it alone makes that
call: as long as the others that waited for that collective, whatever they call next.

In a pipeline each stage may be the only one of its kind. At the end of a step all of them wait for
the same collective. What their hosts do then, as to load data, comes before any work of the stage:

    rank 0   AllReduce ── 1.3 ── Send
    rank 1   AllReduce ── 38 ─── Receive     at its position alone; usual: 1.3
    rank 2   AllReduce ── 1.4 ── Receive, of another one

The slowest of the others is what is usual: the first stage may load data for all.
"""

import numpy as np

from ncclscope.analysis.waiting.arrivals import END
from ncclscope.analysis.waiting.dependencies import Dependencies
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.quantiles import MemberQuantiles
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.schema import NONE


def of_others_after_sync(
    kernels: Kernels, dependencies: Dependencies, group: Ints, table: MemberQuantiles, own: Bools
) -> Floats:
    """By group of edges before calls the median and the high quantile of other ranks behind the
    same collective, where a rank is alone in the group and that is less; NaN elsewhere. `own`: by
    kernel whether its edge is the host's own time, and can be compared.
    """
    groups = int(group.max(initial=0)) + 1
    values = np.full((2, groups), np.nan)
    members = np.bincount(table.group, minlength=groups)
    collective = _collective_of_group(kernels, dependencies, group, groups, own)
    count = table.count_by_group(groups)
    known = np.flatnonzero((collective != NONE) & (count >= LEAST_REPEATS))
    alone = known[members[known] == 1]
    if not len(alone):
        return values
    member_of = np.full(groups, NONE)
    member_of[table.group] = table.member  # of groups with one member
    member_of[members > 1] = NONE
    usual = np.array([table.of_usual_member(place, groups) for place in (0, 1)])
    for kind in np.unique(collective[alone]).tolist():
        own_kind, single = known[collective[known] == kind], alone[collective[alone] == kind]
        for place in (0, 1):
            longest = own_kind[np.argsort(-usual[place, own_kind], kind="stable")]
            of_others = longest[member_of[longest] != member_of[longest[0]]]
            if not len(of_others):
                continue  # a rank is never compared with itself
            first, second = usual[place, longest[0]], usual[place, of_others[0]]
            is_first = member_of[single] == member_of[longest[0]]
            shown = np.where(is_first, second, first)
            values[place, single] = np.where(shown < usual[place, single], shown, np.nan)
    return values


def _collective_of_group(
    kernels: Kernels, dependencies: Dependencies, group: Ints, groups: int, own: Bools
) -> Ints:
    """By group the kind of the collective whose end its edges follow; NONE where they follow
    something else, or several kinds.
    """
    before = dependencies.before[::3].astype(np.int64)
    follows = own & (dependencies.edge[::3] == _abi.EDGE_HOST_AFTER_SYNC)
    follows &= (before >= 0) & (before % 3 == END)
    follows &= ~kernels.pair[np.maximum(before, 0) // 3]
    kind = np.where(follows, kernels.kind[np.maximum(before, 0) // 3], NONE).astype(np.int64)
    least, most = np.full(groups, np.iinfo(np.int64).max), np.full(groups, NONE, np.int64)
    np.minimum.at(least, group, kind)
    np.maximum.at(most, group, kind)
    return np.where(least == most, most, NONE)
