"""Call times of NCCL before interface v5, from the ranges of NCCL's own NVTX domain.

Those releases report no calls, but works, from the calling thread: inside the range of the call, or
inside `ncclGroupEnd` where the call is part of a group. Example, slots of one stream:

    0 ncclAllReduce   1 Coll (0)   2 ncclGroupStart   3 ncclSend   4 ncclSend   5 ncclGroupEnd
    6 P2p (3)   7 P2p (4)

Work 1 lies in range 0. Works 6 and 7 are as many as the ranges of their function that have no work
inside, so they belong to them in their order.
"""

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.model.process.events import stream_of
from ncclscope.model.process.ranges import Ranges
from ncclscope.model.schema import NONE, Columns

_DOMAIN, _PREFIX = "NCCL", "nccl"


def set_call_times(columns: Columns, ranges: Ranges, functions: list[str]) -> None:
    """Sets when operations were called, where NCCL's own ranges say it. `functions`: by code."""
    domains = [number for number, name in ranges.domains.items() if name == _DOMAIN]
    if not domains:
        return
    codes = {name: code for code, name in enumerate(functions)}
    by_text = [codes.get(text.removeprefix(_PREFIX), NONE) for text in ranges.texts]
    function = np.where(
        np.isin(ranges.domain, domains) & ~ranges.is_mark, np.array(by_text)[ranges.text], NONE
    )
    call = _calls_of_works(columns, ranges, function)
    known = call != NONE
    for name, times in (("call_ns", ranges.start_ns), ("call_end_ns", ranges.end_ns)):
        columns[name] = np.where(known, times[np.maximum(call, 0)], columns[name])


def _calls_of_works(columns: Columns, ranges: Ranges, function: Ints) -> Ints:
    """The range of each operation's call, NONE where it is not certain."""
    events, enqueued_ns = columns["event"], columns["enqueue_ns"]
    around = ranges.around(events, enqueued_ns)
    inside = (around != NONE) & (function[np.maximum(around, 0)] == columns["function"])
    call = np.where(inside, around, NONE)
    works = np.flatnonzero(~inside & (columns["enqueue_ns"] != NONE))
    calls = np.setdiff1d(np.flatnonzero(function != NONE), call[inside])
    works = works[np.argsort(events[works], kind="stable")]
    keys_of_works = _keys(events[works], columns["function"][works])
    keys_of_calls = _keys(ranges.keys[calls], function[calls])
    for key in np.unique(keys_of_works).tolist():
        own, of_key = works[keys_of_works == key], calls[keys_of_calls == key]
        if len(own) == len(of_key) and (ranges.start_ns[of_key] <= enqueued_ns[own]).all():
            call[own] = of_key
    return call


def _keys(events: Ints, function: Ints) -> Ints:
    """Stream and function as one number."""
    return stream_of(events).astype(np.int64) << 8 | function.astype(np.int64)
