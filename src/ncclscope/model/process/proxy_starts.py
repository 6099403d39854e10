"""Starts by the network proxy, held against what ran before on the same CUDA stream.

The proxy may take up an operation as soon as it is queued, while the one before it still runs. A
stream runs its operations one after the other, so it has begun then at the earliest.

Example, ms: two AllReduces of a communicator are queued on one stream at 0. The proxy begins both
at 0, and ends the first at 280 and the second at 560. The second has begun at 280, not at 0.
"""

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.model.process.durations import PROXY, first_time
from ncclscope.model.schema import NONE, Columns


def begin_after_stream(columns: Columns) -> None:
    """Moves starts by the proxy behind the operation before. Of sources below, ends may come late,
    so they bound nothing.
    """
    source = columns["source"]
    if not (source == PROXY).any():
        return
    rows = np.flatnonzero((source <= PROXY) & (columns["stream"] != NONE))
    keys = [columns[name][rows].astype(np.int64) for name in ("communicator", "stream")]
    order = np.lexsort((first_time(columns)[rows], keys[1], keys[0]))
    rows, keys = rows[order], [key[order] for key in keys]
    before = _ends_before(keys, columns["group_call"][rows], columns["end_ns"][rows])
    start, end = columns["start_ns"][rows], columns["end_ns"][rows]
    own = (source[rows] == PROXY) & (start < before) & (before < end)
    if own.any():
        columns["start_ns"] = columns["start_ns"].copy()
        columns["start_ns"][rows[own]] = before[own]
        columns["duration_ns"] = columns["duration_ns"].copy()
        columns["duration_ns"][rows[own]] = (end - before)[own]


def _ends_before(keys: list[Ints], group: Ints, end: Ints) -> Ints:
    """By row the latest end of an earlier group with the same keys. Calls of a group are one."""
    new_stream = np.zeros(len(end), bool)
    new_stream[:1] = True
    for key in keys:
        new_stream[1:] |= key[1:] != key[:-1]
    new_group = new_stream | (group == NONE)
    new_group[1:] |= group[1:] != group[:-1]
    firsts = np.flatnonzero(new_group)
    ends = np.maximum.reduceat(end, firsts) if len(firsts) else end
    before = np.full(len(firsts), NONE, np.int64)
    edges = np.append(np.searchsorted(firsts, np.flatnonzero(new_stream)), len(firsts))
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        before[first + 1 : last] = np.maximum.accumulate(ends[first : last - 1])
    return np.asarray(before[np.cumsum(new_group) - 1])
