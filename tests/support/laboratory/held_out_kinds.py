"""Kinds of jobs that were written before anybody looked how diagnose judges them."""

from collections.abc import Iterator
from dataclasses import replace

from tests.support.laboratory.events import Machine
from tests.support.laboratory.faults import Fault, Noise
from tests.support.laboratory.held_out_programs import (
    Actors,
    HeadExchange,
    Hierarchy,
    LocalSteps,
    Optimizer,
    Prefill,
    SequenceParallel,
    Star,
    TokenLoop,
    actors_program,
    head_exchange_program,
    hierarchy_program,
    local_steps_program,
    optimizer_program,
    prefill_program,
    sequence_parallel_program,
    star_program,
    token_loop_program,
)
from tests.support.laboratory.mesh import Mesh
from tests.support.laboratory.programs import Buckets, Experts
from tests.support.laboratory.shapes import gpu, host, launch, link, shape
from tests.support.laboratory.truth import Kind

_FOUR_A_HOST = Machine(ranks_per_host=4)


def _hotter(rank: int) -> tuple[Fault, ...]:
    """A GPU that becomes slower and slower."""
    last = (9, 14, 19, 1 << 30)
    return tuple(
        gpu(rank, 1.2 + 0.2 * n, first=5 * (n + 1), last=last[n], group="hot") for n in range(4)
    )


def _training() -> Iterator[Kind]:
    two_levels = Hierarchy()
    yield from shape("hierarchy 2 x 4", hierarchy_program, two_levels, {
        "late rank": (host(6, 8),),
        "slow GPU": (gpu(1, 1.4),),
        "slow link within a host": (link(1, 2, 15, first=6),),
        "slow link between hosts": (link(2, 6, 15, first=6),),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    yield from shape("hierarchy 8 x 8", hierarchy_program, Hierarchy(8, 8, steps=8), {
        "late rank": (host(29, 12),),
    })  # fmt: skip
    long_layers = Hierarchy(4, 8, 16, layer_ms=2.0, size_mb=8.0)
    yield from shape("hierarchy 4 x 8, long layers", hierarchy_program, long_layers, {
        "slightly slow GPU": (gpu(19, 1.12),),
    })  # fmt: skip
    yield from shape("hierarchy 32 x 8", hierarchy_program, Hierarchy(32, 8, 6, layers=2), {
        "slow GPU": (gpu(133, 1.6),),
    })  # fmt: skip
    yield from shape("local steps 8", local_steps_program, LocalSteps(), {
        "slow GPU": (gpu(4, 1.2),),
        "late rank": (host(2, 15),),
    })  # fmt: skip
    yield from shape("sequence parallel 4 x 2", sequence_parallel_program, SequenceParallel(), {
        "slow GPU": (gpu(6, 1.3),),
        "slow launches": (launch(1, 0.8),),
        "late rank": (host(3, 6),),
    })  # fmt: skip
    yield from shape("sequence parallel 2", sequence_parallel_program, SequenceParallel(2, 1), {
        "late rank": (host(0, 6),),
    })  # fmt: skip
    yield from shape("sharded optimizer 8", optimizer_program, Optimizer(), {
        "late rank": (host(5, 20),),
        "slow GPU": (gpu(2, 1.4),),
        "GPU becomes slower": _hotter(3),
        "late rank in the second half": (host(7, 25, first=15),),
    })  # fmt: skip
    yield from shape("longer and longer sequences 4", optimizer_program,
        Optimizer(4, growth=2.0, synchronize_every=1), {
        "late rank": (host(1, 10),),
        "slow GPU": (gpu(0, 1.3),),
    })  # fmt: skip
    yield from shape("all wait for data 8", optimizer_program,
        Optimizer(8, stall_every=7, stall_ms=60, synchronize_every=1), {
        "late rank": (host(4, 10),),
    })  # fmt: skip


def _exchanges() -> Iterator[Kind]:
    yield from shape("actors 4 and learners 4", actors_program, Actors(), {
        "late actor": (host(6, 12),),
        "slow learner": (gpu(2, 1.6),),
    }, may_ranks=(0,))  # fmt: skip
    yield from shape("parameter server 5", star_program, Star(), {
        "late worker": (host(3, 10),),
        "slow GPU": (gpu(2, 1.8),),
    }, may_ranks=(0,))  # fmt: skip
    yield from shape("heads 4 x 2", head_exchange_program, HeadExchange(), {
        "late rank": (host(5, 10),),
        "slow GPU": (gpu(2, 1.4),),
    })  # fmt: skip
    yield from shape("heads 8 x 8", head_exchange_program, HeadExchange(8, 8, 5, layers=2), {
        "slow GPU": (gpu(35, 1.5),),
    })  # fmt: skip
    yield from shape("prefill 2 and decode 2", prefill_program, Prefill(), {
        "slow prefill GPU": (gpu(1, 1.5),),
        "late rank": (host(0, 6),),
    })  # fmt: skip
    yield from shape("token loop 4", token_loop_program, TokenLoop(), {
        "late rank": (host(2, 0.4),),
        "slow launches": (launch(3, 0.08),),
        "slow GPU": (gpu(1, 2.0),),
    })  # fmt: skip
    yield from shape("experts 4", None, Experts(4, layers=3, tokens_mb=4.0), {
        "late rank": (host(1, 8),),
        "slow GPU": (gpu(3, 1.5),),
    })  # fmt: skip


def _known_shapes() -> Iterator[Kind]:
    """Shapes of other kinds, of other sizes and with other faults."""
    yield from shape("ddp 3", None, Buckets(3, buckets=2), {
        "late rank": (host(0, 6),),
        "slow GPU": (gpu(2, 1.4),),
    })  # fmt: skip
    yield from shape("ddp 8, two ranks in turn", None, Buckets(8), {
        "late ranks": (host(1, 10, every=2), host(6, 10, first=1, every=2)),
    })  # fmt: skip
    heavy = Noise(compute=0.06, host=0.2, wire=0.1, bias=0.01, pause_share=0.05, pause_ms=6.0)
    yield from shape("ddp 16, many small pauses", None, Buckets(16), {
        "late rank": (host(9, 15),),
    }, noise=heavy, uneven=True)  # fmt: skip
    yield from shape("pipeline 2 x tp 4", None, Mesh(pp=2, tp=4, micro_batches=6, steps=12), {
        "slow GPU": (gpu(6, 1.4),),
        "late rank": (host(1, 15),),
    })  # fmt: skip
    deep = Mesh(pp=8, micro_batches=16, steps=8)
    yield from shape("pipeline 8 on 2 hosts", None, deep, {
        "slow stage": (gpu(5, 1.4),),
        "slow link between hosts": (link(3, 4, 20, first=2),),
    }, machine=_FOUR_A_HOST)  # fmt: skip
    yield from shape("pipeline 6, all forward first", None, replace(deep, pp=6, flush=True), {
        "slow stage": (gpu(2, 1.5),),
        "late rank": (host(4, 30),),
    })  # fmt: skip
    odd = Mesh(pp=3, dp=4, tp=4, micro_batches=6, steps=6, layer_ms=0.8)
    yield from shape("mesh 3 x 4 x 4", None, odd, {
        "slow GPU": (gpu(30, 1.4),),
        "late rank": (host(17, 20),),
    })  # fmt: skip
    yield from shape("fsdp 12 on 3 hosts", None, Mesh(dp=12, sharded=True, layers=3), {
        "slow GPU": (gpu(10, 1.5),),
        "late rank": (host(4, 8),),
    }, machine=_FOUR_A_HOST)  # fmt: skip


def held_out_kinds() -> Iterator[Kind]:
    """All of them."""
    yield from _training()
    yield from _exchanges()
    yield from _known_shapes()
