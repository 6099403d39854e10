"""A long run judged window by window: the same account as of the whole."""

import pytest

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting import windows
from ncclscope.analysis.waiting.account import waiting_account
from ncclscope.analysis.waiting.kernels import timed_rows
from ncclscope.analysis.waiting.origins import WaitingAccount
from ncclscope.analysis.waiting.path_edges import path_edges_of
from ncclscope.analysis.waiting.path_parts import PathPart
from ncclscope.analysis.waiting.windows import find_windows, tasks_here, window_at
from tests.support.model_builders import random_model
from tests.support.waiting_jobs import MadeJob

MS = 1_000_000
PAIRS = (("tp", ((0, 1), (2, 3))), ("dp", ((0, 2), (1, 3))))


def jitter(rank: int, step: int) -> int:
    return (rank * 7919 + step * 104_729) % 30_000


def job(delay_ns: int, pause_ns: int = 0) -> Run:
    """Rank 2 is late in each step from the 50th on, and pauses once in the middle."""
    return MadeJob(
        groups=PAIRS,
        steps=300,
        host_ns=lambda rank, step: (
            jitter(rank, step) + (delay_ns * (step >= 50) + pause_ns * (step == 150)) * (rank == 2)
        ),
    ).run()


def both(
    run: Run, count: int
) -> tuple[
    tuple[WaitingAccount, tuple[PathPart, ...]], tuple[WaitingAccount, tuple[PathPart, ...]]
]:
    """The account of the whole, and of so many windows."""
    whole, path = waiting_account(run.model, Selection())
    size = len(run.operations["event"]) // count
    parts, path_of_parts = waiting_account(run.model, Selection(), most_at_once=size)
    assert whole is not None
    assert parts is not None
    return (whole, path), (parts, path_of_parts)


def sum_of(account: WaitingAccount) -> int:
    origins = sum(origin.waiting_ns for origin in account.origins)
    rest = account.structure_ns + account.start_up_ns + account.below_clock_error_ns
    return origins + rest + account.unknown_ns


@pytest.mark.parametrize("count", [2, 5])
def test_windows_come_to_the_account_of_the_whole(count: int) -> None:
    (whole, path), (parts, path_of_parts) = both(job(3 * MS), count)
    assert parts.total_ns == whole.total_ns == sum_of(parts)
    assert parts.unknown_ns == whole.unknown_ns == 0
    one, other = whole.origins[0], parts.origins[0]
    assert (other.rank, other.kind, other.times) == (one.rank, one.kind, one.times)
    assert other.waiting_ns == pytest.approx(one.waiting_ns, rel=0.01)
    assert other.on_path_ns == pytest.approx(one.on_path_ns, rel=0.01)
    assert (other.first_ns, other.last_ns) == (one.first_ns, one.last_ns)
    assert next(row.rank for row in parts.ranks) == 2
    assert sum(row.waited_ns for row in parts.ranks) == sum(row.waited_ns for row in whole.ranks)
    length = sum(part.length_ns for part in path)
    assert sum(part.length_ns for part in path_of_parts) == pytest.approx(length, rel=1e-3)


def test_a_pause_across_a_cut_stays_its_ranks() -> None:
    """Nearly all of the run is one pause: every cut by time falls near it."""
    (whole, _), (parts, _) = both(job(0, pause_ns=2_000 * MS), 3)
    assert parts.total_ns == whole.total_ns == sum_of(parts)
    assert parts.origins[0].rank == 2
    assert parts.origins[0].waiting_ns == pytest.approx(3 * 2_000 * MS, rel=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_sums_conserve_on_jobs_made_by_chance(seed: int) -> None:
    (whole, _), (parts, _) = both(Run(random_model(4_000, seed)), 4)
    assert sum_of(parts) == parts.total_ns == whole.total_ns
    assert parts.unseen == whole.unseen


def test_each_operation_is_of_one_window() -> None:
    run = job(3 * MS)
    rows = timed_rows(run)
    found = find_windows(run.model, len(rows) // 4, tasks_here(run.model))
    made = [window_at(run.model, place, found.sending) for place in found.places]
    assert len(made) == 4
    own = sorted(row for window in made for row in window.rows[window.own].tolist())
    assert own == sorted(rows.tolist())
    assert all(len(window.rows) < 0.5 * len(rows) for window in made)


@pytest.mark.parametrize("seed", range(3))
def test_bundles_of_processes_come_to_the_same_windows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process at a time, all at once, and ranks that several processes share."""
    for model in (random_model(4_000, seed), job(3 * MS).model):
        accounts = []
        for rows in (1, 1 << 20):
            monkeypatch.setattr(windows, "_AT_ONCE", rows)
            accounts.append(waiting_account(model, Selection(), most_at_once=700))
        assert accounts[0] == accounts[1]


def test_a_selection_counts_in_windows() -> None:
    run = job(3 * MS)
    chosen = Selection(communicators=(0,))
    whole, _ = waiting_account(run.model, chosen)
    parts, _ = waiting_account(run.model, chosen, most_at_once=len(run.operations["event"]) // 3)
    assert whole is not None
    assert parts is not None
    assert 0 < parts.total_ns == whole.total_ns


def test_the_critical_path_of_windows_is_that_of_the_whole() -> None:
    """It runs through the same operations without a gap, but for an edge or two at each cut."""
    run = job(3 * MS)
    whole = path_edges_of(run.model, Selection())
    size = len(run.operations["event"]) // 4
    parts = path_edges_of(run.model, Selection(), most_at_once=size)
    assert whole is not None
    assert parts is not None
    assert (parts.start_ns[1:] == parts.end_ns[:-1]).all()
    assert (parts.start_ns[0], parts.end_ns[-1]) == (whole.start_ns[0], whole.end_ns[-1])
    edges = [set(zip(p.end_ns.tolist(), p.operation.tolist(), strict=True)) for p in (whole, parts)]
    assert len(edges[0] ^ edges[1]) <= 0.02 * len(edges[0])


def test_the_critical_path_of_a_selected_time_counts_in_windows() -> None:
    run = job(3 * MS)
    first, last = run.extent
    chosen = Selection(since_ns=first + (last - first) // 3, until_ns=last - (last - first) // 3)
    whole = path_edges_of(run.model, chosen)
    size = len(run.operations["event"]) // 5
    parts = path_edges_of(run.model, chosen, most_at_once=size)
    assert whole is not None
    assert parts is not None
    lengths = [int((path.end_ns - path.start_ns).sum()) for path in (whole, parts)]
    assert lengths[1] == pytest.approx(lengths[0], rel=1e-3)
