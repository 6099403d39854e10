"""One clock from captures: real jobs whose ranks pose as nodes, and simulated ones."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ncclscope.model import build, join_processes
from ncclscope.model.align.host_clocks import HostClocks
from ncclscope.model.model import Model
from tests.support.exhaustive import sample
from tests.support.player import FOLDERS, TRANSCRIPTS, read_transcript, transcript_files
from tests.support.writer import Straggler, SyntheticSpec, from_transcript, synthetic
from tests.support.writer.physics import START_SPREAD_NS, STOP_SPREAD_NS

Ints = npt.NDArray[np.int64]
Solved = Callable[[Path], tuple[Model, HostClocks]]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> Solved:
    """Builds a capture's model and returns the clocks that it found, too."""
    found: list[HostClocks] = []
    solve = join_processes.solve
    monkeypatch.setattr(
        join_processes, "solve", lambda *a, **k: found.append(solve(*a, **k)) or found[-1]
    )

    def both(capture: Path) -> tuple[Model, HostClocks]:
        return build.open_model(capture), found[-1]

    return both


def bars(
    model: Model, clocks: HostClocks, shown: Callable[[int], Ints]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Whether the truth is inside and how wide the bar is, by node but the first and by time.

    `shown`: what the clock of a rank's node shows at the times to compare.
    """
    ranks = {row.node: row.global_rank for row in reversed(model.processes)}
    expected = shown(ranks[0])
    inside, width = [], []
    for node in range(1, len(clocks.nodes)):
        local = shown(ranks[node])
        width.append(clocks.error_at(node, local))
        inside.append(np.abs(clocks.to_reference(node, local) - expected) <= width[-1] + 2)
    return np.array(inside), np.array(width)


# Each job once, every other one with shifted clocks; all of both in an exhaustive run.
@pytest.mark.parametrize(
    ("shift_ns", "folder"), sample([*product([0, 3_600_000_000_000], FOLDERS)], 2)
)
def test_ranks_of_real_jobs_as_nodes(
    folder: str, shift_ns: int, tmp_path: Path, solved: Solved
) -> None:
    """The true offset lies inside the bar for every node; all ranks ran on one host."""
    ranks = range(len(transcript_files(folder)))
    drift_ppm = {rank: 70.0 * rank if shift_ns else 0.0 for rank in ranks}
    from_transcript(
        TRANSCRIPTS / folder,
        tmp_path / "capture",
        boot_ids={rank: f"boot{rank}" for rank in ranks},
        offsets_ns={rank: rank * shift_ns for rank in ranks},
        drift_ppm=drift_ppm,
    )
    model, clocks = solved(tmp_path / "capture")
    assert len(clocks.nodes) == len(ranks)
    times = [[line["t"] for line in read_transcript(file)] for file in transcript_files(folder)]
    first = min(map(min, times))
    at = np.linspace(first, max(map(max, times)), 200).astype(np.int64)

    def shown(rank: int) -> Ints:
        drift = np.rint((at - first) * drift_ppm[rank] * 1e-6).astype(np.int64)
        return at + rank * shift_ns + drift

    inside, width = bars(model, clocks, shown)
    assert inside.all()
    assert np.isfinite(width).all()


SPECS: dict[str, dict[str, Any]] = {
    "4x2": {"ranks_per_node": 2},
    "2x1": {"processes": 2, "ranks_per_node": 1},
    "16x1": {"processes": 16, "ranks_per_node": 1},
    "16x1, one channel": {"processes": 16, "ranks_per_node": 1, "channels": 1},
    "3x1, 360 ms/h": {
        "processes": 3, "ranks_per_node": 1, "node_drift_ppm": (0.0, 100.0, -100.0),
    },
}  # fmt: skip


@pytest.mark.parametrize(("seed", "name"), sample([*product(range(2), SPECS)], 2))
def test_simulated_nodes(name: str, seed: int, tmp_path: Path, solved: Solved) -> None:
    """Offsets, drifts and jitter as the simulation draws them."""
    truth = synthetic(
        tmp_path / "capture", SyntheticSpec(operations=5000, seed=seed, **SPECS[name])
    )
    model, clocks = solved(tmp_path / "capture")
    there = truth.start_ns >= 0
    at = np.linspace(truth.start_ns[there].min(), truth.end_ns[there].max(), 300).astype(np.int64)
    inside, width = bars(model, clocks, lambda rank: truth.host_ns(rank, at))
    mapping_ns = 2 * max(row.gpu_clock_error_ns for row in model.processes)
    assert inside.mean() >= 0.99
    # An operation lasts from its first channel's start to its last one's end.
    spread_ns = START_SPREAD_NS + STOP_SPREAD_NS if truth.spec.channels > 1 else 0
    assert np.median(width) <= 1.15 * truth.one_way_ns + mapping_ns
    assert width.max() <= 1.2 * (truth.one_way_ns + spread_ns) + mapping_ns


def test_a_simulated_straggler(tmp_path: Path, solved: Solved) -> None:
    """A node that always comes late looks like one whose clock is ahead: the bar says so."""
    late_ns = 2_000_000
    spec = SyntheticSpec(ranks_per_node=1, processes=4, straggler=Straggler(3, late_ns))
    truth = synthetic(tmp_path / "capture", spec)
    model, clocks = solved(tmp_path / "capture")
    there = truth.start_ns >= 0
    at = np.linspace(truth.start_ns[there].min(), truth.end_ns[there].max(), 300).astype(np.int64)
    inside, width = bars(model, clocks, lambda rank: truth.host_ns(rank, at))
    assert inside.mean() >= 0.99
    node = next(row.node for row in model.processes if row.global_rank == 3)
    widest = width[node - 1] if node else width.min(axis=0)
    assert np.median(widest) > 0.4 * late_ns
