"""Where a process's rows are in tables in the order of processes."""

import tracemalloc

import numpy as np

from ncclscope.model.model import process_edges, process_rows


def test_rows_of_a_process() -> None:
    columns = {"process": np.array([0, 0, 2, 2, 2, 3], np.int32)}
    assert [process_rows(columns, number) for number in range(5)] == [
        (0, 2), (2, 2), (2, 5), (5, 6), (6, 6)
    ]  # fmt: skip
    assert process_edges(columns, range(5)) == [0, 2, 2, 5, 6]


def test_no_question_copies_the_column() -> None:
    columns = {"process": np.zeros(1_000_000, np.int32)}
    tracemalloc.start()
    assert process_rows(columns, 0) == (0, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
