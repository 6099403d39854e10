"""Which links stand out among their peers, or against their own past."""

import numpy as np

from ncclscope.analysis.links import Links
from ncclscope.diagnose.rules.slow_link import slow_links, slow_networks


def links(
    ends: list[tuple[int, int]],
    slowness: list[float],
    past: list[float] | None = None,
    high: list[float] | None = None,
) -> Links:
    """Links between nodes with many operations each."""
    count = len(ends)
    return Links(
        np.array([source for source, _ in ends]),
        np.array([destination for _, destination in ends]),
        np.ones(count, bool),
        np.array(slowness),
        np.array(high or slowness),
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


def networks(ends: list[tuple[int, int]], slowness: list[float]) -> list[list[int]]:
    """Hosts, of two ranks each, that are found, those with the same links together."""
    found = slow_networks(links(ends, slowness), np.arange(20) // 2)
    return [[own.node for own in hosts] for hosts in found]


def test_a_host_whose_links_are_all_slow_is_found_where_these_are_most_links() -> None:
    """Hosts in a row: two of three crossings are host 1's."""
    row = [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7)]
    assert networks(row, [1.0, 1.1, 1.0, 1.0, 0.3, 0.3]) == [[1]]


def test_a_host_with_fast_links_as_well_is_not_found() -> None:
    row = [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7)]
    assert not networks(row, [3.0, 1.0, 3.0, 1.0, 1.0, 1.0])


def test_links_of_all_hosts_that_differ_a_little_are_no_hosts() -> None:
    row = [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7)]
    assert not networks(row, [1.3, 1.3, 1.4, 1.3, 1.0, 1.1])


def test_two_hosts_that_have_the_slow_links_between_them_alone_are_named_together() -> None:
    pairs = [(0, 10), (1, 11), (2, 12), (3, 13), (4, 14), (5, 15), (6, 16), (7, 17)]
    assert networks(pairs, [4.0, 4.0, *[1.0] * 6]) == [[0, 5]]


def test_one_link_between_two_hosts_is_no_network() -> None:
    assert not networks([(0, 2), (2, 4), (4, 6), (6, 8)], [9.0, 1.0, 1.0, 1.0])


def test_a_link_that_is_slow_now_and_then_is_slow_where_its_peers_are_not() -> None:
    ring = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
    usual, high = [1.0] * 6, [1.1, 1.2, 50.0, 1.1, 1.3, 1.1]
    assert slow_links(links(ring, usual, high=high)).tolist() == [False, False, True] + [False] * 3
    # Networks that vary, and too few links to tell.
    assert not slow_links(links(ring, usual, high=[9.0, 14.0, 30.0, 12.0, 10.0, 3.0])).any()
    assert not slow_links(links(ring[:3], usual[:3], high=high[:3])).any()
