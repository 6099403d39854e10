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
    transfers = Transfers(link, link + 5, operation, size_bytes, time_ns, {})
    links = link_times(transfers, np.repeat([0, 1], 5))
    assert links.source.tolist() == [0, 1, 2, 3, 4]
    assert links.across_nodes.all()
    assert links.slowness.tolist() == [1, 1, 1, 2, 1]
