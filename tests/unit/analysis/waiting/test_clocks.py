"""Clocks of nodes brought together by the ends of collectives."""

from dataclasses import replace
from pathlib import Path

import numpy as np

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.clocks import with_agreeing_ends
from ncclscope.analysis.waiting.kernels import Kernels, kernels_of
from tests.support.laboratory.kinds import all_kinds

_FASTER = 300e-6  # a clock that is known badly, and runs away


def _gaps_ns(kernels: Kernels) -> np.ndarray:
    """From each end to the next start of the same rank."""
    order = np.lexsort((kernels.events_ns[:, 1], kernels.rank))
    same = np.diff(kernels.rank[order]) == 0
    ends, starts = kernels.events_ns[order, 2], kernels.events_ns[order, 1]
    return np.asarray((starts[1:] - ends[:-1])[same])


def test_a_kernel_that_waited_for_long_still_ends_before_the_next_one(tmp_path: Path) -> None:
    """All of its times had been shifted as its start: it ended 40 µs after the next one began."""
    all_kinds()["ddp 16 on 4 hosts, 60 steps, storage of a host"].write(tmp_path / "c", 1)
    run = Run(ncclscope.open(str(tmp_path / "c")).model)
    known = kernels_of(run)
    assert known is not None
    node = run.node_of[known.ranks[known.rank]]
    since = known.events_ns - known.events_ns.min()
    skew = np.where(node[:, None] == 2, since * _FASTER, 0).astype(np.int64)
    doubtful = np.full(len(known), 5_000_000)
    badly = replace(known, events_ns=known.events_ns + skew, error_ns=doubtful)

    mended = with_agreeing_ends(run, badly)

    assert mended.error_ns.max() < 100_000
    assert (mended.events_ns != badly.events_ns).any()
    np.testing.assert_allclose(_gaps_ns(mended), _gaps_ns(known), atol=20_000)
