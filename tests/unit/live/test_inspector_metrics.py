"""NCCL Inspector's Prometheus names: label values, right numbers, within the limit."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ncclscope.capture import layout
from ncclscope.capture.call_counts import RECORD
from ncclscope.live.counter_reader import NO_EXCESS
from ncclscope.live.exposition import exposition
from ncclscope.live.inspector_metrics import Window, add_inspector_metrics, message_size
from ncclscope.live.metrics import OTHER
from ncclscope.live.series import Ratio, Samples, SeriesLimit, with_run

STRINGS = {1: "AllReduce", 2: "AllGather", 3: "Send", 4: "ncclFloat32", 5: "RING", 6: "SIMPLE"}
SECOND = 1_000_000_000


def records(*rows: dict[str, int]) -> Any:
    made = np.zeros(len(rows), RECORD)
    for number, (record, row) in enumerate(zip(made, rows, strict=True), 1):
        counts, times = record["tally"], record["times"]
        counts["check"], counts["level"], counts["comm"] = (
            number,
            layout.LEVEL_WORK,
            row.get("comm", 0),
        )
        counts["func"], counts["dtype"], counts["algo"], counts["proto"] = row["func"], 4, 5, 6
        counts["count"], counts["calls"] = row["count"], row["timed"]
        counts["count_sum"] = row["count"] * row["timed"]
        times["gpu_count"], times["gpu_sum_ns"] = row["timed"], row["ns"]
    return made


def job(at_s: float, *rows: dict[str, int], life: str = "alive", communicators: int = 1) -> Any:
    comms = {
        number: SimpleNamespace(number=number, name=f"dp{number}", ranks=8, nodes=1 + number % 2)
        for number in range(communicators)
    }
    process = SimpleNamespace(
        folder=Path("p"),
        snapshot=SimpleNamespace(life=life, host="n1", gpu="3"),
        reading=SimpleNamespace(records=records(*rows), excess=NO_EXCESS),
        communicators=comms,
        meta=SimpleNamespace(strings=STRINGS),
        header=SimpleNamespace(identity={"env.SLURM_JOB_ID": "42"}),
    )
    return SimpleNamespace(processes={"p": process}, names={}, read_ns=int(at_s * SECOND))


def measured(*jobs: Any) -> Samples:
    window, samples = Window(), Samples()
    for one in jobs:
        samples = Samples()
        add_inspector_metrics(samples, one, window)
    return samples


@pytest.mark.parametrize(
    ("size_bytes", "label"),
    [(0, "0B"), (64, "64-65B"), (1023, "1023-1024B"), (8192, "8-9KB"), (1 << 20, "1-2MB"),
     (3 * (1 << 30) + 5, "3-4GB"), (1 << 52, "4096-4097TB")],
)  # fmt: skip
def test_size_classes_are_inspectors(size_bytes: int, label: str) -> None:
    assert message_size(size_bytes) == label


def test_numbers_and_labels() -> None:
    before = [
        {"func": 1, "count": 1 << 18, "timed": 10, "ns": 10_000_000},
        {"func": 2, "count": 1 << 20, "timed": 10, "ns": 10_000_000},
        {"func": 3, "count": 1 << 10, "timed": 10, "ns": 10_000_000},
    ]
    after = [
        {"func": 1, "count": 1 << 18, "timed": 30, "ns": 50_000_000},  # 20 in 40 ms
        {"func": 2, "count": 1 << 20, "timed": 20, "ns": 20_000_000},  # 10 in 10 ms
        {"func": 3, "count": 1 << 10, "timed": 20, "ns": 11_000_000},  # 10 in 1 ms
    ]
    samples = measured(job(0, *before), job(20, *after))
    about = ("v5.1", "42", "n1", "GPU3", "dp0", "1", "8")
    reduce = (*about, "AllReduce", "1-2MB", "RING_SIMPLE")
    gather = (*about, "AllGather", "1-2MB", "RING_SIMPLE")  # its counts are bytes of one rank
    values = {name: {k: v.value for k, v in of.items()} for name, of in samples.values.items()}  # type: ignore[union-attr]
    mib = (1 << 20) / 1e6  # MB by ms are GB/s
    assert values["collective_exec_time_microseconds"] == {reduce: 2000, gather: 1000}
    assert values["algorithm_bandwidth_gbs"][reduce] == pytest.approx(mib / 2)
    assert values["bus_bandwidth_gbs"][reduce] == pytest.approx(mib / 2 * 2 * 7 / 8)
    assert values["bus_bandwidth_gbs"][gather] == pytest.approx(8 * mib * 7 / 8)
    pair = (*about, "Send", "4-5KB")
    assert values["p2p_exec_time_microseconds"] == {pair: 100}
    assert values["p2p_bus_bandwidth_gbs"][pair] == pytest.approx(4096 / 100_000)


def test_nothing_is_said_of_a_first_reading_or_of_the_dead() -> None:
    row = {"func": 1, "count": 4, "timed": 9, "ns": 9}
    assert measured(job(0, row)).values == {}
    later = {**row, "timed": 12, "ns": 12}
    assert measured(job(0, row), job(9, later, life="dead")).values == {}


def test_a_hang_has_no_last_healthy_value() -> None:
    rows = [
        {"func": 1, "count": 4, "timed": 9 + min(at, 10), "ns": 9 + min(at, 10)} for at in range(60)
    ]
    jobs = [job(at, row) for at, row in enumerate(rows)]
    assert measured(*jobs[:15]).values
    assert measured(*jobs).values == {}


def test_many_are_within_the_limit_and_the_rest_is_a_mean() -> None:
    size = 400
    before = [{"func": 1, "count": n + 1, "timed": 1, "ns": 1, "comm": n} for n in range(size)]
    after = [{**row, "timed": 2, "ns": 2001} for row in before]
    samples = measured(job(0, *before, communicators=size), job(9, *after, communicators=size))
    kept = SeriesLimit(300).fold(samples)
    assert sum(metric.series for metric, _, _ in kept.in_order()) <= 300
    times = kept.values["collective_exec_time_microseconds"]
    rests = {labels[5]: value for labels, value in times.items() if labels[4] == OTHER}
    assert set(rests) == {"1", OTHER}  # inside one node, and not
    assert all(isinstance(rest, Ratio) and rest.value == 2.0 for rest in rests.values())
    series = [(m, with_run(labels, "r", "h"), value) for m, labels, value in kept.in_order()]
    families = {family.name for family in text_string_to_metric_families(exposition(series))}
    assert "nccl_bus_bandwidth_gbs" in families
