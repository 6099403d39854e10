"""Who is named in jobs that a seed draws: each was silent, or blamed somebody else, before."""

from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import account_of, waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.diagnose.finding import INFO
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.capture import write_capture
from tests.support.laboratory.random_jobs import random_kind


@pytest.mark.parametrize(
    ("seed", "named"),
    [
        pytest.param(2130, [(8,)], id="one long pause is not its host's"),
        pytest.param(2533, [(12,)], id="one late rank is not its host"),
        pytest.param(2075, [], id="a host with most ranks has most noise"),
        pytest.param(2893, [(1,)], id="a stage waits no more than its work varies"),
        pytest.param(3248, [(8,)], id="gaps of an evaluation are none of every step"),
        pytest.param(3298, [(8,)], id="the ends of a pipeline beside a slow GPU"),
        pytest.param(3501, [(5,)], id="pauses beside another rank that is late all the time"),
        pytest.param(2244, [], id="a link that was faster for a while"),
        pytest.param(3041, [(0,)], id="one rank of two"),
        pytest.param(3012, [(0,)], id="one rank of four, others with noise"),
        pytest.param(10502, [(0,)], id="a stage of two, by what both do between two AllReduces"),
        pytest.param(10458, [(3,)], id="a stage of twelve that meet once in a step"),
        pytest.param(10689, [(7,)], id="seven delays of which a replay cannot tell what they cost"),
        pytest.param(10445, [(2,)], id="a slow rank of three, beside another one's pauses"),
        pytest.param(10341, [(4,)], id="ranks that pass lateness on in one communicator"),
        pytest.param(10685, [(4,)], id="a rank that is late three times behind a late one"),
        pytest.param(10796, [tuple(range(24, 32))], id="a host that is slow in every other step"),
        pytest.param(11724, [], id="the first and last stages of a healthy pipeline"),
        pytest.param(10390, [(10,)], id="short pauses of one length"),
        pytest.param(11845, [], id="a first stage that waits for its own last step"),
        pytest.param(11854, [(6,)], id="a whole communicator that passes lateness on"),
        pytest.param(11943, [(3,)], id="a slow rank beside a single long pause"),
        pytest.param(11989, [(6,)], id="sends that wait, between hosts whose clocks differ"),
        pytest.param(30022, [(3,)], id="work whose last part needs what it ran beside"),
        pytest.param(20055, [(0,)], id="slow launches of a stage without peers"),
        pytest.param(20116, [(0, 1, 2, 3)], id="small exchanges between hosts whose clocks differ"),
        pytest.param(21058, [tuple(range(16, 24))], id="a host that others seldom wait for"),
        pytest.param(21140, [(8, 9, 10, 11)], id="exchanges between two late ranks"),
        pytest.param(21196, [(1,)], id="short pauses in every third step"),
        pytest.param(21244, [(0, 11)], id="a link of two between hosts, slow in half of the run"),
        pytest.param(22035, [(3,)], id="a rank that one other rank alone waits for"),
        pytest.param(22451, [(3, 15)], id="a link that is slow in every third step"),
        pytest.param(22693, [(4,)], id="Broadcasts that seem to take no time"),
        pytest.param(23158, [(1,), (10,)], id="a second slow rank of a ring"),
        pytest.param(23145, [(4,)], id="a slow rank beside several that noise makes late"),
        pytest.param(23092, [(0,)], id="a late root that meets others in every step"),
        pytest.param(23040, [], id="a host with more of a few long pauses"),
        pytest.param(23151, [(5,)], id="a last stage whose work a reduction hides on others"),
        pytest.param(23482, [(4,)], id="one late rank, which may gain as much as its host"),
        pytest.param(23563, [(1,)], id="slow launches beside a pause on the same host"),
        pytest.param(23546, [(4, 5, 6, 7)], id="slow GPUs of a host, by starts of their own kind"),
        pytest.param(23566, [(6,)], id="short gaps of ranks that did not wait are no pauses"),
        pytest.param(24037, [(1,)], id="a host that became late, and work that others may hide"),
        pytest.param(24463, [(17,)], id="sends that wait, by clocks that are further apart"),
        pytest.param(24532, [(0,), (7,)], id="late more often, and not by more in sum"),
        pytest.param(24623, [(1,)], id="a time in which a rank is slow hides no work"),
        pytest.param(24790, [(10, 11), (0,)], id="each gains more than the next one would"),
        pytest.param(25117, [(5,)], id="a late rank among random pauses that cost nothing"),
        pytest.param(25149, [(4,)], id="the same, in a part of the run"),
        pytest.param(25046, [(10,), (14,)], id="two late ranks, and their host by chance"),
        pytest.param(25127, [(2,)], id="exchanges of a rank that comes late to them"),
        pytest.param(26123, [(0,)], id="a slow rank of exchanges that was as quick at first"),
        pytest.param(26165, [(3, 7, 11)], id="a slow group that no other group waits for"),
        pytest.param(26198, [(0,)], id="slow launches of a first stage, before its starts"),
        pytest.param(26319, [(1,), (4,)], id="pipelines within a host and across are of one role"),
        pytest.param(26326, [(0,)], id="a stage without peers that is slow from the middle on"),
        pytest.param(26464, [(0, 1, 2, 3), (4,)], id="a host behind a late rank of another one"),
        pytest.param(26480, [(5,)], id="slow launches of a ring, whose steps vary for all"),
        pytest.param(2803, [(8, 9)], id="a link that work hides, but for all ranks together"),
    ],
)
def test_the_culprit_alone_is_named(
    seed: int, named: list[tuple[int, ...]], tmp_path: Path
) -> None:
    kind = random_kind(seed)
    write_capture(tmp_path / "job", kind.job(seed), kind.recording)  # its truth takes three more
    said = diagnose_capture(tmp_path / "job").findings
    assert [finding.ranks for finding in said if finding.severity != INFO] == named


def test_a_stage_that_computes_before_a_reduction_has_more_between_two_collectives(
    tmp_path: Path,
) -> None:
    """First stages compute after their last receive, others before their last send: four of them
    were named.
    """
    random_kind(22030).write(tmp_path / "job", 22030)
    said = diagnose_capture(tmp_path / "job").findings
    assert not [finding.ranks for finding in said if finding.severity != INFO]


def test_what_larger_communicators_may_lose_by_a_slow_link_is_said(tmp_path: Path) -> None:
    """Those of the world use the link as well, and have no peers: 7.5 % of the run."""
    truth = random_kind(2803).write(tmp_path / "job", 2803)
    (found,) = diagnose_capture(tmp_path / "job").findings
    assert (found.family, found.kind) == ("slow_link", "group")
    assert found.sentence.startswith("cp#5 (ranks 8, 9; node1) is 48.3 times as slow on the wire")
    assert "hardly anybody waits for that, but collectives of world" in found.sentence
    assert found.lost_share == pytest.approx(truth.origins[0].lost_share, abs=0.01)


def test_a_gpu_is_slow_where_others_wait_beside_their_work(tmp_path: Path) -> None:
    """Gaps of its communicator looked as long as its own, because they counted from the start of
    what they needed the end of: 181 ms were predicted.
    """
    truth = random_kind(30022).write(tmp_path / "job", 30022)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "job")).model))
    assert waiting is not None
    prediction = WhatIf(waiting).predict(Change(ranks=(3,)))
    assert prediction.is_sure
    assert prediction.run_then_ns == pytest.approx(truth.origins[0].run_without_ns, rel=0.02)


def test_work_beside_a_reduction_begins_after_what_was_received_meanwhile(tmp_path: Path) -> None:
    """Waits for sends counted as work of the ranks that waited: 513 ms were predicted, not 478."""
    truth = random_kind(23334).write(tmp_path / "job", 23334)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "job")).model))
    assert waiting is not None
    prediction = WhatIf(waiting).predict(Change(ranks=(0, 1)))
    assert prediction.is_sure
    assert prediction.run_then_ns == pytest.approx(truth.origins[0].run_without_ns, rel=0.02)


def test_work_that_others_hide_in_their_waits_may_be_theirs_as_well(tmp_path: Path) -> None:
    """Of a GPU that is 1.4 times as slow 0.18 to 0.31 s were promised, of 1.05 s now."""
    truth = random_kind(24208).write(tmp_path / "job", 24208)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "job")).model))
    assert waiting is not None
    least_ns, most_ns = WhatIf(waiting).predict(Change(ranks=(15,))).range_ns
    assert least_ns < truth.origins[0].run_without_ns < most_ns


def test_a_slow_launch_that_delays_the_next_call_counts_once(tmp_path: Path) -> None:
    """The edge to the start and the one to the next call are longer: 1.66 times were said."""
    truth = random_kind(24103).write(tmp_path / "job", 24103)
    waiting = waiting_of(Run(ncclscope.open(str(tmp_path / "job")).model))
    assert waiting is not None
    excess_ns = sum(one.excess_ns for one in account_of(waiting).origins if one.rank == 5)
    assert excess_ns == pytest.approx(truth.origins[0].delay_ns, rel=0.1)
