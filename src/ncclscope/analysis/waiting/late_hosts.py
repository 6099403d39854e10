"""The host that most waiting began on, now on one of its ranks and now on another.

Where a host's storage or CPUs are slow, its ranks are late by chance, and others wait for the last
of them. No rank need stand out, but their host does:

    waiting by rank that it began on, s      host 0    0.1  0    0    0.2
                                             host 1   40.3  1.9 23.5  1.7     the host, not rank 4
                                             host 1   40.3  0    0.1  0       rank 4 alone
                                             host 1   40.3  1.9  2.1  0.5     rank 4 alone
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.robust_statistics import is_no_chance
from ncclscope.analysis.waiting.origins import (
    Origin,
    Waiting,
    WaitingAccount,
    account_of,
    waiting_by_rank,
)
from ncclscope.analysis.waiting.pauses import Pauses
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.rank_delays import pauses_of
from ncclscope.analysis.waiting.rank_sums import sums_by_rank
from ncclscope.analysis.waiting.root_causes import LEAST_GAIN, RootCauses
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.arrays.types import Floats, Ints

_LEAST_LATE_RANKS = 3  # of the host: two slow ones may share it by chance
_LEAST_OF_HOST = 0.3  # of its ranks
_NOTABLE = 0.005  # of the run, for each rank that may wait
_TIMES_NOISE = 2.0  # what began on any rank of another host
_TIMES_ELSEWHERE = 2.0  # what began on the mean rank elsewhere, on the mean one behind it
_BEHIND_FIRST = 0.2  # of what began on its first rank: that rank is late, and others beside it


@dataclass(frozen=True, slots=True)
class HostInTurn:
    """A host whose ranks are late in turn."""

    ranks: tuple[int, ...]  # all of the host, global
    origins: tuple[Origin, ...]  # on these ranks, those that most waiting began in first
    prediction: Prediction  # without their delays


def host_in_turn(
    waiting: Waiting,
    what_if: WhatIf,
    account: WaitingAccount,
    causes: RootCauses | None,
    pauses: Sequence[Pauses],
) -> HostInTurn | None:
    """The host that most waiting began on, where that explains notably more than causes and
    pauses of single ranks, all of which are on this host.
    """
    ranks = waiting.kernels.ranks
    node_of = waiting.run.node_of[ranks]
    places = late_host(began_by_rank_ns(waiting, account), node_of, waiting.judged_ns)
    if places is None:
        return None
    own = tuple(np.sort(ranks[places]).tolist())
    named = {rank for paused in pauses for rank in paused.ranks}
    known = [paused.prediction.gained_share for paused in pauses]
    if causes is not None:
        named |= {delays.rank for delays in causes.ranks}
        known.append(causes.prediction.most_gained_share)
    if not named.issubset(own) or (causes is not None and causes.communicators):
        return None
    prediction = what_if.predict(Change(ranks=own))
    if prediction.gained_share < max(known, default=0.0) + LEAST_GAIN:
        return None
    origins = [origin for origin in account.origins if origin.rank in own]
    origins.sort(key=lambda origin: -origin.waiting_ns)
    typical_ns = origins[0].typical_ns
    if not _is_late_more_often(waiting, places, typical_ns):
        return None
    if causes is not None and causes.ranks:
        left = _without(waiting, what_if, causes)
        is_cause = np.isin(ranks, [delays.rank for delays in causes.ranks])
        began_ns = began_by_rank_ns(left, account_of(left))
        began_ns = np.where(is_cause, began_by_rank_ns(waiting, account), began_ns)
        still = late_host(began_ns, node_of, waiting.judged_ns)
        if still is None or set(still.tolist()) != set(places.tolist()):
            return None
        others = places[~is_cause[places]]
        if len(others) and not _is_late_more_often(left, others, typical_ns):
            return None
    return HostInTurn(own, tuple(origins), prediction)


def _is_late_more_often(waiting: Waiting, places: Ints, typical_ns: float) -> bool:
    """Whether ranks at these places, of one host, are late more often than as many ranks elsewhere,
    and not by chance: where ranks pause for long now and then, few pauses decide which host most
    waiting began on.
    """
    late = waiting.excess_ns.reshape(-1, 3)[:, :2] >= typical_ns / 2
    late &= (waiting.charges.by_event.reshape(-1, 3)[:, :2] > 0) & ~waiting.start_up[:, None]
    times = sums_by_rank(waiting, late.sum(axis=1).astype(np.float64))
    node_of = waiting.run.node_of[waiting.kernels.ranks]
    elsewhere = float(times[node_of != node_of[places[0]]].mean()) * len(places)
    return is_no_chance(float(times[places].sum()), elsewhere)


def _without(waiting: Waiting, what_if: WhatIf, causes: RootCauses) -> Waiting:
    """What is left without the ranks that are causes. Where one rank is late most of the time, the
    noise of the others shows in the few steps in which it is not, which is chance.
    """
    late = tuple(delays.rank for delays in causes.ranks)
    return waiting.replayed(what_if.events_ns(Change(ranks=late), pauses_of(waiting, late)))


def began_by_rank_ns(waiting: Waiting, account: WaitingAccount) -> Floats:
    """By place of a rank the waiting that began on it."""
    by_rank = waiting_by_rank(account.origins)
    ranks = waiting.kernels.ranks.tolist()
    return np.array([by_rank.get(rank, 0) for rank in ranks], np.float64)


def late_host(began_ns: Floats, node_of: Ints, judged_ns: int) -> Ints | None:
    """The places of the ranks of such a host, those that most began on first; None where there is
    none. By place of a rank: `began_ns`: waiting that began on it; `node_of`: its host.
    """
    nodes, own = np.unique(node_of, return_inverse=True)
    if len(nodes) < 2:
        return None
    host = int(np.argmax(np.bincount(own, began_ns)))
    places = np.flatnonzero(own == host)
    places = places[np.argsort(-began_ns[places], kind="stable")]
    elsewhere = began_ns[own != host]
    behind_first_ns = began_ns[places[1:]].sum()  # one slow rank is no slow host
    least_ns = max(
        _NOTABLE * judged_ns * (len(began_ns) - 1), _TIMES_NOISE * float(elsewhere.max())
    )
    late = int((began_ns[places] > least_ns).sum())
    if late < max(_LEAST_LATE_RANKS, _LEAST_OF_HOST * len(places)):
        return None
    first_ns = float(began_ns[places[0]])
    least_behind_ns = max(
        float(elsewhere.sum()),
        _TIMES_ELSEWHERE * float(elsewhere.mean()) * (len(places) - 1),
        _BEHIND_FIRST * first_ns,
    )
    return places if behind_first_ns > least_behind_ns else None
