"""Verdicts where no kernel events are recorded: with sampled GPU timing, or without."""

from ncclscope.diagnose.hang.judge import judge
from ncclscope.report.status import heading
from ncclscope.snapshot.process import ProcessSnapshot
from tests.support.snapshot_builders import last, rank_state, snapshot


def job(calls: list[int], since_s: float = 40) -> list[ProcessSnapshot]:
    """Ranks that have made these calls, and of whose kernels nothing is known."""
    return [
        snapshot(
            rank,
            rank_state(
                rank, len(calls), count, reports_kernels=False, finished=0, last=last(since_s)
            ),
        )
        for rank, count in enumerate(calls)
    ]


def test_a_rank_that_called_less_is_what_the_others_wait_for() -> None:
    status = judge(job([101, 101, 100, 101]))
    (verdict,) = status.verdicts
    assert status.hung
    assert (verdict.verdict, verdict.culprits) == ("never_called", (2,))
    assert verdict.waiting == (0, 1, 3)


def test_ranks_may_have_called_far_ahead() -> None:
    (verdict,) = judge(job([180, 140, 100])).verdicts
    assert (verdict.verdict, verdict.culprits) == ("never_called", (2,))


def test_calls_of_this_moment_are_no_hang() -> None:
    assert not judge(job([101, 100], since_s=0.1)).hung


def test_of_ranks_with_equal_calls_nothing_is_assumed() -> None:
    status = judge(job([100, 100, 100]))
    assert not status.hung
    assert status.verdicts[0].verdict == "ok"
    assert "ends of operations are not recorded" in heading(status)
    assert "ends of operations" not in heading(judge(job([100, 100, 100], since_s=1)))
