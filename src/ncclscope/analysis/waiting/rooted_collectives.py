"""Whether Broadcasts and Reduces of a kind are waited for by all of their ranks.

A Broadcast waits for its root, and the root of a Reduce for all others, whatever their size. Large
ones do more: NCCL's buffers hold a few MB, so a rank that comes late stops all others until it is
there. Which ones are large enough depends on buffers, channels and algorithm, so the record
decides: of those in which somebody else was late, hardly any rank ended before that one came.

A rank that is the only root has a role of its own between what it receives from all and what it
sends to all, as a parameter server has: no other rank shows how long that takes.
"""

import numpy as np

from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Ints
from ncclscope.nccl.functions import ROOT_FIRST, ROOT_LAST

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


def serves(rank: Ints, communicator: Ints, rule: Ints, is_root: Bools) -> Bools:
    """By operation whether the only root of a communicator sends to all in it, right after one in
    which it received from all. Operations are in the order of rank and call; `rule`: who must have
    arrived, as nccl/functions.py has it.
    """
    receives, sends = (rule == ROOT_LAST) & is_root, (rule == ROOT_FIRST) & is_root
    as_root = np.flatnonzero(receives | sends)
    count = int(communicator.max(initial=0)) + 1
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(least, communicator[as_root], rank[as_root])
    np.maximum.at(most, communicator[as_root], rank[as_root])
    follows = np.zeros(len(rank), bool)
    follows[1:] = receives[:-1] & (rank[1:] == rank[:-1]) & (communicator[1:] == communicator[:-1])
    return np.asarray(follows & sends & (least == most)[communicator])
