"""Who is late, on jobs made by hand: durations and own times are known exactly."""

from collections.abc import Callable

import numpy as np
import pytest

from ncclscope.analysis.lateness import Lateness, late_instances, lateness, own_time_excess
from ncclscope.analysis.own_time import own_times
from ncclscope.analysis.run import Run
from ncclscope.analysis.synchronized import synchronized_instances
from ncclscope.model.schema import NONE
from tests.support.model_builders import model, operation, world

RANKS, CALLS = 4, 20
STEP_NS, COMPUTE_NS, WIRE_NS = 1_000_000, 400_000, 100_000
Late = Callable[[int, int], int]  # ns by rank and call


def job(late_ns: Late, ranks: int = RANKS) -> Run:
    """AllReduces of all ranks: each begins when its rank has computed, all end together."""
    rows, instances, end = [], [], [0] * ranks
    for call in range(CALLS):
        starts = [end[rank] + COMPUTE_NS + late_ns(rank, call) for rank in range(ranks)]
        last = max(starts) + WIRE_NS
        for rank, start in enumerate(starts):
            rows.append(
                operation(
                    communicator=0, rank=rank, function="AllReduce", algorithm="RING", source="gpu",
                    size_bytes=1 << 20, start_ns=start, end_ns=last, duration_ns=last - start,
                    call_ns=start - 10_000, launch_end_ns=start - 5_000, instance=call,
                )
            )  # fmt: skip
        instances.append({"communicator": 0, "form": "collective", "function": "AllReduce",
                          "size_bytes": 1 << 20, "last_start_ns": max(starts)})  # fmt: skip
        end = [last] * ranks
    communicators = [{"id": 1, "name_inferred": 0, "ranks": ranks, "nodes": 2}]
    return Run(model(rows, instances, communicators, ["world"], world(ranks, 2), nodes=2))


def late_in(run: Run) -> Lateness:
    found = lateness(run, synchronized_instances(run, own_times(run)))
    assert found is not None
    return found


def test_the_rank_that_comes_last_adds_what_it_is_late() -> None:
    run = job(lambda rank, call: 80_000 * (rank == 2))
    late = late_in(run)
    # Own times are not known of the first call.
    assert [delay.added_ns for delay in late.ranks] == [0, 0, 80_000 * (CALLS - 1), 0]
    assert [delay.times for delay in late.ranks] == [0, 0, CALLS - 1, 0]
    assert [delay.steady_ns for delay in late.ranks] == [0, 0, 80_000, 0]
    instances = synchronized_instances(run, own_times(run))
    of_rank = late_instances(late, instances, 2)
    assert (of_rank.instances, of_rank.late, of_rank.typical_ns) == (CALLS, CALLS - 1, 80_000)
    assert of_rank.worst_ns == 80_000


def test_a_few_pauses_are_trimmed() -> None:
    late = late_in(job(lambda rank, call: 5_000_000 * (rank == 1 and call in (4, 9))))
    assert late.ranks[1].added_ns == 10_000_000
    assert late.ranks[1].trimmed_ns == 0


def test_a_node_adds_what_its_earliest_rank_is_late() -> None:
    """Ranks 2 and 3 are on the second node."""
    late = late_in(job(lambda rank, call: {2: 60_000, 3: 90_000}.get(rank, 0)))
    assert [delay.added_ns for delay in late.nodes] == [0, 60_000 * (CALLS - 1)]


def test_what_is_longer_is_the_time_before_the_call() -> None:
    run = job(lambda rank, call: 80_000 * (rank == 2))
    excess = own_time_excess(run, own_times(run), np.array([2]))
    assert excess.largest == "compute"
    assert excess.compute_ns == pytest.approx(80_000)
    assert excess.launch_ns == excess.gpu_ns == 0


def test_ranks_that_are_not_known_are_nobody() -> None:
    run = job(lambda rank, call: 80_000 * (rank == 2))
    run.operations["global_rank"][run.operations["rank"] == 2] = NONE
    assert [delay.who for delay in late_in(run).ranks] == [0, 1, 3]
    run.operations["global_rank"][:] = NONE
    assert late_in(run).ranks == ()


def test_of_one_rank_nobody_can_be_late() -> None:
    run = job(lambda rank, call: 0, ranks=1)
    assert lateness(run, synchronized_instances(run, own_times(run))) is None
