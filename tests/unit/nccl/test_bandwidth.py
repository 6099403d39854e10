"""Bandwidth equals what nccl-tests compute, for every function and number of ranks."""

import random

import pytest

from ncclscope.nccl.bandwidth import bandwidth_gbs, bus_bytes, bus_factor

RANKS = (2, 3, 4, 8)
# nccl-tests' GetBw: `double factor = …` of each program.
FACTORS = {
    "AllReduce": lambda n: (2 * (n - 1)) / n,
    "AllGather": lambda n: (n - 1) / n,
    "ReduceScatter": lambda n: (n - 1) / n,
    "AlltoAll": lambda n: (n - 1) / n,
    "Gather": lambda n: (n - 1) / n,
    "Scatter": lambda n: (n - 1) / n,
    "Broadcast": lambda n: 1,
    "Reduce": lambda n: 1,
    "Send": lambda n: 1,
    "Recv": lambda n: 1,
    "SendRecv": lambda n: 1,
}
BY_HAND = {
    ("AllReduce", 2): 1.0, ("AllReduce", 3): 4 / 3, ("AllReduce", 4): 1.5, ("AllReduce", 8): 1.75,
    ("AllGather", 2): 0.5, ("AllGather", 3): 2 / 3, ("AllGather", 4): 0.75, ("AllGather", 8): 0.875,
}  # fmt: skip


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("function", FACTORS)
def test_factor_is_that_of_nccl_tests(function: str, ranks: int) -> None:
    assert bus_factor(function, ranks) == FACTORS[function](ranks)
    assert bus_factor(function.lower(), ranks) == bus_factor(function, ranks)


def test_factors_by_hand() -> None:
    for (function, ranks), factor in BY_HAND.items():
        assert bus_factor(function, ranks) == pytest.approx(factor, rel=1e-15)


def test_bandwidth_by_hand() -> None:
    # 256 MiB AllReduce on 8 ranks in 1 ms: 268.4 GB/s, bus 469.8 GB/s
    assert bandwidth_gbs(268_435_456, 1_000_000) == pytest.approx(268.435456)
    bus = bus_bytes("AllReduce", 8, 268_435_456)
    assert bus is not None
    assert bandwidth_gbs(bus, 1_000_000) == pytest.approx(469.762048)


@pytest.mark.parametrize("function", FACTORS)
def test_properties(function: str) -> None:
    draw = random.Random(function)
    for _ in range(300):
        ranks = draw.choice((*RANKS, 16, 1024))
        parts = [(draw.randrange(1, 1 << 33), draw.randrange(1, 10**9)) for _ in range(4)]
        size, time = (sum(part[i] for part in parts) for i in (0, 1))
        algbw = bandwidth_gbs(size, time)
        bus = bus_bytes(function, ranks, size)
        assert algbw is not None
        assert bus is not None
        busbw = bandwidth_gbs(bus, time)
        assert busbw is not None
        assert busbw == pytest.approx(algbw * FACTORS[function](ranks))
        assert 0 <= busbw < 2 * algbw
        # Of sums, it lies between the smallest and the largest of the parts.
        each = [s / t for s, t in parts]
        assert min(each) * (1 - 1e-12) <= algbw <= max(each) * (1 + 1e-12)


def test_factor_grows_with_ranks_and_stays_below_its_limit() -> None:
    for function in FACTORS:
        factors = [bus_factor(function, ranks) for ranks in range(1, 200)]
        assert factors == sorted(factors, key=lambda factor: factor or 0)
        assert max(factor or 0 for factor in factors) <= (2 if function == "AllReduce" else 1)


def test_what_has_no_bandwidth() -> None:
    assert bus_factor("AllGatherV", 4) is None
    assert bus_factor("AllReduce", 0) is None
    assert bus_factor("Send", 0) == 1
    assert bus_bytes("Nothing", 4, 100) is None
    assert bandwidth_gbs(100, 0) is None
    assert bus_factor("AllReduce", 1) == 0
