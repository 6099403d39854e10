"""Decides which ranks and communicators stand out among their peers, and from when on a rank counts
as late.
"""

import numpy as np

from ncclscope.analysis.distinct import distinct_numbers
from ncclscope.analysis.robust_statistics import is_no_chance, standing_out
from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.exchange_groups import exchange_groups
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.analysis.waiting.rank_delays import LEAST_PAUSE, OFTEN, delays_of
from ncclscope.analysis.waiting.rank_sums import (
    are_significant,
    is_tied_loosely,
    steady_charges,
    sums_by_rank,
)
from ncclscope.analysis.waiting.what_if import Change
from ncclscope.arrays.types import Bools, Floats

# Shares of the run are of Waiting.judged_ns.
HABIT = 0.03  # of the run in steady excess: less is chance where noise is heavy
_TRIMMED = 0.98  # of the edges of a rank
_MOST_OF_IT = 0.5  # of what a rank's edges have beyond the usual
_LEAD = 0.15  # of the run: what ranks that are tied loosely may be apart
_MUCH_WAITING = 0.05  # of the run, for each other rank
_FEW_OTHERS = 3
_TIMES_OTHERS = 20.0  # what began on any other rank
_SLOWER = 0.3  # transfers of a slow communicator beyond the usual, in the median
_FAR_LONGER = 2.0  # times the usual transfer
_LEADS_PATH = 6.0  # times what any other rank has beyond the usual on the critical path
LEAST_ON_PATH = 0.04  # of the run
MOST_OF_HOST = 0.75  # of its ranks
_SEVERAL = 4  # late ranks
_AS_MUCH = 0.75  # of the waiting that begins in the last of these
_MORE_ALIKE = 0.25  # as many as are late, at most
_LEAST_BEGUN = 0.01  # of the waiting that began on another rank


def causes_standing_out(
    left: Waiting, waiting: Waiting, change: Change
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks and communicators that stand out in what is left, and are not taken out yet: those of
    the sort that more waiting began in.
    """
    charged, kernels = steady_charges(left), left.kernels
    own = sums_by_rank(left, charged[:, 0] + charged[:, START])
    ranks = _late_ranks(left, waiting, (charged, own), change)
    exchanges = exchange_groups(left).slow
    judged = ~kernels.pair | exchanges[kernels.communicator]
    transfers = np.bincount(
        kernels.communicator, charged[:, 2] * judged, minlength=len(kernels.communicator_class)
    ).astype(np.float64)
    found = _slow_communicators(left, transfers, exchanges)
    rows = [row for row in found if row not in change.communicators]
    of_ranks = own[np.isin(kernels.ranks, ranks)].sum()
    of_rows = transfers[rows].sum() if rows else 0.0
    return (tuple(ranks), ()) if of_ranks >= of_rows else ((), tuple(rows))


def are_most(kernels: Kernels, count: int) -> bool:
    """Whether so many ranks are more than half: nobody stands out among these."""
    return count > max(len(kernels.ranks) // 2, 1)


def _late_ranks(
    left: Waiting, waiting: Waiting, charges: tuple[Floats, Floats], change: Change
) -> list[int]:
    """Ranks in which far more waiting begins than in others, or whose edges are longer than usual:
    in nearly every step, or far more than those of others in sum; and ranks of a slower speed. Of
    several slow ranks only the last one makes others wait, and that may be another one each time.
    `charges`: steady ones of what is left, and sums of those of calls and starts by rank.
    """
    kernels, usual, charged = left.kernels, left.usual, charges[0]
    taken = np.isin(kernels.ranks, change.ranks)
    own, steady = np.where(taken, 0, charges[1]), np.where(taken, 0, usual.steady_excess_ns)
    steady = np.where(steady >= HABIT * left.judged_ns, steady, 0)
    sums = sums_by_rank(left, left.own_excess_ns)
    alike, more = standing_out(steady), standing_out(own) | _late_more_often(left, charged, own)
    long = standing_out(np.where(taken, 0, sums))
    long &= sums >= HABIT * left.judged_ns
    leads = _leads_path(left, taken)
    slower = left.slower_ranks & ~taken & (sums >= HABIT * left.judged_ns)
    habit, candidates = alike & (own > 0), alike | more | long | leads | slower
    # Neither steps that are long for all ranks nor single pauses hide a habit.
    most = steady >= _MOST_OF_IT * _trimmed_excess_ns(left, habit)
    # Behind a cause that was taken out the path shows the next one, however loosely ranks are tied.
    least = _LEAD * left.judged_ns if is_tied_loosely(left) else 0.0
    possible = candidates & ((sums >= least) | (leads & taken.any()))
    # Ranks that passed on what they waited for may look slow: a later round finds those that are.
    begun = own > _LEAST_BEGUN * own.max(initial=0.0)
    late = []
    for place in np.flatnonzero(possible).tolist():
        rank = int(kernels.ranks[place])
        if (
            (habit[place] and (most[place] or _is_significant(left, rank, candidates)))
            or (more[place] and _is_no_chance(left, rank, candidates, bool(long[place])))
            or (long[place] and begun[place] and _is_often_long(left, rank, candidates))
            or (_is_only_origin(left, own, place) and delays_of(left, rank).steady)
            or leads[place]
            or slower[place]
        ):
            late.append(rank)
    late += _others_of_hosts(left, late, candidates)
    late += _others_alike(kernels, late, np.where(more, own, 0.0))
    if are_most(kernels, len(late) + int(taken.sum())):
        # Most ranks have no peers then: what the path shows counts.
        return [int(rank) for rank in kernels.ranks[leads]]
    return late


def _late_more_often(waiting: Waiting, charged: Floats, own: Floats) -> Bools:
    """Which ranks are late far more often than others, by delays about as long as those of the rank
    that most waiting began on: few long pauses of another one hide a habit of short delays from
    sums. `charged`: steady charges; `own`: by rank the waiting that began on it, 0 of those that
    were taken out.
    """
    first = int(np.argmax(own))
    if own[first] <= 0:
        return np.zeros(len(own), bool)
    typical_ns = delays_of(waiting, int(waiting.kernels.ranks[first])).typical_ns
    rows, columns = np.nonzero(charged[:, :END])
    late = rows[waiting.excess_ns[3 * rows + columns] >= typical_ns / 2]
    times = np.bincount(waiting.kernels.rank[late], minlength=len(own)).astype(np.float64)
    more = standing_out(np.where(own > 0, times, 0.0))
    if more.any() and not is_no_chance(float(times[more].min()), float(times[~more].max())):
        more[:] = False
    return more


def _others_alike(kernels: Kernels, late: list[int], own: Floats) -> list[int]:
    """Ranks in which about as much waiting begins as in several late ones, and that are not late by
    themselves: of many that have turns, one misses a bar by chance. `own`: by rank, where it stands
    out.
    """
    is_late = np.isin(kernels.ranks, late)
    if is_late.sum() < _SEVERAL:
        return []
    alike = own >= _AS_MUCH * own[is_late].min(initial=np.inf)
    alike &= (own > 0) & ~is_late
    few = alike.sum() <= _MORE_ALIKE * is_late.sum()
    half = (alike | is_late).sum() <= len(own) // 2  # of more, nobody stands out
    return kernels.ranks[alike].tolist() if few and half else []


def _others_of_hosts(waiting: Waiting, late: list[int], candidates: Bools) -> list[int]:
    """Ranks that stand out, and are not late by themselves, on hosts all of whose ranks stand out
    and most are late: they share the reason, and chance makes one of them late less often.
    """
    ranks, node_of = waiting.kernels.ranks, waiting.run.node_of
    is_late = np.isin(ranks, late)
    others: list[int] = []
    for node in np.unique(node_of[ranks[is_late]]).tolist():
        own = node_of[ranks] == node
        if candidates[own].all() and is_late[own].mean() >= MOST_OF_HOST:
            others += ranks[own & ~is_late].tolist()
    return others


def _leads_path(waiting: Waiting, taken: Bools) -> Bools:
    """Which rank has far more beyond the usual on the critical path than any other, again and
    again: what it costs does not depend on when and how often it is late. `taken`: ranks that are
    taken out already.
    """
    kernels = waiting.kernels
    excess = waiting.excess_on_path_ns
    on_path = (excess[::3] + excess[START::3]).astype(np.float64)
    on_path[waiting.start_up | taken[kernels.rank]] = 0
    sums, squares = sums_by_rank(waiting, on_path), sums_by_rank(waiting, on_path * on_path)
    leads = sums >= LEAST_ON_PATH * waiting.judged_ns
    # As many delays of equal length as these.
    leads &= sums * sums >= OFTEN * squares
    if len(sums) <= _FEW_OTHERS or not leads.any():
        return np.zeros(len(sums), bool)
    return np.asarray(leads & (sums >= _LEADS_PATH * np.sort(sums)[-2]))


def _trimmed_excess_ns(waiting: Waiting, places: Bools) -> Floats:
    """By rank how much longer than usual its edges are without the few longest, of ranks at these
    places.
    """
    rows = np.flatnonzero(places[waiting.kernels.rank])
    rank, excess = waiting.kernels.rank[rows].astype(np.int64), waiting.own_excess_ns[rows]
    shifted = (excess + 1).astype(np.int64) * ~waiting.start_up[rows]  # 0: of the start-up
    long = quantile_by_group(rank, len(places), shifted, _TRIMMED)
    kept = np.where(shifted > long[rank], 0.0, excess)
    return np.bincount(rank, kept, minlength=len(places)).astype(np.float64)


def began_on_one(own: Floats, place: int) -> bool:
    """Whether next to none of the waiting began on any other rank. Of few, one has most by chance.
    `own`: by rank the waiting that began on it.
    """
    others = np.delete(own, place)
    if len(others) < _FEW_OTHERS:
        return False
    return bool(own[place] >= _TIMES_OTHERS * others.max(initial=0.0))


def _is_only_origin(waiting: Waiting, own: Floats, place: int) -> bool:
    """Whether much waiting began on a rank, and next to none on any other. Where the record of
    ranks does not begin at the same time, lengths of edges compare badly, and this still shows.
    """
    much = _MUCH_WAITING * waiting.judged_ns * (len(own) - 1)
    return began_on_one(own, place) and bool(own[place] >= much)


def _is_often_long(waiting: Waiting, rank: int, candidates: Bools) -> bool:
    """Whether edges of a rank are long as a habit, whoever others waited for."""
    is_steady = delays_of(waiting, rank, of_last_arrivals=False).steady
    return is_steady and _is_significant(waiting, rank, candidates)


def _is_no_chance(waiting: Waiting, rank: int, candidates: Bools, is_long: bool) -> bool:
    """Whether a rank's delays are a habit, or come now and then, and are far more than ranks that
    do not stand out have of such a length: where noise is heavy, one of them has most of it by
    chance. `is_long`: its edges stand out, too.
    """
    delays = delays_of(waiting, rank)
    short = delays.typical_ns < LEAST_PAUSE * waiting.judged_ns
    seldom = is_long and short and delays.times >= OFTEN
    if not (delays.steady or seldom):
        return False
    kernels, excess = waiting.kernels, waiting.own_excess_ns
    long = waiting.excess_ns.reshape(-1, 3)[:, :2] >= delays.typical_ns / 2
    long[waiting.start_up] = False
    charged = waiting.charges.by_event.reshape(-1, 3)[:, :2] > 0
    place = int(np.searchsorted(kernels.ranks, rank))
    # Of work that a rank has by design others may be long in as many steps, and nobody waits.
    for delayed, lengths in (
        (long, excess),
        (long & charged, steady_charges(waiting)[:, :2].sum(axis=1)),
    ):
        times = sums_by_rank(waiting, delayed.sum(axis=1).astype(np.float64))
        most = float(times[~candidates].max(initial=0))
        if are_significant(waiting, lengths, place, candidates) and is_no_chance(
            float(times[place]), most
        ):
            return True
    return False


def _is_significant(waiting: Waiting, rank: int, candidates: Bools) -> bool:
    """Whether delays of a rank sum to more than those of ranks that do not stand out, by more than
    as many delays of their lengths vary by chance.
    """
    place = int(np.searchsorted(waiting.kernels.ranks, rank))
    return are_significant(waiting, waiting.own_excess_ns, place, candidates)


def _slow_communicators(waiting: Waiting, transfers: Floats, exchanges: Bools) -> list[int]:
    """Communicators whose transfers stand out among those of their class. `exchanges`: by
    communicator whether its exchanges are slow.
    """
    kernels = waiting.kernels
    rows: list[int] = []
    class_of, usual = kernels.communicator_class, waiting.usual
    judged = ~kernels.pair | np.isin(class_of, class_of[exchanges])[kernels.communicator]
    used = np.unique(kernels.communicator[judged])
    excess = np.zeros(len(class_of))
    excess[: len(usual.steady_transfer_excess_ns)] = usual.steady_transfer_excess_ns
    total = np.zeros(len(class_of))
    total[: len(usual.steady_transfer_ns)] = usual.steady_transfer_ns
    steadily = excess > _SLOWER * (total - excess)
    slower = steadily | _is_slow_at_times(waiting) | exchanges
    # Ranks of groups that never meet do not wait for each other: the slowest makes the run longer.
    path = _excess_on_path_ns(waiting, judged)
    leads = steadily & (path >= LEAST_ON_PATH * waiting.judged_ns)
    for number in np.unique(class_of[used]):
        peers = used[class_of[used] == number]
        chosen = standing_out(transfers[peers]) & slower[peers]
        if len(peers) >= _FEW_OTHERS:
            chosen |= standing_out(path[peers]) & leads[peers]
        rows += peers[chosen].tolist()
    return rows


def _excess_on_path_ns(waiting: Waiting, chosen: Bools) -> Floats:
    """By communicator what transfers of these kernels have beyond the usual on the path."""
    on_path = np.where(chosen & ~waiting.start_up, waiting.excess_on_path_ns[END::3], 0)
    count = len(waiting.kernels.communicator_class)
    sums = np.bincount(waiting.kernels.communicator, on_path, minlength=count)
    return sums.astype(np.float64)


def _is_slow_at_times(waiting: Waiting) -> Bools:
    """By communicator whether transfers that are far longer than usual make the run longer, as in
    a part of it, or in some steps. What is long now and then may be the usual noise of the network:
    transfers of a kind that no other communicator has do not count, and there must be far more of
    them than on others of the class.
    """
    far = far_longer(waiting) & _is_of_several(waiting.kernels)
    sums = _excess_on_path_ns(waiting, far)
    late = waiting.kernels.communicator[far & (waiting.excess_on_path_ns[END::3] > 0)]
    times = np.bincount(late, minlength=len(sums))
    slow = np.asarray((sums >= HABIT * waiting.judged_ns) & (times >= OFTEN))
    return slow & _is_long_more_often(waiting.kernels, far, slow)


def _is_long_more_often(kernels: Kernels, far: Bools, slow: Bools) -> Bools:
    """By communicator whether transfers are `far` longer than usual far more often than on any
    communicator of its class that is not `slow`.
    """
    class_of, count = kernels.communicator_class, len(slow)
    # An instance has a kernel on each rank.
    pairs = distinct_numbers(kernels.communicator * len(kernels.ranks) + kernels.rank)
    ranks = np.maximum(np.bincount(pairs // len(kernels.ranks), minlength=count), 1)
    times = np.bincount(kernels.communicator[far], minlength=count) / ranks
    of_all = np.bincount(kernels.communicator, minlength=count) / ranks
    share = times / np.maximum(of_all, 1)
    more = np.zeros(count, bool)
    for row in np.flatnonzero(slow).tolist():
        peers = (class_of == class_of[row]) & ~slow & (of_all > 0)
        usual = float(share[peers].max(initial=0.0))
        more[row] = is_no_chance(float(times[row]), usual * float(of_all[row]))
    return more


def _is_of_several(kernels: Kernels) -> Bools:
    """By kernel whether transfers of its kind occur on several communicators."""
    kinds = int(kernels.transfer_kind.max(initial=0)) + 1
    least, most = np.full(kinds, np.iinfo(np.int64).max), np.full(kinds, -1)
    np.minimum.at(least, kernels.transfer_kind, kernels.communicator)
    np.maximum.at(most, kernels.transfer_kind, kernels.communicator)
    return np.asarray((least != most)[kernels.transfer_kind])


def far_longer(waiting: Waiting) -> Bools:
    """By kernel whether its transfer took far longer than usual; none of the start-up."""
    usual = np.nan_to_num(waiting.usual.median_ns[END::3], nan=np.inf)
    long = waiting.dependencies.length_ns[END::3] > _FAR_LONGER * usual
    return np.asarray(long & ~waiting.start_up & ~waiting.kernels.pair)
