"""Excess of many groups of edges at once: ten thousand ranks have as many groups, of few edges.

Groups of one size are the rows of a matrix. numpy adds up a row as it adds up an array of that
length, so that sums are those of single groups to the last bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.arrivals import END
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.schema import NONE

# Between counting events (0) and summing them (1): one pause does not hide a habit, nor does noise
# hide a pause.
_WEIGHT = 0.75
NOTABLE = 0.25  # of what is typical


@dataclass(frozen=True, slots=True)
class GroupExcess:
    """By group: the typical excess, how many edges have at least half of it and when these ended,
    and which edges are notably longer than usual.
    """

    typical_ns: Floats
    times: Ints
    first_ns: Ints
    last_ns: Ints
    notable: Bools  # by edge


def group_excess(first: Ints, excess_ns: Floats, weight: Floats, time_ns: Ints) -> GroupExcess:
    """The excess of groups of edges that lie one behind the other. `first`: by group its first
    edge, then the number of edges; no weight is 0.
    """
    groups = len(first) - 1
    out = GroupExcess(
        typical_ns=np.zeros(groups),
        times=np.zeros(groups, np.int64),
        first_ns=np.zeros(groups, np.int64),
        last_ns=np.zeros(groups, np.int64),
        notable=np.zeros(first[-1], bool),
    )
    for own, edges in _of_one_size(first):
        excess, time = excess_ns[edges], time_ns[edges]
        typical = typical_excess(excess, weight[edges])
        counted = excess >= typical[:, None] / 2
        out.typical_ns[own] = typical
        out.times[own] = counted.sum(axis=1)
        out.first_ns[own] = np.where(counted, time, np.iinfo(np.int64).max).min(axis=1)
        out.last_ns[own] = np.where(counted, time, np.iinfo(np.int64).min).max(axis=1)
        out.notable[edges] = excess >= typical[:, None] * NOTABLE
    return out


def typical_excess(excess: Floats, weight: Floats) -> Floats:
    """By row the typical excess of edges by their weight; edges without weight do not count. Each
    row must have an edge with weight.
    """
    weights = np.where(weight > 0, weight, 0.0) ** _WEIGHT
    order = np.argsort(excess, axis=1)
    running = np.cumsum(np.take_along_axis(weights, order, 1), axis=1)
    middle = (running < weights.sum(axis=1)[:, None] / 2).sum(axis=1)
    place = np.minimum(middle, excess.shape[1] - 1)[:, None]
    chosen: Floats = np.take_along_axis(excess, np.take_along_axis(order, place, 1), 1)[:, 0]
    return chosen


def sums_once(first: Ints, excess_ns: Floats, length_ns: Ints, end_ns: Ints) -> Floats:
    """By group the excess of its edges, which are edges of one rank. Of edges that run beside each
    other time counts once: work that two kernels wait for makes both edges longer.
    """
    group = np.repeat(np.arange(len(first) - 1), np.diff(first))
    order = np.lexsort((end_ns, group))
    excess, end, length = excess_ns[order], end_ns[order], length_ns[order]
    before = np.roll(end, 1)
    leads = first[:-1][np.diff(first) > 0]
    before[leads] = end[leads] - length[leads]
    covered_ns = np.clip(before - (end - length), 0, length)
    own = excess * (1 - covered_ns / np.maximum(length, 1))
    sums = np.zeros(len(first) - 1)
    for groups, edges in _of_one_size(first):
        sums[groups] = own[edges].sum(axis=1)
    return sums


def launches_in_calls(
    keys: Ints, first: Ints, excess_ns: Floats, length_ns: Ints, end_ns: Ints
) -> Floats:
    """By group of edges before calls the excess that is that of launches of the same rank: a host
    that is slow to launch calls the next time later. 0 for other groups. `keys`: of groups in
    order, rank * 8 + edge; `first`: by group its first edge, then the number of edges.
    """
    shared = np.zeros(len(keys))
    edge, rank = keys % 8, keys // 8
    chosen = (edge == _abi.EDGE_HOST) | (edge == _abi.EDGE_LAUNCH)
    rows = np.flatnonzero(np.repeat(chosen, np.diff(first)))
    if not len(rows):
        return shared
    ranks, place = np.unique(rank[chosen], return_inverse=True)
    count = np.bincount(place.reshape(-1), np.diff(first)[chosen]).astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(count)])
    excess, length, end = excess_ns[rows], length_ns[rows], end_ns[rows]
    together = sums_once(begins, excess, length, end)
    apart = sums_once(first, excess_ns, length_ns, end_ns)
    twice = np.bincount(place.reshape(-1), apart[chosen]) - together
    calls = np.flatnonzero(edge == _abi.EDGE_HOST)
    shared[calls] = np.maximum(twice[np.searchsorted(ranks, rank[calls])], 0.0)
    return shared


def once_each(kernels: Kernels, events: Ints, weight: Ints, excess: Floats) -> Ints:
    """Places of one edge of each transfer, that with the most weight. Of several partners the one
    whose own transfer took longest is at the other end of what was slow.
    """
    kernel = events // 3
    first = kernels.partner_first[kernel]
    count = kernels.partner_first[kernel + 1] - first
    own = np.repeat(np.arange(len(kernel)), count)
    place = np.arange(len(own)) - np.repeat(np.cumsum(count) - count, count)
    other = kernels.partner[np.repeat(first, count) + place].astype(np.int64)
    order = np.lexsort((excess[3 * other + END], own))
    partner = np.full(len(kernel), np.iinfo(np.int64).max)
    partner[own[order]] = other[order]  # the last one assigned stays
    together = np.where(
        kernels.meeting[kernel] != NONE, -1 - kernels.meeting[kernel], np.minimum(kernel, partner)
    )
    order = np.lexsort((-weight, together))
    return order[np.flatnonzero(np.diff(together[order], prepend=np.iinfo(np.int64).min))]


def _of_one_size(first: Ints) -> Iterator[tuple[Ints, Ints]]:
    """For each size above 0 the groups that have it, and their edges, a row a group."""
    size = np.diff(first)
    order = np.argsort(size, kind="stable")
    sizes, begins = np.unique(size[order], return_index=True)
    for count, groups in zip(sizes.tolist(), np.split(order, begins[1:]), strict=True):
        if count:
            yield groups, first[groups][:, None] + np.arange(count)
