"""Links, networks of hosts, or groups of ranks, that are slower than their peers."""

import numpy as np

from ncclscope.analysis.host_links import HostLinks, links_of_hosts
from ncclscope.analysis.link_changes import as_peers, as_slow_next_to
from ncclscope.analysis.links import (
    Links,
    link_times,
    p2p_transfers,
    proxy_step_transfers,
)
from ncclscope.analysis.rank_links import slow_adapter
from ncclscope.analysis.robust_statistics import robust_spread
from ncclscope.analysis.waiting.exchange_groups import (
    SLOWER,
    SLOWER_OF_FEW,
    SLOWER_OF_TWO,
)
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.what_if import Change
from ncclscope.arrays.types import Bools, Ints
from ncclscope.diagnose.finding import (
    CRITICAL,
    GRAVE_SHARE,
    LEAST_SHARE,
    PROBLEM_SHARE,
    WARNING,
    Evidence,
    Finding,
)
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.diagnose.slow_group_findings import (
    cost_of_links,
    groups_nobody_waits_for,
    slow_groups,
)
from ncclscope.humanize import duration, percent

_FEW_LINKS = 3  # fewer: a link's own past says more than the other link
_MANY_LINKS = 5
# Of all its transfers: one that is four times as slow in two fifths of the run is slower by 2.2.
_SLOWER_THAN_ITSELF = 2.0
_EXPLAINED = 0.2  # of what a slower link at the same rank takes beyond the usual
_TIMES_NOISE = 6.0
_NOISE_FLOOR = 0.05
LEAST_OPERATIONS = 10  # of a link
_MOST = 6  # findings
_PROXY_STEPS, _SENDS = "proxy steps", "sends"


def find(context: RuleContext) -> list[Finding]:
    """Slow links, the slowest first; then slow communicators that no slow link explains, and last
    those that nobody waits for. Where all ranks of one are slow in their exchanges, it explains its
    links.
    """
    groups = slow_groups(context)
    whole = [set(group.finding.ranks) for group in groups if group.has_only_slow_links]
    links = _by_transfers(context)
    links = [one for one in links if not any(set(one.ranks) <= ranks for ranks in whole)]
    pairs = [set(finding.ranks) for finding in links]
    findings = [group.finding for group in groups]
    findings += groups_nobody_waits_for(context, {n for one in findings for n in one.communicators})
    return links + [one for one in findings if not any(pair <= set(one.ranks) for pair in pairs)]


def _by_transfers(context: RuleContext) -> list[Finding]:
    steps = proxy_step_transfers(context.run)
    if steps is not None and len(steps.operation) >= LEAST_OPERATIONS:
        findings = _link_findings(context, link_times(steps, context.run.node_of), _PROXY_STEPS)
        if findings:
            return findings
    if context.waiting is None:
        return []
    sends = p2p_transfers(context.waiting)
    if len(sends.operation) < LEAST_OPERATIONS:
        return []
    return _link_findings(context, link_times(sends, context.run.node_of), _SENDS)


# ---- links ----
def slow_links(links: Links) -> Bools:
    """Which links are far slower than others within nodes, or between nodes, or than they were
    themselves while others stayed as they were.
    """
    enough = links.operations >= LEAST_OPERATIONS
    slow = np.zeros(len(links.operations), bool)
    for scope in (links.across_nodes, ~links.across_nodes):
        peers = enough & scope
        if peers.any():
            slow |= peers & (_is_slower(links, peers) | _became_slower(links, peers))
            slow |= peers & _is_slower_now_and_then(links, peers)
    return slow & ~_is_explained(links, slow)


def _is_slower(links: Links, peers: Bools) -> Bools:
    """Which links are far slower than these, which are their peers."""
    count = int(peers.sum())
    usual = float(np.sort(links.slowness[peers])[(count - 1) // 2])
    if count < _MANY_LINKS:
        times = SLOWER_OF_FEW if count > 2 else SLOWER_OF_TWO
        return np.asarray(links.slowness > times * usual)
    noise = max(robust_spread(links.slowness[peers]), _NOISE_FLOOR)
    return np.asarray(links.slowness > max(SLOWER * usual, usual + _TIMES_NOISE * noise))


def _became_slower(links: Links, peers: Bools) -> Bools:
    """Which links were far faster for a part of the run, where most of these links were not."""
    count = int(peers.sum())
    # Two links may be both ways between the same ranks.
    usual = float(np.sort(links.past_slowness[peers])[(count - 1) // 2]) if count > 2 else 1.0
    return np.asarray(links.past_slowness > _SLOWER_THAN_ITSELF * usual)


def _is_slower_now_and_then(links: Links, peers: Bools) -> Bools:
    """Which links are far slower than these in one of seven operations, where most of these are
    not: a link that is slow in every third step.
    """
    count = int(peers.sum())
    if count < _MANY_LINKS:
        return np.zeros(len(peers), bool)
    usual = float(np.sort(links.high_slowness[peers])[(count - 1) // 2])
    return np.asarray(links.high_slowness > SLOWER_OF_TWO * usual)


def _is_explained(links: Links, slow: Bools) -> Bools:
    """Which links share an end with one that is several times slower: a kernel that exchanges with
    several ranks ends as a whole.
    """
    excess = np.maximum.reduce([links.slowness, links.past_slowness, links.high_slowness]) - 1
    worst: dict[int, float] = {}
    for row in np.flatnonzero(slow).tolist():
        for rank in (int(links.source[row]), int(links.destination[row])):
            worst[rank] = max(worst.get(rank, 0.0), float(excess[row]))
    ends = zip(links.source.tolist(), links.destination.tolist(), strict=True)
    most = np.array([max(worst.get(a, 0.0), worst.get(b, 0.0)) for a, b in ends])
    return np.asarray(excess < _EXPLAINED * most)


def _link_findings(context: RuleContext, links: Links, what: str) -> list[Finding]:
    networks = slow_networks(links, context.run.node_of)
    findings = [_network_finding(context, own, what) for own in networks]
    slow = slow_links(links)
    for own in networks:
        # Kernels at both ends of a link between its ranks end as a whole, with slow links.
        ends = np.concatenate([links.source[own[0].rows], links.destination[own[0].rows]])
        slow[own[0].rows] = False
        slow &= ~(np.isin(links.source, ends) & np.isin(links.destination, ends))
    found = [one for one in findings if one is not None]
    found += _single_findings(context, links, np.flatnonzero(slow), what)
    if found or what != _SENDS:
        return found
    adapter = slow_adapter(context.run, links, links.operations >= LEAST_OPERATIONS)
    if adapter is None:
        return []
    return _rank_finding(context, adapter.links, adapter.rows, adapter.rank, what)


def slow_networks(links: Links, node_of: Ints) -> list[list[HostLinks]]:
    """Hosts whose links to other hosts are nearly all far slower than those between other hosts,
    the one with most links first. Hosts in one list have the same links: those between them.
    """
    counted = links.operations >= LEAST_OPERATIONS
    found = [
        own
        for own in links_of_hosts(links, node_of, counted)
        if own.least_slowness >= (SLOWER if own.others >= _MANY_LINKS else SLOWER_OF_FEW)
    ]
    networks: list[list[HostLinks]] = []
    for own in sorted(found, key=lambda own: -len(own.rows)):
        same = [one for one in networks if np.array_equal(one[0].rows, own.rows)]
        if same:
            same[0].append(own)
        elif not any(np.isin(own.rows, one[0].rows).all() for one in networks):
            networks.append([own])
    return networks


def _single_findings(context: RuleContext, links: Links, rows: Ints, what: str) -> list[Finding]:
    """Findings about single slow links, or about a rank that all of them share."""
    rows = rows[np.argsort(-np.maximum(links.slowness, links.past_slowness)[rows])]
    ends = np.concatenate([links.source[rows], links.destination[rows]])
    ranks, times = np.unique(ends, return_counts=True)
    # Several slow links that share one rank are that rank's.
    shared = ranks[times >= 3]
    if len(rows) >= 3 and len(shared) == 1 and times.max() == len(rows):
        return _rank_finding(context, links, rows, int(shared[0]), what)
    pairs: dict[tuple[int, int], list[int]] = {}
    for row in rows.tolist():
        a, b = int(links.source[row]), int(links.destination[row])
        pairs.setdefault((min(a, b), max(a, b)), []).append(row)
    findings = [_pair_finding(context, links, p, own, what) for p, own in pairs.items()]
    return [finding for finding in findings[:_MOST] if finding is not None]


def _lost_share(context: RuleContext, links: Links, rows: Ints) -> float:
    """How much shorter the run could be at most: the excess of the slowest of these links."""
    excess = links.busy_ns[rows] * (1 - 1 / np.maximum(links.slowness[rows], 1.0))
    return min(float(excess.max(initial=0.0)) / context.run.span_ns, 1.0)


def _without_links(context: RuleContext, links: Links, rows: Ints, what: str) -> Prediction | None:
    """What the run takes with these links as fast as usual; None where they are not replayed."""
    if what != _SENDS or context.what_if is None:
        return None
    ends = zip(links.source[rows].tolist(), links.destination[rows].tolist(), strict=True)
    return context.what_if.predict(as_peers(Change(links=tuple(ends)), links))


def _matrix(links: Links, ranks: set[int]) -> dict[str, float]:
    """Slowness from rank to rank, of links that touch these ranks."""
    columns = (links.source.tolist(), links.destination.tolist(), links.slowness.tolist())
    return {
        f"{source}>{destination}": round(slowness, 3)
        for source, destination, slowness in zip(*columns, strict=True)
        if source in ranks or destination in ranks
    }


def _evidence(context: RuleContext, links: Links, rows: list[int], what: str) -> Evidence:
    operations = int(links.operations[rows].sum())
    facts: dict[str, object] = {
        "slowness": round(float(links.slowness[rows[0]]), 3),
        "operations": operations,
        "matrix": _matrix(links, {int(links.source[rows[0]]), int(links.destination[rows[0]])}),
    }
    waits = {name: float(values[rows].sum()) for name, values in links.waits_ns.items()}
    total = sum(waits.values())
    text = f"by {what} of {operations:,} operations"
    if total:
        shares = ", ".join(f"{name} {percent(ns / total)}" for name, ns in waits.items())
        text += f"; senders wait for: {shares}"
        facts |= {f"{name}_us": round(ns / 1e3, 3) for name, ns in waits.items()}
    return Evidence(text, facts, f"ncclscope report {context.path} --by rank")


def _is_now_and_then(links: Links, row: int) -> bool:
    """Whether a link is far slower in some operations than it is in most."""
    usual = max(float(links.slowness[row]), 1.0)
    return bool(links.high_slowness[row] > SLOWER_OF_TWO * usual)


def _is_by_past(links: Links, row: int) -> bool:
    """Whether a link is slow compared with its own past, more than with its peers."""
    peers = (links.operations >= LEAST_OPERATIONS) & (links.across_nodes == links.across_nodes[row])
    past = links.past_slowness[row]
    by_itself = peers.sum() < _FEW_LINKS and past > _SLOWER_THAN_ITSELF
    return bool(past > links.slowness[row] or by_itself)


def _slowness(links: Links, row: int) -> str:
    if _is_now_and_then(links, row) and links.past_slowness[row] < SLOWER_OF_FEW:
        high = f"{links.high_slowness[row]:.3g}"
        return f"{high} times as slow as its peers in one of seven operations or more"
    if _is_by_past(links, row):
        return f"{links.past_slowness[row]:.3g} times as slow as it was when it was fast"
    return f"{links.slowness[row]:.3g} times as slow as its peers"


def _are_late(context: RuleContext, ranks: tuple[int, ...]) -> bool:
    """Whether all of these ranks are late: what is left of an exchange behind the last start is of
    few transfers then, and varies.
    """
    causes = context.root_causes
    return causes is not None and {delays.rank for delays in causes.ranks}.issuperset(ranks)


def _pair_finding(
    context: RuleContext, links: Links, pair: tuple[int, int], rows: list[int], what: str
) -> Finding | None:
    share = _lost_share(context, links, np.array(rows))
    prediction = _without_links(context, links, np.array(rows), what)
    if prediction is not None:
        share = prediction.gained_share_of_sends
    is_vague = all(_is_by_past(links, row) or _is_now_and_then(links, row) for row in rows)
    is_vague |= _are_late(context, pair)
    if share < (PROBLEM_SHARE if is_vague else LEAST_SHARE):  # networks vary
        return None
    hosts = [context.run.host_of.get(rank, "?") for rank in pair]
    row, both_ways = rows[0], len(rows) > 1
    source, destination = int(links.source[row]), int(links.destination[row])
    way = f"from rank {source} to rank {destination}"
    ends = f"between ranks {pair[0]} and {pair[1]}" if both_ways else way
    inside = hosts[0] == hosts[1]
    mean = duration(float(links.busy_ns[row] / links.operations[row]))
    # Kernels that wait for others at a slow link hide how long their own transfers take.
    at_least = len(as_slow_next_to(links, np.array(rows))) > len(rows)
    return Finding(
        "slow_link",
        CRITICAL if share >= GRAVE_SHARE else WARNING,
        f"the link {ends} ({' – '.join(dict.fromkeys(hosts))}) is "
        f"{_slowness(links, row)} ({mean} an operation); "
        f"{cost_of_links(prediction, share, at_least)}",
        "look at NVLink, PCIe and the GPUs of this node"
        if inside
        else "look at adapter, cable and switch port of both hosts; compare error counters",
        kind="intra-node" if inside else "inter-node",
        ranks=pair,
        hosts=tuple(sorted(set(hosts))),
        communicators=(),
        evidence=(_evidence(context, links, rows, what),),
        confidence=0.9 if what == _PROXY_STEPS else 0.8,
        lost_share=share,
    )


def _network_finding(context: RuleContext, networks: list[HostLinks], what: str) -> Finding | None:
    """All links of one host, or those between two hosts that have no others."""
    links, rows = networks[0].links, networks[0].rows
    share = _lost_share(context, links, rows)
    prediction = _without_links(context, links, rows, what)
    if prediction is not None:
        share = prediction.gained_share_of_sends
    if share < LEAST_SHARE:
        return None
    node_of, nodes = context.run.node_of, [own.node for own in networks]
    hosts = [context.run.model.nodes[node] for node in nodes]
    ranks = tuple(sorted(r for r in context.run.host_of if int(node_of[r]) in nodes))
    between = " and ".join(hosts if len(hosts) > 1 else [hosts[0], "other hosts"])
    slow = int((links.slowness[rows] >= SLOWER).sum())
    count = f"all {slow}" if slow == len(rows) else f"{slow} of {len(rows)}"
    return Finding(
        "slow_link",
        CRITICAL if share >= GRAVE_SHARE else WARNING,
        f"{count} links between {between} are slow, typically "
        f"{np.median(links.slowness[rows]):.3g} times as slow as links between other hosts; "
        f"{cost_of_links(prediction, share)}",
        "look at what these links share: the host's adapters, their drivers and GPUDirect RDMA, "
        "PCIe, cables and switch ports; compare with another host",
        kind="host",
        ranks=ranks,
        hosts=tuple(sorted(hosts)),
        communicators=(),
        evidence=(_evidence(context, links, rows.tolist(), what),),
        confidence=0.85,
        lost_share=share,
    )


def _rank_finding(
    context: RuleContext, links: Links, rows: Ints, rank: int, what: str
) -> list[Finding]:
    share = _lost_share(context, links, rows)
    prediction = _without_links(context, links, rows, what)
    if prediction is not None:
        share = prediction.gained_share_of_sends
    if share < (PROBLEM_SHARE if _are_late(context, (rank,)) else LEAST_SHARE):
        return []
    return [
        Finding(
            "slow_link",
            CRITICAL if share >= GRAVE_SHARE else WARNING,
            f"all links of rank {rank}{context.where(rank)} are slow, up to "
            f"{links.slowness[rows[0]]:.3g} times their peers; {cost_of_links(prediction, share)}",
            "look at that GPU's adapter, its PCIe link and cable",
            kind="rank",
            ranks=(rank,),
            hosts=(context.run.host_of.get(rank, "?"),),
            communicators=(),
            evidence=(_evidence(context, links, rows.tolist(), what),),
            confidence=0.85,
            lost_share=share,
        )
    ]
