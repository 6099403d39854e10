"""The tightest bounds of a stream, bin by bin, against a search through every pair."""

import numpy as np
import pytest

from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.align import bounds
from ncclscope.model.align.bounds import join_bounds

NEVER = bounds._NEVER


def _rough(node: Ints, local_ns: Ints) -> Floats:
    return local_ns.astype(np.float64) + 7.0 * node


def _searched(nodes: Ints, start: Ints, end: Ints, bins: int) -> list[tuple[int, int, int, int]]:
    """The first of the tightest bounds of each bin and ordered pair of nodes."""
    known = np.where(end < NEVER, _rough(nodes, np.where(end < NEVER, end, 0)), np.inf)
    time = known.min(axis=1)
    bin_of = np.searchsorted(np.linspace(time.min(), time.max(), bins + 1)[1:-1], time, "right")
    best: dict[tuple[int, int, int], tuple[float, int]] = {}
    for row in np.argsort(time, kind="stable").tolist():
        for a in range(len(nodes)):
            for b in range(len(nodes)):
                if end[row, a] < NEVER and start[row, b] > -NEVER:
                    limit = end[row, a] + 7.0 * nodes[a] - start[row, b] - 7.0 * nodes[b]
                    key = (int(bin_of[row]), a, b)
                    if key not in best or limit < best[key][0]:
                        best[key] = limit, row
    return [
        (int(nodes[a]), int(nodes[b]), int(end[row, a]), int(start[row, b]))
        for (_, a, b), (_, row) in sorted(best.items())
    ]


@pytest.mark.parametrize("most_at_once", [1 << 21, 300, 20])
def test_tightest_bounds_are_those_of_a_search(
    most_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bins at once, some at a time, and bins of which each comes in parts."""
    monkeypatch.setattr(bounds, "_MOST_AT_ONCE", most_at_once)
    draw = np.random.default_rng(most_at_once)
    for width in (2, 3, 5):
        nodes = draw.permutation(9)[:width]
        # Times of a few values: many bounds are equally tight.
        start = draw.integers(0, 4000, (60, 1)) + draw.integers(0, 5, (60, width))
        end = start + draw.integers(1, 5, (60, width))
        start[draw.random(start.shape) < 0.1] = -NEVER
        end[draw.random(end.shape) < 0.1] = NEVER
        used = (start > -NEVER).any(axis=1) & (end < NEVER).any(axis=1)
        start, end = start[used], end[used]
        for bins in (2, 7, 40):
            found = join_bounds(bounds._tightest_by_bin(nodes, start, end, _rough, bins))
            columns = (found.node_a, found.node_b, found.end_ns, found.start_ns)
            rows = list(zip(*(column.tolist() for column in columns), strict=True))
            assert rows == _searched(nodes, start, end, bins)
