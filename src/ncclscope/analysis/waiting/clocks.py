"""Clocks brought together by the ends of collectives, where they are known badly.

What is on record bounds the offset of two clocks from both sides. A rank that always comes last
looks like an offset, so the bounds are wide then, and waits within them are nobody's. But in a
collective in which everybody waits for the last, all ranks end together: within the bounds the
offset that lets ends agree is the likely one. How well they agree is the error that is left.

    bounds         ──[·······················]──   20 ms wide: the late rank's lateness
    ends agree     ──────────[·]────────────────   some 10 µs wide

All of a node's times are by one clock, but times by CUDA events: each rank has its own for these.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.schema import NONE
from ncclscope.model.streams import MEETS_NEEDED, meets_of, rules_of
from ncclscope.nccl.functions import EVERYBODY

GOOD_ERROR_NS = 50_000  # clocks that agree so well stay as they are
_WINDOW_NS = 1_000_000_000  # drift of 100 ppm is 100 µs then; longer where collectives are few
_LEAST_ENDS = 8  # of a node in a window
_MOST_ENDS = 300_000
_ROUNDS = 20
_PASSES = 3
_SHIFT = 1 << 33  # differences are sorted as positive numbers
_LEAST_ERROR_NS = 10_000


@dataclass(frozen=True, slots=True)
class _Ends:
    """Ends of collectives across clocks, the mean of each clock in each meeting."""

    meeting: Ints
    clock: Ints
    window: Ints  # of the meeting
    end_ns: Floats  # since the first
    window_ns: int


def with_agreeing_ends(run: Run, kernels: Kernels) -> Kernels:
    """Kernels on clocks whose collectives end together; as they are where clocks are good."""
    node_of = run.node_of[kernels.ranks]
    doubtful = kernels.error_ns > GOOD_ERROR_NS
    if not doubtful.any() or (node_of == NONE).any():
        return kernels
    clock_of = _clocks_of_ranks(run, kernels, node_of)
    node, clock = node_of[kernels.rank], clock_of[kernels.rank]
    origin = int(kernels.events_ns.min())
    ends = _ends(run, kernels, clock, origin)
    if ends is None:
        return kernels
    windows = max(int(kernels.events_ns.max() - origin) // ends.window_ns, 0) + 1
    offset, most = np.zeros((int(clock.max()) + 1, windows)), float(kernels.error_ns.max())
    left = ends
    for _ in range(_PASSES):  # lines between windows leave less than windows do
        offset = np.clip(offset + _offsets(left, *offset.shape), -most, most)
        (shift,) = _at(offset, ends.window_ns, ends.clock, ends.end_ns)
        left = replace(ends, end_ns=ends.end_ns + shift)
    error = _residual(left)
    # Each time by itself: a kernel may run for long, and the next one starts right after its end.
    call_ns, start_ns, end_ns = (kernels.events_ns - origin).T
    host_ns = (call_ns, kernels.launched_ns - origin)
    if np.array_equal(clock_of, node_of):
        times_ns = (start_ns, end_ns, *host_ns)
        start, end, call, launched = _at(offset, ends.window_ns, clock, *times_ns)
    else:
        start, end = _at(offset, ends.window_ns, clock, start_ns, end_ns)
        of_nodes = _offsets_of_nodes(offset, clock_of, node_of)
        call, launched = _at(of_nodes, ends.window_ns, node, *host_ns)
    return replace(
        kernels,
        events_ns=kernels.events_ns + np.column_stack([call, start, end]),
        launched_ns=kernels.launched_ns + launched,
        error_ns=np.where(doubtful, np.minimum(kernels.error_ns, error), kernels.error_ns),
    )


def _clocks_of_ranks(run: Run, kernels: Kernels, node_of: Ints) -> Ints:
    """By rank the clock of its kernels' times: its node's, or one of its own where these are by
    events.
    """
    processes, process_of = run.model.processes, run.process_of
    by_events = [processes[process_of[rank]].event_error_ns > 0 for rank in kernels.ranks.tolist()]
    if not any(by_events):
        return node_of
    own = int(node_of.max()) + 1 + np.arange(len(node_of))
    return np.unique(np.where(by_events, own, node_of), return_inverse=True)[1].reshape(-1)


def _offsets_of_nodes(offset: Floats, clock_of: Ints, node_of: Ints) -> Floats:
    """Offsets of the hosts' own times by node: the mean of its ranks' clocks."""
    sums = np.zeros((int(node_of.max()) + 1, offset.shape[1]))
    np.add.at(sums, node_of, offset[clock_of])
    return sums / np.maximum(np.bincount(node_of), 1)[:, None]


def _ends(run: Run, kernels: Kernels, clock: Ints, origin: int) -> _Ends | None:
    """Ends by meeting and clock; None where no collective joins clocks that are doubtful."""
    words = run.model.words
    rows = np.flatnonzero((kernels.meeting != NONE) & (kernels.error_ns > GOOD_ERROR_NS))
    columns = {name: run.operations[name][kernels.row[rows]] for name in MEETS_NEEDED}
    meets = meets_of(columns, rules_of(words["function"], words["algorithm"]))
    rows = rows[meets == EVERYBODY]
    if len(rows) > _MOST_ENDS:
        every = -(-len(rows) // _MOST_ENDS)
        rows = rows[kernels.meeting[rows] % every == 0]
    if not len(rows):
        return None
    clocks = int(clock.max()) + 1
    key, place = np.unique(
        kernels.meeting[rows].astype(np.int64) * clocks + clock[rows], return_inverse=True
    )
    place = place.reshape(-1)
    end = (kernels.events_ns[rows, 2] - origin).astype(np.float64)
    mean = np.bincount(place, end) / np.bincount(place)
    meeting = key // clocks
    joined = np.bincount(meeting)[meeting] > 1
    if not joined.any():
        return None
    meeting, of_clock, mean = meeting[joined], (key % clocks)[joined], mean[joined]
    # All ends of a meeting are in one window: those of a clock that is ahead would be in the next.
    first = np.full(int(meeting.max()) + 1, np.inf)
    np.minimum.at(first, meeting, mean)
    window_ns = _window_ns(of_clock, float(mean.max() - mean.min()))
    window = (first[meeting] // window_ns).astype(np.int64)
    return _Ends(meeting, of_clock, window, mean, window_ns)


def _window_ns(clock: Ints, span_ns: float) -> int:
    """A window in which the usual clock has enough ends."""
    count = np.bincount(clock)
    usual = float(np.median(count[count > 0]))
    seconds = span_ns / _WINDOW_NS
    return _WINDOW_NS * max(math.ceil(_LEAST_ENDS * seconds / usual), 1)


def _differences(ends: _Ends, shift: Floats | float) -> Floats:
    """By end, with its shift, how much later the mean of its meeting is."""
    end = ends.end_ns + shift
    mean = np.bincount(ends.meeting, end) / np.maximum(np.bincount(ends.meeting), 1)
    return np.asarray(mean[ends.meeting] - end)


def _offsets(ends: _Ends, clocks: int, windows: int) -> Floats:
    """By clock and window what to add to it."""
    offset = np.zeros((clocks, windows))
    key = ends.clock * windows + ends.window
    count = np.bincount(key, minlength=clocks * windows).reshape(clocks, windows)
    enough = count >= min(_LEAST_ENDS, int(count.max()))
    ends, key = _of_known(ends, key, enough)
    known = np.maximum(enough.sum(axis=0), 1)
    for _ in range(_ROUNDS):
        late = (_differences(ends, offset[ends.clock, ends.window]) + _SHIFT).astype(np.int64)
        median = quantile_by_group(key, clocks * windows, late, 0.5).reshape(clocks, windows)
        step = np.where(enough, np.nan_to_num(median, nan=_SHIFT) - _SHIFT, 0.0)
        # What all clocks are shifted by is no difference, and would grow from round to round.
        step = np.where(enough, step - step.sum(axis=0) / known, 0.0)
        offset += step
        if np.abs(step).max() < 1_000:
            break
    for row in range(clocks):  # windows with few ends are on a line with their neighbours
        places = np.flatnonzero(enough[row])
        if len(places):
            offset[row] = _on_line(places, offset[row, places], np.arange(windows))
    return offset


def _on_line(known: Floats | Ints, values: Floats, places: Floats | Ints) -> Floats:
    """Values at places between known ones, and one place beyond: clocks drift evenly."""
    if len(known) > 1:
        slope = np.diff(values) / np.diff(known)
        ends = values[0] - slope[0], values[-1] + slope[-1]
        values = np.concatenate([ends[:1], values, ends[1:]])
        known = np.concatenate([[known[0] - 1], known, [known[-1] + 1]])
    return np.interp(places, known, values)


def _of_known(ends: _Ends, key: Ints, enough: Bools) -> tuple[_Ends, Ints]:
    """Ends of nodes and windows that have enough of them. Others have no offset of their own, and
    would pull those that they meet.
    """
    kept = enough.reshape(-1)[key]
    known = _Ends(
        ends.meeting[kept], ends.clock[kept], ends.window[kept], ends.end_ns[kept], ends.window_ns
    )
    return known, key[kept]


def _residual(ends: _Ends) -> int:
    """How far ends are apart: the 90th percentile."""
    apart = np.abs(_differences(ends, 0.0))
    return max(int(2 * np.quantile(apart, 0.9)), _LEAST_ERROR_NS)


def _at(offset: Floats, window_ns: int, clock: Ints, *times_ns: Ints | Floats) -> tuple[Ints, ...]:
    """Offsets at some times of each clock: straight lines between the middles of windows."""
    middles: Floats = np.arange(offset.shape[1], dtype=np.float64) + 0.5
    shifts = tuple(np.zeros(len(clock), np.int64) for _ in times_ns)
    order = np.argsort(clock, kind="stable")  # once: there may be a thousand clocks
    for own in np.split(order, np.flatnonzero(np.diff(clock[order])) + 1):
        if len(own):
            row = int(clock[own[0]])
            for shift, time in zip(shifts, times_ns, strict=True):
                shift[own] = _on_line(middles, offset[row], time[own] / window_ns).astype(np.int64)
    return shifts
