"""The order of operations by process, rank and start, against three sorts."""

import numpy as np
import pytest

from ncclscope.analysis.own_time import order_of


@pytest.mark.parametrize("span", [9, 1 << 40, 1 << 60])
def test_one_number_gives_the_order_of_three(span: int) -> None:
    """Also where process, rank and start together do not fit into one."""
    rng = np.random.default_rng(span)
    process, rank = np.repeat(np.arange(50), 40), rng.integers(0, 1 << 20, 2000)
    start = rng.integers(0, span, 2000)
    expected = np.lexsort((start, rank, process))
    assert order_of(process, rank, start).tolist() == expected.tolist()


def test_no_operations() -> None:
    none = np.empty(0, np.int64)
    assert order_of(none, none, none).tolist() == []
