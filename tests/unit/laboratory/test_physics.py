"""The laboratory's event simulation: what follows from what, and twins that differ by the fault."""

from itertools import pairwise
from pathlib import Path

import pytest

import ncclscope
from tests.support.laboratory.engine import Job
from tests.support.laboratory.events import Kernel, Machine
from tests.support.laboratory.faults import USUAL, Fault
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.mesh import Mesh, mesh_program
from tests.support.laboratory.programs import Buckets, buckets_program
from tests.support.laboratory.shapes import HEALTHY
from tests.support.laboratory.truth import Kind

KINDS = all_kinds()
SMALL = (
    "ddp 4, late rank",
    "ddp 4, reduce and broadcast, late root",
    "fsdp 2 x tp 2, slow GPU",
    "mesh 2 x 2 x 2, late rank",
    "pipeline 4, slow link",
    "pipeline 4 in groups, slow stage",
    "interleaved pipeline 4, late rank",
    "all-to-all only, late rank",
    "ring 8, sends and receives only, slow link",
    "100 communicators, slow GPU",
    "serving tp 4 x 2, slow launches",
)


@pytest.fixture(scope="module", params=SMALL)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def job(kind: Kind) -> Job:
    return kind.job(1)


@pytest.fixture(scope="module")
def twin(kind: Kind) -> Job:
    return kind.job(1, ())


def _times(kernel: Kernel) -> tuple[float, float, float]:
    return kernel.call_ns, kernel.start_ns, kernel.end_ns


def test_calls_come_before_launches_starts_and_ends(job: Job) -> None:
    for kernel in job.operations:
        assert kernel.call_ns < kernel.launch_ns < kernel.start_ns < kernel.end_ns


def test_kernels_of_a_communicator_follow_each_other_on_each_rank(job: Job) -> None:
    for rank in job.ranks:
        last_end_ns: dict[str, float] = {}
        for kernel in rank.kernels:
            assert kernel.communicator is not None
            assert kernel.start_ns > last_end_ns.get(kernel.communicator.name, -1.0)
            last_end_ns[kernel.communicator.name] = kernel.end_ns


def test_a_host_makes_one_call_after_the_other(job: Job) -> None:
    for rank in job.ranks:
        for earlier, later in pairwise(rank.kernels):
            assert earlier.launch_ns < later.call_ns


def test_collectives_that_need_all_ranks_end_after_the_last_start(job: Job) -> None:
    for communicator in job.communicators.values():
        for instance in communicator.collectives:
            kernels = list(instance.kernels.values())
            assert len(kernels) == len(communicator.members)
            if kernels[0].parts[0].function in ("Broadcast", "Reduce"):
                continue
            last_ns = max(kernel.start_ns for kernel in kernels)
            for kernel in kernels:
                assert kernel.end_ns >= last_ns + instance.wire_ns
                assert kernel.end_ns <= last_ns + 1.01 * instance.wire_ns


def test_receives_end_after_their_send_has_started_and_sends_have_a_receive(job: Job) -> None:
    for communicator in job.communicators.values():
        for pair, instances in communicator.pairs.items():
            for instance in instances:
                assert set(instance.kernels) == set(pair)
                last_ns = max(kernel.start_ns for kernel in instance.kernels.values())
                receiver = instance.kernels[pair[1]]
                assert receiver.end_ns >= last_ns + instance.wire_ns


def test_a_fault_makes_nothing_earlier_and_no_more_is_lost_than_was_planted(
    job: Job, twin: Job
) -> None:
    assert len(job.operations) == len(twin.operations)
    for faulty, healthy in zip(job.operations, twin.operations, strict=True):
        for later, sooner in zip(_times(faulty), _times(healthy), strict=True):
            assert later >= sooner - 1.0
    assert 0 < job.run_ns - twin.run_ns <= sum(one.delay_ns for one in job.planted) * 1.001


def test_twins_are_equal_until_the_fault_begins(kind: Kind) -> None:
    fault = Fault("host", 1, ms=10, first=3)
    faulty, healthy = kind.job(1, (fault,)), kind.job(1, ())
    for rank, twin in zip(faulty.ranks, healthy.ranks, strict=True):
        before = [k for k in rank.kernels if k.step < 2]
        assert [_times(k) for k in before] == [_times(k) for k in twin.kernels if k.step < 2]
    assert faulty.run_ns > healthy.run_ns


def test_the_same_seed_gives_the_same_job_whichever_rank_is_simulated_first(kind: Kind) -> None:
    backwards = Job(kind.ranks, kind.machine, kind.faults, kind.noise, 1)
    backwards.run(kind.program(backwards), backwards=True)
    job = kind.job(1)
    assert [_times(k) for k in job.operations] == [_times(k) for k in backwards.operations]
    assert [_times(k) for k in job.operations] != [_times(k) for k in kind.job(2).operations]


def test_a_hosts_delay_is_what_was_planted() -> None:
    fault = Fault("host", 2, ms=7, first=4, last=13, every=3)
    job = Job(4, Machine(), (fault,), USUAL, 3)
    job.run(buckets_program(job, Buckets(4)))
    assert job.planted[0].times == 4
    assert job.planted[0].delay_ns == 28e6


def test_a_slow_link_slows_the_communicators_whose_ring_uses_it() -> None:
    job = Job(8, Machine(), (Fault("transfer", link=(0, 1), factor=3.0),), USUAL, 3)
    job.run(mesh_program(job, Mesh(dp=4, tp=2)))
    used = {job.communicators[name].members for name in job.planted[0].communicators}
    assert used == {(0, 1), tuple(range(8))}


def test_tables_of_the_capture_are_the_simulation(kind: Kind, tmp_path: Path) -> None:
    kind.write(tmp_path / "capture", 1)
    job = kind.job(1)
    rows = (
        ncclscope.open(str(tmp_path / "capture"))
        .table("operations")
        .filter("part_of is null and form = 'collective'")
        .project("global_rank, communicator_name, call_order, end_ns - start_ns, wait_ns")
        .fetchall()
    )
    collectives = [k for k in job.operations if k.parts[0].peer < 0]
    assert len(rows) == len(collectives)
    assert sum(row[3] for row in rows) == pytest.approx(
        sum(k.end_ns - k.start_ns for k in collectives), rel=0.01
    )
    functions = {k.parts[0].function for k in collectives}
    if not functions & {"Broadcast", "Reduce"}:
        waited_ns = sum(row[4] or 0 for row in rows)
        error_ns = 50_000 * len(rows)  # clocks of GPUs are tied to about this
        assert waited_ns == pytest.approx(job.waiting_ns(from_step=-1), abs=error_ns)


def test_there_are_kinds_enough_and_each_shape_has_a_healthy_one() -> None:
    assert len(KINDS) >= 120
    healthy = [name for name in KINDS if name.endswith(HEALTHY)]
    assert len(healthy) >= 40
    assert all(bool(kind.faults) != (kind.name in healthy) for kind in KINDS.values())
    assert {2, 1024} <= {kind.ranks for kind in KINDS.values()}
