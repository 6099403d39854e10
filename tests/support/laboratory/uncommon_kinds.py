"""Kinds of jobs whose faults come and go, or are shared by many ranks, as an engineer who had not
read the rules planted them.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from tests.support.laboratory.events import Machine
from tests.support.laboratory.faults import USUAL, Fault
from tests.support.laboratory.held_out_programs import Optimizer, optimizer_program
from tests.support.laboratory.programs import Buckets, Experts, Serving
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
        "slow storage of half of the hosts": _stops(range(8, 16), 120, (7, 13, 19)),
    }, machine=_HOSTS)  # fmt: skip
    # All that one rank of 16 sends to the other host, and gets from there, is slow.
    adapter = tuple(link(other, 13, 15, group="adapter") for other in range(8))
    yield from shape("experts 16 on 2 hosts, much data", None, Experts(16, 20, tokens_mb=4.0), {
        "slow adapter": adapter,
    }, machine=Machine(ranks_per_host=8))  # fmt: skip
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
    yield from _after_the_fourth_round()
    yield from _after_the_fifth_round()


def _after_the_fourth_round() -> Iterator[Kind]:
    """Causes that jobs of a fourth engineer showed."""
    # A rank is late by less than the work between two reductions, so others never wait for all of
    # it, and it looks as slow between all reductions as it is late.
    yield from shape("ddp 8, long buckets", None, Buckets(8, 40, buckets=5, bucket_ms=5.0), {
        "late rank": (host(6, 8),),
    })  # fmt: skip
    # Each replica has a server that waits for requests.
    several = Serving(tp=4, replicas=4, requests=60, idle_ms=10)
    yield from shape("serving tp 4 x 4, often idle", None, several, {
        "slow GPU": (gpu(10, 1.5),),
    })  # fmt: skip
    # All ranks are late at random, those of one host more than others.
    loud = replace(USUAL, pause_share=0.4, pause_ms=3.0)
    chance = Random("noisy host")
    noisy = tuple(
        host(rank, chance.expovariate(1 / 2.5), first=step, last=step, group="host")
        for step in range(40)
        for rank in range(8, 16)
    )
    yield from shape("ddp 32 on 4 hosts, hosts are busy", None, Buckets(32, steps=40), {
        "noisy host": noisy,
    }, machine=Machine(ranks_per_host=8), noise=loud, uneven=True)  # fmt: skip


def _after_the_fifth_round() -> Iterator[Kind]:
    """Causes that jobs of a fifth engineer showed."""
    much = Buckets(8, steps=60, bucket_mb=256)
    yield from shape("ddp 8 on 2 hosts, much data", None, much, {
        "links half as fast for a while": (link(3, 4, 1.8, first=22, last=41),),
    }, machine=_HOSTS)  # fmt: skip
