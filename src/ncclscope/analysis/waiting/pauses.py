"""Single pauses of ranks: delays that are no habit, and cost a notable part of the run.

A checkpoint, an evaluation or a garbage collection of one rank stops all others once or a few
times. What counts is the share of the run that is lost, not how often it happened.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.replay import run_ns
from ncclscope.analysis.waiting.what_if import Change, Prediction, WhatIf
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Ints

_LEAST_EACH = 0.01  # of the run: shorter pauses are noise
_LEAST_SHARE = 0.03  # of the run, by all pauses of a rank
_TIMES_NOISE = 4.0  # what is long on other ranks
_LONG = 0.99  # quantile of the excess of edges
_DENSE = 0.12  # of the chances: more often is a habit
_FEW = 5  # times: fewer are no habit, whatever the chances


@dataclass(frozen=True, slots=True)
class Pauses:
    """The pauses of one rank."""

    rank: int  # global
    events: Ints  # in the order of time
    length_ns: Ints  # beyond the usual
    at_ns: Ints  # when each began to be late
    prediction: Prediction  # without them


def pauses_of(waiting: Waiting, what_if: WhatIf, without: tuple[int, ...]) -> tuple[Pauses, ...]:
    """Ranks with pauses that make the run notably longer, the most costly first. `without`: ranks
    whose delays are a habit.
    """
    kernels = waiting.kernels
    now = run_ns(waiting.arrivals.events_ns)
    on_path = waiting.excess_on_path_ns.reshape(-1, 3)[:, :2].astype(np.float64)
    on_path[waiting.start_up] = 0
    on_path[waiting.dependencies.edge.reshape(-1, 3)[:, :2] == _abi.EDGE_ROOT] = 0
    sums = np.bincount(
        kernels.rank, (on_path * (on_path > _LEAST_EACH * now)).sum(axis=1), len(kernels.ranks)
    )
    pauses = []
    for place in np.flatnonzero(sums >= _LEAST_SHARE * now).tolist():
        rank = int(kernels.ranks[place])
        events = _events(waiting, place, on_path, _LEAST_EACH * now)
        if rank in without or not len(events):
            continue
        keep = np.ones(len(waiting.time_ns), bool)
        keep[events] = False
        prediction = what_if.predict(Change(ranks=(rank,)), keep)
        gained = prediction.run_now_ns - prediction.run_then_ns
        if gained < max(_LEAST_SHARE * now, prediction.error_ns):
            continue
        length = waiting.excess_ns[events].astype(np.int64)
        pauses.append(Pauses(rank, events, length, waiting.time_ns[events] - length, prediction))
    return tuple(sorted(pauses, key=lambda own: own.prediction.run_then_ns))


def _events(waiting: Waiting, place: int, on_path: np.ndarray, least_ns: float) -> Ints:
    """Events of a rank with a pause before them: far longer than what is long on other ranks, and
    seldom; none where such delays are a habit.
    """
    own = waiting.kernels.rank == place
    others = waiting.excess_ns.reshape(-1, 3)[~own & ~waiting.start_up, :2]
    noise = float(np.quantile(others, _LONG)) if others.size else 0.0
    limit = max(least_ns, _TIMES_NOISE * noise)
    rows, columns = np.nonzero((on_path > limit) & own[:, None])
    events = np.sort(3 * rows + columns)
    if len(events) < _FEW:
        return np.asarray(events)
    positions = np.unique(waiting.dependencies.position[events // 3])
    chances = int(np.isin(waiting.dependencies.position[own], positions).sum())
    return np.asarray(events if len(events) < _DENSE * chances else events[:0])
