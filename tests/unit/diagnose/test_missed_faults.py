"""What a whole host, half of all GPUs or a stage has in common, and late first steps."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import account_of, waiting_of
from ncclscope.analysis.waiting.replay import run_ns
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.diagnose.finding import Finding
from ncclscope.humanize import percent
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.truth import Truth

KINDS = all_kinds()


def judged(capture: Path, name: str) -> tuple[Truth, tuple[Finding, ...]]:
    truth = KINDS[name].write(capture, 1)
    return truth, diagnose_capture(capture).findings


def problems(said: tuple[Finding, ...]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(f.family, f.kind, f.ranks) for f in said if f.severity != "info"]


def test_the_network_of_a_host_in_a_pipeline_is_named_once(tmp_path: Path) -> None:
    """Two of three crossings are slow: one by one none of their links stands out."""
    truth, said = judged(tmp_path / "c", "pipeline 4 x dp 4 on 4 hosts, network of a host")
    assert problems(said) == [("slow_link", "host", (4, 5, 6, 7))]
    assert said[0].hosts == ("node1",)
    assert said[0].sentence.startswith("all 16 links between node1 and other hosts are slow")
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.03)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("ring 16 on 4 hosts, network of a host", (8, 9, 10, 11)),
        # The link between both slow ones looks as slow: its kernels end with theirs.
        ("ring 12 on 6 hosts, network of a host", (6, 7)),
    ],
)
def test_the_network_of_a_host_in_a_ring_is_named_once(
    tmp_path: Path, name: str, ranks: tuple[int, ...]
) -> None:
    _, said = judged(tmp_path / "c", name)
    assert problems(said) == [("slow_link", "host", ranks)]


def test_old_gpus_are_named_together_where_steps_vary(tmp_path: Path) -> None:
    name = "ddp 8, 40 steps, noise of transcripts, every second GPU is old"
    truth, said = judged(tmp_path / "c", name)
    assert problems(said) == [("straggler", "gpu", (1, 3, 5, 7))]
    assert "compare GPU models" in said[0].advice
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.03)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("ddp 32 on 4 hosts, noise of transcripts, old GPUs on two hosts", range(16, 32)),
        (
            "fsdp 32 on 4 hosts, noise of transcripts, old GPUs on two hosts",
            (*range(8), *range(24, 32)),
        ),
    ],
)
def test_old_gpus_of_several_hosts_are_one_finding(
    tmp_path: Path, name: str, ranks: Sequence[int]
) -> None:
    """Each of these hosts is late as a whole, and mending one of them gains nothing."""
    truth, said = judged(tmp_path / "c", name)
    assert [finding.ranks for finding in said if finding.severity != "info"] == [tuple(ranks)]
    assert "compare GPU models" in said[0].advice
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.03)


def test_waiting_that_began_on_single_ranks_says_on_which_most_did(tmp_path: Path) -> None:
    """Nobody stands out; who looks further has where to begin."""
    _, said = judged(tmp_path / "c", "ddp 32 on 4 hosts, noise of transcripts, healthy")
    assert not problems(said)
    (sentence,) = [finding.sentence for finding in said if finding.kind == "anyone"]
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    account = account_of(waiting)
    share = account.ranks[0].origin_ns / (account.total_ns - account.start_up_ns)
    most = f"{percent(share)} on rank {account.ranks[0].rank}"
    assert sentence.endswith(f"no rank stands out, most began on single ranks, {most}")


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("ddp 16 on 2 hosts, long forward passes, slow GPU", 5),
        ("ddp 8 on 2 hosts, long forward passes, slow GPU", 5),
        ("ddp 16 on 4 hosts, long forward passes, late rank", 5),
    ],
)
def test_calls_on_record_before_what_they_waited_for_make_no_run_longer(
    tmp_path: Path, name: str, rank: int
) -> None:
    """Clocks of hosts and GPUs are some 10 ms apart: a replay of the run as it was took 8 to 54 %
    longer, and what a rank costs was what it may cost at most.
    """
    truth, said = judged(tmp_path / "c", name)
    assert [finding.ranks for finding in said if finding.severity != "info"] == [(rank,)]
    lost = 1 - truth.healthy_run_ns / truth.run_ns
    assert said[0].lost_share == pytest.approx(lost, abs=0.03)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "c")).model))
    assert waiting is not None
    what_if = WhatIf(waiting)
    now, as_it_was = run_ns(waiting.arrivals.events_ns), run_ns(what_if.events_ns(Change()))
    assert as_it_was == pytest.approx(now, rel=0.001)
    then = what_if.predict(Change(ranks=(rank,)))
    assert then.run_then_ns == pytest.approx(truth.healthy_run_ns, rel=0.02)
    assert then.range_ns[0] <= truth.healthy_run_ns <= then.range_ns[1]


@pytest.mark.parametrize(
    ("name", "said_of"),
    [
        ("pipeline 4 in groups x dp 4 on 4 hosts, long steps, slow link", ("slow_link", (5, 9))),
        (
            "pipeline 8 in groups on 2 hosts, long steps, checkpoints of a rank",
            ("straggler", (0,)),
        ),
    ],
)
def test_clocks_of_nodes_that_seldom_meet_are_brought_together(
    tmp_path: Path, name: str, said_of: tuple[str, tuple[int, ...]]
) -> None:
    """They were some milliseconds off: another link, and a rank without a fault, were named, too,
    and a healthy job had a critical finding.
    """
    truth, said = judged(tmp_path / "c", name)
    found = [(one.family, one.ranks) for one in said if one.severity != "info"]
    assert found == [said_of]
    lost = 1 - truth.healthy_run_ns / truth.run_ns
    assert said[0].lost_share == pytest.approx(lost, abs=0.03)


def test_a_healthy_pipeline_whose_nodes_seldom_meet_has_no_late_rank(tmp_path: Path) -> None:
    _, said = judged(tmp_path / "c", "pipeline 8 in groups on 2 hosts, long steps, healthy")
    assert not problems(said)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("pipeline 8 in groups x dp 2 on 4 hosts, long steps, slow GPU", 7),
        ("pipeline 6 in groups x tp 2, slow GPU", 5),
        ("pipeline 4 in groups x dp 3 on 3 hosts, slow GPU", 4),
    ],
)
def test_a_slow_gpu_of_a_deep_pipeline_is_named_with_its_cost(
    tmp_path: Path, name: str, rank: int
) -> None:
    """Gaps before exchanges with the stage before and with the next one were taken together: some
    stages seemed to work beside their exchanges, and a replay gained a third of what is true.
    """
    truth, said = judged(tmp_path / "c", name)
    assert problems(said) == [("straggler", "gpu", (rank,))]
    lost = 1 - truth.healthy_run_ns / truth.run_ns
    assert said[0].lost_share == pytest.approx(lost, abs=0.02)


def test_a_heavy_stage_is_a_remark_with_its_cost(tmp_path: Path) -> None:
    name = "pipeline 4 x dp 2, heavy second stage, healthy"
    _, said = judged(tmp_path / "c", name)
    assert not problems(said)
    stage = next(finding for finding in said if finding.kind == "stage")
    assert stage.ranks == (2, 3)
    assert "all of them alike" in stage.sentence
    assert 0.1 < stage.lost_share < 0.35


def test_stages_with_equal_work_get_no_remark(tmp_path: Path) -> None:
    _, said = judged(tmp_path / "c", "pipeline 4 x dp 4 on 4 hosts, healthy")
    assert not any(finding.kind == "stage" for finding in said)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("ddp 8, 40 steps, cold cache", 3),
        ("fsdp 4 x tp 2, 30 steps, cold cache in two steps", 5),
        # Its partner in the other stage sends to it, and waits.
        ("mesh 2 x 2 x 2, 25 steps, cold cache", 6),
    ],
)
def test_a_rank_that_is_late_in_the_first_steps_alone_has_paused(
    tmp_path: Path, name: str, rank: int
) -> None:
    truth, said = judged(tmp_path / "c", name)
    assert problems(said) == [("straggler", "pause", (rank,))]
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.02)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("elastic 12 on 3 hosts, slow host that joined", (4, 5, 6, 7)),
        ("elastic 8 on 4 hosts, slow host that joined", (4, 5)),
    ],
)
def test_a_slow_host_that_joined_later_is_named(
    tmp_path: Path, name: str, ranks: tuple[int, ...]
) -> None:
    """Other ranks have calls on communicators from before it joined."""
    truth, said = judged(tmp_path / "c", name)
    assert problems(said) == [("straggler", "host gpu", ranks)]
    assert said[0].lost_share == pytest.approx(1 - truth.healthy_run_ns / truth.run_ns, abs=0.03)
