"""The kinds of jobs of the laboratory: each shape healthy, and with faults."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.support.laboratory.events import Machine
from tests.support.laboratory.faults import QUIET, TRANSCRIPTS, Fault
from tests.support.laboratory.held_out_kinds import held_out_kinds
from tests.support.laboratory.hiding_kinds import hiding_kinds
from tests.support.laboratory.mesh import Mesh
from tests.support.laboratory.missed_kinds import missed_kinds
from tests.support.laboratory.overlapping_kinds import overlapping_kinds
from tests.support.laboratory.programs import (
    Buckets,
    Experts,
    ManyCommunicators,
    Ring,
    Serving,
)
from tests.support.laboratory.recording import Recording
from tests.support.laboratory.shapes import Faults, gpu, host, launch, link, shape
from tests.support.laboratory.truth import Kind
from tests.support.laboratory.uncommon_kinds import uncommon_kinds
from tests.support.laboratory.waiting_kinds import waiting_kinds

Load = Mesh | Experts | Ring | Buckets | ManyCommunicators | Serving


def _shape(name: str, load: Load, faults: Faults, **options: Any) -> Iterator[Kind]:
    return shape(name, None, load, faults, **options)


def _late_group(name: str, ranks: range, ms: float) -> tuple[Fault, ...]:
    return tuple(host(rank, ms, group=name) for rank in ranks)


def _data_parallel() -> Iterator[Kind]:
    two = Buckets(2, steps=25)
    yield from _shape("ddp 2", two, {"late rank": (host(1, 8),), "slow GPU": (gpu(0, 1.4),)})
    four = Buckets(4, steps=30)
    yield from _shape("ddp 4", four, {
        "late rank": (host(2, 8),),
        "slow GPU": (gpu(3, 1.4, first=5),),
        "slow launches": (launch(1, 7.0),),
        "slow layer": (Fault("layer", 2, ms=6, place=2),),
        "slow data loader": (Fault("data", 1, ms=10),),
        "slow link": (link(1, 2, 40, first=10),),
        "one pause": (host(0, 400, first=15, last=15),),
        "small lateness and one outlier": (host(3, 3), host(3, 500, first=20, last=20)),
        "every fifth step": (host(1, 40, first=2, every=5),),
        "late start": (Fault("start-up", 3, ms=400),),
        "one rank, then another": (host(1, 10, last=14), host(3, 10, first=15)),
        "two late ranks": (host(0, 8), host(2, 8)),
        "masked": (host(0, 12), host(2, 3, masked=True)),
    })  # fmt: skip
    hosts = Machine(ranks_per_host=4)
    yield from _shape("ddp 8 on 2 hosts", Buckets(8), {
        "late rank": (host(5, 8),),
        "slow host": _late_group("host", range(4, 8), 8),
        "slow link between hosts": (link(3, 4, 10, first=8),),
        "late rank and slow link": (host(1, 12, last=14), link(3, 4, 10, first=15)),
    }, machine=hosts)  # fmt: skip
    yield from _shape("ddp 16, half late", Buckets(16, steps=20), {
        "half of all ranks late": _late_group("half", range(0, 16, 2), 8),
    }, machine=hosts)  # fmt: skip
    yield from _shape("ddp 64", Buckets(64, steps=12), {
        "late rank": (host(37, 8),),
        "slow GPU": (gpu(11, 1.4),),
    })  # fmt: skip
    yield from _shape("ddp 4 with accumulation", Buckets(4, accumulate=4, steps=15), {
        "late rank": (host(2, 15),),
        "slow GPU": (gpu(1, 1.3),),
    })  # fmt: skip
    lengths = Buckets(8, length_spread=0.4)
    yield from _shape(
        "ddp 8, sequences of any length", lengths, {"late rank": (host(6, 12),)}, uneven=True
    )
    duty = Buckets(4, duty_ms=8)
    yield from _shape("ddp 4, duties in turn", duty, {"late rank": (host(1, 12),)}, uneven=True)
    yield from _shape("ddp 4, reduce and broadcast", Buckets(4, function="Reduce"), {
        "late rank": (host(2, 10),),
        "late root": (host(0, 10),),
    })  # fmt: skip
    yield from _shape("ddp 4 without synchronization", Buckets(4, synchronize=False), {
        "slow GPU": (gpu(2, 1.4),),
        "late rank": (host(1, 40),),
    })  # fmt: skip
    yield from _shape("ddp 4, three steps", Buckets(4, steps=3), {"late rank": (host(3, 50),)})
    yield from _shape("ddp 4, long", Buckets(4, steps=300, buckets=2), {
        "late rank": (host(2, 5),),
        "one pause": (host(1, 2_000, first=150, last=150),),
    })  # fmt: skip
    yield from _shape(
        "ddp 8, slow start", Buckets(8, first_call_ms=400), {"late rank": (host(2, 8),)}
    )
    checkpoints = Buckets(4, steps=40, checkpoint_every=10, checkpoint_ms=150)
    yield from _shape(
        "ddp 4 with checkpoints of rank 0", checkpoints, {"late rank": (host(2, 10),)},
        may_ranks=(0,),
    )  # fmt: skip
    yield from _shape("ddp 4, noise of transcripts", Buckets(4, steps=40), {
        "late rank": (host(2, 25),),
        "slow GPU": (gpu(1, 1.8),),
    }, noise=TRANSCRIPTS)  # fmt: skip


def _sharded() -> Iterator[Kind]:
    yield from _shape("fsdp 4", Mesh(dp=4, sharded=True, layers=4), {
        "late rank": (host(2, 10),),
        "slow GPU": (gpu(1, 1.5),),
        "slow launches": (launch(3, 1.0),),
        "slow link": (link(0, 1, 12, first=6),),
    })  # fmt: skip
    yield from _shape("fsdp 8 on 2 hosts", Mesh(dp=8, sharded=True, layers=4), {
        "late rank": (host(6, 10),),
        "slow link between hosts": (link(3, 4, 6, first=6),),
        "slow host": _late_group("host", range(4), 10),
    }, machine=Machine(ranks_per_host=4))  # fmt: skip
    yield from _shape("fsdp 2 x tp 2", Mesh(dp=2, tp=2, sharded=True, layers=4, steps=30), {
        "late rank": (host(2, 20, first=5),),
        "slow GPU": (gpu(2, 1.5, first=5),),
        "slow link of a data parallel group": (link(1, 3, 12, first=5),),
        "slow link of a tensor parallel group": (link(0, 1, 12, first=5),),
    })  # fmt: skip
    yield from _shape("dp 8 x tp 2", Mesh(dp=8, tp=2, layers=4), {
        "late rank": (host(5, 15),),
        "two late ranks": (host(5, 15), host(10, 12)),
        "two equally late ranks": (host(5, 15), host(12, 15)),
        "slow GPU": (gpu(9, 1.5),),
    }, machine=Machine(ranks_per_host=8))  # fmt: skip
    yield from _shape("tp 8", Mesh(tp=8, layers=6), {
        "late rank": (host(4, 10),),
        "slow GPU": (gpu(7, 1.3),),
        "slow link": (link(2, 3, 10, first=6),),
    })  # fmt: skip
    yield from _shape("fsdp 256", Mesh(dp=32, tp=8, sharded=True, layers=2, steps=6), {
        "late rank": (host(101, 15),),
        "slow GPU": (gpu(17, 1.5),),
    })  # fmt: skip
    yield from _shape("dp 128 x tp 8", Mesh(dp=128, tp=8, layers=2, steps=5), {
        "late rank": (host(700, 15),),
        "slow link": (link(320, 321, 20),),
    })  # fmt: skip


def _pipelines() -> Iterator[Kind]:
    small = Mesh(pp=2, dp=2, tp=2, micro_batches=4)
    yield from _shape("mesh 2 x 2 x 2", small, {
        "late rank": (host(3, 12),),
        "slow GPU": (gpu(5, 1.4),),
    })  # fmt: skip
    mesh = Mesh(pp=4, dp=2, tp=2, micro_batches=8, steps=12, layer_ms=0.8)
    yield from _shape("mesh 4 x 2 x 2", mesh, {
        "late rank": (host(9, 20, first=3),),
        "slow GPU": (gpu(5, 1.4, first=3),),
        "slow layer": (Fault("layer", 13, ms=12, place=3, first=3),),
        "slow GPU and late rank": (gpu(5, 1.4, first=3), host(10, 20, first=3)),
        "one slow GPU, then another": (gpu(5, 1.5, first=1, last=5), gpu(14, 1.5, first=6)),
        "slow link between stages": (link(5, 9, 30, first=3),),
        "slow link of a tensor parallel group": (link(4, 5, 10, first=3),),
        "slow link of a data parallel group": (link(8, 10, 40, first=3),),
    }, machine=Machine(ranks_per_host=16))  # fmt: skip
    yield from _shape("mesh 4 x 4 x 4", replace(mesh, dp=4, tp=4, steps=6), {
        "late rank": (host(22, 20),),
        "slow GPU": (gpu(41, 1.4),),
    })  # fmt: skip
    pipe = Mesh(pp=4, micro_batches=8, steps=15)
    yield from _shape("pipeline 4", pipe, {
        "slow stage": (gpu(2, 1.5),),
        "late rank": (host(1, 20),),
        "slow link": (link(1, 2, 40, first=5),),
    })  # fmt: skip
    yield from _shape("pipeline 4 in groups", replace(pipe, batched=True), {
        "slow stage": (gpu(2, 1.5),),
        "late rank": (host(1, 20),),
        "slow link": (link(1, 2, 40, first=5),),
    })  # fmt: skip
    yield from _shape(
        "pipeline 8 in groups x dp 2", replace(pipe, pp=8, dp=2, batched=True),
        {"slow stage": (gpu(6, 1.5),), "late rank": (host(3, 25),)},
    )  # fmt: skip
    yield from _shape("interleaved pipeline 4", replace(pipe, chunks=2), {
        "slow stage": (gpu(1, 1.4),),
        "late rank": (host(3, 25),),
    })  # fmt: skip
    yield from _shape("interleaved pipeline 4 x dp 2", replace(pipe, chunks=2, dp=2, steps=10), {
        "slow GPU": (gpu(4, 1.4),),
        "late rank": (host(7, 25),),
    })  # fmt: skip
    yield from _shape("pipeline 4, heavy last stage", replace(pipe, last_stage=1.25, dp=2), {
        "late rank": (host(2, 20),),
    }, may_ranks=(6, 7))  # fmt: skip
    yield from _shape("mesh 2 x 2 x 2 with evaluation", replace(small, evaluate_every=5), {
        "late rank": (host(3, 12),),
    })  # fmt: skip
    yield from _shape("mesh 2 x 2 x 2 with warm-up", replace(small, warm_up=3), {
        "slow GPU": (gpu(2, 1.4),),
    })  # fmt: skip
    saved = replace(small, checkpoint_every=8, checkpoint_ms=120)
    yield from _shape(
        "mesh 2 x 2 x 2, checkpoints of rank 0", saved, {"late rank": (host(5, 12),)},
        may_ranks=(0,),
    )  # fmt: skip
    yield from _shape(
        "mesh 2 x 2 x 2, checkpoints of all", replace(saved, checkpoint_by_all=True),
        {"slow GPU": (gpu(6, 1.4),)},
    )  # fmt: skip


def _exchanges() -> Iterator[Kind]:
    late = {"late rank": (host(3, 10),), "slow GPU": (gpu(5, 1.5),)}
    yield from _shape("experts 8, even", Experts(), late)
    yield from _shape("experts 8, popular one moves", Experts(popular="moving"), late)
    yield from _shape("experts 8, popular one by chance", Experts(popular="random"), {
        "late rank": (host(3, 15),),
    })  # fmt: skip
    yield from _shape(
        "experts 8, one always popular", Experts(popular="fixed"), {"late rank": (host(3, 25),)},
        may_ranks=(0,), may_families=("imbalance",),
    )  # fmt: skip
    yield from _shape("all-to-all only", Experts(reduce_mb=0, layers=1), {
        "late rank": (host(3, 10),),
    })  # fmt: skip
    yield from _shape("experts 16 on 2 hosts", Experts(16, steps=12), {
        "late rank": (host(11, 12),),
    })  # fmt: skip
    yield from _shape("ring 8", Ring(), late)
    yield from _shape("ring 8, sends and receives only", Ring(reduce_mb=0, layers=1), {
        "late rank": (host(3, 10),),
        "slow link": (link(3, 4, 40, first=6),),
    })  # fmt: skip
    yield from _shape("ring 8 on 2 hosts, without overlap", Ring(overlapped=False), {
        "late rank": (host(3, 10),),
        "slow link": (link(3, 4, 12, first=6),),
    }, machine=Machine(ranks_per_host=4))  # fmt: skip
    single = Ring(layers=1, rounds=1, reduce_mb=0, steps=60, block_mb=8, overlapped=False)
    yield from _shape("ring 8 on 2 hosts, one exchange at a time", single, {
        "late rank": (host(3, 10),),
        "slow link": (link(3, 4, 12, first=10),),
    }, machine=Machine(ranks_per_host=4))  # fmt: skip
    yield from _shape("100 communicators", ManyCommunicators(), {
        "late rank": (host(1, 10),),
        "slow GPU": (gpu(1, 1.8),),
    })  # fmt: skip
    yield from _shape("serving tp 4 x 2", Serving(), {
        "slow GPU": (gpu(2, 1.5),),
        "late rank": (host(5, 3),),
        "slow launches": (launch(1, 0.4),),
    })  # fmt: skip
    yield from _shape("serving tp 8, busy", Serving(tp=8, replicas=1, idle_ms=0), {
        "slow GPU": (gpu(3, 1.5),),
    })  # fmt: skip


def _records() -> Iterator[Kind]:
    """Jobs whose record is not the plain one."""
    late: Faults = {"late rank": (host(2, 10),)}
    mesh = Mesh(pp=2, dp=2, tp=2, micro_batches=4)
    far = Recording(clock_drift_ppm=150.0, gpu_drift_ppm=5.0)
    yield from _shape(
        "ddp 4 on 4 hosts, clocks drift", Buckets(4, steps=60), late, recording=far,
        machine=Machine(ranks_per_host=1),
    )  # fmt: skip
    yield from _shape(
        "mesh 2 x 2 x 2 on 4 hosts, clocks drift", mesh, {"slow GPU": (gpu(5, 1.4),)},
        recording=far, machine=Machine(ranks_per_host=2),
    )  # fmt: skip
    yield from _shape(
        "ddp 4, every 5th operation timed", Buckets(4, steps=60), late,
        recording=Recording(timed_every=5), may_families=("data_quality",),
    )  # fmt: skip
    yield from _shape(
        "dp 8 x tp 2, every 3rd operation timed", Mesh(dp=8, tp=2, layers=4),
        {"slow GPU": (gpu(9, 1.5),)}, recording=Recording(timed_every=3),
        may_families=("data_quality",),
    )  # fmt: skip
    lost = Recording(dropped=((1, 10, 14),))
    yield from _shape(
        "ddp 4, lost records", Buckets(4), late, recording=lost, may_families=("data_quality",)
    )
    yield from _shape(
        "mesh 2 x 2 x 2, lost records", mesh, {"slow GPU": (gpu(5, 1.4),)}, recording=lost,
        may_families=("data_quality",),
    )  # fmt: skip
    yield from _shape(
        "ddp 8, a rank without files", Buckets(8), late, recording=Recording(missing=(6,)),
        may_families=("data_quality",),
    )  # fmt: skip
    pairs = Recording(ranks_per_process=2)
    yield from _shape("ddp 8, two ranks a process", Buckets(8), late, recording=pairs)
    yield from _shape(
        "ddp 4, trees", Buckets(4), late, recording=Recording(trees=("world",)), blind=True
    )
    yield from _shape(
        "mesh 2 x 2 x 2, NCCL 2.32, no names", mesh, {"late rank": (host(3, 12),)},
        recording=Recording(version=7, names=False),
    )  # fmt: skip
    yield from _shape("ddp 4, restarted", Buckets(4), late, restarts=1)
    yield from _shape(
        "dp 8 x tp 2, quiet", Mesh(dp=8, tp=2, layers=4), {"late rank": (host(5, 5),)}, noise=QUIET
    )


def drops_and_late_ranks() -> Iterator[Kind]:
    """Longer jobs, for sampled GPU times: links that become slow halfway, and late ranks."""
    faults: Faults = {
        "links slow from half on": (link(1, 2, 3.0, first=300),),
        "late rank": (host(2, 8),),
    }
    yield from _shape("ddp 4, 600 steps", Buckets(4, steps=600), faults)
    yield from _shape("fsdp 4, 600 steps", Mesh(dp=4, sharded=True, layers=2, steps=600), faults)


# A part that takes little time: small jobs of every sort.
FAST = (
    "ddp 2, late rank",
    "ddp 4, healthy",
    "ddp 4, slow GPU",
    "ddp 4, slow link",
    "ddp 4, one pause",
    "ddp 4, one rank, then another",
    "ddp 4, two late ranks",
    "ddp 4, three steps, late rank",
    "ddp 4 with checkpoints of rank 0, healthy",
    "ddp 4, noise of transcripts, healthy",
    "ddp 8 on 2 hosts, slow host",
    "ddp 16, half late, half of all ranks late",
    "fsdp 4, slow launches",
    "fsdp 2 x tp 2, late rank",
    "fsdp 2 x tp 2, slow link of a data parallel group",
    "mesh 2 x 2 x 2, healthy",
    "mesh 2 x 2 x 2, slow GPU",
    "pipeline 4, healthy",
    "pipeline 4 in groups, slow stage",
    "all-to-all only, late rank",
    "ring 8 on 2 hosts, one exchange at a time, late rank",
    "100 communicators, late rank",
    "serving tp 4 x 2, healthy",
    "ddp 4, every 5th operation timed, late rank",
    "ddp 8, two ranks a process, late rank",
)


def all_kinds() -> dict[str, Kind]:
    """Every kind by its name."""
    parts = (
        _data_parallel(), _sharded(), _pipelines(), _exchanges(), _records(), held_out_kinds(),
        uncommon_kinds(), missed_kinds(), waiting_kinds(), hiding_kinds(), overlapping_kinds(),
    )  # fmt: skip
    kinds = [kind for part in parts for kind in part]
    table = {kind.name: kind for kind in kinds}
    assert len(table) == len(kinds), "two kinds have one name"
    return table
