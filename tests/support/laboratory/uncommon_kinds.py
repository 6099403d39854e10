"""Kinds of jobs whose faults come and go, or are shared by many ranks, as an engineer who had not
read the rules planted them.
"""

from collections.abc import Iterator
from dataclasses import replace

from tests.support.laboratory.events import Machine
from tests.support.laboratory.faults import USUAL, Fault
from tests.support.laboratory.held_out_programs import Optimizer, optimizer_program
from tests.support.laboratory.programs import Buckets, Serving
from tests.support.laboratory.shapes import gpu, host, link, shape
from tests.support.laboratory.truth import Kind

_HOSTS = Machine(ranks_per_host=4)


def _slow_gpus(ranks: range, factor: float, every: int = 1) -> tuple[Fault, ...]:
    return tuple(gpu(rank, factor, first=1, every=every, group="host") for rank in ranks)


def _stops(ranks: range, ms: float, steps: tuple[int, ...]) -> tuple[Fault, ...]:
    return tuple(
        host(rank, ms, first=step, last=step, group="host") for rank in ranks for step in steps
    )


def uncommon_kinds() -> Iterator[Kind]:
    """All of them."""
    yield from shape("ddp 12 on 3 hosts", None, Buckets(12, steps=40), {
        "power cap of a host": _slow_gpus(range(4, 8), 1.4, every=2),
        "links slow for a while": (link(3, 4, 8, first=15, last=23),),
        "host that stops twice": _stops(range(4, 8), 150, (14, 30)),
    }, machine=_HOSTS)  # fmt: skip
    yield from shape("ddp 16 on 4 hosts", None, Buckets(16, steps=25), {
        "old GPUs on half of the hosts": _slow_gpus(range(8, 16), 1.35),
    }, machine=_HOSTS)  # fmt: skip
    # GPUs of many ranks differ gradually.
    uneven = replace(USUAL, bias=0.12)
    yield from shape("ddp 48, uneven GPUs", None, Buckets(48, steps=20), {}, noise=uneven)
    seldom = tuple(
        gpu(5, 2.5, first=step, last=step, group="redo") for step in (4, 9, 22, 37, 41, 58, 66, 71)
    )
    yield from shape("ddp 8, 80 steps", None, Buckets(8, steps=80), {
        "GPU that repeats some steps": seldom,
        "three ranks in turn": (
            gpu(1, 1.3, last=26), gpu(4, 1.3, first=27, last=53), gpu(6, 1.3, first=54),
        ),
        "two faults of one size": (gpu(2, 1.35), host(6, 5.2)),
    })  # fmt: skip
    yield from shape("ddp 8, very slow start", None, Buckets(8, steps=40, first_call_ms=9_000), {
        "late rank": (host(2, 6),),
    })  # fmt: skip
    pauses = Optimizer(8, steps=70, stall_every=30, stall_ms=400, synchronize_every=1)
    yield from shape("all start data loaders again 8", optimizer_program, pauses, {
        "late rank": (host(4, 8),),
    })  # fmt: skip
    idle = Serving(tp=4, replicas=1, requests=80, idle_ms=60)
    yield from shape("serving tp 4, mostly idle", None, idle, {})
    yield from shape("serving tp 4, hardly idle", None, replace(idle, idle_ms=8), {
        "slow GPU": (gpu(3, 1.6),),
    })  # fmt: skip
