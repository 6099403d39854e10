"""The links of one rank to other hosts, against those of other ranks on its host.

In an exchange of all ranks a kernel is as slow as the slowest of its links. One slow adapter makes
all kernels on other hosts long, so that slow ones are usual. Only ranks on its own host, which
reach it within the host, are quick:

    ranks of hosts       0 1 2 3    4 5 6 7    8 9 10 11
    lengths in µs        all 730    all 730    55 820 55 55      rank 9

Their links lead to the same hosts, and move as much.
"""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.distinct import rows_by_place
from ncclscope.analysis.host_links import NEARLY_ALL
from ncclscope.analysis.links import Links
from ncclscope.analysis.robust_statistics import median
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.exchange_groups import SLOWER_OF_FEW
from ncclscope.arrays.types import Bools, Floats, Ints

_LEAST_OTHERS = 2  # ranks on the host: of two, either may be the usual one
_LEAST_LINKS = 3  # of a rank to other hosts
_MORE = 1.3  # times the bytes of others on the host: its adapter has more to do


@dataclass(frozen=True, slots=True)
class RankLinks:
    """Links between one rank and other hosts."""

    rank: int
    rows: Ints  # of `links`
    links: Links  # slowness is against links of other ranks on its host


def slow_adapter(run: Run, links: Links, counted: Bools) -> RankLinks | None:
    """The rank nearly all of whose links to other hosts are far slower than nearly all of those of
    other ranks on its host; None where there is no such rank, or several.
    """
    rows_of = _rows_by_rank(links, np.flatnonzero(links.across_nodes & counted))
    typical = {rank: median(links.slowness[rows]) for rank, rows in rows_of.items()}
    on_node: dict[int, list[int]] = {}
    for rank in rows_of:
        on_node.setdefault(int(run.node_of[rank]), []).append(rank)
    moved, found = _moved_bytes(run), []
    for rank, own in rows_of.items():
        others = [other for other in on_node[int(run.node_of[rank])] if other != rank]
        if len(others) < _LEAST_OTHERS or moved[rank] > _MORE * np.median(moved[others]):
            continue
        if typical[rank] <= SLOWER_OF_FEW * min(typical[other] for other in others):
            continue  # of nearly all ranks: what follows takes longer
        theirs = links.slowness[np.concatenate([rows_of[other] for other in others])]
        least = float(np.quantile(links.slowness[own], 1 - NEARLY_ALL))
        if least > SLOWER_OF_FEW * float(np.quantile(theirs, NEARLY_ALL)):
            usual = max(median(theirs), 1e-9)
            found.append(RankLinks(rank, own, replace(links, slowness=links.slowness / usual)))
    return found[0] if len(found) == 1 else None


def _rows_by_rank(links: Links, rows: Ints) -> dict[int, Ints]:
    """Of these links those with an end at a rank, of each rank that has several."""
    ends = np.concatenate([links.source[rows], links.destination[rows]])
    places = rows_by_place(ends, int(ends.max(initial=-1)) + 1)
    return {
        rank: rows[own % len(rows)] for rank, own in enumerate(places) if len(own) >= _LEAST_LINKS
    }


def _moved_bytes(run: Run) -> Floats:
    """By global rank the bytes of its sends and receives."""
    rows = np.flatnonzero(run.p2p)
    rank, size = run.column("global_rank", rows), np.maximum(run.column("size_bytes", rows), 0)
    known = rank >= 0
    count = len(run.node_of)
    return np.bincount(rank[known], size[known], minlength=count).astype(np.float64)
