"""How long each edge usually is: at its position in the step, over ranks and steps.

Transfers are compared by kind, over communicators; those of sends and receives over ranks. What
occurs too seldom at its position is compared by kind of kernel. Without anything to compare with,
nothing is usual (NaN).
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.dependencies import Dependencies
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.quantiles import quantiles_of_usual_member
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Floats, Ints

_LEAST_REPEATS = 8
_LEAST_OF_KIND = 2
_HIGH = 0.9
_SAMPLE = 4_000_000
_RUN = 64  # calls in a row are sampled together


@dataclass(frozen=True, slots=True)
class UsualLengths:
    """By event the usual length of the edge before it; NaN where nothing is usual."""

    median_ns: Floats
    high_ns: Floats  # 90th percentile: "as usual" in a what-if, where noise is no excess


def usual_lengths_of(kernels: Kernels, dependencies: Dependencies) -> UsualLengths:
    """The usual lengths of all edges."""
    count = len(kernels)
    every = max(-(-count // _SAMPLE), 1)
    sample = np.arange(count)
    if every > 1:
        sample = np.flatnonzero(sample // _RUN % every == 0)
    usual = np.full((2, count, 3), np.nan)  # median and high
    length, edge = dependencies.length_ns.reshape(-1, 3), dependencies.edge.reshape(-1, 3)
    back, rank = dependencies.back.reshape(-1, 3), kernels.rank.astype(np.int64)
    kind = kernels.kind.astype(np.int64)
    for event in (0, 1):
        fine = (dependencies.position.astype(np.int64) * 8 + edge[:, event]) * 16 + back[:, event]
        groups = _numbered(fine), _numbered(kind * 8 + edge[:, event])
        usual[:, :, event] = _usual(groups, rank, length[:, event], sample, every)
    member = np.where(kernels.pair, rank, kernels.communicator + len(kernels.ranks))
    usual[:, :, 2] = _usual((kind, kind), member, length[:, 2], sample, every)
    usual[:, edge == _abi.EDGE_ROOT] = 0.0
    return UsualLengths(usual[0].reshape(-1), usual[1].reshape(-1))


def _numbered(codes: Ints) -> Ints:
    """Codes as numbers from 0 without gaps."""
    occurs = np.zeros(int(codes.max(initial=0)) + 1, bool)
    occurs[codes] = True
    return np.asarray((np.cumsum(occurs) - 1)[codes])


def _usual(
    groups_of: tuple[Ints, Ints], member: Ints, length: Ints, sample: Ints, every: int
) -> Floats:
    """Median and high quantile by group: the fine one, or the coarse one where that is small."""
    members = int(member.max(initial=0)) + 1
    by_group = []
    for group, least in zip(groups_of, (_LEAST_REPEATS, _LEAST_OF_KIND), strict=True):
        groups = int(group.max(initial=0)) + 1
        values, size = quantiles_of_usual_member(
            group[sample], groups, member[sample], members, length[sample], (0.5, _HIGH)
        )
        enough = size * every >= least
        by_group.append([np.where(enough, value, np.nan)[group] for value in values])
    fine, coarse = (np.stack(values) for values in by_group)
    return np.where(np.isnan(fine), coarse, fine)
