"""Ranks that take longer after exchanges in which they receive more than others: popular experts.

    rank               0     1     2     3
    receives, MB       6.0   6.1   10.8  5.9
    then takes, ms     2.0   2.0   3.1   2.0     rank 2 is no slower: it has 1.8 times as much to do

What is longer than in proportion stays the rank's own: a GPU that is slow is slow with much data,
too. Exchanges are compared with the same one on the other members of the communicator, so that a
step in which everybody receives more explains nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows
from ncclscope.analysis.waiting.kernels import is_timed
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.analysis.waiting.rank_delays import Delays
from ncclscope.analysis.waiting.standing_out import HABIT
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.schema import NONE, RECV

_EXPLAINED = 0.75  # of what a rank takes longer than usual
_IN_PROPORTION = 1.1  # times the share that is received: work has noise
_MOST_BYTES = 1 << 60  # more is damage
_AS_MUCH = 0.95  # of what a late rank receives
MORE_DATA = 1.2  # times as much as others: less explains no habit


@dataclass(frozen=True, slots=True)
class MoreData:
    """That a rank receives more than others before it is late."""

    times: float  # as much as the median member
    communicators: tuple[int, ...]  # rows, of these exchanges


def ranks_with_more_data(waiting: Waiting, late: Sequence[Delays]) -> dict[int, MoreData]:
    """Those of late ranks whose delays follow from what they receive."""
    if not late or not waiting.kernels.pair.any():
        return {}
    times, exchange = _times_received(waiting), _exchange_before(waiting)
    usual_ns = _usual_excess_ns(waiting)
    found = {own.rank: _more_data(waiting, own.rank, times, exchange, usual_ns) for own in late}
    more_data = {rank: more for rank, more in found.items() if more is not None}
    slower = slower_with_as_much(waiting, times, more_data)
    return {rank: more for rank, more in more_data.items() if rank not in slower}


def slower_with_as_much(waiting: Waiting, times: Floats, ranks: Collection[int]) -> set[int]:
    """Those of these ranks that others receive as much as, and are not late: it is not the data."""
    kernels = waiting.kernels
    rows = np.flatnonzero(kernels.pair & ~waiting.start_up)
    rank, count = kernels.rank[rows], len(kernels.ranks)
    exchanges = np.maximum(np.bincount(rank, minlength=count), 1)
    received = np.bincount(rank, times[rows], minlength=count) / exchanges
    excess = np.bincount(kernels.rank, waiting.own_excess_ns, minlength=count)
    apart = np.isin(kernels.ranks, list(ranks))
    slower = set()
    for place in np.flatnonzero(apart).tolist():
        as_much = (received >= _AS_MUCH * received[place]) & ~apart
        if as_much.any() and np.median(excess[as_much]) < excess[place] / 2:
            slower.add(int(kernels.ranks[place]))
    return slower


def _own_events(waiting: Waiting, rank: int) -> Ints:
    """Calls and starts of a rank that came later than usual, without the start-up."""
    kernels = waiting.kernels
    own = np.flatnonzero((kernels.ranks[kernels.rank] == rank) & ~waiting.start_up)
    events = (3 * own[:, None] + np.arange(2)).reshape(-1)
    return np.asarray(events[waiting.excess_ns[events] > 0])


def _usual_excess_ns(waiting: Waiting) -> float:
    """What edges of the median rank have beyond the usual: noise."""
    kernels = waiting.kernels
    sums = np.bincount(kernels.rank, waiting.own_excess_ns, minlength=len(kernels.ranks))
    return float(np.median(sums))


def _more_data(
    waiting: Waiting, rank: int, times: Floats, exchange: Ints, usual_ns: float
) -> MoreData | None:
    events = _own_events(waiting, rank)
    before = exchange[events // 3]
    ratio = np.where(before == NONE, 1.0, times[before])
    most = _IN_PROPORTION * (ratio - 1) * waiting.usual.median_ns[events]
    excess = waiting.excess_ns[events]
    explained = np.clip(most, 0.0, excess)
    left_ns = float((excess - explained).sum())
    is_slow = left_ns - usual_ns >= HABIT * waiting.judged_ns
    if is_slow or explained.sum() < _EXPLAINED * excess.sum():
        return None
    after_more = ratio >= MORE_DATA
    if not after_more.any() or explained[after_more].sum() < explained.sum() / 2:
        return None
    rows = np.unique(waiting.kernels.communicator[before[after_more]])
    return MoreData(float(np.median(ratio[after_more])), tuple(rows.tolist()))


def _times_received(waiting: Waiting) -> Floats:
    """By kernel how many times as much it receives as the same exchange does on the median member
    of its communicator; 1 where that is not known.
    """
    kernels, times = waiting.kernels, np.ones(len(waiting.kernels))
    rows = np.flatnonzero(kernels.pair)
    received = _received_bytes(waiting, rows)
    # Kernels are in the order of rank and call: the how-manieth on its rank and communicator.
    member = kernels.communicator[rows] * len(kernels.ranks) + kernels.rank[rows]
    order = np.argsort(member, kind="stable")
    ordered = member[order]
    number = np.empty(len(rows), np.int64)
    number[order] = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
    same = kernels.communicator[rows] * (int(number.max()) + 1) + number
    numbers, groups = factorize(same)
    group = numbers.astype(np.int64)
    median = quantile_by_group(group, groups, received, 0.5)[group]
    # Of two ranks neither is usual.
    known = (median > 0) & (np.bincount(group, minlength=groups)[group] > 2)
    times[rows[known]] = received[known] / median[known]
    return times


def _received_bytes(waiting: Waiting, rows: Ints) -> Ints:
    """By kernel of these what all receives of its group bring."""
    run = waiting.run
    receives = np.flatnonzero(is_timed(run) & (np.asarray(run.operations["form"]) == RECV))
    table = np.concatenate([receives, waiting.kernels.row[rows]])
    group = run.column("group_call", table)
    group = np.where(group == NONE, NONE - 1 - table, group)  # a call outside of groups is its own
    columns = [run.column(name, table) for name in ("global_rank", "communicator")]
    groups, place = distinct_rows([*columns, group])
    of_receives, of_kernels = np.split(place, [len(receives)])
    sums = np.bincount(of_receives, run.column("size_bytes", receives), minlength=len(groups))
    return np.asarray(np.clip(sums[of_kernels], 0, _MOST_BYTES), np.int64)


def _exchange_before(waiting: Waiting) -> Ints:
    """By kernel the last exchange that its rank called before it; NONE where there is none."""
    kernels = waiting.kernels
    own = np.where(kernels.pair, np.arange(len(kernels)), NONE)
    last = np.maximum.accumulate(own)
    before = np.concatenate([[NONE], last[:-1]])
    return np.asarray(np.where(before < kernels.first_of_rank[kernels.rank], NONE, before))
