"""Whether others did wait for the delays of a rank."""

from types import SimpleNamespace
from typing import cast

import numpy as np

from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.root_causes import certain_origins

MS = 1_000_000
GPU = 2  # kind of an edge


def made(waited_for_ms: int, excess_ms: int, steady_ms: int) -> Waiting:
    """Two ranks of one kernel each, of which others waited for the second one."""
    edge = np.full(6, GPU, np.int8)
    charges = np.zeros(6, np.int64)
    charges[4] = waited_for_ms * MS
    waiting = SimpleNamespace(
        kernels=SimpleNamespace(ranks=np.array([0, 1]), rank=np.array([0, 1])),
        charges=SimpleNamespace(by_event=charges),
        start_up=np.zeros(2, bool),
        dependencies=SimpleNamespace(edge=edge),
        slower_ranks=np.zeros(2, bool),
        usual=SimpleNamespace(steady_excess_ns=np.array([0.0, steady_ms * MS])),
        own_excess_ns=np.array([0.0, excess_ms * MS]),
    )
    return cast(Waiting, waiting)


def test_delays_that_show_at_several_edges_count_once() -> None:
    """A slow launch shows before the launch, and before the next calls."""
    assert certain_origins(made(1_600, excess_ms=2_100, steady_ms=3_900), (1,)) == (1,)


def test_nobody_waits_for_a_bad_clock() -> None:
    assert certain_origins(made(100, excess_ms=2_100, steady_ms=2_000), (1,)) == ()
