"""How long most ranks took at one call: what is long for all of them is nobody's own delay.

Steps differ: sequences become longer, all ranks evaluate or wait for data now and then. A rank
that is late in such a step took longer than the others in it, and not by all that the step took
longer than others.

    calls of one position     1st   2nd   3rd
    ranks 0 to 2              1.0   1.0   3.0
    rank 3                    2.0   2.0   4.0
    usual of the position     1.0   1.0   1.0
    usual here                1.0   1.0   3.0    rank 3 is 1.0 late each time

In a short step less would be usual. That is left out: of few ranks that vary, one would be late by
half of its noise.
"""

from itertools import pairwise

import numpy as np

from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.positions import makes_equal_calls
from ncclscope.arrays.types import Bools, Floats, Ints

LEAST_RANKS = 3  # that show how long a call took them
MOST_RANKS = 0.75  # of all ranks must show how long it took: slow ranks may be the half that does
_LEAST_LONGER, _LEAST_LONGER_NS = 0.1, 20_000  # than usual: less is noise
_LONGEST = np.iinfo(np.int64).max


def with_shared_lengths(
    kernels: Kernels, usual: Floats, group: Ints, length: Ints, shown: Bools, any_group: bool
) -> Floats:
    """Usual lengths, median and high, raised to what most ranks took at the same call. `group`:
    edges of one group can be compared; `shown`: lengths that are the rank's own; `any_group`: edges
    of other groups than that of most ranks are raised, too.
    """
    longer_ns = np.maximum(_LEAST_LONGER * usual[0], _LEAST_LONGER_NS)
    longer = shown & (length - usual[0] > longer_ns)
    result, tables = usual, equal_calls(kernels)
    ranks_of = ranks_by_group(kernels, group) if tables else np.empty(0, np.int64)
    for rows in tables:
        rows = rows[:, longer[rows].sum(axis=0) >= LEAST_RANKS]
        if not rows.size:
            continue
        result = usual.copy() if result is usual else result
        shared_ns, alike = _shared(group[rows], length[rows], shown[rows], ranks_of)
        raised = np.where(alike | any_group, shared_ns, 0)
        # NaN stays: with nothing to compare with, nothing is usual.
        result[:, rows] = np.maximum(usual[:, rows], raised)
    return result


def equal_calls(kernels: Kernels) -> list[Ints]:
    """Kernels of ranks that make the same calls, as tables of ranks and calls: one of all ranks, or
    one for each stage of a pipeline. A few ranks show nothing.
    """
    first = kernels.first_of_rank
    if len(first) >= LEAST_RANKS and makes_equal_calls(kernels):
        return [np.arange(len(kernels)).reshape(len(first), -1)]
    alike: dict[bytes, list[int]] = {}
    for begin, end in pairwise([*first.tolist(), len(kernels)]):
        alike.setdefault(kernels.kind[begin:end].tobytes(), []).append(begin)
    return [
        np.array(begins)[:, None] + np.arange(len(kinds) // kernels.kind.itemsize)
        for kinds, begins in alike.items()
        if len(begins) >= LEAST_RANKS
    ]


def ranks_by_group(kernels: Kernels, group: Ints) -> Ints:
    """By group how many ranks have such edges."""
    ranks = len(kernels.ranks)
    pairs = np.sort(group * ranks + kernels.rank)  # nearly all differ: a sort beats a hash table
    return np.bincount(pairs[np.diff(pairs, prepend=-1) != 0] // ranks)


def _shared(group: Ints, length: Ints, shown: Bools, ranks_of: Ints) -> tuple[Ints, Bools]:
    """By call how long most ranks took, 0 where too few show it; by rank and call whether its
    length counts. Rows are ranks, columns calls. `ranks_of`: by group the ranks that have it, in
    other tables as well: those of a slow host that joined later are alike, and no measure.
    """
    # The group of most ranks: of others too few show how long it took.
    most = np.sort(group, axis=0)[(len(group) - 1) // 2]
    alike = shown & (group == most)
    members = alike.sum(axis=0)
    ordered = np.sort(np.where(alike, length, _LONGEST), axis=0)
    middle = ordered[np.maximum(members - 1, 0) // 2, np.arange(len(members))]
    enough = members >= np.maximum(MOST_RANKS * np.maximum(ranks_of[most], len(group)), LEAST_RANKS)
    return np.where(enough, middle, 0), alike
