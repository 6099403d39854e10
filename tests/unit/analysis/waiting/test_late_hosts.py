"""Hosts that most waiting began on."""

import numpy as np
import pytest

from ncclscope.analysis.waiting.late_hosts import late_host

SECOND = 1_000_000_000
RUN_NS = 4 * SECOND


def found(began_s: list[list[float]]) -> list[int] | None:
    """The places of the late host; `began_s`: by host and rank the waiting that began on it."""
    node_of = np.repeat(np.arange(len(began_s)), [len(ranks) for ranks in began_s])
    began_ns = np.array([one for ranks in began_s for one in ranks]) * SECOND
    places = late_host(began_ns, node_of, RUN_NS)
    return None if places is None else places.tolist()


def test_ranks_of_one_host_that_others_wait_for_in_turn() -> None:
    quiet = [0.1, 0.0, 0.0, 0.2]
    assert found([quiet, [40.3, 1.9, 23.5, 1.7]]) == [4, 6, 5, 7]


@pytest.mark.parametrize(
    "began_s",
    [
        [[0.1, 0.0, 0.0, 0.2], [40.3, 0.0, 0.1, 0.0]],  # one slow rank
        [[0.1, 0.0, 0.0, 0.2], [40.3, 38.0, 0.1, 0.0]],  # two of them
        [[3.0, 2.0, 4.0, 2.0], [4.0, 5.0, 4.5, 3.0]],  # all ranks alike
        [[9.0, 0.0, 0.1, 0.0], [40.3, 3.0, 4.0, 0.0]],  # another host as well
        [[40.3, 1.9, 23.5, 1.7]],  # one host
        [[0.0, 0.0], [0.02, 0.02], [0.02, 0.0]],  # next to nothing
    ],
)
def test_what_is_no_slow_host(began_s: list[list[float]]) -> None:
    assert found(began_s) is None
