"""Links against their peers, on transfers made by hand."""

import numpy as np

from ncclscope.analysis.links import Transfers, link_times


def test_a_busy_host_does_not_make_a_link_slow() -> None:
    """Every other transfer of one link is noticed late; of another link all are slow."""
    rows = []
    for link, factors in ((0, (1, 1)), (1, (1, 2)), (2, (1, 1)), (3, (2, 2)), (4, (1, 1))):
        rows += [
            (link, 100 * link + call, 1000.0 * factors[step % 2])
            for call in range(20)
            for step in range(8)
        ]
    link, operation, time_ns = (np.array(column) for column in zip(*rows, strict=True))
    size_bytes = np.full(len(rows), 1 << 18)
    counts = np.ones(len(link), bool)
    transfers = Transfers(link, link + 5, operation, size_bytes, time_ns, {}, counts)
    links = link_times(transfers, np.repeat([0, 1], 5))
    assert links.source.tolist() == [0, 1, 2, 3, 4]
    assert links.across_nodes.all()
    assert links.slowness.tolist() == [1, 1, 1, 2, 1]


def test_transfers_are_compared_with_those_that_end_for_the_same_reason() -> None:
    """One link is known by exchanges only that ended with a third rank's: they take longer on all
    links, and others have enough that do not.
    """
    rows = [
        (link, 100 * link + call, known, 1000.0 if known else 3000.0)
        for link in range(5)
        for call in range(20)
        for known in ((0, 1) if link else (0,))
    ]
    link, operation, known, time_ns = (np.array(column) for column in zip(*rows, strict=True))
    counts = (known == 1) | (link == 0)
    transfers = Transfers(link, link + 5, operation, known, time_ns, {}, counts)
    links = link_times(transfers, np.repeat([0, 1], 5))
    assert links.slowness.tolist() == [1, 1, 1, 1, 1]
    assert links.operations.tolist() == [20, 20, 20, 20, 20]


def test_small_transfers_whose_clocks_differ_do_not_make_the_past_of_a_link() -> None:
    """160 of 780 µs always, and 30 small ones of which most seem to take 4 µs, the others 75."""
    small = [4_000.0 if call % 3 else 75_000.0 for call in range(15)] + [75_000.0] * 15
    time_ns = np.concatenate([np.full(160, 780_000.0), small])
    kind = np.repeat([0, 1], [160, 30])
    ones = np.zeros(190, np.int64)
    transfers = Transfers(ones, ones + 1, np.arange(190), kind, time_ns, {}, np.ones(190, bool))
    (past,) = link_times(transfers, np.array([0, 1])).past_slowness
    assert 1 <= past < 1.02
    slow_later = np.concatenate([np.full(80, 200_000.0), np.full(80, 780_000.0), small])
    transfers = Transfers(ones, ones + 1, np.arange(190), kind, slow_later, {}, np.ones(190, bool))
    (past,) = link_times(transfers, np.array([0, 1])).past_slowness
    assert past > 2
