"""Links that become slow in short runs, and links that sends and collectives share."""

import json
from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.link_changes import with_links_as_peers
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.diagnose.finding import Finding
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.faults import LAST_STEP, Fault
from tests.support.laboratory.random_jobs import Load, Statement, random_program
from tests.support.laboratory.score import ask
from tests.support.laboratory.truth import Kind, Truth

COMPUTE = Statement("compute", ms=1.0)


def written(capture: Path, load: Load, fault: Fault) -> tuple[Truth, list[Finding]]:
    kind = Kind("short", load.ranks, lambda job: random_program(job, load), faults=(fault,))
    truth = kind.write(capture, 1)
    said = diagnose_capture(capture).findings
    return truth, [finding for finding in said if finding.severity != "info"]


def load_of(mesh: tuple[int, ...], steps: int, *layer: Statement) -> Load:
    return Load(
        mesh, steps, 1, layer, (Statement("AllReduce", -1, size_mb=0.004),), synchronize=True,
        data_ms=0.2, varies=0.0, differs=0.0, warm_up=0, every=0,
    )  # fmt: skip


def slow(link: tuple[int, int], factor: float, first: int, last: int = LAST_STEP) -> Fault:
    return Fault("transfer", -1, link=link, factor=factor, first=first, last=last)


@pytest.mark.parametrize("function", ["AllReduce", "Broadcast"])
def test_a_link_that_becomes_slow_in_a_dozen_steps_is_named(tmp_path: Path, function: str) -> None:
    """No test of ranks is sure of so few."""
    load = load_of((4,), 12, COMPUTE, Statement(function, 0, size_mb=8.0))
    truth, problems = written(tmp_path / "c", load, slow((1, 2), 6.0, 6))
    (found,) = problems
    assert (found.family, found.kind) == ("degradation", "slower")
    assert "6." in found.sentence or "5." in found.sentence
    assert found.lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.03)


def test_a_link_of_sends_may_slow_collectives(tmp_path: Path) -> None:
    """Sends show the link, and cost little. What collectives may gain is no number."""
    load = load_of(
        (2, 2, 2), 30, COMPUTE, Statement("halo", 2, size_mb=2.0),
        COMPUTE, Statement("ReduceScatter", -1, size_mb=30.0),
    )  # fmt: skip
    truth, problems = written(tmp_path / "c", load, slow((2, 3), 4.0, 1))
    (found,) = problems
    assert (found.family, found.ranks) == ("slow_link", (2, 3))
    assert "up to" in found.sentence
    assert _range_ms(tmp_path / "c", "2-3")[0] <= truth.healthy_run_ns / 1e6 * 1.01


def test_collectives_of_two_ranks_use_the_link_between_them(tmp_path: Path) -> None:
    load = load_of(
        (2,), 30, COMPUTE, Statement("halo", 0, size_mb=0.5),
        COMPUTE, Statement("ReduceScatter", 0, size_mb=20.0),
    )  # fmt: skip
    truth, _ = written(tmp_path / "c", load, slow((0, 1), 10.0, 15))
    least, most = _range_ms(tmp_path / "c", "0-1")
    assert (least + most) / 2 == pytest.approx(truth.healthy_run_ns / 1e6, rel=0.05)


def test_an_exchange_that_was_fast_already_is_no_faster_without_a_slow_link(tmp_path: Path) -> None:
    """The link is slow in half of the run, and of exchanges that others make, too."""
    load = load_of((6,), 40, COMPUTE, Statement("all to all", 0, size_mb=1.0))
    truth, _ = written(tmp_path / "c", load, slow((0, 1), 20.0, 19))
    waiting = waiting_of(Run(ncclscope.open(tmp_path / "c").model))
    assert waiting is not None
    then = WhatIf(waiting).events_ns(with_links_as_peers(Change(links=((0, 1),)), waiting))
    early = waiting.arrivals.events_ns[:, 2] < waiting.time_ns.min() + truth.run_ns / 3
    sooner = (waiting.arrivals.events_ns - then)[early, 2]
    assert sooner.max() < 0.01 * truth.run_ns
    assert _range_ms(tmp_path / "c", "0-1")[0] < truth.healthy_run_ns / 1e6


def _range_ms(capture: Path, link: str) -> tuple[float, float]:
    answer = json.loads(ask("whatif", str(capture), "--link", link, "at", "median", "--json")[1])
    then, error = answer["run_then_ns"] / 1e6, answer["error_ns"] / 1e6
    return then - error, min(then + error, answer["run_now_ns"] / 1e6)
