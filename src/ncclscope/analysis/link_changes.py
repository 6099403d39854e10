"""What changes in a replay with links as fast as their peers.

A kernel that exchanges with several ranks is as slow as the slowest of its links. Where most
kernels use a slow one, slow kernels are usual, and a replay with usual lengths gains nothing. How
many times as slow as its peers a link is says what it would take.
"""

from dataclasses import replace

import numpy as np

from ncclscope.analysis.links import Links, link_times, p2p_transfers
from ncclscope.analysis.waiting.exchange_groups import SLOWER, SLOWER_OF_FEW
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.what_if import Change
from ncclscope.arrays.types import Bools, Floats, Ints

_AS_SLOW = 0.85  # of the slowness of a link next to it


def with_links_as_peers(change: Change, waiting: Waiting) -> Change:
    """A change with what is known of its links: how slow they are by sends on record."""
    if not change.links:
        return change
    sends = p2p_transfers(waiting)
    if not len(sends.operation):
        return change
    return as_peers(change, link_times(sends, waiting.run.node_of))


def as_peers(change: Change, links: Links) -> Change:
    """The same, of links that were measured already."""
    asked = {(min(ends), max(ends)) for ends in change.links}
    pairs = zip(links.source.tolist(), links.destination.tolist(), strict=True)
    own = np.array([(min(ends), max(ends)) in asked for ends in pairs], bool)
    links = replace(links, slowness=_against_others(links, own))
    rows = as_slow_next_to(links, np.flatnonzero(own))
    slow: dict[tuple[int, int], float] = dict.fromkeys(sorted(asked), 1.0)
    columns = (links.source[rows], links.destination[rows], links.slowness[rows])
    for a, b, slowness in zip(*(values.tolist() for values in columns), strict=True):
        pair = (min(a, b), max(a, b))
        slow[pair] = max(slow.get(pair, 1.0), slowness)
    slower = tuple((*pair, slowness) for pair, slowness in slow.items() if slowness >= SLOWER)
    return replace(
        change, links=tuple(slow), slow_links=slower, slow_both_ways=_slow_both_ways(links, own)
    )


def _slow_both_ways(links: Links, own: Bools) -> tuple[tuple[int, int, float], ...]:
    """Links of these that are far slower both ways, and how many times they are at least."""
    ways: dict[tuple[int, int], list[float]] = {}
    columns = (links.source[own], links.destination[own], links.slowness[own])
    for a, b, slowness in zip(*(values.tolist() for values in columns), strict=True):
        ways.setdefault((min(a, b), max(a, b)), []).append(slowness)
    both = {pair: min(found) for pair, found in sorted(ways.items()) if len(found) > 1}
    return tuple((*pair, slowness) for pair, slowness in both.items() if slowness >= SLOWER_OF_FEW)


def _against_others(links: Links, own: Bools) -> Floats:
    """How many times as slow as links that are not changed, where these are far faster than the
    usual link. The links of one host may be most links of a job: then the usual one is slow.
    """
    slowness: Floats = links.slowness.copy()
    for across in (False, True):
        alike = links.across_nodes == across
        others = np.sort(links.slowness[alike & ~own])
        usual = float(others[(len(others) - 1) // 2]) if len(others) else 1.0
        if 0.0 < usual <= 1 / SLOWER:
            slowness[alike] /= usual
    return slowness


def as_slow_next_to(links: Links, rows: Ints) -> Ints:
    """These links, and in a ring those as slow that are next to them, or next to such ones: there
    the kernels before a slow link wait for it, and look as slow as it is.
    """
    if not _is_ring(links):
        return rows
    slowest = float(links.slowness[rows].max(initial=0.0))
    alike = links.slowness >= max(_AS_SLOW * slowest, SLOWER)
    alike &= links.slowness * _AS_SLOW <= slowest
    chosen = np.zeros(len(links.slowness), bool)
    chosen[rows] = True
    while True:
        ends = np.concatenate([links.source[chosen], links.destination[chosen]])
        next_to = np.isin(links.source, ends) | np.isin(links.destination, ends)
        more = alike & next_to & ~chosen
        if not more.any():
            return np.flatnonzero(chosen)
        chosen |= more


def _is_ring(links: Links) -> bool:
    """Whether no rank sends to more than two others, or gets from more."""
    pairs = np.unique(np.stack([links.source, links.destination]), axis=1)
    return all(np.bincount(ends).max(initial=0) <= 2 for ends in pairs)
