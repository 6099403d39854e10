"""Who is named in pipelines whose stages have no peers, and in jobs of few ranks."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import waiting_of
from ncclscope.diagnose.finding import Finding
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.faults import QUIET, TRANSCRIPTS, Fault, Noise
from tests.support.laboratory.random_jobs import Load, Statement, random_program
from tests.support.laboratory.truth import Kind

AT_END = (Statement("AllReduce", size_mb=0.004),)


def pipeline(
    mesh: tuple[int, ...],
    *faults: Fault,
    end: tuple[Statement, ...] = AT_END,
    steps: int = 24,
    noise: Noise = TRANSCRIPTS,
) -> Kind:
    """Stages along the first dimension that compute for the same time, and twice as long back."""
    layer = (Statement("pipe", 0, ms=2.0, size_mb=4.0), Statement("compute", ms=2.0))
    load = Load(
        mesh, steps, 2, layer, end, synchronize=bool(end), data_ms=0.5, varies=0.0, differs=0.0,
        warm_up=0, every=0,
    )  # fmt: skip
    return Kind(
        "pipeline", load.ranks, lambda job: random_program(job, load), faults=faults, noise=noise
    )


def problems(capture: Path) -> list[Finding]:
    return [one for one in diagnose_capture(capture).findings if one.severity != "info"]


def test_the_first_stage_is_not_compared_with_the_last_one(tmp_path: Path) -> None:
    """Both make the same calls in a circle: sends and receives. Forward is not backward."""
    pipeline((4, 2), end=()).write(tmp_path / "c", 1)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    assert waiting.usual.steady_excess_ns.max() < 0.01 * waiting.judged_ns


def test_a_gpu_in_the_middle_of_a_pipeline_is_named(tmp_path: Path) -> None:
    slow = Fault("gpu", 4, factor=1.8, first=8, last=16)
    truth = pipeline((6, 2), slow, end=()).write(tmp_path / "c", 1)
    (said,) = problems(tmp_path / "c")
    assert (said.kind, said.ranks) == ("gpu", (4,))
    assert said.lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.02)


@pytest.mark.parametrize(
    "late",
    [Fault("data", 1, ms=12.0, first=1), Fault("host", 1, ms=20.0, first=12)],
    ids=["in every step", "from the middle on"],
)
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_late_host_of_a_stage_without_peers_is_named(
    tmp_path: Path, late: Fault, ranks: int
) -> None:
    """No other rank receives after the AllReduce: its time to that call is compared with the time
    of others to their own next ones.
    """
    truth = pipeline((ranks,), late, noise=QUIET).write(tmp_path / "c", 1)
    (said,) = problems(tmp_path / "c")
    assert (said.kind, said.ranks) == ("compute", (1,))
    assert said.lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.02)


@pytest.mark.parametrize("mesh", [(2,), (3,), (4,), (4, 2)])
def test_a_healthy_pipeline_has_no_problem(tmp_path: Path, mesh: tuple[int, ...]) -> None:
    pipeline(mesh).write(tmp_path / "c", 2)
    assert problems(tmp_path / "c") == []
