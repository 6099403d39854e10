"""The only root of a communicator is compared with itself: nobody else does what it does."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ncclscope.diagnose.finding import Finding
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.programs import MB, Steps, start_up
from tests.support.laboratory.rank import Rank
from tests.support.laboratory.shapes import gpu, host, shape


@dataclass(frozen=True, slots=True)
class Server:
    """Gradients are reduced to rank 0, which updates on its host and broadcasts."""

    ranks: int = 4
    steps: int = 40
    update_ms: float = 2.0
    slow_ms: float = 0.0  # what the update takes longer in some steps
    slow_steps: tuple[int, ...] = ()


def server_program(job: Job, load: Server) -> Program:
    world = job.communicator("world", tuple(range(load.ranks)))

    def program(rank: Rank) -> Steps:
        yield from start_up(rank, world)
        for step in range(load.steps):
            rank.begin_step(step, 10.0, 0.5)
            yield rank.collective(world, "Reduce", 16 * MB, rank.compute(10.0), root=0)
            if rank.number == 0:
                rank.host(load.update_ms + (load.slow_ms if step in load.slow_steps else 0.0))
            yield rank.compute(0.5, rank.collective(world, "Broadcast", 16 * MB, root=0))

    return program


FAULTS = {"slow GPU": (gpu(2, 1.4),), "late root": (host(0, 8),)}


def judged(capture: Path, load: Server, name: str = "healthy") -> tuple[int, list[Finding]]:
    """How long the run takes, and what is said of it."""
    kinds = {kind.name: kind for kind in shape("server", server_program, load, FAULTS)}
    truth = kinds[f"server, {name}"].write(capture, 1)
    said = diagnose_capture(capture).findings
    return int(truth.run_ns), [finding for finding in said if finding.family == "straggler"]


def test_what_the_only_root_always_does_is_a_remark(tmp_path: Path) -> None:
    """It was a warning: "late 40 times"."""
    _, (remark,) = judged(tmp_path / "c", Server())
    assert (remark.severity, remark.kind, remark.ranks) == ("info", "only root", (0,))
    assert "what it does between Reduce and Broadcast, typically 2." in remark.sentence


def test_a_short_role_is_not_worth_a_remark(tmp_path: Path) -> None:
    assert judged(tmp_path / "c", Server(update_ms=0.2))[1] == []


@pytest.mark.parametrize("slow_steps", [tuple(range(16, 40)), tuple(range(12))])
def test_a_root_that_becomes_slow_costs_what_it_takes_longer(
    tmp_path: Path, slow_steps: tuple[int, ...]
) -> None:
    """What it usually takes was counted as well."""
    usual_ns, _ = judged(tmp_path / "usual", Server())
    slow = replace(Server(), slow_ms=10.0, slow_steps=slow_steps)
    run_ns, (finding,) = judged(tmp_path / "slow", slow)
    assert finding.severity in ("warning", "critical")
    assert finding.ranks == (0,)
    assert finding.lost_share == pytest.approx(1 - usual_ns / run_ns, abs=0.02)


@pytest.mark.parametrize(("name", "rank"), [("slow GPU", 2), ("late root", 0)])
def test_other_delays_are_problems_as_before(tmp_path: Path, name: str, rank: int) -> None:
    _, said = judged(tmp_path / "c", Server(), name)
    assert [finding.ranks for finding in said if finding.severity != "info"] == [(rank,)]
