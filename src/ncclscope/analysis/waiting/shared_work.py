"""Work between two collectives in a row, of ranks of different programs.

Each stage of a pipeline may be the only one of its kind, so that no other rank has its positions.
Between two collectives that the ranks of all stages make in a row all of them may do the same, as
the optimizer's step. There they can be compared:

                 AllReduce, 2.6 ms, AllReduce    AllReduce, pipeline, AllReduce
    stage 0      3.5                             8.9   is slow by 1.35
    stage 1      2.6                             5.2   nothing to compare with

What most ranks take alike is taken for the same work.
"""

import numpy as np

from ncclscope.analysis.distinct import distinct_numbers
from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.dependencies import Dependencies
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.quantiles import member_quantiles
from ncclscope.arrays import _abi
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

_ALIKE = 1.1  # how far ranks may differ that do the same
_MOST_ALIKE = 0.6  # of the ranks, at least


def with_shared_work(kernels: Kernels, dependencies: Dependencies, rows: Ints) -> Ints:
    """By start its position; a common one for ranks of several programs that do the same between
    the same two collectives. `rows`: kernels that count.
    """
    position = dependencies.position.astype(np.int64)
    if not kernels.pair.any():
        return position  # no pipeline: nobody has positions of its own
    pair_of, pairs = _collectives_in_a_row(kernels, dependencies)
    chosen = rows[pair_of[rows] != NONE]
    if not len(chosen):
        return position
    alike = _is_the_same_work(kernels, dependencies, pair_of, pairs, chosen)
    shared = (pair_of != NONE) & alike[pair_of]
    position[shared] = dependencies.positions + pair_of[shared]
    return position


def _collectives_in_a_row(kernels: Kernels, dependencies: Dependencies) -> tuple[Ints, int]:
    """By kernel the number of the kinds of it and of the kernel before, where both are collectives
    and no kernel of their rank is between them; else NONE. What began before the first of them, as
    work that runs beside it, differs from stage to stage: a first stage computes after its last
    receive, the others before their last send.
    """
    follows = np.diff(kernels.rank, prepend=NONE) == 0
    earlier = dependencies.before[START::3] // 3 < np.arange(len(kernels)) - 1
    follows &= ~((dependencies.edge[START::3] == _abi.EDGE_GPU) & earlier)
    meets = (kernels.meeting != NONE) & ~kernels.pair & ~kernels.serves
    follows &= meets & np.roll(meets, 1)
    kind = kernels.kind.astype(np.int64)
    key = np.where(follows, np.roll(kind, 1) * (int(kind.max(initial=0)) + 1) + kind, NONE)
    pair_of, pairs = factorize(key)
    return pair_of.astype(np.int64), pairs


def _is_the_same_work(
    kernels: Kernels, dependencies: Dependencies, pair_of: Ints, pairs: int, rows: Ints
) -> Bools:
    """By pair of kinds whether it is at one position of each rank, at another one of other ranks
    that were in the same two collectives, and whether most of these take alike.
    """
    ranks, positions = len(kernels.ranks), dependencies.positions
    rank = kernels.rank.astype(np.int64)
    place = dependencies.position.astype(np.int64)
    cells, times = np.unique(
        (pair_of[rows] * ranks + rank[rows]) * positions + place[rows], return_counts=True
    )
    cells = cells[times >= LEAST_REPEATS]  # the first calls of a job are at others
    by_rank = distinct_numbers(cells // positions) // ranks
    ranks_of = np.bincount(by_rank, minlength=pairs)
    once = np.bincount(cells // positions // ranks, minlength=pairs) == ranks_of
    of_pair = distinct_numbers(cells // positions // ranks * positions + cells % positions)
    candidates = once & (np.bincount(of_pair // positions, minlength=pairs) > 1)
    free = rows[candidates[pair_of[rows]] & (dependencies.blocked[rows] == 0)]
    if not len(free):
        return np.zeros(pairs, bool)
    length = dependencies.length_ns[START::3]
    table = member_quantiles(pair_of[free], pairs, rank[free], length[free], (0.5,))
    usual = table.of_usual_member(0, pairs)[table.group]
    often = table.count >= LEAST_REPEATS
    near = often & (table.quantiles[0] <= _ALIKE * usual) & (usual <= _ALIKE * table.quantiles[0])
    alike = np.bincount(table.group, near, pairs) >= _MOST_ALIKE * ranks_of
    # Of two ranks neither shows what is usual; the quicker one does, as everywhere.
    alike |= (ranks_of == 2) & (np.bincount(table.group, often, pairs) == 2)
    met = _meet_the_others(kernels, pair_of, pairs, place, rows)
    return np.asarray(candidates & alike & met)


def _meet_the_others(kernels: Kernels, pair_of: Ints, pairs: int, place: Ints, rows: Ints) -> Bools:
    """By pair of kinds whether ranks of several positions were in the same collectives: those of
    a stage among themselves show nothing about another stage's.
    """
    positions = int(place.max(initial=0)) + 1
    meeting = kernels.meeting[rows].astype(np.int64)
    cells = distinct_numbers(meeting * positions + place[rows])
    met, count = np.unique(cells // positions, return_counts=True)
    is_mixed = np.zeros(int(kernels.meeting.max(initial=0)) + 1, bool)
    is_mixed[met] = count > 1
    mixed = np.bincount(pair_of[rows], is_mixed[meeting], pairs)
    return np.asarray(2 * mixed > np.bincount(pair_of[rows], minlength=pairs))
