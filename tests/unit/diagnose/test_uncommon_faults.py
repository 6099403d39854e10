"""Faults that come and go, that many ranks share, and what looks like one and is none."""

import json
from pathlib import Path

import pytest

from ncclscope.analysis.waiting.what_if import Change
from ncclscope.diagnose import rule_context
from ncclscope.diagnose.finding import Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.model.build import open_model
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.events import Machine
from tests.support.laboratory.faults import TRANSCRIPTS, Fault
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.random_jobs import Load, Statement, random_program
from tests.support.laboratory.score import ask
from tests.support.laboratory.truth import Kind

KINDS = all_kinds()


def findings(capture: Path, name: str) -> tuple[Finding, ...]:
    KINDS[name].write(capture, 1)
    return diagnose_capture(capture).findings


def problems(said: tuple[Finding, ...]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(f.family, f.kind, f.ranks) for f in said if f.severity != "info"]


def test_gpus_of_a_host_that_are_slow_every_other_step_are_named(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "ddp 12 on 3 hosts, power cap of a host")
    assert problems(said) == [("straggler", "host gpu", (4, 5, 6, 7))]


def test_wires_that_are_slow_for_a_while_are_named_with_the_time(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "ddp 12 on 3 hosts, links slow for a while")
    assert problems(said) == [("degradation", "slower for a while", ())]
    assert said[0].evidence[0].facts["until_s"] > said[0].evidence[0].facts["at_s"]


def test_without_a_slow_half_of_all_ranks_a_run_takes_as_long_as_its_twin(tmp_path: Path) -> None:
    truth = KINDS["ddp 16 on 4 hosts, old GPUs on half of the hosts"].write(tmp_path / "c", 1)
    said = diagnose_capture(tmp_path / "c").findings
    named = {rank for _, _, ranks in problems(said) for rank in ranks}
    together = sum(finding.lost_share for finding in said if finding.severity != "info")
    assert named == set(range(8, 16))
    assert together == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.02)


def test_a_gpu_that_repeats_single_steps_is_named(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "ddp 8, 80 steps, GPU that repeats some steps")
    assert [ranks for *_, ranks in problems(said)] == [(5,)]


def test_two_equal_faults_say_that_both_must_be_mended(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "ddp 8, 80 steps, two faults of one size")
    late = [finding for finding in said if finding.severity != "info"]
    assert {finding.ranks for finding in late} == {(2,), (6,)}
    assert all("mended alone" in finding.sentence for finding in late)
    assert max(f.lost_share for f in late) < 2 * min(f.lost_share for f in late)


def test_a_fault_after_a_long_start_up_is_a_problem(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "ddp 8, very slow start, late rank")
    assert [ranks for *_, ranks in problems(said)] == [(2,)]


def test_pauses_of_all_ranks_are_nobodys(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "all start data loaders again 8, healthy")
    assert not problems(said)
    assert any(finding.kind == "all ranks" for finding in said)


def test_a_server_without_requests_is_no_straggler(tmp_path: Path) -> None:
    assert not problems(findings(tmp_path / "c", "serving tp 4, mostly idle, healthy"))


@pytest.mark.parametrize(
    ("name", "seed", "rank"),
    [
        ("mesh 2 x 2 x 2, lost records, slow GPU", 1, 5),
        ("mesh 2 x 2 x 2 on 4 hosts, clocks drift, slow GPU", 2, 5),
    ],
)
def test_a_slow_gpu_is_named_where_the_record_has_gaps(
    tmp_path: Path, name: str, seed: int, rank: int
) -> None:
    KINDS[name].write(tmp_path / "c", seed)
    said = diagnose_capture(tmp_path / "c").findings
    assert [ranks for *_, ranks in problems(said)] == [(rank,)]
    assert " to " in said[0].sentence  # a range: the replay misses what was lost


@pytest.mark.parametrize("seed", [1, 2])
def test_what_others_may_have_done_while_they_waited_is_no_gain(tmp_path: Path, seed: int) -> None:
    """Others compute while they wait, and are ready at once: a replay gained twice the delay."""
    truth = KINDS["fsdp2 8, one communicator, slow GPU"].write(tmp_path / "c", seed)
    assert problems(diagnose_capture(tmp_path / "c").findings) == [("straggler", "gpu", (5,))]
    context = RuleContext(open_model(tmp_path / "c"))
    assert context.what_if is not None
    least, most = context.what_if.predict(Change(ranks=(5,))).range_ns
    assert least < truth.healthy_run_ns < most < truth.run_ns


def test_a_host_that_stops_all_its_ranks_is_named(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "ddp 12 on 3 hosts, host that stops twice")
    assert problems(said) == [("straggler", "host pause", (4, 5, 6, 7))]
    assert said[0].sentence.startswith("all 4 ranks of node1 paused 2 times")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_host_whose_ranks_are_late_in_turn_is_named(tmp_path: Path, seed: int) -> None:
    """A few of its ranks pause so seldom that nothing of theirs stands out."""
    truth = KINDS["ddp 24 on 3 hosts, loaders of a host"].write(tmp_path / "c", seed)
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("straggler", "host compute", tuple(range(8, 16)))]
    assert said[0].sentence.startswith("ranks of node1 are late in turn")
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.03)


def test_a_late_rank_is_named_beside_the_noise_of_its_host(tmp_path: Path) -> None:
    """Others of its host, of which there are twice as many as elsewhere, are late by chance."""
    layer = (
        Statement("compute", ms=2.3), Statement("Broadcast", 0, size_mb=1.4),
        Statement("compute", ms=0.65), Statement("ReduceScatter", 0, size_mb=0.07),
    )  # fmt: skip
    load = Load(
        (6, 2), 30, 1, layer, (Statement("AllReduce", size_mb=0.004),), synchronize=True,
        data_ms=1.0, varies=0.03, differs=0.0, warm_up=2, every=0,
    )  # fmt: skip
    late = Fault("host", 5, ms=1.57, first=1)
    machine = Machine(ranks_per_host=8, net_gb_s=25.0)
    Kind(
        "late", 12, lambda job: random_program(job, load), (late,), noise=TRANSCRIPTS,
        machine=machine,
    ).write(tmp_path / "c", 104)  # fmt: skip
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("straggler", "compute", (5,))]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_host_that_stops_often_is_named_once(tmp_path: Path, seed: int) -> None:
    """In one step of six: a habit as well as pauses, and one cause."""
    KINDS["ddp 24 on 3 hosts, daemon of a host"].write(tmp_path / "c", seed)
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("straggler", "host pause", tuple(range(8, 16)))]


def test_gpus_that_are_slow_one_after_the_other_are_named_together(tmp_path: Path) -> None:
    """One rank of eight misses a bar by chance, and only slow ones show how long buckets take."""
    name = "ddp 16 on 2 hosts, 64 steps, another slow GPU every 8 steps"
    truth = KINDS[name].write(tmp_path / "c", 1)
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("straggler", "gpu", (0, 3, 5, 7, 9, 10, 12, 14))]
    # Of the second bucket quick ranks show some starts, and what is usual stays too long: a range.
    assert "1.69 to 1.9" in said[0].sentence
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.06)


def test_pauses_that_go_round_are_a_problem_of_all_ranks(tmp_path: Path) -> None:
    truth = KINDS["ddp 16 on 2 hosts, 60 steps, garbage collections in turn"].write(
        tmp_path / "c", 1
    )
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("straggler", "pauses in turn", tuple(range(16)))]
    assert said[0].sentence.startswith("16 of 16 ranks pause in turn, 5")
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.03)


def test_ranks_that_are_late_at_random_do_not_pause_in_turn(tmp_path: Path) -> None:
    """Of 32 ranks one is always the latest, by about as much each time, and it is another one."""
    KINDS["ddp 32 on 4 hosts, noise of transcripts, healthy"].write(tmp_path / "c", 101)
    assert not problems(diagnose_capture(tmp_path / "c").findings)


def test_hosts_that_stop_at_the_same_time_are_named_together(tmp_path: Path) -> None:
    """Half of all ranks: without one host alone nothing is gained."""
    said = findings(tmp_path / "c", "ddp 16 on 4 hosts, slow storage of half of the hosts")
    assert problems(said) == [("straggler", "host pause", tuple(range(8, 16)))]
    assert said[0].sentence.startswith("all 8 ranks of node2, node3 paused 3 times")


def test_a_slow_adapter_in_an_exchange_of_all_ranks_is_named(tmp_path: Path) -> None:
    """Most kernels exchange with the slow rank, so that slow ones are usual."""
    name = "experts 16 on 2 hosts, much data, slow adapter"
    truth = KINDS[name].write(tmp_path / "c", 1)
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("slow_link", "rank", (13,))]
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.05)
    links = [word for a in range(8) for word in ("--link", f"{a}-13", "at", "median")]
    _, answer, _ = ask("whatif", str(tmp_path / "c"), *links, "--json")
    then_ns = json.loads(answer)["run_then_ns"]
    assert then_ns == pytest.approx(truth.healthy_run_ns, rel=0.05)


def test_ranks_that_differ_gradually_do_not_stand_out(tmp_path: Path) -> None:
    assert not problems(findings(tmp_path / "c", "ddp 48, uneven GPUs, healthy"))


def test_a_rank_late_by_less_than_the_work_beside_a_reduction_is_late_once_a_step(
    tmp_path: Path,
) -> None:
    """Others are ready for the next reduction earlier, by as much as they waited: the late rank
    seemed to take longer before each of them.
    """
    truth = KINDS["ddp 8, long buckets, late rank"].write(tmp_path / "c", 1)
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("straggler", "compute", (6,))]
    _, answer, _ = ask("whatif", str(tmp_path / "c"), "--without", "rank", "6", "--json")
    then_ns = json.loads(answer)["run_then_ns"]
    assert then_ns == pytest.approx(truth.healthy_run_ns, rel=0.03)


def test_servers_without_requests_are_not_named_with_a_slow_gpu(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "serving tp 4 x 4, often idle, slow GPU")
    assert problems(said) == [("straggler", "gpu", (10,))]


@pytest.mark.parametrize("seed", [1, 2])  # of the second, one rank is hardly late by itself
def test_a_host_of_late_ranks_stands_out_where_all_ranks_are_late_at_times(
    tmp_path: Path, seed: int
) -> None:
    KINDS["ddp 32 on 4 hosts, hosts are busy, noisy host"].write(tmp_path / "c", seed)
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("straggler", "host compute", tuple(range(8, 16)))]


def test_wires_that_are_half_as_fast_for_a_while_are_fast_again(tmp_path: Path) -> None:
    said = findings(tmp_path / "c", "ddp 8 on 2 hosts, much data, links half as fast for a while")
    assert problems(said) == [("degradation", "slower for a while", ())]


@pytest.mark.parametrize("seed", [2, 3])
def test_a_late_rank_is_named_beside_ranks_with_a_popular_expert(tmp_path: Path, seed: int) -> None:
    """Both stand out, and together from nobody. Without the late one the run is as short as without
    both.
    """
    KINDS["experts 8, popular one by chance, late rank"].write(tmp_path / "c", seed)
    said = diagnose_capture(tmp_path / "c").findings
    assert problems(said) == [("straggler", "compute", (3,))]


def test_a_rank_that_is_slower_by_chance_in_short_steps_is_no_problem(tmp_path: Path) -> None:
    KINDS["longer and longer sequences 4, healthy"].write(tmp_path / "c", 105)
    assert problems(diagnose_capture(tmp_path / "c").findings) == []


@pytest.mark.parametrize(("fault", "named"), [("late rank", [2]), ("healthy", [])])
def test_a_rank_that_all_waiting_began_on_is_named_where_none_stands_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, named: list[int]
) -> None:
    """Ranks that are late seldom, or are tied loosely, do not stand out."""
    monkeypatch.setattr(rule_context, "root_causes", lambda *_: None)
    said = findings(tmp_path / "c", f"local steps 8, {fault}")
    assert [rank for _, _, ranks in problems(said) for rank in ranks] == named
