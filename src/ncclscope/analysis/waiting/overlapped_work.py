"""Work that other ranks did while they waited for a late one, and that the late one has to do yet.

A rank that is late to one kernel may seem to be slow before the next: others had work that did not
need the first kernel, and did it while they waited. To take the rank's work for longer than theirs
would count its delay twice:

    rank 7, late by 5    first kernel | work of 4, beside it | 6, behind it | second kernel
    others               wait 5, work of 4 meanwhile         | 6            | wait 4

Whether its GPU is as quick as theirs is seen where nobody waited before: then work that is longer
by no more than others had waited is theirs as well, and remains.

A host that waits for an end does nothing meanwhile, but it may wait for its GPU instead. That is
taken for granted where something else than this call is known to have made the rank late: a slow
GPU, or a slow link by which it receives. Without that, the call itself is what others waited for.
"""

import numpy as np

from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.overlap import LITTLE_WAIT
from ncclscope.analysis.waiting.quantiles import member_quantiles
from ncclscope.analysis.waiting.shorter_edges import places_in_step
from ncclscope.analysis.waiting.work_during_chains import waited_before_ns, waited_in_chain_ns
from ncclscope.arrays import _abi
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints

_LEAST_WORK_NS = 100_000  # before a start that shows how quick a GPU is; less is launching
_SLOW = 1.05  # times as long as others: a slow GPU
_ALIKE = 1.25  # how far the slowness of one GPU differs from place to place
_SLOWEST = 2.0  # times as long as others: throttled GPUs are quicker
_LEAST_SHOWN = 5  # starts around a moment that show how quick a GPU is
_NEAR = 4  # of these before and after it
_FAR = 3.0  # times what they are apart usually: around a moment that none of them shows


def remaining_work_ns(waiting: Waiting, events: Ints, overlaps_chain: Bools) -> Floats:
    """By call and start how long the work before it remains at the speed of other ranks, where
    those can have done a part of theirs while they waited for this one; NaN elsewhere. Of calls,
    only those of ranks that something else made late. `events`: in their order; `overlaps_chain`:
    by kernel whether the work before its start runs during a chain of kernels.
    """
    kernels, dependencies = waiting.kernels, waiting.dependencies
    usual, length = waiting.usual.median_ns[events], dependencies.length_ns[events]
    edge, before = dependencies.edge[events], np.maximum(dependencies.before[events], 0)
    is_start = events % 3 == START
    follows = np.where(is_start, edge == _abi.EDGE_GPU, edge == _abi.EDGE_HOST_AFTER_SYNC)
    follows &= before % 3 == END
    waited_for = _waited_for_ns(waiting)
    waited = np.where(follows, waited_for[before // 3], 0.0)
    # Where slow ranks alone show it, what is usual has the whole chain in it already.
    overlaps = follows & overlaps_chain[events // 3] & ~waiting.usual.of_slow_ranks[events]
    if overlaps.any():
        waited[overlaps] += waited_in_chain_ns(dependencies, waited_for)[before[overlaps] // 3]
    free = is_start & ((edge == _abi.EDGE_LAUNCH) | (edge == _abi.EDGE_GPU))
    free &= (usual >= _LEAST_WORK_NS) & (waited <= LITTLE_WAIT * usual)
    free &= (dependencies.blocked[events // 3] == 0) & ~waiting.start_up[events // 3]
    # Work that counts from the start of the kernel before may contain time without work.
    since_start = (edge == _abi.EDGE_GPU) & (before % 3 == START)
    by_link = _late_by_link_ns(waiting, events // 3)
    late_by_link = (by_link > 0) & (by_link >= length - usual)
    remains = np.full(len(events), np.nan)
    rank = kernels.rank[events // 3]
    for place in np.unique(rank).tolist():
        own = np.flatnonzero(rank == place)
        shown = own[free[own] & ~since_start[own]]
        if len(shown) < _LEAST_SHOWN:
            shown = own[free[own]]
        if len(shown) >= _LEAST_SHOWN:
            slowness = np.maximum(_around(length[shown] / usual[shown], shown, own), 1.0)
            counts = is_start[own] | late_by_link[own] | (slowness >= _SLOW)
            remains[own] = np.where(counts, length[own] / slowness, np.nan)
    overlapped = follows & (waited > LITTLE_WAIT * usual)
    remains = np.where(overlapped, np.minimum(remains, usual + waited), np.nan)
    unclear = np.flatnonzero(is_start & ~np.isnan(remains))
    if len(unclear):
        shown = _shown_by_others_ns(waiting, events[unclear] // 3)
        remains[unclear] = np.fmin(remains[unclear], shown)
    return remains


def done_meanwhile_ns(waiting: Waiting, events: Ints) -> Floats:
    """By start how long the work before it would remain, if others did all of theirs while they
    waited for this rank in collectives before it; NaN elsewhere, and of ranks that are as slow
    everywhere: others then do their work behind those kernels, as these do. A GPU that seems to be
    slower than GPUs are may be quick: what is usual is then what others had left after their wait.
    """
    dependencies = waiting.dependencies
    usual, length = waiting.usual.median_ns[events], dependencies.length_ns[events]
    before = np.maximum(dependencies.before[events], 0)
    follows = (events % 3 == START) & (dependencies.edge[events] == _abi.EDGE_GPU)
    # Work behind an exchange mostly needs what was received, as in pipelines.
    follows &= (before % 3 == END) & ~waiting.kernels.pair[before // 3]
    waited_for = _waited_for_ns(waiting)
    waited = waited_for[before // 3] + waited_in_chain_ns(dependencies, waited_for)[before // 3]
    hides = follows & (usual > 0) & (waited > LITTLE_WAIT * usual)
    hides &= length > (1 + LITTLE_WAIT) * usual
    free = follows & (usual >= _LEAST_WORK_NS) & (waited <= LITTLE_WAIT * usual)
    remains = np.full(len(events), np.nan)
    rank = waiting.kernels.rank[events // 3]
    for place in np.unique(rank[hides]).tolist():
        own = np.flatnonzero(hides & (rank == place))
        shown = np.arange(own[0], own[-1])  # it may be slow for a while
        shown = shown[free[shown]]
        slowness = length[own] / usual[own]
        is_slower = len(shown) >= _LEAST_SHOWN and bool(
            np.median(slowness) > _ALIKE * np.median(length[shown] / usual[shown])
        )
        if is_slower or not _are_alike(slowness):
            remains[own] = np.minimum(length[own], usual[own] + waited[own])
    works = _works(waiting, events) & (usual >= 0)
    longer = length > (1 + LITTLE_WAIT) * usual
    as_usual = works & ~longer & (usual >= _LEAST_WORK_NS)
    for place in np.unique(rank[works & longer]).tolist():
        own = np.flatnonzero(works & longer & (rank == place))
        is_quick = (as_usual & (rank == place)).sum() > len(own)  # but for one layer
        if length[own].sum() > _SLOWEST * usual[own].sum() and not is_quick:
            remains[own] = length[own]
    return remains


def _works(waiting: Waiting, events: Ints) -> Bools:
    """By event whether it is a start with work of the GPU before it, and no launch alone."""
    kernels, row = waiting.kernels, events // 3
    edge, length = waiting.dependencies.edge[events], waiting.dependencies.length_ns[events]
    since = kernels.events_ns[row, START] - kernels.launched_ns[row]
    after_launch = (edge == _abi.EDGE_LAUNCH) & (since > length / 2)
    return np.asarray((events % 3 == START) & ((edge == _abi.EDGE_GPU) | after_launch))


def _are_alike(slowness: Floats) -> bool:
    """Whether nearly all are about as much: those of a slow GPU."""
    least, middle, most = np.quantile(slowness, (0.1, 0.5, 0.9))
    return bool(least > middle / _ALIKE and most < middle * _ALIKE)


def _shown_by_others_ns(waiting: Waiting, rows: Ints) -> Floats:
    """By kernel of `rows` how long the work before its start usually is where other ranks did not
    wait before it, at its place in a step: none of it was done meanwhile. NaN where too few starts
    show it, as of a rank that is late in every step. What is usual in a long step is longer.
    """
    kernels, dependencies = waiting.kernels, waiting.dependencies
    usual = waiting.usual.median_ns[START::3]
    free = ~np.isin(kernels.rank, np.unique(kernels.rank[rows])) & ~waiting.start_up
    free &= (dependencies.blocked == 0) & (waited_before_ns(waiting) <= LITTLE_WAIT * usual)
    shown = np.flatnonzero(free)
    both = np.concatenate([shown, rows])
    place, places = factorize(places_in_step(dependencies, 3 * both + START))
    of_shown, of_rows = np.split(place.astype(np.int64), [len(shown)])
    rank, length = kernels.rank[shown].astype(np.int64), dependencies.length_ns[START::3][shown]
    table = member_quantiles(of_shown, places, rank, length, (0.5,))
    work = table.of_usual_member(0, places)
    work[table.count_by_group(places) < _LEAST_SHOWN] = np.nan
    return np.maximum(work[of_rows], usual[rows])


def _late_by_link_ns(waiting: Waiting, rows: Ints) -> Floats:
    """By kernel of `rows` what sends and receives of its rank took longer than usual since its host
    waited for its GPU the last time before the kernel's call.
    """
    kernels = waiting.kernels
    longer = np.where(kernels.pair, waiting.excess_ns[END::3], 0.0)
    until = np.concatenate([[0.0], np.cumsum(longer)])
    syncs = np.flatnonzero(waiting.dependencies.edge[::3] == _abi.EDGE_HOST_AFTER_SYNC)
    since = kernels.first_of_rank[kernels.rank[rows]]
    if len(syncs):
        place = np.searchsorted(syncs, rows) - 1
        since = np.where(place >= 0, np.maximum(syncs[np.maximum(place, 0)], since), since)
    return np.asarray(until[rows] - until[since])


def _waited_for_ns(waiting: Waiting) -> Floats:
    """By kernel how long those that waited for it did so, on average."""
    last, wait = waiting.arrivals.last, waiting.arrivals.wait_ns
    others = np.flatnonzero(last != np.arange(len(last)))
    count = np.bincount(last[others], minlength=len(last))
    return np.asarray(np.bincount(last[others], wait[others], len(last)) / np.maximum(count, 1))


def _around(values: Floats, places: Ints, wanted: Ints) -> Floats:
    """By wanted place the median of the values at the places around it; NaN where these are far:
    a GPU may be slow for a while, and others wait for it all the time then.
    """
    at = np.searchsorted(places, wanted)
    first = np.clip(at - _NEAR, 0, max(len(places) - 2 * _NEAR, 0))
    window = np.minimum(first[:, None] + np.arange(2 * _NEAR), len(places) - 1)
    apart = 2 * _NEAR * np.median(np.diff(places))
    last = np.maximum(places[window[:, -1]], wanted)
    is_far = last - np.minimum(places[window[:, 0]], wanted) > _FAR * apart
    return np.where(is_far, np.nan, np.median(values[window], axis=1))
