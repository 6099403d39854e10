"""Operations with the proxy's times begin after what ran before on their stream."""

import numpy as np

from ncclscope.model import schema
from ncclscope.model.process.durations import GPU, GPU_EARLY, HOST, PROXY
from ncclscope.model.process.proxy_starts import begin_after_stream
from ncclscope.model.schema import NONE, Columns


def operations(*rows: tuple[int, int, int, int, int, int]) -> Columns:
    """Operations of (source, communicator, stream, group, start, end), called in this order."""
    columns = schema.empty(schema.OPERATIONS, len(rows))
    names = ("source", "communicator", "stream", "group_call", "start_ns", "end_ns")
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        columns[name] = np.array(values, columns[name].dtype)
    columns["duration_ns"] = columns["end_ns"] - columns["start_ns"]
    columns["call_ns"] = np.arange(len(rows))
    return columns


def times_of(columns: Columns) -> list[tuple[int, int]]:
    begin_after_stream(columns)
    np.testing.assert_array_equal(columns["duration_ns"], columns["end_ns"] - columns["start_ns"])
    return list(zip(columns["start_ns"].tolist(), columns["end_ns"].tolist(), strict=True))


def test_a_queued_operation_begins_when_the_one_before_has_ended() -> None:
    queued = operations(
        (PROXY, 0, 7, 1, 0, 280), (PROXY, 0, 7, 2, 0, 560), (PROXY, 0, 7, 3, 570, 600)
    )
    assert times_of(queued) == [(0, 280), (280, 560), (570, 600)]


def test_the_longest_of_those_before_counts() -> None:
    columns = operations(
        (PROXY, 0, 7, 1, 0, 500), (GPU_EARLY, 0, 7, 2, 0, 6), (PROXY, 0, 7, 3, 2, 900)
    )
    assert times_of(columns)[2] == (500, 900)


def test_calls_of_a_group_run_together() -> None:
    columns = operations(
        (PROXY, 0, 7, 1, 0, 280), (PROXY, 0, 7, 1, 3, 270), (PROXY, 0, 7, 2, 5, 500),
        (PROXY, 0, 7, 2, 6, 490),
    )  # fmt: skip
    assert times_of(columns) == [(0, 280), (3, 270), (280, 500), (280, 490)]


def test_other_streams_communicators_and_sources_bound_nothing() -> None:
    columns = operations(
        (PROXY, 0, 7, 1, 0, 280), (PROXY, 0, 8, 2, 0, 560), (PROXY, 1, 7, 3, 0, 570),
        (HOST, 2, 7, 4, 0, 900), (PROXY, 2, 7, 5, 10, 1000),
        (PROXY, 3, NONE, 6, 0, 40), (PROXY, 3, NONE, 7, 0, 80),
        (GPU, 4, 7, 8, 0, 90), (GPU, 4, 7, 9, 50, 95),
    )  # fmt: skip
    assert times_of(columns) == [(0, 280), (0, 560), (0, 570), (0, 900), (10, 1000), (0, 40), (0, 80),
                      (0, 90), (50, 95)]  # fmt: skip


def test_what_ended_before_keeps_its_start() -> None:
    """Times that contradict the stream's order stay as they are."""
    columns = operations((PROXY, 0, 7, 1, 0, 280), (PROXY, 0, 7, 2, 10, 250))
    assert times_of(columns) == [(0, 280), (10, 250)]
