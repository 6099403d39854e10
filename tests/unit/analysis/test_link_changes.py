"""Links at the speed of their peers, as a replay is told."""

import numpy as np

from ncclscope.analysis.link_changes import as_peers
from ncclscope.analysis.links import Links
from ncclscope.analysis.waiting.what_if import Change


def links(slowness: dict[tuple[int, int], float]) -> Links:
    count = len(slowness)
    return Links(
        np.array([source for source, _ in slowness]),
        np.array([destination for _, destination in slowness]),
        np.ones(count, bool),
        np.array(list(slowness.values())),
        np.array(list(slowness.values())),
        np.ones(count),
        np.full(count, 100),
        np.full(count, 1e6),
        {},
    )


def test_a_slow_link_is_as_slow_as_the_slower_of_both_ways() -> None:
    star = {(0, 1): 1.0, (0, 2): 1.0, (0, 3): 3.0, (3, 0): 8.0}
    change = as_peers(Change(links=((3, 0), (0, 1))), links(star))
    assert change.links == ((0, 1), (0, 3))
    assert change.slow_links == ((0, 3, 8.0),)


def test_links_before_a_slow_one_of_a_ring_look_as_slow() -> None:
    ring = {(0, 1): 1.0, (1, 2): 7.9, (2, 3): 8.0, (3, 0): 1.0}
    change = as_peers(Change(links=((2, 3),)), links(ring))
    assert change.slow_links == ((2, 3, 8.0), (1, 2, 7.9))


def test_links_that_are_most_of_all_are_compared_with_the_others() -> None:
    line = {(0, 1): 1.0, (1, 0): 1.02, (1, 2): 0.98, (2, 1): 1.0, (2, 3): 0.125, (3, 2): 0.125}
    change = as_peers(Change(links=((0, 1), (1, 2))), links(line))
    assert [(a, b, round(slowness, 2)) for a, b, slowness in change.slow_links] == [
        (0, 1, 8.16),
        (1, 2, 8.0),
    ]


def test_others_that_are_a_little_faster_are_as_fast_as_the_usual_link() -> None:
    star = {(0, 1): 1.0, (0, 2): 0.9, (0, 3): 0.95, (0, 4): 3.0}
    change = as_peers(Change(links=((0, 4), (0, 1))), links(star))
    assert change.slow_links == ((0, 4, 3.0),)
