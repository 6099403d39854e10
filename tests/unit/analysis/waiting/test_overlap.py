"""Whether work runs beside a kernel, at positions that show little."""

from pathlib import Path

import numpy as np

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.origins import waiting_of
from ncclscope.analysis.waiting.overlap import gap_slopes, held_by_its_end
from tests.support.laboratory.kinds import all_kinds

MS = 1_000_000


def test_one_start_of_each_rank_shows_no_slope() -> None:
    """Without its rank's mean nothing is left of it, which looked like gaps that never change."""
    ranks = np.arange(16)
    gap = 16 * MS - ranks * MS // 2
    cell, call = np.zeros(16, np.int64), np.zeros(16, np.int64)
    assert np.isnan(gap_slopes(cell, ranks, gap, ranks * MS // 2, call)).all()
    twice = np.concatenate([gap, np.full(16, 16 * MS)])
    waits = np.concatenate([ranks * MS // 2, np.zeros(16, np.int64)])
    calls = np.repeat([0, 1], 16)
    slopes = gap_slopes(np.zeros(32, np.int64), np.tile(ranks, 2), twice, waits, calls)
    np.testing.assert_allclose(slopes, -1, atol=0.01)


def test_one_rank_of_several_does_not_decide_alone_that_work_overlaps() -> None:
    """It is slow in every other step: its gaps are longer then, and it waits less."""
    rng = np.random.default_rng(1)
    ranks = np.repeat(np.arange(5), 30)
    slow = (ranks == 2) & (np.arange(150) % 2 == 0)
    gap = (3 * MS + rng.normal(0, MS // 5, 150) + slow * MS).astype(np.int64)
    wait = (2.5 * MS + rng.normal(0, MS // 20, 150) - slow * MS).astype(np.int64)
    cell, call = np.zeros(150, np.int64), np.tile(np.arange(30), 5)
    assert np.isnan(gap_slopes(cell, ranks, gap, wait, call)).all()
    # Others vary too little to tell, whatever it is.
    assert np.isnan(gap_slopes(cell, ranks, gap - (wait - wait.min()), wait, call)).all()
    waits = wait + (rng.normal(0, 1, 150) * MS).astype(np.int64)
    slopes = gap_slopes(cell, ranks, 9 * MS + gap - waits, waits, call)
    np.testing.assert_allclose(slopes, -1, atol=0.2)


def test_steps_that_are_long_for_all_ranks_do_not_show_what_overlaps() -> None:
    """Of all ranks the work is longer in some steps, so that their gaps are, and waits for a late
    launch are shorter. Between ranks of one step it shows what the work needs.
    """
    rng = np.random.default_rng(2)
    ranks, call = np.repeat(np.arange(6), 40), np.tile(np.arange(40), 6)
    cell = np.zeros(240, np.int64)
    step = (rng.lognormal(0, 0.2, 40) * 2.5 * MS)[call]
    wait = 3 * MS - 0.8 * (step - 2.5 * MS) + rng.normal(0, 0.2, 240) * MS
    noise = rng.normal(0, 0.05, 240) * MS
    behind, overlapping = (gap.astype(np.int64) for gap in (step + noise, 2 * step - wait + 3 * MS))
    waits = wait.astype(np.int64)
    np.testing.assert_allclose(gap_slopes(cell, ranks, behind, waits, call), 0, atol=0.1)
    np.testing.assert_allclose(gap_slopes(cell, ranks, overlapping, waits, call), -1, atol=0.1)


def test_later_steps_tell_that_the_first_ones_overlap_as_well(tmp_path: Path) -> None:
    all_kinds()["ddp 8, long buckets, late rank"].write(tmp_path / "c", 1)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    dependencies, kernels = waiting.dependencies, waiting.kernels
    # A start after a kernel of the same rank, not after its own launch.
    follows = dependencies.before[START::3] // 3 != np.arange(len(kernels))
    free = follows & (dependencies.blocked == 0) & ~waiting.start_up
    from_start = dependencies.before[START::3] % 3 == START
    first_steps = kernels.call_number < 19  # three steps of five buckets, after four calls
    assert from_start[free & ~first_steps].all()
    assert from_start[free & first_steps].all()


def test_work_after_a_receive_is_not_judged_by_work_after_a_reduction(tmp_path: Path) -> None:
    """Nobody waits in these receives, so they show nothing. Students compute on what they received,
    while the next gradients are computed beside a reduction.
    """
    all_kinds()["distillation 4 x 2, slow student"].write(tmp_path / "c", 1)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    dependencies, kernels = waiting.dependencies, waiting.kernels
    before = dependencies.before[START::3]
    later_steps = kernels.call_number >= 8
    follows = (before // 3 != np.arange(len(kernels))) & later_steps & ~kernels.pair
    received, alike = kernels.pair[before // 3], kernels.kind[before // 3] == kernels.kind
    assert (before[follows & received] % 3 == END).all()
    assert (before[follows & alike & (dependencies.blocked == 0)] % 3 == START).all()


def test_a_part_that_needs_the_end_decides_where_the_end_comes_late() -> None:
    """Work of 5 beside a reduction, of which the last 2 need it. It ends after 0.1 without waits,
    and after 6.1 behind a wait of 6: then the next start comes 2 after that, when work that runs
    beside it has ended for long.
    """
    rank = np.tile(np.arange(4), 10)
    wait = np.where((rank < 3) & (np.arange(40) >= 20), 6.0, 0.0)
    took = wait + 0.1
    gap = np.where(wait > 0, 2.0, 4.9)
    ms = [(values * MS).astype(np.int64) for values in (gap, wait, took)]
    cell = np.zeros(40, np.int64)
    assert held_by_its_end(cell, *ms).tolist() == (wait > 0).tolist()
    # Of work that goes on for longer the gap is another one each time.
    longer = np.where(wait > 0, 1.0 + np.arange(40) / 20, 4.9)
    ms[0] = (longer * MS).astype(np.int64)
    assert not held_by_its_end(cell, *ms).any()
