"""Which links stand out among their peers, or against their own past."""

import numpy as np

from ncclscope.analysis.links import Links
from ncclscope.diagnose.rules.slow_link import slow_links


def links(
    ends: list[tuple[int, int]], slowness: list[float], past: list[float] | None = None
) -> Links:
    """Links between nodes with many operations each."""
    count = len(ends)
    return Links(
        np.array([source for source, _ in ends]),
        np.array([destination for _, destination in ends]),
        np.ones(count, bool),
        np.array(slowness),
        np.array(past or [1.0] * count),
        np.full(count, 100),
        np.full(count, 1e6),
        {},
    )


def test_one_of_two_links_is_slow_where_it_is_far_slower() -> None:
    assert slow_links(links([(7, 8), (15, 0)], [6.0, 1.0])).tolist() == [True, False]
    assert not slow_links(links([(7, 8), (15, 0)], [3.0, 1.0])).any()


def test_a_link_that_became_slow_is_found_among_links_of_other_sizes() -> None:
    ends = [(3, 4), (4, 3), (7, 8), (8, 7), (11, 12), (12, 11)]
    slow = slow_links(links(ends, [1.0] * 6, [8.5, 8.5, 1.0, 1.0, 1.1, 1.0]))
    assert slow.tolist() == [True, True, False, False, False, False]


def test_links_that_all_became_slow_are_no_slow_link() -> None:
    ends = [(3, 4), (4, 3), (7, 8), (8, 7), (11, 12), (12, 11)]
    assert not slow_links(links(ends, [1.0] * 6, [8.5] * 6)).any()


def test_both_ways_between_the_only_two_ranks_can_become_slow() -> None:
    assert slow_links(links([(3, 4), (4, 3)], [1.0, 1.0], [9.0, 9.0])).all()


def test_a_slow_link_explains_others_at_its_ends() -> None:
    ends = [(4, 12), (4, 9), (3, 12), (0, 8), (1, 9), (2, 10), (5, 11)]
    slow = slow_links(links(ends, [60.0, 1.8, 1.7, 1.0, 1.0, 1.0, 1.0]))
    assert slow.tolist() == [True] + [False] * 6
