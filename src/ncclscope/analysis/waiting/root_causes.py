"""Decides which ranks and communicators make a run longer.

The origins that stand out among their peers are taken out by a replay, and what is left of the
waiting is explained again: a rank that was hidden behind a later one shows then. What counts is
how much shorter the run gets.
"""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.gradual_ranks import ranks_apart
from ncclscope.analysis.waiting.heavy_stages import are_whole_stages
from ncclscope.analysis.waiting.host_leaders import without_leaders
from ncclscope.analysis.waiting.main_origin import main_origin
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.rank_delays import (
    MOST_KERNELS,
    OFTEN,
    Delays,
    delays_of,
    pauses_of,
)
from ncclscope.analysis.waiting.rank_sums import steady_charges, sums_by_rank
from ncclscope.analysis.waiting.replay import run_ns
from ncclscope.analysis.waiting.standing_out import HABIT, are_most, causes_standing_out
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.analysis.waiting.whole_hosts import whole_host
from ncclscope.arrays.types import Bools, Ints

# Shares of the run are of Waiting.judged_ns.
LEAST_GAIN = 0.02  # of the run: less is nobody's concern
_WAITED_FOR = 0.5  # of the steady excess
_MUCH_EXCESS = 0.05  # of the run
_MAY_GAIN = 0.08  # of the run, at most: the middle of what is possible is half of it
_ROUNDS = 4
_FEW = 2  # ranks that show behind others at once
_MOST_ORDERED = 6  # causes of which each is taken out last
# Of the run: what one of several ranks gains that do not stand out together, or many of them that
# show only behind others.
_LEAST_OF_ONE = 0.04
_LEFT_BY_ONE = 0.2  # of that, at most, if it is the only cause
_TIMES_GAIN_OF_NEXT = 3
_MOST_OF_GAIN = 0.5  # of all causes together, by one rank alone
_LITTLE_PASSED_ON = 0.1  # of what others wait for the late rank
_HARDLY_ANY = 0.02


@dataclass(frozen=True, slots=True)
class RootCauses:
    """What makes a run longer, and what it would take without."""

    ranks: tuple[Delays, ...]  # in the order in which they were found
    communicators: tuple[int, ...]  # rows
    prediction: Prediction  # without all of them
    alone: tuple[Prediction, ...]  # without each one alone: ranks, then communicators
    last_ns: tuple[int, ...]  # what each gains after all others were taken out, or may gain


def root_causes(waiting: Waiting, what_if: WhatIf) -> RootCauses | None:
    """Ranks that are late again and again, and slow communicators; None where nothing of that
    makes the run notably longer.
    """
    change, left, rounds = Change(), waiting, 0
    now = best = run_ns(waiting.arrivals.events_ns)
    kept, is_large = Change(), len(waiting.kernels) > MOST_KERNELS
    by_chance = set[int]()
    while rounds < _ROUNDS:
        ranks, communicators = causes_standing_out(left, waiting, change)
        ranks = without_leaders(waiting, ranks)
        if what_if.has_gaps:
            ranks = certain_origins(waiting, ranks)
        many = are_most(waiting.kernels, len(change.ranks) + len(ranks))
        if many or (not ranks and not communicators):
            break  # without peers nobody stands out
        change = replace(
            change,
            ranks=(*change.ranks, *ranks),
            communicators=(*change.communicators, *communicators),
        )
        keep = pauses_of(waiting, change.ranks)
        if is_large:  # the prediction follows
            events, _ = what_if.events_and_least_ns(change, keep)
        else:
            events = what_if.events_ns(change, keep)
        hidden = what_if.has_gaps and _has_much_excess(waiting, ranks)
        gained_ns = best - run_ns(events)
        hidden |= what_if.may_gain_ns(ranks, gained_ns) >= _MAY_GAIN * waiting.judged_ns
        # Behind late ranks many others are left that are longer by chance: a replay without any
        # such delays gains, too.
        many_left = rounds > 0 and len(ranks) > _FEW and not hidden
        if many_left and gained_ns < _LEAST_OF_ONE * waiting.judged_ns:
            by_chance |= set(ranks)
        elif gained_ns >= LEAST_GAIN * waiting.judged_ns or hidden:
            kept = replace(change, ranks=tuple(r for r in change.ranks if r not in by_chance))
            best = min(run_ns(events), best)
        rounds += 1
        if is_large:
            break
        left = waiting.replayed(events)
    if change.ranks:  # leaders of hosts may have been found one after the other
        others = without_leaders(waiting, change.ranks)
        kept = replace(kept, ranks=tuple(rank for rank in kept.ranks if rank in others))
    if not change.ranks and not change.communicators:
        kept = replace(
            kept, ranks=main_origin(waiting, what_if) or whole_host(waiting, what_if, Change())
        )
    elif not kept.ranks and not kept.communicators:
        # Of a slow host one rank may stand out by chance, and gains nothing without the others.
        kept = replace(kept, ranks=whole_host(waiting, what_if, Change()))
    elif not waiting.are_of_one_speed(kept.ranks):
        apart = ranks_apart(waiting, kept.ranks, sums_by_rank(waiting, waiting.own_excess_ns))
        apart = apart or _apart_as_a_habit(waiting, kept.ranks)
        apart = apart or _gain_far_more_than_next(waiting, what_if, kept)
        kept = replace(kept, ranks=apart or _only_cause(waiting, what_if, kept, now - best))
    if kept.ranks and not is_large:
        kept = replace(kept, ranks=(*kept.ranks, *whole_host(waiting, what_if, kept)))
    if not kept.ranks and not kept.communicators:
        return None
    causes = _without_minor_ranks(waiting, what_if, kept, _with_predictions(waiting, what_if, kept))
    may_gain_nothing = causes.prediction.least_gained_share < LEAST_GAIN
    if may_gain_nothing and len(causes.ranks) > _FEW and are_whole_stages(waiting, kept.ranks):
        return None
    gained = now - causes.prediction.replayed_ns
    return causes if what_if.has_gaps or gained > causes.prediction.noise_ns else None


def _apart_as_a_habit(waiting: Waiting, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Those of several ranks that are apart from all others by what is longer in nearly every step:
    sums have single pauses of others as well.
    """
    steady = waiting.usual.steady_excess_ns
    own = steady[np.isin(waiting.kernels.ranks, ranks)]
    is_habit = bool((own >= HABIT * waiting.judged_ns).all())
    return ranks_apart(waiting, ranks, steady) if is_habit else ()


def _gain_far_more_than_next(waiting: Waiting, what_if: WhatIf, change: Change) -> tuple[int, ...]:
    """These ranks, where each of them gains far more behind the others than the next one would: of
    ranks that differ gradually the next one is as good a cause.

        beyond the usual   70 60 46 36 ...    the second one gains 14, the next one 10: nobody
                           70 60  4  3 ...                         56               1: both
    """
    if not 2 <= len(change.ranks) <= _MOST_ORDERED or change.communicators:
        return ()
    keep = pauses_of(waiting, change.ranks)
    without = what_if.events_ns(change, keep)
    left = waiting.replayed(without)
    charged = steady_charges(left)
    own = sums_by_rank(left, charged[:, 0] + charged[:, START])
    own[np.isin(left.kernels.ranks, change.ranks)] = 0
    following = int(left.kernels.ranks[np.argmax(own)])
    more = replace(change, ranks=(*change.ranks, following))
    with_next = what_if.events_ns(more, pauses_of(waiting, more.ranks))
    together = run_ns(without)
    last = min(
        _gain_of_last(what_if, change, keep, Change(ranks=(rank,)), together)
        for rank in change.ranks
    )
    least = max(
        _TIMES_GAIN_OF_NEXT * (together - run_ns(with_next)), LEAST_GAIN * waiting.judged_ns
    )
    return change.ranks if last >= least else ()


def _only_cause(
    waiting: Waiting, what_if: WhatIf, change: Change, gained_ns: int
) -> tuple[int, ...]:
    """The one of several ranks without which the run is as short as without all of them. The others
    have much to do by design, as with a popular expert, and nobody waits for them then. Of ranks
    that differ by chance each gains little alone: the next one takes its place.
    """
    if len(change.ranks) > _MOST_ORDERED or gained_ns < _LEAST_OF_ONE * waiting.judged_ns:
        return ()
    shortest_ns = run_ns(waiting.arrivals.events_ns) - gained_ns
    for rank in change.ranks:
        alone = replace(change, ranks=(rank,))
        events = what_if.events_ns(alone, pauses_of(waiting, alone.ranks))
        if run_ns(events) - shortest_ns <= _LEFT_BY_ONE * gained_ns:
            return alone.ranks
    return ()


def _without_minor_ranks(
    waiting: Waiting, what_if: WhatIf, change: Change, causes: RootCauses
) -> RootCauses:
    """Without ranks that cost next to nothing, neither alone nor after all others were taken out,
    where one rank alone costs most: the first and the last stage of a pipeline stand out by their
    role in some steps, beside a slow GPU.
    """
    if len(causes.alone) < 2 or not change.ranks:
        return causes
    gained = np.array([one.run_now_ns - one.replayed_ns for one in causes.alone])
    together = causes.prediction.run_now_ns - causes.prediction.replayed_ns
    of_ranks = gained[: len(change.ranks)]
    kept = np.ones(len(of_ranks), bool)
    if together >= _LEAST_OF_ONE * waiting.judged_ns:
        kept = ~_pass_lateness_on(waiting, causes.ranks, of_ranks)
    is_ordered = len(causes.alone) <= _MOST_ORDERED
    if is_ordered and of_ranks.max() >= _MOST_OF_GAIN * together:
        cost = np.maximum(of_ranks, causes.last_ns[: len(change.ranks)])
        kept &= cost >= LEAST_GAIN * waiting.judged_ns
    if kept.all():
        return causes
    ranks = tuple(np.array(change.ranks)[kept].tolist())
    return _with_predictions(waiting, what_if, replace(change, ranks=ranks))


def _pass_lateness_on(waiting: Waiting, late: tuple[Delays, ...], gained_ns: Ints) -> Bools:
    """Which of these ranks pass on the lateness of one of them: mended alone they gain nothing, and
    next to nobody waits for them. They are late seldom, or all other members of one of its
    communicators, which wait for it there and begin what comes next late. `gained_ns`: by rank of
    these what it gains alone.

        rank 4, 12.7 ms late        others waited 5.7 s     mended alone 15 %
        ranks 0, 8, of its dp       0.25 and 0.27 s         <1 and 0 %
    """
    waited_for = np.array([delays.waiting_ns for delays in late])
    main = int(np.argmax(waited_for))
    nothing = gained_ns < LEAST_GAIN / 2 * waiting.judged_ns
    little = nothing & (waited_for < _LITTLE_PASSED_ON * waited_for[main])
    ranks, wanted = [delays.rank for delays in late], {late[main].rank}
    little &= ~_of_whole_hosts(waiting, ranks)  # these share a reason of their own
    seldom = little & (waited_for < _HARDLY_ANY * waited_for[main])
    seldom &= np.array([delays.times < OFTEN for delays in late])
    for row in range(len(waiting.kernels.communicator_class)):
        members = set(waiting.run.ranks_of(row))
        others = np.isin(ranks, list(members - wanted))
        if wanted < members <= set(ranks) and little[others].all():
            seldom |= others
    return np.asarray(seldom)


def _of_whole_hosts(waiting: Waiting, ranks: list[int]) -> Bools:
    """Which of these ranks are on a host with all its ranks among them."""
    node_of, everybody = waiting.run.node_of, waiting.kernels.ranks
    left_out = node_of[everybody[~np.isin(everybody, ranks)]]
    return ~np.isin(node_of[ranks], left_out)


def certain_origins(waiting: Waiting, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks of these whose delays others did wait for. Bad clocks make a rank look slow, too, but
    nobody waits for that. Of ranks of one speed others wait for the last one: any of them counts.
    Steady excess counts a delay at each edge that shows it, of which others wait for one.
    """
    places = np.searchsorted(waiting.kernels.ranks, ranks)
    charged = steady_charges(waiting)
    waited_for = sums_by_rank(waiting, charged[:, 0] + charged[:, START])
    slower = waiting.slower_ranks
    waited_for[slower] = waited_for[slower].sum()
    once = sums_by_rank(waiting, waiting.own_excess_ns)
    excess = np.minimum(waiting.usual.steady_excess_ns, once)
    certain = waited_for[places] >= _WAITED_FOR * excess[places]
    return tuple(rank for rank, is_certain in zip(ranks, certain, strict=True) if is_certain)


def _has_much_excess(waiting: Waiting, ranks: tuple[int, ...]) -> bool:
    """Whether a rank of these takes so much longer in nearly every step that it is a problem,
    whatever a replay gains.
    """
    places = np.searchsorted(waiting.kernels.ranks, ranks)
    most = float(waiting.usual.steady_excess_ns[places].max(initial=0.0))
    return most >= _MUCH_EXCESS * waiting.judged_ns


def _with_predictions(waiting: Waiting, what_if: WhatIf, change: Change) -> RootCauses:
    keep = pauses_of(waiting, change.ranks)
    single = [Change(ranks=(rank,)) for rank in change.ranks]
    single += [Change(communicators=(row,)) for row in change.communicators]
    together = what_if.predict(change, keep)
    alone = (together,) if len(single) == 1 else tuple(what_if.predict(one, keep) for one in single)
    delays = tuple(delays_of(waiting, rank) for rank in change.ranks)
    if len(single) <= _MOST_ORDERED:
        last = [_gain_of_last(what_if, change, keep, own, together.replayed_ns) for own in single]
    else:
        excess_ns = sums_by_rank(waiting, waiting.own_excess_ns)
        last = [int(excess_ns[waiting.kernels.ranks == rank][0]) for rank in change.ranks]
        last += [max(own.run_now_ns - own.run_then_ns, 0) for own in alone[len(delays) :]]
    return RootCauses(delays, change.communicators, together, alone, tuple(last))


def _gain_of_last(
    what_if: WhatIf, change: Change, keep: Bools, own: Change, together_ns: int
) -> int:
    """What one cause gains after all others were taken out."""
    if len(change.ranks) + len(change.communicators) == 1:
        return 0
    others = Change(
        ranks=tuple(rank for rank in change.ranks if rank not in own.ranks),
        communicators=tuple(row for row in change.communicators if row not in own.communicators),
    )
    return max(run_ns(what_if.events_ns(others, keep)) - together_ns, 0)
