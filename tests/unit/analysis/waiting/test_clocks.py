"""Clocks of nodes brought together by the ends of collectives."""

from dataclasses import replace
from pathlib import Path

import numpy as np

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.clocks import with_agreeing_ends
from ncclscope.analysis.waiting.kernels import Kernels, kernels_of
from tests.support.laboratory.kinds import all_kinds, drops_and_late_ranks

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


def test_times_by_events_are_brought_together_rank_by_rank_and_calls_stay(tmp_path: Path) -> None:
    """One rank is late to every operation, so that nothing bounds its clock closely."""
    kinds = {kind.name: kind for kind in drops_and_late_ranks()}
    kind = kinds["ddp 4, 600 steps, late rank"]
    sampled = replace(kind, recording=replace(kind.recording, timed_every=16))
    sampled.write(tmp_path / "c", 1)
    run = Run(ncclscope.open(str(tmp_path / "c")).model)
    known = kernels_of(run)
    assert known is not None
    assert len(np.unique(run.node_of[known.ranks])) == 1
    skew = np.zeros_like(known.events_ns)
    skew[known.rank == 1, 1:] = 3_000_000  # start and end; the call is by the host's clock
    doubtful = np.full(len(known), 5_000_000)
    badly = replace(known, events_ns=known.events_ns + skew, error_ns=doubtful)

    mended = with_agreeing_ends(run, badly)

    moved = (mended.events_ns - known.events_ns)[:, 1:]
    apart = [moved[known.rank == rank].mean() for rank in range(4)]
    assert max(apart) - min(apart) < 50_000
    assert mended.error_ns.max() < 100_000
    calls_moved = (mended.events_ns - known.events_ns)[:, 0]
    assert len(np.unique(calls_moved)) == 1  # all by one clock
    assert abs(int(calls_moved[0])) < 10_000
