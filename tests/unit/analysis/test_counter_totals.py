"""Calls and works of the table `counters` as operations by key."""

from typing import Any

from ncclscope.analysis.counter_totals import CounterTotals, Histograms, counter_totals
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, UNTIMED_REASONS
from tests.support.model_builders import model, table, world

MB = 1 << 20


def counter(level: str, calls: int, **more: Any) -> dict[str, Any]:
    """A row of `counters`: AllReduce of 4 MB, nothing timed."""
    row = {
        "process": 0, "communicator": 0, "rank": 0, "global_rank": 0, "level": level,
        "function": "AllReduce", "datatype": "float32", "count": MB, "size_bytes": 4 * MB,
        "folded": 0, "captured": 0, "calls": calls, "bytes": 4 * MB * calls, "gpu_count": 0,
        "gpu_sum_ns": 0, "host_count": 0, "host_sum_ns": 0, **dict.fromkeys(UNTIMED_REASONS, 0),
    }  # fmt: skip
    return row | more


def work(
    calls: int, algorithm: str = "RING", protocol: str = "SIMPLE", **more: Any
) -> dict[str, Any]:
    return counter("work", calls, algorithm=algorithm, protocol=protocol, **more)


def counted(*rows: dict[str, Any], histograms: tuple[dict[str, Any], ...] = ()) -> Model:
    """A model of these counters."""
    comms = [{"id": 7, "name_inferred": 0, "ranks": 2, "nodes": 1}]
    made = model([], [], comms, ["world"], world(2, 2))
    made.tables["counters"] = table("counters", list(rows))
    made.tables["counter_histograms"] = table("counter_histograms", list(histograms))
    return made


def totals(made: Model) -> dict[tuple[str | None, str | None], CounterTotals]:
    """By algorithm and protocol."""
    return {
        (key.algorithm, key.protocol): total
        for key, total in counter_totals(made, Histograms(made))
    }


def test_calls_are_shared_out_to_the_works_that_carried_them_out() -> None:
    """The example of the module."""
    found = totals(counted(counter("call", 10), work(7), work(2, "TREE", "LL")))
    ring, tree, rest = found["RING", "SIMPLE"], found["TREE", "LL"], found[None, None]
    assert (ring.operations, ring.calls) == (7, 8)
    assert (tree.operations, tree.calls) == (2, 2)
    assert (rest.operations, rest.calls, rest.bytes) == (1, 0, 4 * MB)
    assert rest.untimed == {"NCCL reported no work for the call": 1}


def test_captured_calls_need_no_work() -> None:
    found = totals(counted(counter("call", 3, captured=1), work(9)))
    assert list(found) == [("RING", "SIMPLE")]
    assert (found["RING", "SIMPLE"].operations, found["RING", "SIMPLE"].calls) == (9, 3)


def test_before_calls_are_reported_works_are_calls() -> None:
    found = totals(counted(work(5)))
    assert (found["RING", "SIMPLE"].operations, found["RING", "SIMPLE"].calls) == (5, 5)


def test_times_come_with_their_source_and_what_is_left_is_in_flight() -> None:
    times = {"gpu_count": 3, "gpu_sum_ns": 600, "gpu_min_ns": 100, "gpu_max_ns": 300}
    found = totals(counted(work(6, **times, untimed_no_stamp=2), work(1, "TREE", **times)))
    ring, tree = found["RING", "SIMPLE"], found["TREE", "SIMPLE"]
    assert ring.sources == {"gpu": 3, "none": 3}
    assert (ring.in_flight, ring.untimed) == (1, {"no stamp": 2})
    assert ring.times["gpu"].total_ns == 600
    assert tree.sources == {"gpu-early": 3}


def test_a_broadcasts_work_is_joined_whatever_its_datatype() -> None:
    called = counter("call", 4, function="Broadcast", datatype="bfloat16")
    worked = work(4, function="Broadcast", datatype="int8")
    (key, total), *rest = counter_totals(made := counted(called, worked), Histograms(made))
    assert not rest
    assert (key.datatype, total.calls, total.operations) == ("bfloat16", 4, 4)


def test_rows_without_bytes_do_not_count() -> None:
    unknown = work(4, datatype="int8", size_bytes=NONE, bytes=NONE)
    assert [total.bytes for total in totals(counted(unknown)).values()] == [0]


def test_percentiles_lie_as_far_in_their_bucket_as_they_are_among_its_times() -> None:
    buckets = ((0, "gpu", 1024, 2048, 90), (0, "gpu", 4096, 8192, 9), (0, "gpu", 1 << 40, NONE, 1))
    names = ("counter", "source", "from_ns", "to_ns", "works")
    rows = tuple(dict(zip(names, bucket, strict=True)) for bucket in reversed(buckets))
    histograms = Histograms(counted(work(100), histograms=rows))
    assert histograms.percentiles(histograms.of(0, "gpu")) == (
        1024 * (1 + 49.5 / 90),
        4096 * (1 + 8.5 / 9),
    )
    assert histograms.percentiles(histograms.of(0, "host")) == (0.0, 0.0)
