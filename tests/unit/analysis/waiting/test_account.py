"""The account of waiting, on jobs whose delays are known exactly."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting import delays
from ncclscope.analysis.waiting.account import waiting_account
from ncclscope.analysis.waiting.delays import Charges
from ncclscope.analysis.waiting.origins import (
    Origin,
    Waiting,
    WaitingAccount,
    account_of,
    waiting_of,
)
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from tests.support.laboratory.kinds import all_kinds
from tests.support.model_builders import random_model
from tests.support.waiting_jobs import MadeJob

MS = 1_000_000
PAIRS = (("tp", ((0, 1), (2, 3))), ("dp", ((0, 2), (1, 3))))


def waiting(run: Run) -> Waiting:
    made = waiting_of(run)
    assert made is not None
    return made


def account(run: Run) -> WaitingAccount:
    return account_of(waiting(run))


def sum_of(account: WaitingAccount) -> int:
    origins = sum(origin.waiting_ns for origin in account.origins)
    rest = account.structure_ns + account.start_up_ns + account.below_clock_error_ns
    return origins + rest + account.unknown_ns


def jitter(rank: int, step: int) -> int:
    return (rank * 7919 + step * 104_729) % 30_000


def late(rank: int, delay_ns: int, from_step: int = 5) -> MadeJob:
    """A job in which one rank is late in each step, beside small jitter of all ranks."""
    return MadeJob(
        groups=PAIRS,
        host_ns=lambda r, step: jitter(r, step) + delay_ns * (r == rank and step >= from_step),
    )


def _is_slow_transfer(origin: Origin) -> bool:
    """Whether it makes the run longer though nobody waits for another rank because of it."""
    return origin.kind == "transfer" and origin.waiting_ns == 0 and origin.on_path_ns > 0


@pytest.mark.parametrize("seed", range(4))
def test_sums_conserve_exactly_on_jobs_made_by_chance(seed: int) -> None:
    made = account(Run(random_model(2_000, seed)))
    assert sum_of(made) == made.total_ns
    assert all(origin.waiting_ns > 0 or _is_slow_transfer(origin) for origin in made.origins)


def test_all_waiting_for_a_late_rank_begins_on_it() -> None:
    made = account(late(2, 3 * MS).run())
    assert sum_of(made) == made.total_ns
    first = made.origins[0]
    assert (first.rank, first.kind) == (2, "host after sync")
    assert first.times == 25
    assert first.typical_ns == pytest.approx(3 * MS, rel=0.02)
    # Rank 3 waits on tp, ranks 0 and 1 on dp or because of it: three ranks, 25 steps.
    assert first.waiting_ns == pytest.approx(3 * 25 * 3 * MS, rel=0.03)
    assert first.on_path_ns == pytest.approx(25 * 3 * MS, rel=0.03)
    others = sum(o.waiting_ns for o in made.origins if o.rank not in (2, None))
    assert others < 0.02 * made.total_ns


def test_a_rank_that_passes_waiting_on_is_no_origin() -> None:
    """Rank 3 waits for rank 2 on tp, so it comes late to rank 1 on dp."""
    made = account(late(2, 3 * MS).run())
    of = {row.rank: row for row in made.ranks}
    assert of[3].caused_ns > 20 * 3 * MS
    assert of[3].own_ns < 0.05 * of[3].caused_ns
    assert of[3].passed_on_ns > 0.95 * of[3].caused_ns
    assert of[2].own_ns > 0.95 * of[2].caused_ns
    assert made.ranks[0].rank == 2


def test_two_late_ranks_are_both_origins() -> None:
    made = account(
        MadeJob(
            ranks=8,
            groups=(("tp", ((0, 1), (2, 3), (4, 5), (6, 7))), ("dp", ((0, 2, 4, 6), (1, 3, 5, 7)))),
            host_ns=lambda r, s: jitter(r, s) + (4 * MS * (r == 1) + 3 * MS * (r == 6)) * (s > 4),
        ).run()
    )
    assert [origin.rank for origin in made.origins[:2]] == [1, 6]
    assert made.origins[1].waiting_ns > 0.1 * made.origins[0].waiting_ns


def test_a_slow_transfer_is_the_communicators() -> None:
    job = MadeJob(groups=PAIRS, host_ns=jitter, wire_ns=lambda name, s: 2 * MS * (name == "tp#2"))
    run = job.run()
    made = account(run)
    first = made.origins[0]
    assert first.kind == "transfer"
    assert run.model.communicator_names[first.communicator or 0] == "tp#2"
    assert first.typical_ns == pytest.approx(2 * MS, rel=0.05)


def test_waits_below_the_clock_error_are_nobodys() -> None:
    job = late(2, 3 * MS)
    made = account(replace(job, error_ns=10 * MS).run())
    assert not made.origins
    assert made.below_clock_error_ns == made.total_ns > 0


def test_lateness_of_the_first_call_is_start_up() -> None:
    made = account(
        MadeJob(host_ns=lambda r, s: jitter(r, s) + 500 * MS * (r == 1 and s == 0)).run()
    )
    assert made.start_up_ns > 3 * 490 * MS
    assert sum(origin.waiting_ns for origin in made.origins) < 0.01 * made.total_ns


def test_the_same_shift_of_all_clocks_changes_nothing() -> None:
    run = late(2, 3 * MS).run()
    before = account(run)
    for name in ("call_ns", "launch_end_ns", "start_ns", "end_ns"):
        run.model.tables["operations"][name] += 17 * MS
    shifted = account(Run(run.model))
    assert [replace(o, first_ns=0, last_ns=0) for o in shifted.origins] == [
        replace(o, first_ns=0, last_ns=0) for o in before.origins
    ]


def test_events_form_a_forest_whose_edges_sum_to_their_times() -> None:
    made = waiting(late(1, 2 * MS).run())
    before, length = made.dependencies.before, made.dependencies.length_ns
    time = made.time_ns
    for event in range(0, len(time), 97):
        total, at, steps = 0, event, 0
        while before[at] >= 0:
            total += int(length[at])
            at = int(before[at])
            steps += 1
            assert steps <= len(time)
        assert total == time[event] - time[at]
        assert at in {3 * first for first in made.kernels.first_of_rank}, "a rank's first call"


def test_the_critical_path_is_as_long_as_the_run_and_goes_through_the_late_rank() -> None:
    made = waiting(late(2, 3 * MS).run())
    path = made.path
    steady = made.arrivals.events_ns[~made.start_up, 0].min()
    assert path.total_ns == made.time_ns.max() - steady
    ranks = made.kernels.ranks[made.kernels.rank[path.events // 3]]
    on_rank = path.length_ns[ranks == 2].sum()
    assert on_rank > 0.8 * path.total_ns


def test_a_replay_with_measured_lengths_gives_the_measured_times() -> None:
    for run in (late(2, 3 * MS).run(), Run(random_model(2_000, 3))):
        made = waiting(run)
        prediction = WhatIf(made).predict(Change())
        assert prediction.run_then_ns == prediction.run_now_ns
        assert prediction.step_then_ns == prediction.step_now_ns


def test_without_its_late_rank_a_job_takes_as_long_as_its_healthy_twin() -> None:
    slow, healthy = late(2, 3 * MS), late(2, 0)
    prediction = WhatIf(waiting(slow.run())).predict(Change(ranks=(2,)))
    events = waiting(healthy.run()).arrivals.events_ns
    truth = int(events[:, 2].max() - events[:, 0].min())
    assert prediction.run_then_ns == pytest.approx(truth, rel=0.02)
    assert abs(prediction.run_then_ns - truth) <= prediction.error_ns
    assert prediction.run_now_ns == pytest.approx(truth + 25 * 3 * MS, rel=0.02)


def test_without_another_rank_a_job_takes_as_long_as_it_took() -> None:
    prediction = WhatIf(waiting(late(2, 3 * MS).run())).predict(Change(ranks=(0,)))
    assert prediction.gained_share < 0.01


def test_free_transfers_take_no_time() -> None:
    run = MadeJob(host_ns=jitter, wire_ns=lambda name, step: 2 * MS).run()
    prediction = WhatIf(waiting(run)).predict(Change(free=(0,)))
    gained = prediction.run_now_ns - prediction.run_then_ns
    assert gained == pytest.approx(30 * 2.1 * MS, rel=0.02)


def test_waits_of_some_kernels_conserve_too() -> None:
    made = waiting(late(2, 3 * MS).run())
    chosen = made.kernels.rank == 0
    some = account_of(made, chosen)
    assert sum_of(some) == some.total_ns == int(made.arrivals.wait_ns[chosen].sum())


def test_a_job_of_one_rank_has_no_account() -> None:
    run = late(2, 0).run()
    keep = run.operations["global_rank"] == 0
    table = {name: np.asarray(values)[keep] for name, values in run.operations.items()}
    alone = replace(run.model, tables=run.model.tables | {"operations": table})
    assert waiting_of(Run(alone)) is None


def test_charges_in_threads_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    run = late(2, 3 * MS).run()
    one, victims = waiting(run).charges, waiting(run).waits_because_of([0, 2])
    monkeypatch.setattr(delays, "WORTH_THREADS", 0)
    several = waiting(run).charges
    assert one.by_event.any()
    for rank, waits in waiting(run).waits_because_of([0, 2]).items():
        assert np.array_equal(waits, victims[rank])
    for field in fields(Charges):
        assert np.array_equal(getattr(one, field.name), getattr(several, field.name)), field.name


def test_waits_because_of_a_rank_are_what_its_edges_are_charged_with() -> None:
    made = waiting(late(2, 3 * MS).run())
    own = made.charges.by_event.reshape(-1, 3)[:, :2].sum(axis=1)
    by_rank = np.bincount(made.kernels.rank, own, minlength=len(made.kernels.ranks))
    waits = made.waits_because_of(made.kernels.ranks.tolist())
    assert [int(waits[rank].sum()) for rank in made.kernels.ranks.tolist()] == by_rank.tolist()
    assert waits[2].sum() > 0 == waits[2][2]


@pytest.mark.parametrize("most_at_once", [1_000_000, 500])
def test_a_sample_has_no_critical_path(tmp_path: Path, most_at_once: int) -> None:
    """What ranks did between two timed operations is not on record: no structure of the job."""
    all_kinds()["ddp 4, every 5th operation timed, late rank"].write(tmp_path / "c", 1)
    model = ncclscope.open(str(tmp_path / "c")).model
    found, parts = waiting_account(model, Selection(), most_at_once)
    assert found is not None
    assert (parts, found.structure_ns) == ((), 0)
    assert sum_of(found) == found.total_ns


def test_no_waiting_of_a_pipeline_begins_in_its_network(tmp_path: Path) -> None:
    """Sends between hosts take longer than those within: 8.5 % of the waiting began in them."""
    kind = all_kinds()["pipeline 8 in groups x dp 2 on 4 hosts, healthy"]
    kind.write(tmp_path / "c", 1)
    whole = account(Run(ncclscope.open(str(tmp_path / "c")).model))
    transfers = [one.waiting_ns for one in whole.origins if one.kind == "transfer"]
    assert sum(transfers) < 0.02 * whole.total_ns
