"""The links of each host to other hosts, against the links between those.

What slows a whole host's network slows all of its links: an adapter, a driver without GPUDirect, a
port of a switch. One by one such links may be half of all there are, and none stands out.

    hosts in a row       0 ── 1 ── 2 ── 3
    links (slowness)       1.0  1.0  0.4     host 1: both of its links, 2.5 times the other one
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.links import Links
from ncclscope.arrays.types import Bools, Ints

NEARLY_ALL = 0.8  # of links


@dataclass(frozen=True, slots=True)
class HostLinks:
    """Links between one host and others."""

    node: int
    rows: Ints  # of `links`
    links: Links  # slowness is against links between other hosts
    least_slowness: float  # of nearly all, times that of nearly all links between other hosts
    others: int  # links between other hosts


def links_of_hosts(links: Links, node_of: Ints, counted: Bools) -> Iterator[HostLinks]:
    """Hosts with links between several pairs of ranks, where other hosts have links as well.
    `counted`: links with enough operations.
    """
    ends = np.stack([node_of[links.source], node_of[links.destination]])
    across = links.across_nodes & counted
    for node in np.unique(ends[:, across]).tolist():
        of_host = across & (ends == node).any(axis=0)
        own, others = np.flatnonzero(of_host), np.flatnonzero(across & ~of_host)
        if len(others) < 2 or _pairs(links, own) < 2:
            continue
        theirs = np.sort(links.slowness[others])
        least = float(np.quantile(links.slowness[own], 1 - NEARLY_ALL, method="lower"))
        most = float(np.quantile(theirs, NEARLY_ALL, method="higher"))
        usual = max(float(theirs[(len(theirs) - 1) // 2]), 1e-9)
        against = replace(links, slowness=links.slowness / usual)
        yield HostLinks(node, own, against, least / max(most, 1e-9), len(others))


def _pairs(links: Links, rows: Ints) -> int:
    """Between how many pairs of ranks these links are; both ways are one."""
    ends = np.sort(np.stack([links.source[rows], links.destination[rows]]), axis=0)
    return int(np.unique(ends, axis=1).shape[1])
