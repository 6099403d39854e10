"""Counters of one process as sums: what counts for bandwidth, and what has no size or factor."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ncclscope.capture import layout
from ncclscope.capture.call_counts import bucket_bounds_ns, read_call_counts
from ncclscope.live import counter_reader
from ncclscope.live.counter_reader import CounterReader, CounterSums, OperationClass
from ncclscope.live.top_model import Rates
from ncclscope.model.process.launch_times import EventExcess

STRINGS = {
    1: "AllReduce", 2: "AllGather", 3: "Reshuffle", 4: "ncclFloat32", 5: "ncclFloat3", 6: "RING",
    7: "TREE",
}  # fmt: skip
COMMUNICATORS: dict[int, Any] = {0: SimpleNamespace(ranks=8, nodes=1)}
MIB = 1 << 20


def sums(
    monkeypatch: pytest.MonkeyPatch, *rows: dict[str, int]
) -> dict[str, tuple[OperationClass, CounterSums]]:
    """By function and algorithm, of rows that were called 10 times, timed 5 times."""
    records = np.zeros(len(rows), read_call_counts(Path("/none")).dtype)
    for number, (record, row) in enumerate(zip(records, rows, strict=True), 1):
        counts, times = record["tally"], record["times"]
        counts["check"], counts["level"] = number, layout.LEVEL_WORK
        counts["func"], counts["dtype"], counts["algo"] = row["func"], row["dtype"], row["algo"]
        counts["count"], counts["calls"], counts["count_sum"] = MIB, 10, 10 * MIB
        times["gpu_count"], times["gpu_sum_ns"] = 5, 1000
    monkeypatch.setattr(counter_reader, "read_call_counts", lambda path: records)
    reading = CounterReader(Path("/none")).read(COMMUNICATORS, STRINGS)
    return {c.function: (c, s) for c, s in reading.sums.items()}


def test_bytes_and_factors_are_those_of_nccl_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sums(
        monkeypatch,
        {"func": 1, "dtype": 4, "algo": 6},
        {"func": 2, "dtype": 4, "algo": 6},  # its counts are bytes of one rank
    )
    reduced, gathered = found["AllReduce"][1], found["AllGather"][1]
    assert (reduced.bytes, reduced.timed_bytes) == (40 * MIB, 20 * MIB)
    assert reduced.timed_bus_bytes == pytest.approx(20 * MIB * 2 * 7 / 8)
    assert (gathered.bytes, gathered.timed_bytes) == (80 * MIB, 40 * MIB)
    assert (reduced.gpu_ns, reduced.least_gpu_ns) == (1000, 0)


def test_early_stops_and_unknown_sizes_do_not_count_for_bandwidth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = sums(
        monkeypatch,
        {"func": 1, "dtype": 4, "algo": 7},
        {"func": 2, "dtype": 5, "algo": 6},
        {"func": 3, "dtype": 5, "algo": 6},
    )
    assert found["AllGather"][1].bytes == 80 * MIB  # counted in bytes, whatever the datatype
    assert found["AllGather"][0].for_bandwidth
    for function in ("AllReduce", "Reshuffle"):
        op_class, counted = found[function]
        assert not op_class.for_bandwidth
        assert (counted.gpu_ns, counted.timed_bytes, counted.least_gpu_ns) == (0, 0, 1000)
    assert found["Reshuffle"][0].size == counter_reader.UNKNOWN


def test_a_function_without_a_factor_has_no_bus_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    op_class, counted = sums(monkeypatch, {"func": 3, "dtype": 4, "algo": 6})["Reshuffle"]
    assert op_class.bus_factor is None
    assert math.isnan(counted.timed_bus_bytes)
    rates = Rates(1.0, counted)
    assert (rates.algbw_gb_s, rates.busbw_gb_s) == (20 * MIB / 1000, None)


def test_a_sample_stands_for_all_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 operations, of which the first 8 took 1 ms each and 3 of the rest 20, 22 and 24 µs, each
    with an excess of 2 µs.
    """
    records = np.zeros(2, read_call_counts(Path("/none")).dtype)
    times = records["times"]
    for row, shared in ((0, 0), (1, 11)):
        times["event_count"][row], times["event_grouped"][row] = 11, shared
        times["event_sum_ns"][row] = 8_000_000 + 66_000 + 11 * 2000
        times["event_first_sum_ns"][row] = 8_000_000 + 8 * 2000
        times["untimed"][row, layout.UNTIMED.index("not sampled")] = 189
        for place, time_ns in enumerate([1_002_000] * 8 + [22_000, 24_000, 26_000]):
            bucket = np.searchsorted(bucket_bounds_ns(), time_ns, "right") - 1
            times["event_histogram"][row, bucket] += 1
            if place < 8:
                times["event_first_buckets"][row, place] = bucket
    sums = counter_reader.event_sums(times, EventExcess(2000, 500))
    assert sums.count.tolist() == [11, 0], "a shared launch is the time of no single operation"
    assert sums.sum_ns.tolist() == [8_066_000, 0]
    assert sums.exact.tolist() == [True, False]
    assert sums.all_ns[0] == pytest.approx(8_000_000 + 192 * 22_000)
    assert 0.9e6 < sums.error_ns[0] < 2.5e6
    records["tally"]["check"], records["tally"]["func"] = (1, 2), (1, 2)
    monkeypatch.setattr(counter_reader, "read_call_counts", lambda path: records)
    reading = CounterReader(Path("/none")).read(COMMUNICATORS, STRINGS, EventExcess(2000, 500))
    ((key, histogram),) = reading.histograms.items()
    assert key[0] == "AllReduce", "its times are upper bounds: they are in no histogram either"
    assert (histogram.count, histogram.sum_seconds) == (11, pytest.approx(8_066_000 / 1e9))
    rough = counter_reader.event_sums(times, EventExcess(2000, 100_000))
    assert rough.exact.tolist() == [False, False]
