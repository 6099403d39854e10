"""Kinds after jobs of others whose faults were not named: what a whole host, half of all GPUs or a
stage has in common, ranks that are late in the first steps alone, and hosts that join later.

Rules were mended on the first kinds of each cause. Those of `_other_shapes` were made with them,
and looked at when the rules were done.
"""

from collections.abc import Iterator
from dataclasses import replace

from tests.support.laboratory.elastic import Elastic, elastic_program
from tests.support.laboratory.events import Machine
from tests.support.laboratory.faults import TRANSCRIPTS, USUAL, Fault
from tests.support.laboratory.mesh import Mesh
from tests.support.laboratory.programs import Buckets, Ring
from tests.support.laboratory.shapes import gpu, host, link, shape
from tests.support.laboratory.truth import Kind

_FOUR_A_HOST = Machine(ranks_per_host=4)
_TWO_A_HOST = Machine(ranks_per_host=2)
_EIGHT_A_HOST = Machine(ranks_per_host=8)


def _network(ranks: range, everybody: int, factor: float) -> tuple[Fault, ...]:
    """All that a host sends to other hosts, and gets from there, is slow."""
    others = [rank for rank in range(everybody) if rank not in ranks]
    return tuple(link(a, b, factor, group="network") for a in ranks for b in others)


def _old(ranks: range | tuple[int, ...], factor: float) -> tuple[Fault, ...]:
    return tuple(gpu(rank, factor, group="old") for rank in ranks)


def missed_kinds() -> Iterator[Kind]:
    """All of them."""
    pipeline = Mesh(pp=4, dp=4, micro_batches=8, steps=12)
    yield from shape("pipeline 4 x dp 4 on 4 hosts", None, pipeline, {
        "network of a host": _network(range(4, 8), 16, 8),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    ring = Ring(16, steps=12, rounds=6, overlapped=False)
    yield from shape("ring 16 on 4 hosts", None, ring, {
        "network of a host": _network(range(8, 12), 16, 6),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    lengths = Buckets(16, steps=40, length_spread=0.4)
    yield from shape("ddp 16 on 4 hosts, sequences of any length", None, lengths, {
        "old GPUs on half of the hosts": _old(range(8, 16), 1.4),
    }, machine=_FOUR_A_HOST, uneven=True)  # fmt: skip
    yield from shape("ddp 8, 40 steps, noise of transcripts", None, Buckets(8, steps=40), {
        "every second GPU is old": _old((1, 3, 5, 7), 1.3),
    }, noise=TRANSCRIPTS)  # fmt: skip
    yield from shape("ddp 32 on 4 hosts, noise of transcripts", None, Buckets(32), {
        "old GPUs on two hosts": _old(range(16, 32), 1.3),
    }, machine=_EIGHT_A_HOST, noise=TRANSCRIPTS)  # fmt: skip
    # A stage with more layers: all its ranks are alike, and nobody is to blame.
    yield from shape(
        "pipeline 4 x dp 2, heavy second stage", None,
        Mesh(pp=4, dp=2, micro_batches=8, steps=15, stage_work=(1.0, 1.5, 1.0, 1.0)), {},
        may_ranks=(2, 3),
    )  # fmt: skip
    yield from shape("ddp 8, 40 steps", None, Buckets(8, steps=40), {
        "cold cache": (host(3, 600, last=0),),
    })  # fmt: skip
    yield from shape("elastic 12 on 3 hosts", elastic_program, Elastic(), {
        "slow host that joined": _old(range(4, 8), 1.4),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    # No call is launched at once, so that the clocks of hosts and GPUs are known badly.
    ahead = Buckets(16, steps=40, bucket_ms=4.0, meets_first=False)
    yield from shape("ddp 16 on 2 hosts, long forward passes", None, ahead, {
        "slow GPU": (gpu(5, 1.12),),
    }, machine=_EIGHT_A_HOST)  # fmt: skip
    # Nodes meet four times a second, and clocks are brought together by that.
    seldom = Mesh(pp=4, dp=4, micro_batches=8, steps=40, layer_ms=4.0, batched=True)
    yield from shape("pipeline 4 in groups x dp 4 on 4 hosts, long steps", None, seldom, {
        "slow link": (link(5, 9, 12),),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    # Exchanges with the stage before look like those with the next one.
    deep = Mesh(pp=8, dp=2, micro_batches=12, steps=30, layer_ms=4.0, batched=True)
    yield from shape("pipeline 8 in groups x dp 2 on 4 hosts, long steps", None, deep, {
        "slow GPU": (gpu(7, 1.25),),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    # Slow from the first step on, and no other communicator to compare with: nobody can tell.
    yield from shape("ddp 8 on 2 hosts, 25 steps", None, Buckets(8, steps=25), {
        "link slow from the first step on": (link(3, 4, 12),),
    }, machine=_FOUR_A_HOST, blind=True)  # fmt: skip
    yield from _other_shapes()


def _other_shapes() -> Iterator[Kind]:
    """The same causes in jobs of other shapes."""
    deep = Mesh(pp=8, dp=2, micro_batches=12, steps=10, batched=True)
    yield from shape("pipeline 8 in groups x dp 2 on 4 hosts", None, deep, {
        "network of a host": _network(range(8, 12), 16, 5),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    yield from shape("ring 12 on 6 hosts", None, Ring(12, steps=15, layers=1, block_mb=8), {
        "network of a host": _network(range(6, 8), 12, 5),
    }, machine=_TWO_A_HOST)  # fmt: skip
    busy = replace(USUAL, compute=0.12, pause_share=0.1, pause_ms=3.0)
    yield from shape("fsdp 8 on 2 hosts, work varies", None, Mesh(dp=8, sharded=True, layers=4), {
        "old GPUs on half of the hosts": _old(range(4), 1.4),
    }, machine=_FOUR_A_HOST, noise=busy, uneven=True)  # fmt: skip
    sharded = Mesh(dp=32, sharded=True, layers=3, steps=15)
    yield from shape("fsdp 32 on 4 hosts, noise of transcripts", None, sharded, {
        "old GPUs on two hosts": _old((*range(8), *range(24, 32)), 1.3),
    }, machine=_EIGHT_A_HOST, noise=TRANSCRIPTS)  # fmt: skip
    ahead = Buckets(8, steps=40, bucket_ms=4.0, meets_first=False, data_ms=0.0)
    yield from shape("ddp 8 on 2 hosts, long forward passes", None, ahead, {
        "slow GPU": (gpu(5, 1.12),),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    ahead = Buckets(16, buckets=3, bucket_ms=8.0, accumulate=2, meets_first=False)
    yield from shape("ddp 16 on 4 hosts, long forward passes", None, ahead, {
        "late rank": (host(5, 10),),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    seldom = Mesh(pp=8, micro_batches=8, steps=50, layer_ms=3.0, batched=True)
    yield from shape("pipeline 8 in groups on 2 hosts, long steps", None, seldom, {
        "checkpoints of a rank": (host(0, 400, first=5, every=10),),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    deep = Mesh(pp=6, tp=2, micro_batches=12, steps=20, layers=1, batched=True)
    yield from shape("pipeline 6 in groups x tp 2", None, deep, {"slow GPU": (gpu(5, 1.3),)})
    deep = Mesh(pp=4, dp=3, micro_batches=10, steps=25, layer_ms=2.0, batched=True)
    yield from shape("pipeline 4 in groups x dp 3 on 3 hosts", None, deep, {
        "slow GPU": (gpu(4, 1.2),),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    hidden = {"link slow from the first step on": (link(1, 2, 15),)}
    sharded = Mesh(dp=6, sharded=True, layers=4)
    yield from shape("fsdp 6", None, sharded, hidden, blind=True)
    yield from shape("fsdp 6 on 3 hosts", None, sharded, hidden, machine=_TWO_A_HOST, blind=True)
    micro = Buckets(12, steps=30, accumulate=2, length_spread=0.3)
    yield from shape("ddp 12 on 6 hosts with accumulation", None, micro, {
        "old GPUs on half of the hosts": _old((0, 1, 4, 5, 8, 9), 1.3),
    }, machine=_TWO_A_HOST, uneven=True)  # fmt: skip
    yield from shape("dp 4 x tp 2, noise of transcripts", None, Mesh(dp=4, tp=2, layers=3), {
        "half of the GPUs are old": _old(range(4), 1.4),
    }, noise=TRANSCRIPTS)  # fmt: skip
    yield from shape(
        "pipeline 4 in groups x tp 2, heavy third stage", None,
        Mesh(pp=4, tp=2, micro_batches=8, steps=12, batched=True, stage_work=(1, 1, 1.6, 1)), {},
        may_ranks=(4, 5),
    )  # fmt: skip
    yield from shape(
        "pipeline 8 x dp 2, heavy first stage", None,
        Mesh(pp=8, dp=2, micro_batches=16, steps=8, stage_work=(1.45, *[1.0] * 7)), {},
        may_ranks=(0, 1),
    )  # fmt: skip
    yield from shape("fsdp 4 x tp 2, 30 steps", None, Mesh(dp=4, tp=2, sharded=True, steps=30), {
        "cold cache in two steps": (host(5, 250, last=1),),
    })  # fmt: skip
    yield from shape("mesh 2 x 2 x 2, 25 steps", None, Mesh(2, 2, 2, 25, micro_batches=4), {
        "cold cache": (host(6, 500, last=0),),
    })  # fmt: skip
    quick = Elastic((2, 4, 6, 8), steps=14, buckets=4, join_ms=60)
    yield from shape("elastic 8 on 4 hosts", elastic_program, quick, {
        "slow host that joined": _old(range(4, 6), 1.5),
    }, machine=_TWO_A_HOST)  # fmt: skip
    yield from shape("elastic 12 on 2 hosts", elastic_program, Elastic((6, 12), buckets=2), {
        "slow GPU that joined": (gpu(8, 1.5),),
    }, machine=Machine(ranks_per_host=6))  # fmt: skip
