"""Hosts that are slow between calls, and hosts that may not run far ahead of their GPUs.

FSDP lets a host call the AllGathers of two layers ahead of the layer that its GPU computes, and no
more. A slow host is never that far ahead. It alone shows how long the work between two calls takes,
and nothing there seems to be longer than usual. How slow it is show the calls that no rank waits
before:

                 since the call before     calls behind the limit     at the usual speed
    slow host    1.8   1.7   1.8           1.45                       0.26
    others       0.3   0.3   0.3           hidden: they waited
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.arrivals import END, Arrivals
from ncclscope.analysis.waiting.dependencies import Dependencies
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.positions import LEAST_PEERS
from ncclscope.analysis.waiting.quantiles import member_quantiles, quantile_by_group
from ncclscope.analysis.waiting.slow_launches import FAR_SLOWER, FAR_SLOWER_NS
from ncclscope.analysis.waiting.slow_ranks import MOST_RANKS, STEADY
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints

_SLOW_HOST = 1.3  # times as long as others, at positions that most ranks show
_SHORT = 0.25  # quantile of times from call to call: work of the host beside them is not in it
_OFTEN = 0.05  # of the calls of a rank: a limit counts in every step
_STILL_BUSY_NS = 50_000  # after the call: clocks of hosts and GPUs agree better


@dataclass(frozen=True, slots=True)
class SlowHosts:
    """How slow hosts are between two calls."""

    by_rank: Floats  # times as slow as others; 1 where it is no slower
    too_long: Floats  # by call: what is usual there is so many times too long, else 1
    far_slower_ns: Floats  # by rank: how much longer it takes from call to call, if far slower


def slow_hosts(kernels: Kernels, dependencies: Dependencies, rows: Ints) -> SlowHosts:
    """The slow hosts of a run. `rows`: kernels that count."""
    ranks, positions = len(kernels.ranks), dependencies.positions
    position, rank = dependencies.position.astype(np.int64), kernels.rank.astype(np.int64)
    too_long = np.ones(len(kernels))
    from_call = dependencies.edge[::3] == _abi.EDGE_HOST
    if ranks < LEAST_PEERS or not from_call[rows].any():
        return SlowHosts(np.ones(ranks), too_long, np.zeros(ranks))
    far_slower_ns = _far_slower_ns(kernels, dependencies, rows)
    rows = rows[np.diff(rank, prepend=-1)[rows] == 0]
    call = kernels.events_ns[:, 0]
    since = np.diff(call, prepend=call[:1])
    of_all = member_quantiles(position[rows], positions, rank[rows], since[rows], (0.5,))
    own = rows[from_call[rows]]
    free = member_quantiles(position[own], positions, rank[own], since[own], (0.5,))
    often = free.count >= STEADY
    everybody = np.bincount(of_all.group, minlength=positions)
    shown = np.bincount(free.group[often], minlength=positions)
    usual = free.of_usual_member(0, positions)
    # A host that comes late finds its GPU idle, and seems to have waited for it: it counts as well.
    known = (shown > MOST_RANKS * everybody) & (usual > 0)
    counts = known[of_all.group] & (of_all.count >= STEADY)
    ratio = of_all.quantiles[0][counts] / usual[of_all.group[counts]]
    slowness = _typical(of_all.member[counts], ratio, ranks)
    slowness = np.where(slowness > _SLOW_HOST, slowness, 1.0)
    is_slow = slowness[free.member] > 1
    quick = np.bincount(free.group, often & ~is_slow, minlength=positions)
    alone = often & is_slow & ((quick == 0) & (shown < everybody))[free.group]
    of_position = np.ones(positions)
    np.maximum.at(of_position, free.group[alone], slowness[free.member[alone]])
    too_long[from_call] = of_position[position[from_call]]
    return SlowHosts(slowness, too_long, far_slower_ns)


def _far_slower_ns(kernels: Kernels, dependencies: Dependencies, rows: Ints) -> Floats:
    """By rank how much longer its host takes from call to call, of pipelines in which some hosts
    are far slower than others; else 0. That hardly depends on the stage.
    """
    none, ranks = np.zeros(len(kernels.ranks)), len(kernels.ranks)
    own = rows[dependencies.edge[::3][rows] == _abi.EDGE_HOST]
    if not kernels.pair.any():
        return none
    rank = kernels.rank[own].astype(np.int64)
    typical = quantile_by_group(rank, ranks, dependencies.length_ns[::3][own], _SHORT)
    known = np.bincount(rank, minlength=ranks) >= STEADY
    if known.sum() < LEAST_PEERS:
        return none
    usual = float(np.sort(typical[known])[(known.sum() - 1) // 4])
    slow = known & (np.nan_to_num(typical) > max(FAR_SLOWER * usual, usual + FAR_SLOWER_NS))
    return np.where(slow, typical - usual, 0.0)


def far_slower_calls_ns(
    kernels: Kernels, dependencies: Dependencies, group: Ints, rows: Ints, hosts: SlowHosts
) -> Floats:
    """By call how much of what is usual in its group is the work of far slower hosts: those of most
    ranks that make such calls, as of a half of a pipeline's stages.

                         ranks 2, 3    ranks 4, 5, 6
        call to call     0.03          1.43 ms: usual is 1.40 less
    """
    far_slower = hosts.far_slower_ns
    if not far_slower.any():
        return np.zeros(len(group))
    own = rows[dependencies.edge[::3][rows] == _abi.EDGE_HOST]
    rank, length = kernels.rank.astype(np.int64), dependencies.length_ns[::3]
    is_slow = far_slower[rank[own]] > 0
    groups = int(group.max()) + 1
    of_quick, of_all = (
        member_quantiles(group[at], groups, rank[at], length[at], (0.5,)).of_usual_member(0, groups)
        for at in (own[~is_slow], own)
    )
    theirs = own[is_slow]
    too_long = far_slower[rank[theirs]].astype(np.int64)
    alone = quantile_by_group(group[theirs], groups, too_long, 0.5)
    of_group = np.nan_to_num(np.where(np.isnan(of_quick), alone, of_all - of_quick))
    return np.asarray(np.maximum(of_group, 0.0)[group])


def _typical(member: Ints, ratio: Floats, members: int) -> Floats:
    """By member the median of its ratios over positions: one with other work, as where data is
    loaded, is not the speed of a host. 1 for members without any.
    """
    order = np.lexsort((ratio, member))
    own, first, count = np.unique(member[order], return_index=True, return_counts=True)
    typical = np.ones(members)
    typical[own] = ratio[order[first + (count - 1) // 2]]
    return typical


def are_limited(kernels: Kernels, arrivals: Arrivals, dependencies: Dependencies) -> Bools:
    """By rank whether its host is held back again and again while its GPU has later kernels to run:
    it waits for work of the GPU that is not on record.
    """
    waited = (dependencies.edge[::3] == _abi.EDGE_HOST_AFTER_SYNC) & (dependencies.back[::3] > 1)
    events = arrivals.events_ns
    same_rank = np.diff(kernels.rank, prepend=-1) == 0
    busy = np.roll(events[:, END], 1) > events[:, 0] + _STILL_BUSY_NS
    ranks = len(kernels.ranks)
    held = np.bincount(kernels.rank, waited & same_rank & busy, minlength=ranks)
    return np.asarray(held >= _OFTEN * np.bincount(kernels.rank, minlength=ranks))
