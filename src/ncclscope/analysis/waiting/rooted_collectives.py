"""Whether Broadcasts and Reduces of a kind are waited for by all of their ranks.

A Broadcast waits for its root, and the root of a Reduce for all others, whatever their size. Large
ones do more: NCCL's buffers hold a few MB, so a rank that comes late stops all others until it is
there. Which ones are large enough depends on buffers, channels and algorithm, so the record
decides: of those in which somebody else was late, hardly any rank ended before that one came.
"""

import numpy as np

from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Ints

_LATE_NS = 100_000  # a rank that is less late tells nothing
_LATE = 0.3  # of what the operation takes
_TELLING = 16  # ends, at least
ENDED_BEFORE = 0.02  # of those that tell, at most, where ranks wait; also of sends


def wait_for_all(
    group: Ints, size_bytes: Ints, instance: Ints, start_ns: Ints, end_ns: Ints, awaited: Bools
) -> Bools:
    """By operation whether all ranks wait for all in those of its group that are about as large.
    `awaited`: which ranks others wait for in any case, as for the root of a Broadcast.
    """
    power = np.log2(np.maximum(size_bytes, 1)).astype(np.int64)
    own, count = factorize(instance)
    last = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(last, own, start_ns)
    is_last = start_ns == last[own]
    expected = np.zeros(count, bool)  # the last one is waited for in any case
    np.logical_or.at(expected, own[is_last & awaited], True)
    late, took = last[own] - start_ns, end_ns - start_ns
    telling = ~is_last & ~expected[own] & (late > np.maximum(_LATE_NS, _LATE * (took - late)))
    cell, cells = factorize(group << 8 | power)
    seen = np.bincount(cell[telling], minlength=cells)
    before = np.bincount(cell[telling & (took < late)], minlength=cells)
    return np.asarray(((seen >= _TELLING) & (before <= ENDED_BEFORE * seen))[cell])
