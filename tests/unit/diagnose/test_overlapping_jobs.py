"""Jobs whose results are used a step later, whose ranks have duties, and links that flap."""

from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.heavy_stages import are_whole_stages
from ncclscope.analysis.waiting.host_leaders import without_leaders
from ncclscope.analysis.waiting.origins import Waiting, waiting_of
from ncclscope.analysis.waiting.rank_sums import share_of_wall_time
from ncclscope.diagnose.finding import INFO, Finding
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.random_jobs import random_kind
from tests.support.laboratory.truth import Kind

KINDS = all_kinds()
_LEADERS = "ddp 16 on 4 hosts, leaders write checkpoints"


def findings_of(kind: Kind, folder: Path, seed: int = 1) -> tuple[Finding, ...]:
    kind.write(folder / "c", seed)
    return tuple(diagnose_capture(folder / "c").findings)


def waiting_on(name: str, folder: Path) -> Waiting:
    KINDS[name].write(folder / "c", 1)
    waiting = waiting_of(Run(ncclscope.open(str(folder / "c")).model))
    assert waiting is not None
    return waiting


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("ddp 8, gradients one step late, slow GPU", 0),
        ("two sites of 8, slow GPU", 12),
        (f"{_LEADERS}, slow GPU", 2),
        (f"{_LEADERS}, pauses of a rank", 5),
        ("tp 16 on 2 hosts, a scheduler, slow GPU", 5),
    ],
)
def test_the_slow_rank_is_named_alone(name: str, rank: int, tmp_path: Path) -> None:
    said = findings_of(KINDS[name], tmp_path)
    assert [own.ranks for own in said if own.severity != INFO] == [(rank,)]


@pytest.mark.parametrize(
    "name",
    [
        "ddp 8, gradients one step late, healthy",
        "two sites of 8, healthy",
        f"{_LEADERS}, healthy",
        "tp 16 on 2 hosts, a scheduler, healthy",
        "ddp 8 on 2 hosts, two buckets, healthy",
    ],
)
def test_nothing_is_wrong_with_a_healthy_one(name: str, tmp_path: Path) -> None:
    said = findings_of(KINDS[name], tmp_path)
    assert [own.sentence for own in said if own.severity != INFO] == []


def test_a_scheduler_is_a_remark_that_says_what_it_does(tmp_path: Path) -> None:
    said = findings_of(KINDS["tp 16 on 2 hosts, a scheduler, healthy"], tmp_path)
    (scheduler,) = (own for own in said if own.ranks == (0,))
    assert "it prepares what it sends to all others" in scheduler.sentence


def test_who_holds_all_others_back_is_no_structure_of_the_job(tmp_path: Path) -> None:
    said = findings_of(KINDS["ddp 8, gradients one step late, slow GPU"], tmp_path)
    (late,) = (own for own in said if own.ranks == (0,))
    assert "comes last 6" in late.sentence
    assert "how much cannot be told" in late.sentence
    assert not any("structure" in own.sentence for own in said)


def test_a_link_that_is_mostly_slow_but_flaps_is_slow_at_times(tmp_path: Path) -> None:
    """More than half of the time, so that slow transfers are the usual ones."""
    said = findings_of(KINDS["ddp 8 on 2 hosts, two buckets, link that flaps"], tmp_path)
    (slow,) = (own for own in said if own.severity != INFO)
    assert (slow.family, slow.kind) == ("degradation", "slower at times")
    assert slow.evidence[0].facts["factor"] == pytest.approx(3, rel=0.1)


def test_receivers_that_run_ahead_are_not_late(tmp_path: Path) -> None:
    """Of a healthy job: half of all ranks never wait for the root of a Broadcast, and the others do
    a part of their work while they wait.
    """
    said = findings_of(random_kind(26928), tmp_path, 26928)
    assert [own.sentence for own in said if own.severity != INFO] == []


def test_leaders_are_left_out_and_their_neighbours_are_not(tmp_path: Path) -> None:
    waiting = waiting_on(f"{_LEADERS}, slow GPU", tmp_path)
    assert without_leaders(waiting, (0, 2, 4, 8, 12)) == (2,)
    assert without_leaders(waiting, (0, 4, 8)) == (0, 4, 8)  # not of every host
    half = tuple(range(0, 16, 2))
    assert without_leaders(waiting, half) == half


def test_stages_have_no_peers_where_all_of_their_ranks_are_meant(tmp_path: Path) -> None:
    waiting = waiting_on("pipeline 4 x dp 2, heavy second stage, healthy", tmp_path)
    assert are_whole_stages(waiting, (2, 3, 4, 5))
    assert not are_whole_stages(waiting, (2, 4))
    assert not are_whole_stages(waiting, (2, 3))  # they do not send to each other


def test_ranks_wait_no_longer_than_the_run_takes(tmp_path: Path) -> None:
    """Kernels of several CUDA streams may wait at the same time."""
    waiting = waiting_on("two sites of 8, slow GPU", tmp_path)
    share = share_of_wall_time(waiting)
    wait = np.bincount(waiting.kernels.rank, waiting.arrivals.wait_ns)
    events = waiting.arrivals.events_ns
    assert (share <= 1).all()
    assert share.min() < 0.97
    assert (share * wait <= events.max() - events.min()).all()
