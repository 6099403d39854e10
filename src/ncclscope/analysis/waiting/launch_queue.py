"""Calls of hosts that a full launch queue holds back.

A host that waits for nothing is further ahead of its GPU with every step, until the queue of
launches is full. From then on it makes a call whenever the GPU has taken one from the queue: as
many kernels are in flight at a position in each repeat. Its calls keep the GPU's pace, and the
time between them is none of the host's own.

    in flight at a call    4   8  12  15  15  15  15    held back from the fourth step on
    in flight at a call    4   8  12  16  20  24  28    ahead, and free

A reader of the last step's loss, which waits for an end of long ago, looks the same, and is: its
calls follow that end.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.analysis.waiting.late_calls import LONG_CALL_NS, RIGHT_AFTER
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays.types import Bools, Ints

_MOST_REPEATS = 0.5  # of a position: the host is far ahead in these
_LEAST_HELD = 0.25  # of them: a queue that is filled again and again is full in fewer
_FULL = 0.98  # quantile of kernels in flight at a position
_LEAST_SLACK = 2  # kernels in flight: calls come a bit sooner or later than ends
_SLACK = 1 / 8  # of them


@dataclass(frozen=True, slots=True)
class HeldCalls:
    """Calls of hosts that the launch queue holds back, and the kernels whose ends they follow."""

    kernel: Ints
    after: Ints
    unclear: Ints  # calls where others are held, while the queue fills: these may be, too


def held_calls(
    kernels: Kernels, end_ns: Ints, position: Numbers, positions: int, least: int
) -> HeldCalls:
    """Calls that are held back, and calls of the same hosts after they had waited for all that was
    in the queue. `least`: kernels in flight, of which other rules know more.
    """
    call, count = kernels.events_ns[:, 0], len(kernels)
    number = kernels.call_number
    ahead = np.zeros(count, bool)
    ahead[least:] = (end_ns[:-least] > call[least:]) & (number[least:] >= least)
    repeats = np.bincount(position, minlength=positions)
    often = np.bincount(position[ahead], minlength=positions) >= _MOST_REPEATS * repeats
    often &= repeats >= LEAST_REPEATS
    rows = np.flatnonzero(often[position])
    if not len(rows):
        return HeldCalls(rows, rows, rows)
    in_flight = np.zeros(count, np.int64)
    in_flight[rows] = _in_flight(kernels, end_ns, rows)
    place = position[rows].astype(np.int64)
    most = quantile_by_group(place, positions, in_flight[rows], _FULL)
    full = np.nan_to_num(most).astype(np.int64)[place]
    least_full = full - np.maximum(full * _SLACK, _LEAST_SLACK)
    # One kernel for all ranks: what they take since its end can be compared.
    after = np.maximum(rows - 1 - full, 0)
    held = (in_flight[rows] >= least_full) & (in_flight[rows] <= full) & (number[rows] > full)
    held &= call[rows] - call[np.maximum(rows - 1, 0)] > LONG_CALL_NS
    # As many are in flight in each repeat as well where a host waits once a step, and is further
    # ahead with every call since then. This queue has been full for as many calls as it holds.
    last_near = np.maximum.accumulate(np.where(ahead, -1, np.arange(count)))[rows]
    held &= (last_near <= after) & (in_flight[after] >= least_full)
    steady = (np.bincount(place[held], minlength=positions) >= _LEAST_HELD * repeats)[place]
    held &= steady
    drained = steady & _is_drained(call, end_ns, number, rows, in_flight)
    return HeldCalls(
        np.concatenate([rows[held], rows[drained]]),
        np.concatenate([after[held], rows[drained] - 1]),
        rows[steady & ~held & ahead[rows]],
    )


def _in_flight(kernels: Kernels, end_ns: Ints, rows: Ints) -> Ints:
    """By row how many kernels its rank had called that had not ended, in the order of calls."""
    call = kernels.events_ns[:, 0]
    since = int(min(call.min(), end_ns.min()))
    span = int(max(call.max(), end_ns.max())) - since + 1
    rank = kernels.rank.astype(np.int64)
    ended = np.maximum.accumulate(end_ns - since + rank * span)
    before = np.searchsorted(ended, call[rows] - since + rank[rows] * span, side="right")
    return np.asarray(rows - before)


def _is_drained(call: Ints, end_ns: Ints, number: Ints, rows: Ints, in_flight: Ints) -> Bools:
    """Which calls came right after all kernels before them had ended. A host that is usually far
    ahead waited for that: nothing else would take from it just what it was ahead.
    """
    before = np.maximum(rows - 1, 0)
    since, after = call[rows] - call[before], call[rows] - end_ns[before]
    return np.asarray((number[rows] > 0) & (in_flight[rows] == 0) & (after < RIGHT_AFTER * since))
