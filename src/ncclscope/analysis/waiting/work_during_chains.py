"""Waiting in a chain of kernels that follow each other at once, and work that runs during it.

Work that needs none of these kernels began with the first of them. Where the gap behind the chain
shrinks by what is waited in it, that is so:

    ReduceScatter    AllReduce    AllGather    gap    next ReduceScatter
    waits 2.3        0.3          0.3          1.0    3.9 of work since the first
    waits 1.8        0.3          0.3          1.5    the same
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.dependencies import (
    MOST_AT_ONCE,
    Dependencies,
    follows_at_once,
)
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.overlap import TIGHT_NS
from ncclscope.analysis.waiting.shorter_edges import places_in_step
from ncclscope.analysis.waiting.slopes import slopes
from ncclscope.arrays import _abi
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints

_SHRINKS = -0.5  # how a gap grows with waiting, where work runs during it: by -1, elsewhere by 0


def waited_in_chain_ns(dependencies: Dependencies, wait_ns: Floats) -> Floats:
    """By kernel what is waited in the kernels before it that followed each other at once up to it,
    without its own. `wait_ns`: by kernel.
    """
    before, at_once = dependencies.before[START::3], follows_at_once(dependencies)
    total = np.zeros(len(wait_ns))
    rows = np.flatnonzero(at_once)
    kernel = before[rows] // 3
    for _ in range(MOST_AT_ONCE):
        total[rows] += wait_ns[kernel]
        goes_on = at_once[kernel]
        rows, kernel = rows[goes_on], before[kernel[goes_on]] // 3
    return total


def waited_before_ns(waiting: Waiting) -> Floats:
    """By kernel what its rank waited in the kernel that its start followed, and in the chain that
    led up to that one.
    """
    dependencies, wait = waiting.dependencies, waiting.arrivals.wait_ns.astype(np.float64)
    before = np.maximum(dependencies.before[START::3], 0)
    in_chain = waited_in_chain_ns(dependencies, wait)[before // 3]
    return np.asarray(in_chain + np.where(before % 3 == END, wait[before // 3], 0.0))


@dataclass(frozen=True, slots=True)
class WorkDuringChains:
    """Work that ranks did while they waited in chains, by kernel."""

    overlaps: Bools  # whether the work before its start went on during the chain before it
    waited_ns: Floats  # in that chain, before the edge to its start; 0 where nothing was done


def work_during_chains(waiting: Waiting) -> WorkDuringChains:
    """Where gaps shrink by what is waited in the chain before them, at the same place of a step."""
    dependencies, in_chain = waiting.dependencies, waited_before_ns(waiting)
    length = dependencies.length_ns[START::3]
    shows = (dependencies.edge[START::3] == _abi.EDGE_GPU) & ~waiting.start_up
    rows = np.flatnonzero(shows & (length > TIGHT_NS) & (dependencies.blocked == 0))
    overlaps = np.zeros(len(in_chain), bool)
    if in_chain[rows].any():
        place = factorize(places_in_step(dependencies, 3 * rows + START))[0].astype(np.int64)
        kind = waiting.kernels.kind[rows].astype(np.int64)
        rank = waiting.kernels.rank[rows].astype(np.int64)
        of_place = _slopes(place, rank, length[rows], in_chain[rows])
        # A place of few repeats is as others before such kernels.
        of_kind = _slopes(kind, place * (int(rank.max()) + 1) + rank, length[rows], in_chain[rows])
        overlaps[rows] = np.where(np.isnan(of_place), of_kind, of_place) < _SHRINKS
    return WorkDuringChains(overlaps, np.where(overlaps, in_chain, 0.0))


def _slopes(group: Ints, member: Ints, length: Ints, waited: Floats) -> Floats:
    """By row the slope of its group."""
    return slopes(group, int(group.max()) + 1, member, length, waited.astype(np.int64))[group]
