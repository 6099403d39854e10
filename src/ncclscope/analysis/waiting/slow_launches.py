"""How much of what is usual is a slow launch: a host that takes longer from call to launch.

Starts of such a rank follow their launches, and others' do not: at its position it alone shows how
long that takes. In a pipeline a stage may make calls that no other rank makes. Launching does not
depend on the work, so that launches of other kernels show what is usual:

                    call to launch    call to next call
    stages 1 to 7   12 µs             26 to 40 µs
    stage 0         3,360 µs          3,390 µs: usual is 3,350 less
"""

import numpy as np

from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.dependencies import Dependencies
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.lone_edges import shown_by_one_rank
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.quantiles import member_quantiles, quantile_by_group
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Floats, Ints

# Of a stage without peers. A group of many sends takes longer to launch than one send, but not so.
FAR_SLOWER, FAR_SLOWER_NS = 4.0, 100_000


def slow_starts_ns(
    kernels: Kernels, dependencies: Dependencies, group: Ints, sample: Ints
) -> Floats:
    """By start how much of what is usual in its group is a slow launch: where starts of one rank
    alone follow their launch, because its host takes longer from call to launch than others. A
    stage without peers is compared by launches of other kernels.
    """
    less = np.zeros(len(group))
    launch = dependencies.edge[START::3] == _abi.EDGE_LAUNCH
    rank = kernels.rank.astype(np.int64)
    # Where the next call follows this one, the edge between them shows the slow launch.
    next_call = np.append(dependencies.edge[3::3], _abi.EDGE_ROOT)
    alone = launch & shown_by_one_rank(group, rank)[group] & (next_call != _abi.EDGE_HOST)
    if not alone.any():
        return less
    took = kernels.launched_ns - kernels.events_ns[:, 0]
    position = dependencies.position.astype(np.int64)
    table = member_quantiles(
        position[sample], dependencies.positions, rank[sample], took[sample], (0.5,)
    )
    usual = table.of_usual_member(0, dependencies.positions)
    groups = int(group.max(initial=0)) + 1
    own = member_quantiles(group[alone], groups, rank[alone], took[alone], (0.5,))
    of_group = np.zeros(groups)
    of_group[own.group] = own.quantiles[0]
    less[alone] = np.maximum(of_group[group[alone]] - usual[position[alone]], 0.0)
    stage = np.flatnonzero(alone & shown_by_one_rank(position, rank)[position])
    if kernels.pair.any() and len(stage):
        too_long = _too_long_ns(kernels, sample)[stage]
        less[stage] = quantile_by_group(group[stage], groups, too_long, 0.5)[group[stage]]
    return less


def slow_calls_ns(
    kernels: Kernels, dependencies: Dependencies, group: Ints, lasting: Ints
) -> Floats:
    """By call how much of what is usual in its group is a slow launch of the call before, on stages
    without peers. `lasting`: kernels that show what is usual.
    """
    less, rank = np.zeros(len(group)), kernels.rank.astype(np.int64)
    position = dependencies.position.astype(np.int64)
    alone = shown_by_one_rank(position, rank)[position]
    if not kernels.pair.any() or not alone.any():
        return less
    too_long = _too_long_ns(kernels, lasting)
    follows = np.flatnonzero(np.diff(rank) == 0) + 1
    follows = follows[alone[follows] & (too_long[follows - 1] > 0)]
    if len(follows):
        groups = int(group.max()) + 1
        of_group = quantile_by_group(group[follows], groups, too_long[follows - 1], 0.5)
        less[follows] = of_group[group[follows]]
    return less


def _too_long_ns(kernels: Kernels, lasting: Ints) -> Ints:
    """By kernel how much longer its launch took than is usual, where its rank launches such kernels
    far slower than other ranks do: those of the same kind, where others make these, else all that
    are sends and receives, or collectives.
    """
    rank, kind = kernels.rank.astype(np.int64), kernels.kind.astype(np.int64)
    took = np.maximum(kernels.launched_ns - kernels.events_ns[:, 0], 0)
    shared = ~shown_by_one_rank(kind, rank)
    like = np.where(shared[kind], kind + 2, kernels.pair)
    groups, ranks = int(like.max(initial=0)) + 1, len(kernels.ranks)
    table = member_quantiles(like[lasting], groups, rank[lasting], took[lasting], (0.5,))
    usual = table.of_usual_member(0, groups)
    slow = table.quantiles[0] > np.maximum(
        FAR_SLOWER * usual[table.group], usual[table.group] + FAR_SLOWER_NS
    )
    slow &= table.count >= LEAST_REPEATS
    of_both = np.zeros(groups * ranks, bool)
    of_both[(table.group * ranks + table.member)[slow]] = True
    excess = took - np.nan_to_num(usual)[like]
    return np.where(of_both[like * ranks + rank], np.maximum(excess, 0), 0).astype(np.int64)
