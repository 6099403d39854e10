"""Times by CUDA events of one host's ranks: after aligning they are as right as is said of them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from ncclscope.model.align.event_clocks import (
    EventTimes,
    RankClock,
    align_event_clocks,
    ranks_by_node,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
US = 1_000
MS = 1_000_000


def aligned(times: list[EventTimes], nodes: list[int]) -> list[RankClock]:
    return [clock for node in ranks_by_node(times, nodes) for clock in align_event_clocks(node)]


@dataclass(frozen=True)
class Job:
    """Times of a job's ranks, and by how much each rank's are off."""

    times: list[EventTimes]
    off_ns: Floats  # by rank
    drift: Floats  # by rank

    def left_ns(self, clock: RankClock) -> Floats:
        """By how much a rank's times are off after aligning."""
        own = self.times[clock.rank]
        true_start = own.start_ns - self._off(clock.rank, own.start_ns)
        return np.asarray(clock.clock.to_reference(own.start_ns) - true_start)

    def _off(self, rank: int, time_ns: Ints) -> Floats:
        return np.asarray(
            self.off_ns[rank] + self.drift[rank] * (time_ns - self.times[0].start_ns[0])
        )


def job(
    seed: int,
    ranks: int,
    off_ns: float,
    width_ns: int,
    late_ns: float = 0.0,
    wire_ns: int = 60 * US,
) -> Job:
    """300 collectives in 30 s, to each third of which the last rank comes late. Times of every rank
    are off by up to `off_ns`, and drift.
    """
    rng = np.random.default_rng(seed)
    ready = np.sort(rng.uniform(0, 30e9, 300)) + 1e12
    arrival = ready[:, None] + rng.uniform(0, 300 * US, (300, ranks))
    arrival[::3, -1] += late_ns
    end = arrival.max(axis=1, keepdims=True) + wire_ns + rng.exponential(20 * US, (300, ranks))
    off, drift = rng.uniform(-off_ns, off_ns, ranks), rng.uniform(-5e-6, 5e-6, ranks)
    times, rows = [], np.arange(300)
    for rank in range(ranks):
        own = np.flatnonzero(rng.random(300) < 0.9) if rank else rows  # some were not timed
        shift = off[rank] + drift[rank] * (arrival[:, rank] - arrival[0, 0])
        start = (arrival[:, rank] + shift).astype(np.int64)
        stop = (end[:, rank] + shift).astype(np.int64)
        times.append(EventTimes(rank, rank, 0, width_ns, rows[own], start[own], stop[own]))
    return Job(times, off, drift)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_ranks_are_on_one_clock_within_what_is_said(ranks: int) -> None:
    for seed in range(2):
        made = job(seed, ranks, 1.5 * MS, 2 * MS, late_ns=3 * MS)
        clocks = aligned(made.times, [0] * ranks)
        assert len(clocks) == ranks
        left = [made.left_ns(clock).mean() for clock in clocks]
        among_ns = clocks[0].among_ns
        assert max(left) - min(left) <= 2 * among_ns
        assert among_ns < 500 * US  # of 2,000
        for clock in clocks:
            assert np.abs(made.left_ns(clock)).max() <= clock.on_host_ns
            assert clock.on_host_ns <= 2 * MS + among_ns


def test_a_rank_that_is_late_to_all_of_them_may_be_one_whose_clock_is_behind() -> None:
    made = job(5, 4, 0.1 * MS, 5 * MS)
    late = made.times[3]
    always = EventTimes(3, 3, 0, 5 * MS, late.row, late.start_ns + 3 * MS, late.end_ns + 3 * MS)
    others = [
        EventTimes(own.process, own.rank, 0, 5 * MS, own.row, own.start_ns, own.end_ns + 3 * MS)
        for own in made.times[:3]
    ]
    clocks = aligned([*others, always], [0] * 4)
    assert all(2 * clock.among_ns > 3 * MS for clock in clocks)


def test_all_ranks_together_are_put_where_the_best_mapping_allows() -> None:
    made = job(1, 4, 1.0, 2 * MS)
    times = [*made.times]
    times[2] = EventTimes(2, 2, 0, 100 * US, times[2].row, times[2].start_ns, times[2].end_ns)
    clocks = aligned(times, [0] * 4)
    assert max(clock.on_host_ns for clock in clocks) < 600 * US
    assert all(np.abs(made.left_ns(clock)).max() < 600 * US for clock in clocks)


def test_ranks_that_no_operation_ties_stay_where_they_are() -> None:
    made = job(2, 2, 1 * MS, 2 * MS)
    apart = EventTimes(
        1, 1, 0, 2 * MS, made.times[1].row + 1000, made.times[1].start_ns, made.times[1].end_ns
    )
    assert aligned([made.times[0], apart], [0, 0]) == []
    assert aligned(made.times[:1], [0]) == []
    other_host = EventTimes(
        1, 1, 1, 2 * MS, made.times[1].row, made.times[1].start_ns, made.times[1].end_ns
    )
    assert aligned([made.times[0], other_host], [0, 1]) == []


def test_a_mapping_that_is_closer_than_operations_show_stays() -> None:
    made = job(3, 4, 1 * US, 5 * US, wire_ns=2 * MS)
    assert aligned(made.times, [0] * 4) == []


def test_a_rank_without_events_is_compared_by_the_hosts_clock() -> None:
    made = job(4, 3, 1 * MS, 2 * MS)
    alone = aligned(made.times, [0, 0, 0])
    with_another = aligned(made.times, [0, 0, 0, 0])
    for own, other in zip(alone, with_another, strict=True):
        assert other.among_ns == other.on_host_ns == own.on_host_ns > own.among_ns
