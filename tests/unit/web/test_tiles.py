"""Tiles of the timeline against what they must show, bar by bar."""

import numpy as np
import pytest

from ncclscope.web.bars import CUT, OPEN, Bars, assign_rows, make_bars, split_rows
from ncclscope.web.tiles import FIELDS, WIDTH, encode_tile, make_tile, runs_of


def bars(start: np.ndarray, end: np.ndarray, wait: np.ndarray | None = None) -> Bars:
    """Bars without overlap."""
    return make_bars(
        {
            "start_ns": start,
            "end_ns": end,
            "wait_ns": np.empty(0) if wait is None else wait,
            "ref": np.arange(len(start)) + 7,
            "code": np.arange(len(start)) % 5,
            "look": np.where(np.arange(len(start)) % 11 == 0, OPEN, 0),
        }
    )


def by_chance(count: int, seed: int, bursts: bool = False) -> Bars:
    draw = np.random.default_rng(seed)
    gap = draw.integers(1, 2_000, count)
    if bursts:
        gap[:: max(count // 20, 1)] += 50_000_000
    length = draw.integers(1, 3_000, count)
    start = np.cumsum(gap + np.append(0, length[:-1]))
    return bars(start, start + length, length // 4)


def covered(row: Bars, first: float, last: float) -> float:
    """ns that bars cover between two times."""
    low, high = np.maximum(row.start_ns, first), np.minimum(row.end_ns, last)
    return float(np.maximum(high - low, 0).sum())


@pytest.mark.parametrize("bursts", [False, True])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 300, 50_000])
def test_runs_lose_no_bar_and_no_time(count: int, bursts: bool) -> None:
    row = by_chance(count, count, bursts)
    first, last = int(row.start_ns[0]) - 10, int(row.end_ns[-1]) + 10
    runs = runs_of(row, first, last)
    assert runs.count.sum() == count
    pixel_ns = (last - first) / WIDTH
    busy = (runs.fill / 255 * (runs.x1 - runs.x0)).sum() * pixel_ns
    # The fill is a byte: half a step of it a run, and of what is narrower than a pixel no length.
    assert busy == pytest.approx(covered(row, first, last), rel=0.02)
    assert len(runs) <= 3 * WIDTH
    assert (np.diff(runs.x0) > 0).all()


def test_a_wide_bar_comes_alone_and_where_it_is() -> None:
    row = bars(np.array([1000, 5000]), np.array([3000, 5001]), np.array([500, 0]))
    runs = runs_of(row, 0, 512 * 10)
    assert runs.x0.tolist() == [100.0, 500.0]
    assert runs.x1[0] == 300.0
    assert runs.item.tolist() == [0, 1]
    assert runs.wait[0] == round(255 / 4)
    assert runs.look.tolist() == [OPEN, 0]


def test_narrow_bars_of_a_pixel_come_as_one_run() -> None:
    start = np.array([100, 103, 106, 900])
    runs = runs_of(bars(start, start + np.array([1, 2, 1, 1])), 0, 512 * 10)
    assert runs.count.tolist() == [3, 1]
    assert runs.item.tolist() == [1, 3]  # the longest
    assert runs.code.tolist() == [1, 3]


def test_a_bar_that_reaches_into_a_tile_is_in_it() -> None:
    row = bars(np.array([0]), np.array([100_000]))
    runs = runs_of(row, 50_000, 50_512)
    assert runs.x0[0] == -50_000
    assert runs.x1[0] == 50_000
    assert len(runs_of(row, 100_001, 200_000)) == 0


@pytest.mark.parametrize("seed", range(8))
def test_tiles_side_by_side_show_what_one_wide_tile_shows(seed: int) -> None:
    row = by_chance(20_000, seed, bursts=seed % 2 == 0)
    first = int(row.start_ns[3])
    whole = runs_of(row, first, first + 4096 * 2 * WIDTH, 2 * WIDTH)
    halves = [
        runs_of(row, first + n * 4096 * WIDTH, first + (n + 1) * 4096 * WIDTH) for n in (0, 1)
    ]
    wide = whole.x1 - whole.x0 >= 1
    singles = set(whole.item[wide & (whole.count == 1)].tolist())
    found: set[int] = set()
    for half in halves:
        found |= set(half.item[(half.x1 - half.x0 >= 1) & (half.count == 1)].tolist())
    assert singles <= found


def test_bars_that_overlap_get_rows_of_their_own() -> None:
    draw = np.random.default_rng(5)
    for _ in range(50):
        start = np.sort(draw.integers(0, 1000, 60))
        end = start + draw.integers(0, 80, 60)
        rows = assign_rows(start, end)
        for row in range(rows.max() + 1):
            own = rows == row
            assert (start[own][1:] >= end[own][:-1]).all()


def test_more_rows_than_can_be_shown_are_cut_and_say_so() -> None:
    start = np.arange(200)
    columns = {
        "start_ns": start, "end_ns": np.full(200, 10_000), "wait_ns": np.empty(0), "ref": start,
        "code": np.zeros(200), "look": np.zeros(200),
    }  # fmt: skip
    rows = split_rows(columns)
    assert sum(len(row["start_ns"]) for row in rows) == 200
    assert len(rows) < 200
    last = rows[-1]
    assert (last["start_ns"][1:] >= last["end_ns"][:-1]).all()
    assert (last["look"][:-1] & CUT).all()


def test_rows_of_a_tile_do_not_mix() -> None:
    rows = [by_chance(count, count, bursts=count % 2 == 0) for count in (50, 0, 3_000, 1, 40_000)]
    windows = [(row, 10_000 * n, 10_000 * n + 5_000_000) for n, row in enumerate(rows)]
    counts, runs = make_tile(windows)
    assert len(counts) == 5
    assert counts.sum() == len(runs)
    ends = np.cumsum(counts)
    for window, count, end in zip(windows, counts, ends, strict=True):
        alone = runs_of(*window)
        for name in FIELDS:
            assert (getattr(runs, name)[end - count : end] == getattr(alone, name)).all(), name


def test_encoding_is_what_the_page_decodes() -> None:
    rows = [by_chance(50, 1), by_chance(0, 1)]
    counts, runs = make_tile([(row, 0, 10**6) for row in rows])
    data = encode_tile(counts, runs)
    head = np.frombuffer(data, np.uint32, 3)
    assert head.tolist() == [2, len(runs), 0]
    sizes = [getattr(runs, name).itemsize for name in FIELDS]
    assert len(data) == 12 + sum(sizes) * len(runs)
    assert (np.frombuffer(data, np.float32, len(runs), 12) == runs.x0).all()
