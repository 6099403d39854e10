"""Clocks of nodes brought together by the ends of collectives, where they are known badly.

What is on record bounds the offset of two clocks from both sides. A rank that always comes last
looks like an offset, so the bounds are wide then, and waits within them are nobody's. But in a
collective in which everybody waits for the last, all ranks end together: within the bounds the
offset that lets ends agree is the likely one. How well they agree is the error that is left.

    bounds         ──[·······················]──   20 ms wide: the late rank's lateness
    ends agree     ──────────[·]────────────────   some 10 µs wide
"""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.schema import NONE
from ncclscope.model.streams import MEETS_NEEDED, meets_of, rules_of
from ncclscope.nccl.functions import EVERYBODY

GOOD_ERROR_NS = 50_000  # clocks that agree so well stay as they are
_WINDOW_NS = 1_000_000_000  # drift of 100 ppm is 100 µs then
_LEAST_ENDS = 8  # of a node in a window
_MOST_ENDS = 300_000
_ROUNDS = 20
_SHIFT = 1 << 33  # differences are sorted as positive numbers
_LEAST_ERROR_NS = 10_000


@dataclass(frozen=True, slots=True)
class _Ends:
    """Ends of collectives across nodes, the mean of each node in each meeting."""

    meeting: Ints
    node: Ints
    window: Ints
    end_ns: Floats  # since the first


def with_agreeing_ends(run: Run, kernels: Kernels) -> Kernels:
    """Kernels on clocks whose collectives end together; as they are where clocks are good."""
    node = run.node_of[kernels.ranks[kernels.rank]]
    doubtful = kernels.error_ns > GOOD_ERROR_NS
    if not doubtful.any() or (node == NONE).any():
        return kernels
    origin = int(kernels.events_ns.min())
    windows = max(int(kernels.events_ns.max() - origin) // _WINDOW_NS, 0) + 1
    ends = _ends(run, kernels, node, origin)
    if ends is None:
        return kernels
    nodes = int(node.max()) + 1
    offset = _offsets(ends, nodes, windows)
    most = float(kernels.error_ns.max())
    offset = np.clip(offset, -most, most)
    error = _residual(ends, offset)
    shift = _at(offset, node, kernels.events_ns[:, 1] - origin)
    return replace(
        kernels,
        events_ns=kernels.events_ns + shift[:, None],
        launched_ns=kernels.launched_ns + shift,
        error_ns=np.where(doubtful, np.minimum(kernels.error_ns, error), kernels.error_ns),
    )


def _ends(run: Run, kernels: Kernels, node: Ints, origin: int) -> _Ends | None:
    """Ends by meeting and node; None where no collective joins nodes whose clocks are doubtful."""
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
    nodes = int(node.max()) + 1
    key, place = np.unique(
        kernels.meeting[rows].astype(np.int64) * nodes + node[rows], return_inverse=True
    )
    place = place.reshape(-1)
    end = (kernels.events_ns[rows, 2] - origin).astype(np.float64)
    mean = np.bincount(place, end) / np.bincount(place)
    meeting = key // nodes
    joined = np.bincount(meeting)[meeting] > 1
    if not joined.any():
        return None
    return _Ends(
        meeting[joined],
        (key % nodes)[joined],
        (mean[joined] // _WINDOW_NS).astype(np.int64),
        mean[joined],
    )


def _differences(ends: _Ends, offset: Floats) -> Floats:
    """By end how much later the mean of its meeting is."""
    end = ends.end_ns + offset[ends.node, ends.window]
    mean = np.bincount(ends.meeting, end) / np.maximum(np.bincount(ends.meeting), 1)
    return np.asarray(mean[ends.meeting] - end)


def _offsets(ends: _Ends, nodes: int, windows: int) -> Floats:
    """By node and window what to add to its clock."""
    offset = np.zeros((nodes, windows))
    key = ends.node * windows + ends.window
    count = np.bincount(key, minlength=nodes * windows).reshape(nodes, windows)
    enough = count >= min(_LEAST_ENDS, int(count.max()))
    for _ in range(_ROUNDS):
        late = (_differences(ends, offset) + _SHIFT).astype(np.int64)
        median = quantile_by_group(key, nodes * windows, late, 0.5).reshape(nodes, windows)
        step = np.where(enough, np.nan_to_num(median, nan=_SHIFT) - _SHIFT, 0.0)
        offset += step
        if np.abs(step).max() < 1_000:
            break
    for row in range(nodes):  # windows with few ends are as their neighbours
        known = np.flatnonzero(enough[row])
        if len(known):
            offset[row] = np.interp(np.arange(windows), known, offset[row, known])
    return offset


def _residual(ends: _Ends, offset: Floats) -> int:
    """How far ends are apart after that: the 90th percentile."""
    apart = np.abs(_differences(ends, offset))
    return max(int(2 * np.quantile(apart, 0.9)), _LEAST_ERROR_NS)


def _at(offset: Floats, node: Ints, time_ns: Ints) -> Ints:
    """Offsets at some times: straight lines between the middles of windows."""
    middles = (np.arange(offset.shape[1]) + 0.5) * _WINDOW_NS
    shift = np.zeros(len(node), np.int64)
    order = np.argsort(node, kind="stable")  # once: there may be a thousand nodes
    for own in np.split(order, np.flatnonzero(np.diff(node[order])) + 1):
        if len(own):
            row = int(node[own[0]])
            shift[own] = np.interp(time_ns[own], middles, offset[row]).astype(np.int64)
    return shift
