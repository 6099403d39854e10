"""Numbers of sends and receives, and of what is inferred from them, where only the end of each
log was read: by their times.

NCCL does not count them, and how many came before is not known. But no receive ends before its send
begins. So receives are matched with the latest sends for which that holds; where data waited in
buffers all the time, later ones would do as well, and nobody waited.

Example: rank 0's sends on record begin at 20, 30 and 40 ms, rank 1's receives end at 11, 21, 31 and
41 ms. If its first receive were that of the first send, it would have ended before that began; so
the second receive is. The first send is number 1, the first receive number 0.

Between hosts, wall clocks may be apart by more than calls are: there those belong together that are
apart most evenly. All ranks of an inferred collective end together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.model.schema import CAPTURED, NONE, RECV, SEND, Columns
from ncclscope.model.streams import NEEDED, streams_and_orders

CHANGED = ("call_order",)
_NEEDED = (*NEEDED, "start_ns", "end_ns", "size_bytes", "node")
_ANCHORS = 12  # operations that propose shifts
_NEAR = 12  # proposed before and behind the nearest
_COMPARED = 400  # operations whose times are compared
_FEWEST = 0.5  # of the shorter side that must overlap
_SAME_SIZE = 0.99  # of the operations
_IMPOSSIBLE = 0.01  # of the receives: stamps are a few µs off
_MOST_STREAMS = 4096  # each takes about a millisecond; further ones stay without numbers


def number_by_times(operations: Columns, wall_ns: Sequence[int]) -> None:
    """Sets `call_order` of sends, receives and inferred operations, in place. `wall_ns`: by node
    what makes wall-clock time of its times.
    """
    form = np.asarray(operations["form"])
    pair = (form == SEND) | (form == RECV)
    chosen = (pair & (np.asarray(operations["part_of"]) == NONE)) | (
        (np.asarray(operations["inferred"]) == 1) & ~pair
    )
    chosen &= np.asarray(operations["replay"]) == 0
    chosen &= np.asarray(operations["state"]) != CAPTURED
    rows = np.flatnonzero(chosen)
    columns = {name: np.asarray(operations[name])[rows] for name in _NEEDED}
    columns["call_order"] = np.zeros(len(rows), np.int64)
    stream, _ = streams_and_orders(columns)
    # Sends come before receives.
    side = np.where(pair[rows], columns["form"] == RECV, columns["rank"]).astype(np.int64)
    calls = _calls(columns, wall_ns)
    order = np.lexsort((np.arange(len(rows)), side, stream))
    order = order[stream[order] != NONE]
    streams = np.split(order, np.flatnonzero(np.diff(stream[order])) + 1)
    numbers = np.full(len(rows), NONE, np.int64)
    for own in streams[:_MOST_STREAMS] if len(order) else ():
        sides = np.split(own, np.flatnonzero(np.diff(side[own])) + 1)
        pairs = bool(pair[rows[own[0]]])
        shifts = _shifts_of_pairs(sides, calls) if pairs else _shifts(sides, calls)
        lowest = min(shift for shift in shifts if shift is not None)
        for members, shift in zip(sides, shifts, strict=True):
            if shift is not None:
                numbers[members] = np.arange(len(members)) + shift - lowest
    operations["call_order"][rows] = numbers


@dataclass(frozen=True, slots=True)
class _Calls:
    """What tells which calls belong together, on wall clocks."""

    start_ns: Ints
    end_ns: Ints
    size_bytes: Ints
    node: Ints


def _calls(columns: Columns, wall_ns: Sequence[int]) -> _Calls:
    shift = np.array([*wall_ns, 0], np.int64)[columns["node"]] - wall_ns[0]
    times = (columns[name].astype(np.int64) for name in ("start_ns", "end_ns"))
    start, end = (np.where(values != NONE, values + shift, NONE) for values in times)
    return _Calls(start, end, columns["size_bytes"], columns["node"])


def _shifts_of_pairs(sides: list[Ints], calls: _Calls) -> list[int | None]:
    """By side the number of its first call: sends, then receives; None where nothing fits."""
    if len(sides) < 2:
        return [0]
    sends, receives = sides
    if calls.node[sends[0]] != calls.node[receives[0]]:
        return [0, _closest(sends, receives, calls, evenly=True)]
    possible = None
    for shift, sent, received in _candidates(sends, receives, calls):
        impossible = calls.start_ns[sent] > calls.end_ns[received]
        if impossible.mean() <= _IMPOSSIBLE:
            possible = shift
    return [0, possible]


def _shifts(sides: list[Ints], calls: _Calls) -> list[int | None]:
    """The same of ranks that wait for each other."""
    longest = max(sides, key=len)
    return [
        0
        if own is longest
        else _closest(longest, own, calls, bool(calls.node[own[0]] != calls.node[longest[0]]))
        for own in sides
    ]


def _closest(base: Ints, own: Ints, calls: _Calls, evenly: bool) -> int | None:
    """The shift with which ends are closest, or apart most evenly."""
    best: tuple[float, int] | None = None
    for shift, one, other in _candidates(base, own, calls):
        apart = calls.end_ns[one] - calls.end_ns[other]
        if evenly:
            apart = apart - np.int64(np.median(apart))
        cost = float(np.abs(apart).mean())
        if best is None or cost < best[0]:
            best = cost, shift
    return None if best is None else best[1]


def _candidates(base: Ints, own: Ints, calls: _Calls) -> list[tuple[int, Ints, Ints]]:
    """Shifts that bring some calls close together, in order, with calls that they match."""
    found = []
    fewest = max(_FEWEST * min(len(base), len(own)), 1)
    for shift in _proposed(calls.end_ns[base], calls.end_ns[own]):
        low, high = max(0, -shift), min(len(own), len(base) - shift)
        if high - low < fewest:
            continue
        places = np.unique(np.linspace(low, high - 1, _COMPARED).astype(np.int64))
        one, other = base[places + shift], own[places]
        same = calls.size_bytes[one] == calls.size_bytes[other]
        both = (calls.end_ns[one] != NONE) & (calls.end_ns[other] != NONE)
        if same.mean() >= _SAME_SIZE and both.any():
            found.append((shift, one[both], other[both]))
    return found


def _proposed(base: Ints, other: Ints) -> list[int]:
    known, in_order = np.flatnonzero(other != NONE), np.flatnonzero(base != NONE)
    if not len(known) or not len(in_order):
        return []
    anchors = known[np.linspace(0, len(known) - 1, _ANCHORS).astype(np.int64)]
    in_order = in_order[np.argsort(base[in_order], kind="stable")]
    nearest = np.searchsorted(base[in_order], other[anchors])
    near = in_order[np.minimum(nearest, len(in_order) - 1)] - anchors
    shifts: list[int] = np.unique(near[:, None] + np.arange(-_NEAR, _NEAR + 1)).tolist()
    return shifts
