"""Links that are slower than their peers: by proxy steps where they are on record (mode full), else
by sends and receives, else by groups that are slower than groups like them.
"""

from dataclasses import dataclass
from shlex import quote

import numpy as np

from ncclscope.diagnose.finding import CRITICAL, INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import Floats, Ints, RuleContext, spread
from ncclscope.humanize import duration, percent, ranks_in_words
from ncclscope.model.detail_tables import details_of
from ncclscope.model.schema import NONE, SEND

_SLOWER = 1.5  # times the median link
_SLOWER_SURELY = 1.3  # the lower end of the median's interval
_TIMES_NOISE = 6.0
_NOISE_FLOOR = 0.05
_LEAST_STEPS = 10  # operations of a link
_LEAST_LINKS = 3
_MANY_LINKS = 5
_SLOWER_OF_FEW = 2.5  # without many peers to compare with
_GRAVE_SHARE = 0.25
_LOST_SHARE = 0.01
_MOST = 6
_BITS = 20
STATES = ("gpu", "peer", "network", "flush")


@dataclass(frozen=True, slots=True)
class Links:
    """By link, from one rank of the job to another."""

    source: Ints
    destination: Ints
    slowness: Floats  # times the median of the same size
    count: Ints  # operations
    busy_ns: Floats  # time on the wire
    waits_ns: dict[str, Floats]  # by state of proxy steps


@dataclass(frozen=True, slots=True)
class _Steps:
    """Single transfers."""

    link: Ints  # source << 20 | destination
    operation: Ints  # transfers of one operation are no independent samples
    size: Ints
    time_ns: Floats
    waits_ns: dict[str, Floats]


def _peers(frame: RuleContext) -> dict[tuple[int, int], int]:
    """Global ranks by communicator and rank in it."""
    m = frame.model.tables["members"]
    columns = (m[name].tolist() for name in ("communicator", "rank", "global_rank"))
    return {(comm, rank): job for comm, rank, job in zip(*columns, strict=True)}


def _globally(frame: RuleContext, communicator: Ints, rank: Ints) -> Ints:
    """Ranks of communicators as ranks of the job."""
    both = communicator << _BITS | (rank & (1 << _BITS) - 1)
    known, inverse = np.unique(both, return_inverse=True)
    peers = _peers(frame)
    table = [peers.get((int(one) >> _BITS, int(one) & (1 << _BITS) - 1), NONE) for one in known]
    return np.array(table, np.int64)[inverse.reshape(-1)] if len(known) else both


def _proxy_steps(frame: RuleContext) -> _Steps | None:
    """Sends of the network proxies, from when the network had them until they were done."""
    if not any("full" in (row.mode, row.fullest_mode) for row in frame.model.processes):
        return None
    parts = []
    for columns in details_of(frame.model, "proxy_steps"):
        sends = columns["form"] == SEND
        known = sends & (columns["operation"] != NONE) & (columns["end_ns"] != NONE)
        known &= (columns["network_since_ns"] != NONE) & (columns["peer"] != NONE)
        rows = np.flatnonzero(known)
        if len(rows):
            parts.append(
                {
                    name: np.asarray(values)[rows].astype(np.int64)
                    for name, values in columns.items()
                }
            )
    if not parts:
        return None
    c = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    operation = c["operation"]
    communicator = np.asarray(frame.ops["communicator"], np.int64)[operation]
    source = np.asarray(frame.ops["global_rank"], np.int64)[operation]
    destination = _globally(frame, communicator, c["peer"])
    fine = (source != NONE) & (destination != NONE) & frame.current[operation]
    link = source << _BITS | np.maximum(destination, 0)
    time = (c["end_ns"] - c["network_since_ns"]).astype(np.float64)
    peer_since = np.where(c["peer_since_ns"] != NONE, c["peer_since_ns"], c["network_since_ns"])
    gpu_since = np.where(c["gpu_since_ns"] != NONE, c["gpu_since_ns"], peer_since)
    waits = {
        "gpu": np.maximum(peer_since - gpu_since, 0).astype(np.float64),
        "peer": np.maximum(c["network_since_ns"] - peer_since, 0).astype(np.float64),
        "network": np.maximum(time, 0),
    }
    return _Steps(
        link[fine],
        operation[fine],
        c["size_bytes"][fine],
        time[fine],
        {n: v[fine] for n, v in waits.items()},
    )


def _pairs(frame: RuleContext) -> _Steps | None:
    """Sends whose receive is on record: the shorter of both durations is the transfer."""
    ops = frame.ops
    timed = frame.pairs & (ops["duration_ns"] != NONE) & (ops["instance"] != NONE)
    rows = np.flatnonzero(timed & (ops["source"] <= 3))
    if len(rows) < _LEAST_STEPS:
        return None
    instance = np.asarray(ops["instance"], np.int64)[rows]
    order = np.argsort(instance, kind="stable")
    rows, instance = rows[order], instance[order]
    _, first, count = np.unique(instance, return_index=True, return_counts=True)
    shortest = np.minimum.reduceat(np.asarray(ops["duration_ns"], np.int64)[rows], first)
    one = rows[first][count == 2]
    communicator = np.asarray(ops["communicator"], np.int64)[one]
    own = np.asarray(ops["global_rank"], np.int64)[one]
    peer = _globally(frame, communicator, np.asarray(ops["peer"], np.int64)[one])
    sends = ops["form"][one] == SEND
    source, destination = np.where(sends, own, peer), np.where(sends, peer, own)
    fine = (source != NONE) & (destination != NONE) & (source != destination)
    link = source << _BITS | np.maximum(destination, 0)
    size = np.asarray(ops["size_bytes"], np.int64)[one]
    time = shortest[count == 2].astype(np.float64)
    return _Steps(link[fine], one[fine], size[fine], time[fine], {})


def links_of(steps: _Steps, same_node: Ints) -> Links:
    """Each link against the median of transfers of its size, within and between nodes apart."""
    across = same_node[steps.link >> _BITS] != same_node[steps.link & (1 << _BITS) - 1]
    size = np.floor(np.log2(np.maximum(steps.size, 1))).astype(np.int64) << 1 | across
    order = np.lexsort((steps.time_ns, size))
    _, first, count = np.unique(size[order], return_index=True, return_counts=True)
    median = steps.time_ns[order][first + count // 2]
    _, kind = np.unique(size, return_inverse=True)
    relative = steps.time_ns / np.maximum(median[kind.reshape(-1)], 1.0)
    # Each operation's median first, then the median over operations. Of two in the middle the
    # shorter: a slow link slows every transfer, a busy host every other one.
    order = np.lexsort((relative, steps.operation, steps.link))
    both = np.stack([steps.link[order], steps.operation[order]])
    new = np.concatenate([[True], (np.diff(both, axis=1) != 0).any(axis=0)])
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, len(order)))
    typical, its_link = relative[order][starts + (sizes - 1) // 2], steps.link[order][starts]
    order = np.lexsort((typical, its_link))
    link, first, count = np.unique(its_link[order], return_index=True, return_counts=True)
    _, place = np.unique(steps.link, return_inverse=True)
    place = place.reshape(-1)

    def total(values: Floats) -> Floats:
        return np.bincount(place, values, minlength=len(link)).astype(np.float64)

    return Links(
        link >> _BITS,
        link & (1 << _BITS) - 1,
        typical[order][first + count // 2],
        count,
        total(steps.time_ns),
        {name: total(values) for name, values in steps.waits_ns.items()},
    )


def find(frame: RuleContext) -> list[Finding]:
    """Slow links, the slowest first."""
    for steps, what in ((_proxy_steps(frame), "proxy steps"), (_pairs(frame), "sends")):
        if steps is None or len(steps.link) < _LEAST_STEPS:
            continue
        links = links_of(steps, frame.node_of)
        findings = _slow(frame, links, what)
        if findings:
            return findings
    return _slow_groups(frame)


def _slow(frame: RuleContext, links: Links, what: str) -> list[Finding]:
    enough = links.count >= _LEAST_STEPS
    across = frame.node_of[links.source] != frame.node_of[links.destination]
    slow = np.zeros(len(links.count), bool)
    for side in (across, ~across):
        mine = enough & side
        if mine.sum() < 2:
            continue
        few = mine.sum() < _MANY_LINKS
        usual = float(np.sort(links.slowness[mine])[(mine.sum() - 1) // 2])
        noise = 0.0 if few else max(spread(links.slowness[mine]), _NOISE_FLOOR)
        slow |= mine & (links.slowness > (_SLOWER_OF_FEW if few else _SLOWER) * usual)
        slow &= ~mine | (links.slowness > usual + _TIMES_NOISE * noise)
    rows = np.flatnonzero(slow)
    rows = rows[np.argsort(-links.slowness[rows])]
    ends = np.concatenate([links.source[rows], links.destination[rows]])
    ranks, times = np.unique(ends, return_counts=True)
    # Several slow links that share one rank are that rank's.
    shared = ranks[times >= 3]
    if len(rows) >= 3 and len(shared) == 1 and times.max() == len(rows):
        return [_of_rank(frame, links, rows, int(shared[0]), what)]
    pairs: dict[tuple[int, int], list[int]] = {}
    for row in rows.tolist():
        a, b = int(links.source[row]), int(links.destination[row])
        pairs.setdefault((min(a, b), max(a, b)), []).append(row)
    found = [_of_pair(frame, links, pair, mine, what) for pair, mine in pairs.items()]
    return [finding for finding in found[:_MOST] if finding is not None]


def _share(frame: RuleContext, links: Links, rows: Ints) -> float:
    """What the run would be shorter by, at most: the excess of the slowest of these links."""
    excess = links.busy_ns[rows] * (1 - 1 / np.maximum(links.slowness[rows], 1.0))
    return min(float(excess.max(initial=0.0)) / frame.span_ns, 1.0)


def _matrix(links: Links, ranks: set[int]) -> dict[str, float]:
    """Slowness from rank to rank, of links that touch these ranks."""
    return {
        f"{a}>{b}": round(s, 3)
        for a, b, s in zip(
            links.source.tolist(), links.destination.tolist(), links.slowness.tolist(), strict=True
        )
        if a in ranks or b in ranks
    }


def _evidence(frame: RuleContext, links: Links, rows: list[int], what: str) -> Evidence:
    facts: dict[str, object] = {
        "slowness": round(float(links.slowness[rows[0]]), 3),
        "operations": int(links.count[rows].sum()),
        "matrix": _matrix(links, {int(links.source[rows[0]]), int(links.destination[rows[0]])}),
    }
    shares = {name: float(values[rows].sum()) for name, values in links.waits_ns.items()}
    total = sum(shares.values())
    text = f"by {what} of {int(links.count[rows].sum()):,} operations"
    if total:
        told = ", ".join(f"{name} {percent(ns / total)}" for name, ns in shares.items())
        text += f"; senders wait for: {told}"
        facts |= {f"{name}_us": round(ns / 1e3, 3) for name, ns in shares.items()}
    return Evidence(text, facts, f"ncclscope report {frame.path} --by rank")


def _of_pair(
    frame: RuleContext, links: Links, pair: tuple[int, int], rows: list[int], what: str
) -> Finding | None:
    share = _share(frame, links, np.array(rows))
    if share < _LOST_SHARE:
        return None
    a, b = pair
    hosts = [frame.host_of.get(rank, "?") for rank in pair]
    both = len(rows) > 1
    row = rows[0]
    source, destination = int(links.source[row]), int(links.destination[row])
    arrow = f"between ranks {a} and {b}" if both else f"from rank {source} to rank {destination}"
    inside = hosts[0] == hosts[1]
    mean = duration(float(links.busy_ns[row] / links.count[row]))
    return Finding(
        "slow_link",
        CRITICAL if share >= _GRAVE_SHARE else WARNING,
        f"the link {arrow} ({' – '.join(dict.fromkeys(hosts))}) is "
        f"{links.slowness[row]:.3g} times as "
        f"slow as its peers ({mean} an operation); up to {percent(share)} of the run lost",
        "look at NVLink, PCIe and the GPUs of this node"
        if inside
        else "look at adapter, cable and switch port of both hosts; compare error counters",
        "intra-node" if inside else "inter-node",
        pair,
        tuple(sorted(set(hosts))),
        (),
        (_evidence(frame, links, rows, what),),
        confidence=0.9 if what == "proxy steps" else 0.8,
        lost_share=share,
    )


def _of_rank(frame: RuleContext, links: Links, rows: Ints, rank: int, what: str) -> Finding:
    share = _share(frame, links, rows)
    host = frame.host_of.get(rank, "?")
    return Finding(
        "slow_link",
        CRITICAL if share >= _GRAVE_SHARE else WARNING,
        f"all links of rank {rank}{frame.where(rank)} are slow, up to "
        f"{links.slowness[rows[0]]:.3g} times their peers; up to {percent(share)} of the run lost",
        "look at that GPU's adapter, its PCIe link and cable",
        "rank",
        (rank,),
        (host,),
        (),
        (_evidence(frame, links, rows.tolist(), what),),
        confidence=0.85,
        lost_share=share,
    )


def _listed(hosts: tuple[str, ...]) -> str:
    return ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")


def _slow_groups(frame: RuleContext) -> list[Finding]:
    """A communicator that is slower than others of as many ranks and nodes, for the same calls.

    Each call is compared with the same one on the others: what slows all of them down cancels out.
    """
    table, met, instances = (
        frame.model.tables["communicators"],
        frame.met,
        frame.model.tables["instances"],
    )
    if not len(met.first):
        return []
    wire = np.minimum.reduceat(met.duration, met.first).astype(np.float64)
    comm = met.communicator
    alike = np.stack(
        [
            np.asarray(table["ranks"], np.int64)[comm],
            np.asarray(table["nodes"], np.int64)[comm],
            *(
                np.asarray(instances[name], np.int64)[met.instance]
                for name in ("function", "size_bytes", "call_order")
            ),
        ]
    )
    order = np.lexsort((wire, *alike))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(alike[:, order], axis=1) != 0).any(axis=0)
    first = np.flatnonzero(new)
    count = np.diff(np.append(first, len(order)))
    usual = np.repeat(wire[order][first + (count - 1) // 2], count)
    enough = np.repeat(count >= _LEAST_LINKS, count)
    relative = (wire[order] / np.maximum(usual, 1.0))[enough]
    excess = np.maximum(wire[order] - usual, 0.0)[enough]
    whose = comm[order][enough]
    scores: dict[int, tuple[float, float]] = {}
    for c in np.unique(whose).tolist():
        mine = np.sort(relative[whose == c])
        if len(mine) >= _LEAST_STEPS:
            low = max((len(mine) - 1) // 2 - int(np.ceil(1.5 * np.sqrt(len(mine)))), 0)
            sure = mine[low] > _SLOWER_SURELY
            factor = float(np.median(mine)) if sure else 1.0
            scores[c] = factor, float(excess[whose == c].sum())
    findings = []
    for c, (factor, lost) in scores.items():
        share = min(lost * met.weight / frame.span_ns, 1.0)
        if factor < _SLOWER or share < _LOST_SHARE:
            continue
        name, ranks = frame.model.communicator_names[c], tuple(frame.ranks_of(c))
        hosts = tuple(sorted({frame.host_of[r] for r in ranks if r in frame.host_of}))
        findings.append(
            Finding(
                "slow_link",
                WARNING if share >= _LOST_SHARE else INFO,
                f"{name} ({ranks_in_words(ranks)}; {_listed(hosts)}) is {factor:.3g} times as slow "
                f"on the wire as communicators like it; {percent(share)} of the run lost",
                "one of its links is slow: record in mode full to see which",
                "group",
                ranks,
                hosts,
                (name,),
                (
                    Evidence(
                        "same functions and sizes compared",
                        {"factor": round(factor, 3)},
                        f"ncclscope report {frame.path} --comm {quote(name)}",
                    ),
                ),
                confidence=0.7,
                lost_share=share,
            )
        )
    return sorted(findings, key=lambda finding: -finding.lost_share)[:_MOST]
