"""With which of its few partners a rank exchanges data in a kernel.

A stage of a pipeline sends to the next one and receives from it, and then does the same with the
one before: calls that look alike, before which it does different work. Told apart by partner, they
have positions of their own.

    calls of a stage     X  X  X  X  X  X      forward, backward, forward …: no two positions
    with partners        X1 X2 X1 X2 X1 X2     two

Partners are numbered by how far they are ahead in the job's ranks, so that ranks that do the same
have the same numbers.
"""

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

_FEW = 4  # partners: with more, as of a server, the order of calls is chance
_SEVERAL = 0  # in one kernel, or not known


def partner_numbers(rank: Ints, partner: Ints, first: Ints) -> Ints:
    """By kernel the number of its only partner, from 1 on; 0 for kernels with several, and for all
    of a rank with many. `rank`, `partner`: by operation, NONE where it has none; `first`: of each
    kernel.
    """
    ranks = max(int(rank.max(initial=0)), int(partner.max(initial=0))) + 1
    ahead = np.where(partner == NONE, NONE, (partner - rank) % ranks)
    least, most = np.minimum.reduceat(ahead, first), np.maximum.reduceat(ahead, first)
    number = np.full(len(first), _SEVERAL, np.int64)
    single = np.flatnonzero((least == most) & (least != NONE))
    if not len(single):
        return number
    width = int(most.max()) + 1
    keys, place = np.unique(rank[first[single]] * width + least[single], return_inverse=True)
    count = np.bincount(keys // width)
    begins = np.cumsum(count) - count
    of_rank = keys // width
    numbers = np.arange(len(keys)) - begins[of_rank] + 1
    of_key = np.where(count[of_rank] <= _FEW, numbers, _SEVERAL)
    number[single] = of_key[place.reshape(-1)]
    return number


def is_elsewhere(run: Run, rank: Ints, partner: Ints) -> Bools:
    """By operation whether its partner is on another host: the network is slower than what connects
    the GPUs of a host.
    """
    node_of = run.node_of
    own, other = node_of[rank], node_of[partner]  # the last place is of NONE
    return np.asarray((own != other) & (own != NONE) & (other != NONE))


def partner_ranks(run: Run, row: Ints) -> Ints:
    """By send or receive the global rank of its partner; NONE: not known."""
    members = run.model.tables["members"]
    columns = [np.asarray(members[n], np.int64) for n in ("communicator", "rank", "global_rank")]
    known = columns[0] << 32 | columns[1]
    order = np.argsort(known)
    wanted = run.column("communicator", row).astype(np.int64) << 32 | run.column("peer", row)
    place = np.minimum(np.searchsorted(known[order], wanted), max(len(known) - 1, 0))
    if not len(known):
        return np.full(len(row), NONE, np.int64)
    return np.where(known[order][place] == wanted, columns[2][order][place], NONE)
