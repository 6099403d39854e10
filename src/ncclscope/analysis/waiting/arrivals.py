"""Whom each kernel waited for, and how long.

A collective waits for the last of its ranks, a Broadcast for its root (a large one for all ranks:
rooted_collectives.py), a receive for its send. A send waits for its receive where sends of its kind
are seen to: small ones leave their data in a buffer and end. Starts alone decide, because stop
stamps of sends, receives and trees come early.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.analysis.waiting.rooted_collectives import ENDED_BEFORE
from ncclscope.analysis.waiting.slopes import slopes
from ncclscope.arrays.library import length_arg, library, pointer
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

START, END = 1, 2
_TELLING = 8  # sends whose receive came much later: fewer tell nothing
_FAR_LATER = 10  # times the usual transfer: a send that ends right after such a receive waited
_AS_MUCH_LONGER = 0.7  # than the receive is later: noise makes less of 1


@dataclass(frozen=True, slots=True)
class Arrivals:
    """By kernel the one whose start it waited for (itself: nobody's), and the wait. Ends are not
    before that start: a stop stamp that is, came early.
    """

    last: Numbers
    wait_ns: Ints
    events_ns: Ints  # as of Kernels, with these ends
    waits_for: Bools  # by partner: whether it is waited for


def arrivals_of(kernels: Kernels) -> Arrivals:
    """The last arrivals of all kernels."""
    start, end = kernels.events_ns[:, START], kernels.events_ns[:, END]
    last = _last_of_meetings(kernels)
    waits_for = kernels.partner_sends | _sends_that_wait(kernels)
    own = np.repeat(np.arange(len(kernels)), np.diff(kernels.partner_first))[waits_for]
    other = kernels.partner[waits_for]
    order = np.lexsort((start[other], own))  # of several partners the last one counts
    own, other = own[order], other[order]
    later = start[other] > start[last[own]]
    last[own[later]] = other[later]
    wait = np.maximum(start[last] - start, 0)
    events = kernels.events_ns.copy()
    events[:, END] = np.maximum(end, np.minimum(start + wait, _next_start_ns(kernels)))
    return Arrivals(last, wait, events, waits_for)


def _next_start_ns(kernels: Kernels) -> Ints:
    """By kernel the start of the next one on its stream: it cannot end later, however badly clocks
    agree. Later than all for the last one of a stream, and where both overlap on record.
    """
    start, end = kernels.events_ns[:, START], kernels.events_ns[:, END]
    order = _by_stream_and_start(kernels.stream, start)
    behind, before = order[1:], order[:-1]
    follows = kernels.stream[behind] == kernels.stream[before]
    follows &= start[behind] >= end[before]
    result = np.full(len(start), np.iinfo(np.int64).max)
    result[before[follows]] = start[behind[follows]]
    return result


def _by_stream_and_start(stream: Numbers, start: Ints) -> Ints:
    """Kernels by stream and start. Nearly always they start in the order of their calls."""
    order = np.argsort(stream, kind="stable")  # quick where streams are in runs
    is_earlier = np.diff(start[order]) < 0
    if (is_earlier & (np.diff(stream[order]) == 0)).any():
        return np.lexsort((start, stream))
    return order


def _last_of_meetings(kernels: Kernels) -> Numbers:
    meetings = int(kernels.meeting.max(initial=NONE)) + 1
    last_of = np.full(meetings + 1, NONE, np.int32)
    events = np.ascontiguousarray(kernels.events_ns)
    library().ncclscope_last_arrivals(
        pointer(kernels.meeting), pointer(events), length_arg(kernels), pointer(last_of), meetings
    )
    own = np.arange(len(kernels), dtype=np.int32)
    return np.where(kernels.meeting == NONE, own, last_of[kernels.meeting])


def _sends_that_wait(kernels: Kernels) -> Bools:
    """By partner whether it is the receive of a send whose kind waits for receives: of those whose
    receive came much later, hardly any ended before it. A kernel that receives as well is ready to
    send when all that it receives from have started: in a slow ring all kernels wait for that.
    One receive that came far later is enough, where its send ended right after it began. Where all
    receives come late, sends that wait take as much longer as these are later.
    """
    waits = np.zeros(len(kernels.partner), bool)
    rows = np.flatnonzero(~kernels.partner_sends)
    if not len(rows):
        return waits
    own = np.repeat(np.arange(len(kernels)), np.diff(kernels.partner_first))
    start, end = kernels.events_ns[:, START], kernels.events_ns[:, END]
    ready = start.copy()
    np.maximum.at(ready, own[kernels.partner_sends], start[kernels.partner[kernels.partner_sends]])
    own = own[rows]
    kind, kinds = kernels.transfer_kind[own].astype(np.int64), int(kernels.transfer_kind.max()) + 1
    late, took = start[kernels.partner[rows]] - ready[own], end[own] - ready[own]
    usual = quantile_by_group(kind, kinds, np.maximum(took, 0), 0.1)
    telling, far = late > 2 * usual[kind], late > _FAR_LATER * usual[kind]
    # Clocks that are further apart than they are said to be matter least where much is late.
    telling &= far | (np.bincount(kind[far], minlength=kinds) < _TELLING)[kind]
    # Stop stamps are a little early, and clocks of ranks apart: a receive may seem to be too late.
    ended_before = took < _AS_MUCH_LONGER * (late - kernels.error_ns[own])
    before = np.bincount(kind[telling], ended_before[telling], minlength=kinds)
    seen = np.bincount(kind[telling], minlength=kinds)
    sure = far & ~ended_before & (took <= late + 2 * usual[kind])
    enough = (seen >= _TELLING) | (np.bincount(kind[sure], minlength=kinds) > 0)
    waiting = enough & (before <= ENDED_BEFORE * seen)
    longer = slopes(kind, kinds, kernels.rank[own].astype(np.int64), took, np.maximum(late, 0))
    waiting |= (longer > _AS_MUCH_LONGER) & (seen < _TELLING)
    waits[rows] = waiting[kind]
    return waits
