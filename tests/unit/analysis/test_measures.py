"""Measures against their definitions: the same in numpy, in SQL and by hand."""

import duckdb
import numpy as np
import pytest

from ncclscope.analysis import measures
from ncclscope.analysis.query import connect
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary_from_operations import summarize
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.model.sql_views import raw_columns, rows_of_table
from tests.support.model_builders import model, operation, random_model, world

COMMUNICATORS = [{"id": 1, "name_inferred": 0, "ranks": 4, "nodes": 1}]


def one_of(**columns: object) -> Model:
    """A model of one operation on a communicator of four ranks."""
    row = operation(communicator=0, rank=0, function="AllReduce", **columns)
    return model([row], [], COMMUNICATORS, ["world"], world(4, 4))


@pytest.mark.parametrize(
    ("times", "began_ns"),
    [
        ({"enqueue_ns": 5}, 5),
        ({"enqueue_ns": 5, "call_ns": 4}, 4),
        ({"enqueue_ns": 5, "call_ns": 4, "launch_ns": 6}, 6),
        ({"enqueue_ns": 5, "call_ns": 4, "launch_ns": 6, "start_ns": 7}, 7),
        ({}, NONE),
    ],
)
def test_an_operation_began_at_its_start_else_launch_call_enqueueing(
    times: dict[str, int], began_ns: int
) -> None:
    assert measures.began_ns(one_of(**times).tables["operations"]).tolist() == [began_ns]


def test_sql_and_numpy_agree_on_when_operations_began() -> None:
    made = random_model(5_000, seed=1)
    made.tables["operations"]["launch_ns"][::7] = 12_345
    began = measures.began_ns(made.tables["operations"])
    with connect(made, Selection()) as connection:
        shown = connection.execute(f"select {measures.BEGAN_SQL} from operations").fetchall()
        connection.register(
            "raw", raw_columns(made, "operations", 0, rows_of_table(made, "operations"))
        )
        raw = connection.execute(f"select {measures.BEGAN_RAW_SQL} from raw").fetchall()
    assert (began == 12_345).any()
    assert (began == NONE).sum() == 0
    assert [row[0] for row in shown] == began.tolist() == [row[0] for row in raw]


def test_a_run_lasts_from_its_first_call_to_its_last_end() -> None:
    operations = [
        operation(communicator=0, rank=0, call_ns=100, start_ns=150, end_ns=300),
        operation(communicator=0, rank=1, call_ns=110, start_ns=140, end_ns=290),
    ]
    columns = model(operations, [], COMMUNICATORS, ["world"], world(4, 4)).tables["operations"]
    assert measures.extent(columns) == (100, 300)
    assert measures.extent(columns, lambda rows: columns["rank"][rows] == 1) == (110, 290)


def test_a_run_without_ends_lasts_to_what_is_known_of_its_last_operation() -> None:
    columns = one_of(call_ns=100, launch_ns=120, launch_end_ns=130).tables["operations"]
    assert measures.extent(columns) == (100, 130)


def test_a_run_without_times_has_no_extent() -> None:
    assert measures.extent(one_of().tables["operations"]) is None


@pytest.mark.parametrize(
    ("columns", "counts"),
    [
        ({"source": "gpu", "duration_ns": 10, "size_bytes": 8}, True),
        ({"source": "gpu-repaired", "duration_ns": 10, "size_bytes": 8}, True),
        ({"source": "gpu-partial", "duration_ns": 10, "size_bytes": 8}, True),
        ({"source": "gpu-early", "duration_ns": 10, "size_bytes": 8}, False),
        ({"source": "proxy", "duration_ns": 10, "size_bytes": 8}, False),
        ({"source": "host", "duration_ns": 10, "size_bytes": 8}, False),
        ({"source": "enqueue", "duration_ns": 10, "size_bytes": 8}, False),
        ({"source": "gpu", "duration_ns": 10}, False),
        ({"source": "none", "size_bytes": 8}, False),
    ],
)
def test_exact_times_and_known_sizes_count_for_bandwidth(
    columns: dict[str, object], counts: bool
) -> None:
    made = one_of(**columns)
    assert measures.counts_for_bandwidth(made.tables["operations"]).tolist() == [counts]
    assert measures.busbw_gbs(made) == (pytest.approx(1.2) if counts else None)


def test_a_set_with_a_function_without_bus_bandwidth_has_none() -> None:
    exact = {"communicator": 0, "source": "gpu", "duration_ns": 10, "size_bytes": 8}
    both = [
        operation(rank=0, function="AllReduce", **exact),
        operation(rank=1, **exact),
    ]
    made = model(both, [], COMMUNICATORS, ["world"], world(4, 4))
    assert measures.busbw_gbs(made) is None
    assert measures.busbw_gbs(made, np.array([0])) == pytest.approx(1.2)
    assert np.isnan(measures.bus_bytes(made)).tolist() == [False, True]


def test_a_report_and_sets_of_rows_give_the_same_numbers() -> None:
    made = random_model(20_000, seed=3)
    made.tables["operations"]["size_bytes"][::11] = NONE
    operations = made.tables["operations"]
    groups = summarize(made, Selection(), ("communicator", "function")).groups
    whole = operations["part_of"] == NONE
    for group in groups:
        communicator = made.communicator_names.index(str(group.keys["communicator"]))
        function = made.words["function"].index(str(group.keys["function"]))
        own = (operations["communicator"] == communicator) & (operations["function"] == function)
        rows = np.flatnonzero(whole & own)
        expected = measures.durations(operations, rows)
        assert expected is not None
        assert group.durations is not None
        for name in ("grade", "operations", "total_ns", "shortest_ns", "longest_ns", "lower_bound"):
            assert getattr(group.durations, name) == getattr(expected, name), name
        # A report's percentiles are those of buckets 2 % wide.
        assert group.durations.median_ns == pytest.approx(expected.median_ns, rel=0.02)
        assert group.durations.p99_ns == pytest.approx(expected.p99_ns, rel=0.02)
        assert group.busbw_gbs == pytest.approx(measures.busbw_gbs(made, rows), rel=1e-12)
    assert len(groups) == 21


def test_durations_come_from_the_best_clock_alone() -> None:
    rows = [
        operation(communicator=0, rank=0, source=source, duration_ns=duration)
        for source, duration in (("host", 100), ("gpu", 10), ("gpu-early", 30), ("enqueue", 1))
    ]
    columns = model(rows, [], COMMUNICATORS, ["world"], world(4, 4)).tables["operations"]
    durations = measures.durations(columns)
    assert durations is not None
    assert (durations.grade, durations.operations, durations.total_ns) == ("gpu", 2, 40)
    assert (durations.median_ns, durations.p99_ns, durations.lower_bound) == (10, 30, True)
    without_gpu = measures.durations(columns, np.array([0, 3]))
    assert without_gpu is not None
    assert (without_gpu.grade, without_gpu.total_ns) == ("host", 100)
    assert measures.durations(columns, np.array([], np.int64)) is None


@pytest.mark.parametrize(
    ("values", "median", "p99"),
    [
        ([7], 7, 7),
        ([10, 100], 10, 100),
        ([3, 1, 2], 2, 3),
        (list(range(1, 101)), 50, 99),
        (list(range(1, 201)), 100, 198),
    ],
)
def test_percentiles_are_values_that_occurred(values: list[int], median: int, p99: int) -> None:
    assert measures.percentiles(np.array(values)) == [median, p99]
    # A histogram with a bucket for each value has the same percentiles.
    counts = np.bincount(values)
    buckets = np.arange(len(counts), dtype=np.float64)
    assert measures.histogram_percentiles(counts, buckets, buckets) == [median, p99]


@pytest.mark.parametrize("count", [1, 2, 3, 99, 100, 101, 200, 1_000])
def test_percentiles_are_those_of_numpy(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 50, count)
    percents = (0, 1, 50, 95, 99, 100)
    exact = np.percentile(values, percents, method="inverted_cdf").tolist()
    assert measures.percentiles(values, percents) == exact


def test_classes_of_sizes_are_the_same_in_sql_and_in_arrays() -> None:
    sizes = [-1, 0, 1, 2, 3, 4, 1023, 1024, 1025, (1 << 40) - 1, 1 << 40]
    expected = [-1, 0, 1, 2, 2, 4, 512, 1024, 1024, 1 << 39, 1 << 40]
    assert measures.size_class(np.array(sizes)).tolist() == expected
    values = ", ".join(f"({place}, {size})" for place, size in enumerate(sizes))
    rows = duckdb.sql(
        f"select {measures.SIZE_CLASS_SQL} from (values {values}) as t(place, size_bytes) order by place"
    ).fetchall()
    assert [row[0] for row in rows] == expected
