"""Who is named in jobs in which ranks wait in uncommon ways."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import CRITICAL, WARNING, Finding
from ncclscope.snapshot.process import unfinished_snapshots
from tests.support.laboratory.kinds import all_kinds


def problems(path: Path, name: str, seed: int = 1) -> list[Finding]:
    """What is said to be wrong in a job of the laboratory."""
    all_kinds()[name].write(path, seed)
    model = ncclscope.open(str(path)).model
    findings = diagnose(model, unfinished_snapshots(model)).findings
    return [finding for finding in findings if finding.severity in (WARNING, CRITICAL)]


def test_ranks_that_pause_together_are_one_finding(tmp_path: Path) -> None:
    """Without the pauses of one of them nothing is gained: nobody was named."""
    name = "ddp 16 on 4 hosts, 60 steps, a writer on each host"
    (finding,) = problems(tmp_path / "c", name)
    assert (finding.kind, finding.ranks) == ("pause", (0, 4, 8, 12))
    assert finding.sentence.startswith("ranks 0, 4, 8, 12 paused 4 times from ")
    assert finding.lost_share == pytest.approx(0.13, abs=0.01)


def test_a_replica_that_is_slow_as_a_whole_is_one_finding(tmp_path: Path) -> None:
    """Each of its ranks costs a fourth of it, and gains nothing alone."""
    (finding,) = problems(tmp_path / "c", "dp 4 x tp 4, long layers, slow replica")
    assert finding.ranks == (4, 5, 6, 7)
    assert finding.advice.startswith("they are all ranks of tp")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_receive_is_not_taken_for_work_of_its_gpu(tmp_path: Path, seed: int) -> None:
    """Nor for a late host: others did their work while they waited for what it received."""
    (finding,) = problems(tmp_path / "c", "distillation 4 x 2, slow link", seed)
    assert (finding.family, finding.ranks) == ("slow_link", (1, 5))


@pytest.mark.parametrize("seed", [1, 2])
def test_time_to_receive_is_no_work_of_a_slow_gpu(tmp_path: Path, seed: int) -> None:
    """It is as long on all ranks, and made a slow GPU look quicker than it is."""
    kind = all_kinds()["distillation 4 x 2, slow student"]
    (finding,) = problems(tmp_path / "c", kind.name, seed)
    lost = 1 - kind.job(seed, ()).run_ns / kind.job(seed).run_ns
    assert finding.ranks == (6,)
    assert finding.lost_share == pytest.approx(lost, abs=0.01)


@pytest.mark.parametrize("seed", [1, 2])
def test_work_that_others_do_while_they_wait_is_no_delay(tmp_path: Path, seed: int) -> None:
    """The last rank has all of it before it, and was said to be late by that."""
    assert problems(tmp_path / "c", "distillation 4 x 2, healthy", seed) == []


def test_a_server_that_is_no_later_than_idle_ones_is_idle(tmp_path: Path) -> None:
    assert problems(tmp_path / "c", "serving tp 4 x 4, often idle, healthy", 105) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_a_group_whose_exchanges_are_all_slow_is_named(tmp_path: Path, seed: int) -> None:
    """Its links were compared one by one: each gains next to nothing alone."""
    name = "experts 4 x 4 on 4 hosts, slow links of a group"
    (finding,) = problems(tmp_path / "c", name, seed)
    assert (finding.family, finding.kind, finding.ranks) == ("slow_link", "group", (8, 9, 10, 11))
    assert finding.advice.startswith("all of its ranks are slow")
    assert finding.lost_share == pytest.approx(0.148, abs=0.03)


def test_one_slow_link_of_a_group_is_named_itself(tmp_path: Path) -> None:
    """Ranks that do not use it are as quick as those of other groups."""
    (finding,) = problems(tmp_path / "c", "experts 4 x 4 on 4 hosts, one slow link")
    assert (finding.family, finding.ranks) == ("slow_link", (8, 9))


def test_a_group_that_moves_more_is_not_slow(tmp_path: Path) -> None:
    name = "experts 4 x 4 on 4 hosts, one is popular, healthy"
    assert {finding.family for finding in problems(tmp_path / "c", name)} <= {"imbalance"}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_slow_adapter_is_named_where_all_but_its_host_are_slow(tmp_path: Path, seed: int) -> None:
    """Three of four hosts exchange with it, and slow exchanges were usual."""
    kind = all_kinds()["experts 16 on 4 hosts, slow adapter"]
    (finding,) = problems(tmp_path / "c", kind.name, seed)
    assert (finding.family, finding.kind, finding.ranks) == ("slow_link", "rank", (9,))
    lost = 1 - kind.job(seed, ()).run_ns / kind.job(seed).run_ns
    assert finding.lost_share == pytest.approx(lost, abs=0.05)


def test_the_adapter_of_a_popular_expert_has_more_to_do(tmp_path: Path) -> None:
    name = "experts 16 on 4 hosts, one is popular, healthy"
    assert {finding.family for finding in problems(tmp_path / "c", name)} <= {"imbalance"}


@pytest.mark.parametrize("seed", [1, 2])
def test_ranks_that_are_slow_in_turns_cost_what_all_their_work_takes_longer(
    tmp_path: Path, seed: int
) -> None:
    """Behind the first bucket each of them alone shows how long work takes, and what they took was
    what is usual: half of the cost.
    """
    kind = all_kinds()["ddp 8, 60 steps, 8 buckets, two ranks slow in turns"]
    found = problems(tmp_path / "c", kind.name, seed)
    assert sorted(finding.ranks for finding in found) == [(2,), (5,)]
    lost = 1 - kind.job(seed, ()).run_ns / kind.job(seed).run_ns
    assert sum(finding.lost_share for finding in found) == pytest.approx(lost, abs=0.03)
