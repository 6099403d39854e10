"""Statistics of a span are those of the report."""

import numpy as np
import pytest

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary_from_operations import summarize
from ncclscope.model.model import Model
from ncclscope.web.kinds import OPERATION
from ncclscope.web.operation_rows import Filter
from ncclscope.web.statistics import RateLine, bandwidth_bytes, span_statistics
from tests.support.model_builders import model, operation, random_model, world
from tests.support.model_timelines import sort_by_process, timeline_of


@pytest.mark.parametrize("seed", range(5))
def test_a_span_over_everything_has_the_numbers_of_the_report(seed: int) -> None:
    made = sort_by_process(random_model(3_000, seed))
    scene = timeline_of(made).scene
    rows = [number for number, row in enumerate(scene.rows) if row.kind == OPERATION]
    span = span_statistics(scene, rows, scene.first_ns, scene.last_ns + 1, Filter())
    report = {
        (group.keys["communicator"], group.keys["function"]): group
        for group in summarize(made, Selection(), ("communicator", "function")).groups
    }
    assert {(group["communicator"], group["function"]) for group in span["groups"]} == set(report)
    for group in span["groups"]:
        expected = report[group["communicator"], group["function"]]
        assert group["operations"] == expected.operations
        assert group["bytes"] == expected.bytes
        assert group["busbw_gbs"] == pytest.approx(expected.busbw_gbs)
        assert group["wait_share"] == pytest.approx(expected.wait_share)
        # The report's percentiles are means of buckets 2 % wide.
        assert group["median_ns"] == pytest.approx(expected.durations.median_ns, rel=0.011)
        assert group["p99_ns"] == pytest.approx(expected.durations.p99_ns, rel=0.011)


def one_of_each_source() -> Model:
    """An AllReduce of 1 MB and 1 ms from each source of times, in the order of SOURCES."""
    sources = ("gpu", "gpu-repaired", "gpu-partial", "gpu-early", "proxy", "host", "enqueue")
    operations = [
        operation(
            communicator=0, rank=0, function="AllReduce", datatype="float32", source=source,
            size_bytes=1_000_000, start_ns=10**7 * place, duration_ns=10**6,
        )
        for place, source in enumerate(sources, 1)
    ]  # fmt: skip
    communicators = [{"id": 1, "name_inferred": 0, "ranks": 4, "nodes": 1}]
    return model(operations, [], communicators, ["world"], world(4, 4))


def test_bandwidth_is_from_exact_times_only() -> None:
    scene = timeline_of(one_of_each_source()).scene
    (group,) = span_statistics(scene, [0], 0, 10**9, Filter())["groups"]
    assert group["operations"] == group["timed"] == 7
    assert group["busbw_gbs"] == pytest.approx(1.5)  # 2 (4 - 1) / 4 x 1 GB/s
    assert np.isnan(bandwidth_bytes(scene, 0)).tolist() == [False] * 3 + [True] * 4
    early = span_statistics(scene, [0], 4 * 10**7, 10**9, Filter())["groups"][0]
    assert (early["operations"], early["busbw_gbs"]) == (4, None)


def test_the_lane_of_bandwidth_is_empty_where_times_are_not_exact() -> None:
    made = one_of_each_source()
    edges = np.arange(1, 9) * 10**7 - 1000
    total = RateLine(timeline_of(made).scene, 0).between(edges) * np.diff(edges)
    assert total == pytest.approx([1.5e6] * 3 + [0] * 4)


def test_a_median_is_a_value_of_the_best_clock() -> None:
    made = one_of_each_source()
    made.tables["operations"]["duration_ns"][:] = [10, 30, 20, 40, 1, 2, 3]
    scene = timeline_of(made).scene
    (group,) = span_statistics(scene, [0], 0, 10**9, Filter())["groups"]
    assert (group["median_ns"], group["p99_ns"]) == (20, 40)
