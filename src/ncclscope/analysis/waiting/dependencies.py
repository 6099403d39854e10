"""Which event each event followed: calls, starts and ends of all kernels form a forest.

    event   follows                              edge
    start   the own call                         launch
    start   the end of an earlier kernel         gpu: other kernels, or nothing, in between
    start   the start of an earlier kernel       gpu, where compute runs beside that kernel
    call    the call before                      host
    call    the end of an earlier kernel         host after sync: the host was blocked until then,
                                                 by itself or by a full launch queue
    end     the start of the last arrival        transfer; the only edge between ranks
    call    nothing: a rank's first              root

The time of an event is the sum of the edges back to its root, exactly. Which dependencies exist is
learned by elimination: "this start is after that end" is refuted where repeats of the position
contradict it. Kernels of one stream always depend on each other, and so do kernels of which one
starts right after the other's end: hardware queues serialise some that streams do not.
"""

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.own_time import window_edges
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.arrivals import END, START, Arrivals
from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.analysis.waiting.late_calls import (
    BUSY,
    LATE,
    LONG_CALL_NS,
    LateCalls,
    late_calls,
)
from ncclscope.analysis.waiting.launch_queue import held_calls
from ncclscope.analysis.waiting.overlap import TIGHT_NS, held_by_its_end, overlaps_wait
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays import _abi
from ncclscope.arrays.library import address, library, pointer
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

Bytes = npt.NDArray[np.uint8]

CALLS_BACK = 8  # earlier calls that are tried as predecessors
HELD_BACK = CALLS_BACK + 1  # of a call: a full launch queue held it back, or may have
FAR_BACK = CALLS_BACK + 2  # of a call: it follows the end before on its stream, long ago
BACKS = 16  # for keys: more than these
MOST_AT_ONCE = 8  # kernels of a chain that are looked at
_GAPS_KEPT = 4  # the smallest of each position
_SAMPLED_GAPS = 200  # of a position: of these the smallest are about the 2nd percentile
_GPU_TOLERANCE_NS = 3_000  # stamps of one GPU against each other
_HOST_TOLERANCE_NS = 20_000  # host against GPU, at least
LEAST_WAIT_NS = 2_000  # less is not looked at
_MOST_REFUTED = 0.01
_LEAST_LOOSE = 4  # starts of a position that came later than right after an end
_LONGEST_CHAIN = 16  # of starts that were held back one by the other
_QUICK = 0.25  # quantile of times between calls
_NEVER = np.iinfo(np.int64).max
_SAMPLE = 2_000_000


@dataclass(frozen=True, slots=True)
class Dependencies:
    """By event (3 * kernel + 0, 1, 2: call, start, end) what it followed."""

    before: Numbers  # event; NONE for roots
    edge: npt.NDArray[np.int8]
    back: npt.NDArray[np.int8]  # calls between the two kernels; 0 where it is no other kernel's end
    length_ns: Ints  # from the event before; 0 for roots
    on_stream: Numbers  # by kernel the one before it on its stream
    position: Numbers
    positions: int
    possible: Bytes  # by position and calls back: which dependencies were not refuted
    least_gap_ns: Ints  # by position, calls back, and start or call
    rules: _abi.GapRules
    # By kernel: its start came right after the end of one that had waited, or after the part of its
    # work that needs that end. When the rank itself was ready is not known then: its own work went
    # on while that one waited. OVERLAPPED: its usual length counts from the start of that one.
    blocked: Bytes


def follows_at_once(dependencies: Dependencies) -> Bools:
    """By kernel whether it started right behind the end of another one: they are a chain."""
    follows = dependencies.edge[START::3] == _abi.EDGE_GPU
    follows &= dependencies.before[START::3] % 3 == END
    return np.asarray(follows & (dependencies.length_ns[START::3] <= TIGHT_NS))


def operations_for_c(
    kernels: Kernels, arrivals: Arrivals, position: Numbers
) -> _abi.TimedOperations:
    """Kernels as the compiled loops take them; the arrays must outlive it."""
    return _abi.TimedOperations(
        len(kernels),
        CALLS_BACK,
        address(kernels.rank),
        address(position),
        address(kernels.stream),
        address(kernels.launched_ns),
        address(arrivals.last),
        address(arrivals.events_ns),
    )


def dependencies_of(
    run: Run, kernels: Kernels, arrivals: Arrivals, position: Numbers, positions: int
) -> Dependencies:
    """What each event followed."""
    operations = operations_for_c(kernels, arrivals, position)
    rules = _abi.GapRules(
        _GAPS_KEPT, _GPU_TOLERANCE_NS, _host_tolerance(run), TIGHT_NS, _late_launch(kernels),
        LATE, LONG_CALL_NS,
    )  # fmt: skip
    possible, least_gap = _possible(operations, rules, kernels.kind, position, positions)
    events = 3 * len(kernels)
    before, edge = np.empty(events, np.int32), np.empty(events, np.int8)
    back, on_stream = np.empty(events, np.int8), np.empty(len(kernels), np.int32)
    usual_call = _usual_calls(kernels, position, positions)
    newest = np.full(int(kernels.stream.max(initial=0)) + 1, NONE, np.int32)
    out = _abi.Bindings(address(before), address(edge), address(back), address(on_stream))
    library().ncclscope_bind(
        ctypes.byref(operations), ctypes.byref(rules), pointer(possible), pointer(usual_call),
        pointer(newest), ctypes.byref(out),
    )  # fmt: skip
    late = late_calls(
        kernels, arrivals.events_ns[:, 2], position, usual_call, CALLS_BACK,
        rules.host_tolerance_ns,
    )  # fmt: skip
    _bind_late_calls(late, position, possible, (before, edge, back))
    _bind_held_calls(kernels, arrivals, (position, positions), (before, edge, back))
    _bind_to_streams(arrivals, on_stream, (position, positions), (before, edge, back))
    pauses = _after_pauses(run, kernels)
    before[3 * pauses], edge[3 * pauses] = NONE, _abi.EDGE_ROOT
    time = arrivals.events_ns.reshape(-1)
    length = np.maximum(np.where(before >= 0, time - time[before], 0), 0)
    cell = position * (CALLS_BACK + 2) + back[1::3]
    blocked = _blocked(arrivals, before, edge, length, cell)
    overlapped = overlaps_wait(kernels, arrivals, before, edge, length, (cell, back[1::3]))
    blocked[overlapped & (blocked != 0)] = _abi.BLOCKED_OVERLAPPED
    rows = np.flatnonzero(overlapped & (blocked == 0))
    behind, starts = before[3 * rows + START] // 3, arrivals.events_ns[:, START]
    took = np.maximum(arrivals.events_ns[behind, END] - starts[behind], 0)
    gap, wait = length[3 * rows + START], arrivals.wait_ns[behind]
    held = held_by_its_end(cell[rows].astype(np.int64), gap, wait, took)
    blocked[rows[held]] = _abi.BLOCKED_OVERLAPPED
    free = 3 * np.flatnonzero(overlapped & (blocked == 0)) + 1
    before[free] -= 1  # from that kernel's end to its start
    length[free] = time[free] - time[before[free]]
    _bind_overlapped(kernels, arrivals, free, possible, position, (before, edge, back, length))
    return Dependencies(
        before, edge, back, length, on_stream, position, positions, possible, least_gap, rules,
        blocked,
    )  # fmt: skip


def _bind_late_calls(
    late: LateCalls, position: Numbers, possible: Bytes,
    bound: tuple[Numbers, npt.NDArray[np.int8], npt.NDArray[np.int8]],
) -> None:  # fmt: skip
    """Binds late calls to what they came after, where repeats of their position cannot tell."""
    before, edge, back = bound
    event = 3 * late.kernel
    number = back[event].astype(np.int64)
    cell = position[late.kernel].astype(np.int64) * CALLS_BACK + np.maximum(number - 1, 0)
    sure = (edge[event] == _abi.EDGE_HOST_AFTER_SYNC) & (
        possible[cell] >> _abi.AFTER_ON_HOST & 1 == 1
    )
    busy, waited = ~sure & (late.back == BUSY), ~sure & (late.back > 0)
    before[event[busy]] = event[busy] - 3
    edge[event[busy]], back[event[busy]] = _abi.EDGE_HOST, 0
    before[event[waited]] = event[waited] - 3 * late.back[waited] + 2
    edge[event[waited]], back[event[waited]] = _abi.EDGE_HOST_AFTER_SYNC, late.back[waited]


def _bind_held_calls(
    kernels: Kernels, arrivals: Arrivals, positions: tuple[Numbers, int],
    bound: tuple[Numbers, npt.NDArray[np.int8], npt.NDArray[np.int8]],
) -> None:  # fmt: skip
    """Binds calls that a full launch queue holds back to the end of long ago that they follow."""
    before, edge, back = bound
    held = held_calls(kernels, arrivals.events_ns[:, END], *positions, CALLS_BACK)
    is_host = edge[3 * held.kernel] == _abi.EDGE_HOST
    event, after = 3 * held.kernel[is_host], held.after[is_host]
    before[event], edge[event] = 3 * after + END, _abi.EDGE_HOST_AFTER_SYNC
    back[event] = np.minimum(event // 3 - after, HELD_BACK)
    unclear = 3 * held.unclear
    back[unclear[edge[unclear] == _abi.EDGE_HOST]] = HELD_BACK


def _bind_to_streams(
    arrivals: Arrivals, on_stream: Numbers, positions: tuple[Numbers, int],
    bound: tuple[Numbers, npt.NDArray[np.int8], npt.NDArray[np.int8]],
) -> None:  # fmt: skip
    """Binds calls to the end of the kernel before on their stream, where that is long ago, no
    repeat contradicts it, and it is the last that they can have waited for: a receive, beside which
    the host has made many calls for another stream.
    """
    (position, count), (before, edge, back) = positions, bound
    own = np.arange(len(position))
    far = np.flatnonzero((on_stream >= 0) & (own - on_stream > CALLS_BACK))
    call, end = arrivals.events_ns[far, 0], arrivals.events_ns[on_stream[far], END]
    place = position[far].astype(np.int64)
    repeats = np.bincount(place, minlength=count)
    refuted = np.bincount(place[call < end], minlength=count)
    holds = (repeats >= LEAST_REPEATS) & (refuted <= _MOST_REFUTED * repeats)
    time = arrivals.events_ns.reshape(-1)
    event = 3 * far
    later = (call >= end) & (end > time[np.maximum(before[event], 0)]) & (before[event] >= 0)
    later &= end > time[event - 3]
    chosen = holds[place] & later
    event, far = event[chosen], far[chosen]
    before[event] = 3 * on_stream[far] + END
    edge[event], back[event] = _abi.EDGE_HOST_AFTER_SYNC, FAR_BACK


def _bind_overlapped(
    kernels: Kernels, arrivals: Arrivals, free: Ints, possible: Bytes, position: Numbers,
    bound: tuple[Numbers, npt.NDArray[np.int8], npt.NDArray[np.int8], Ints],
) -> None:  # fmt: skip
    """Binds starts that do not need the end of the kernel beside their work to the last other end
    since that one started, where work does wait for it: it began no earlier.

        AllReduce, beside all work    |==============================|
        Send                            |======|
        work, and its start                    |---------------|start: the length of the work
    """
    before, edge, back, length = bound
    time, row = arrivals.events_ns.reshape(-1), free // 3
    last, last_back = time[before[free]], np.zeros(len(free), np.int64)
    for number in range(1, CALLS_BACK + 1):
        other = np.maximum(row - number, 0)
        end = time[3 * other + END]
        can = (row >= number) & (kernels.rank[other] == kernels.rank[row])
        can &= (end > last) & (time[free] - end > TIGHT_NS) & (3 * other + START != before[free])
        cell = position[row].astype(np.int64) * CALLS_BACK + number - 1
        can &= possible[cell] >> _abi.AFTER_ON_GPU & 1 == 1
        last, last_back = np.where(can, end, last), np.where(can, number, last_back)
    found = np.flatnonzero(last_back > 0)
    if not len(found):
        return
    event, other_back = free[found], last_back[found]
    new_before, new_back, new_length = before.copy(), back.copy(), length.copy()
    new_before[event], new_back[event] = 3 * (row[found] - other_back) + END, other_back
    new_length[event] = time[event] - last[found]
    place = position * (CALLS_BACK + 2) + new_back[1::3], new_back[1::3]
    overlapped = overlaps_wait(kernels, arrivals, new_before, edge, new_length, place)
    event = event[~overlapped[event // 3]]
    before[event], back[event] = new_before[event], new_back[event]
    length[event] = new_length[event]


def _after_pauses(run: Run, kernels: Kernels) -> Ints:
    """Kernels before which their process had stopped recording: nothing is known to be before."""
    if not len(run.model.tables["windows"]["process"]):
        return np.empty(0, np.int64)
    edges = window_edges(run, kernels.row)
    same_rank = np.diff(kernels.rank, prepend=-1) == 0
    return np.flatnonzero(same_rank & (np.diff(edges, prepend=edges[:1]) != 0))


def _blocked(
    arrivals: Arrivals, before: Numbers, edge: npt.NDArray[np.int8], length: Ints, cell: Ints
) -> Bytes:
    """By kernel whether its start was held back: it came right after the end of one that had
    waited, that was held back itself, or that took so long that work beside it must have ended.
    """
    gap, behind = length[1::3], before[1::3] // 3
    tight = (edge[1::3] == _abi.EDGE_GPU) & (gap <= TIGHT_NS)
    held = tight & (arrivals.wait_ns[behind] > np.maximum(gap, LEAST_WAIT_NS))
    rows = np.flatnonzero(tight)
    if len(rows):
        loose = np.flatnonzero((edge[1::3] == _abi.EDGE_GPU) & ~tight)
        cells = int(cell.max()) + 1
        usual_gap = quantile_by_group(cell[loose].astype(np.int64), cells, gap[loose], 0.5)
        often = np.bincount(cell[loose], minlength=cells) >= _LEAST_LOOSE
        took = arrivals.events_ns[behind, 2] - arrivals.events_ns[behind, 1]
        held |= tight & often[cell] & (took > np.nan_to_num(usual_gap[cell], nan=np.inf))
    for _ in range(_LONGEST_CHAIN):
        more = rows[held[behind[rows]] & ~held[rows]]
        if not len(more):
            break
        held[more] = True
    return np.asarray(held, np.uint8)


def _host_tolerance(run: Run) -> int:
    errors = [row.gpu_clock_error_ns for row in run.model.processes]
    return max(_HOST_TOLERANCE_NS, 2 * max(errors, default=0))


def _late_launch(kernels: Kernels) -> int:
    """How long after its launch a start waited for something: far longer than launches take."""
    step = max(len(kernels) // _SAMPLE, 1)
    took = (kernels.events_ns[:, 1] - kernels.launched_ns)[::step]
    took = took[took < 100_000]
    return 5 * (int(np.median(took)) if len(took) else 10_000) + 50_000


def _possible(
    operations: _abi.TimedOperations, rules: _abi.GapRules, kind: Numbers, position: Numbers,
    positions: int,
) -> tuple[Bytes, Ints]:  # fmt: skip
    """By position and calls back which dependencies nothing refutes, and the least gaps seen. Few
    repeats of a position are judged together with other positions of their kind.
    """
    cells = positions * CALLS_BACK
    counted = np.zeros((cells, 3), np.int32)
    gaps = np.full((cells, 2, _GAPS_KEPT), _NEVER)
    repeats = np.bincount(position, minlength=positions)
    stride = np.maximum(repeats // _SAMPLED_GAPS, 1).astype(np.int32)
    seen_at = np.zeros(positions, np.int32)
    library().ncclscope_count_gaps(
        ctypes.byref(operations), ctypes.byref(rules), pointer(stride), pointer(seen_at),
        pointer(counted), pointer(gaps),
    )  # fmt: skip
    seen = counted[:, 0].copy()
    few = seen < LEAST_REPEATS
    pooled = _by_kind(counted, kind, position, positions)
    counted[few] = pooled[few]
    possible = np.zeros(cells, np.uint8)
    for bit, refuted in ((_abi.AFTER_ON_GPU, counted[:, 1]), (_abi.AFTER_ON_HOST, counted[:, 2])):
        of = counted[:, 0]
        holds = (of >= LEAST_REPEATS) & (refuted <= _MOST_REFUTED * of)
        possible |= (holds << bit).astype(np.uint8)
    # About the 2nd percentile of the sampled gaps; the smallest where few were seen.
    sampled = np.minimum(seen, _SAMPLED_GAPS)
    place = np.minimum(sampled * _GAPS_KEPT // _SAMPLED_GAPS, _GAPS_KEPT - 1)
    least = np.take_along_axis(gaps, place[:, None, None].astype(np.int64), axis=2)[:, :, 0]
    return possible, np.ascontiguousarray(np.minimum(least, _NEVER >> 2))


def _by_kind(counted: Numbers, kind: Numbers, position: Numbers, positions: int) -> Numbers:
    """Counts of cells, summed over all positions of a kind."""
    kind_of = np.zeros(positions, np.int64)
    kind_of[position] = kind
    each = counted.reshape(positions, -1)
    sums = np.zeros((int(kind_of.max(initial=0)) + 1, each.shape[1]), np.int64)
    np.add.at(sums, kind_of, each)
    return np.asarray(sums[kind_of].reshape(counted.shape).astype(counted.dtype))


def _usual_calls(kernels: Kernels, position: Numbers, positions: int) -> Ints:
    """By position the time since the call before in quick repeats: calls that look alike may have
    a synchronisation before them, or not.
    """
    step = max(len(kernels) // _SAMPLE, 1)
    call = kernels.events_ns[:, 0]
    since = np.diff(call, prepend=call[0])
    rows = np.flatnonzero(np.diff(kernels.rank, prepend=-1) == 0)[::step]
    quick = quantile_by_group(position[rows].astype(np.int64), positions, since[rows], _QUICK)
    return np.where(np.isnan(quick), _NEVER >> 8, np.nan_to_num(quick)).astype(np.int64)
