"""A stage of a pipeline whose ranks all compute longer than those of other stages.

Nobody among its ranks stands out, and the others wait for it as for any stage: that is how the
model was cut, or what its GPUs are. What it costs can be said all the same.

    stage            0     1     2     3
    own time, ms     9     14    9     9     all others wait for stage 1
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.own_work import own_work_ns, ranks_without_peers
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.arrays.types import Bools

_HEAVIER = 1.2  # times the own time of the median rank
_ANOTHER_ROLE = 5.0  # times that: no stage, but learners behind actors that hardly compute
_ALIKE = 1.15  # how far ranks of a stage may differ
_LEAST_STAGES = 3
_LEAST_GAIN = 0.04  # of the run


@dataclass(frozen=True, slots=True)
class HeavyStage:
    """Ranks of one stage, and what they compute longer."""

    ranks: tuple[int, ...]  # global
    times: float  # own time, times that of the median rank
    prediction: Prediction  # with the own time of the median rank


def heavy_stage(waiting: Waiting, what_if: WhatIf) -> HeavyStage | None:
    """The stage that takes longest, where all of its ranks take about as long, and the run would
    be notably shorter if they took as long as the median rank.
    """
    if not waiting.kernels.pair.any() or what_if.why_not:
        return None
    own = own_work_ns(waiting)
    usual = float(np.sort(own)[(len(own) - 1) // 2])
    heavy = own > _HEAVIER * usual
    count = int(heavy.sum())
    if usual <= 0 or not count or count * _LEAST_STAGES > len(own):
        return None
    if count == 1 and not ranks_without_peers(waiting)[heavy].all():
        return None  # it is slower than ranks of its own stage
    if own[heavy].max() > _ALIKE * own[heavy].min() or _send_to_each_other(waiting, heavy):
        return None
    ranks = tuple(waiting.kernels.ranks[heavy].tolist())
    times = float(np.median(own[heavy]) / usual)
    if times > _ANOTHER_ROLE:
        return None
    prediction = what_if.predict(Change(quicker=tuple((rank, times) for rank in ranks)))
    gained = prediction.run_now_ns - prediction.run_then_ns
    if gained < max(_LEAST_GAIN * waiting.judged_ns, prediction.noise_ns):
        return None
    return HeavyStage(ranks, times, prediction)


def are_whole_stages(waiting: Waiting, ranks: tuple[int, ...]) -> bool:
    """Whether these are all ranks of several stages: they send to each other, and meet nobody else
    but in collectives of all ranks. No other rank does their work then.
    """
    kernels, chosen = waiting.kernels, np.isin(waiting.kernels.ranks, ranks)
    if not _send_to_each_other(waiting, chosen):
        return False
    for row in np.unique(kernels.communicator[~kernels.pair]).tolist():
        members = np.isin(kernels.ranks, waiting.run.ranks_of(row))
        if not members.all() and (members & chosen).any() and (members & ~chosen).any():
            return False
    return True


def _send_to_each_other(waiting: Waiting, chosen: Bools) -> bool:
    """Whether some of these ranks send to each other: they are of several stages then."""
    kernels = waiting.kernels
    own = np.repeat(np.arange(len(kernels)), np.diff(kernels.partner_first))
    pairs = kernels.pair[own]
    ends = kernels.rank[own[pairs]], kernels.rank[kernels.partner[pairs]]
    return bool((chosen[ends[0]] & chosen[ends[1]]).any())
