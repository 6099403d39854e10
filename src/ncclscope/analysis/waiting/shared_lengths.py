"""How long most ranks took at one call: what is long for all of them is nobody's own delay.

Steps differ: sequences become longer, all ranks evaluate or wait for data now and then. A rank
that is late in such a step took longer than the others in it, and not by all that the step took
longer than others.

    calls of one position     1st   2nd   3rd
    ranks 0 to 2              1.0   1.0   3.0
    rank 3                    2.0   2.0   4.0
    usual of the position     1.0   1.0   1.0
    usual here                1.0   1.0   3.0    rank 3 is 1.0 late each time
"""

import numpy as np

from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.positions import makes_equal_calls
from ncclscope.arrays.types import Bools, Floats, Ints

_LEAST_RANKS = 3
MOST_RANKS = 0.75  # of all ranks must show how long it took: slow ranks may be the half that does
_LEAST_LONGER, _LEAST_LONGER_NS = 0.1, 20_000  # than usual: less is noise
_LONGEST = np.iinfo(np.int64).max


def with_shared_lengths(
    kernels: Kernels, usual: Floats, group: Ints, length: Ints, shown: Bools, any_group: bool
) -> Floats:
    """Usual lengths, raised to what most ranks took at the same call. `group`: edges of one group
    can be compared; `shown`: lengths that are the rank's own; `any_group`: edges of other groups
    than that of most ranks are raised, too.
    """
    if len(kernels.ranks) < _LEAST_RANKS or not makes_equal_calls(kernels):
        return usual
    shape = len(kernels.ranks), -1
    longer = length - usual[0] > np.maximum(_LEAST_LONGER * usual[0], _LEAST_LONGER_NS)
    calls = np.flatnonzero((longer & shown).reshape(shape).sum(axis=0) >= _LEAST_RANKS)
    if not len(calls):
        return usual
    groups, own = group.reshape(shape)[:, calls], length.reshape(shape)[:, calls]
    counts = shown.reshape(shape)[:, calls]
    result = usual.reshape(2, *kernels.kind.reshape(shape).shape).copy()
    # The group of most ranks: of others too few show how long it took.
    most = np.sort(groups, axis=0)[(len(groups) - 1) // 2]
    alike = counts & (groups == most)
    members = alike.sum(axis=0)
    ordered = np.sort(np.where(alike, own, _LONGEST), axis=0)
    middle = ordered[np.maximum(members - 1, 0) // 2, np.arange(len(calls))]
    enough = (members >= _LEAST_RANKS) & (members >= MOST_RANKS * len(groups))
    least = np.where(enough, middle, 0)
    raised = np.maximum(result[:, :, calls], np.where(alike | any_group, least, 0))
    result[:, :, calls] = np.where(np.isnan(result[:, :, calls]), np.nan, raised)
    return np.asarray(result.reshape(usual.shape))
