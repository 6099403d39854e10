"""Ranks and hosts that others wait for, how late they are, by what, and what that costs.

Of each instance, what the last rank alone adds counts: from the last but one to the last, and no
more than its own gap exceeds the others'. So a rank that is late because it waited for a late one
elsewhere is not blamed.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.diagnose.finding import CRITICAL, INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.frame import Floats, Frame, Ints, Met, medians_by_group
from ncclscope.model.tables import NONE
from ncclscope.words import duration, percent

LOST_SHARE = 0.02  # of the run: less is nobody's concern
GRAVE_SHARE = 0.25
TIMES_PEERS = 4.0  # as much as the median rank adds
_OFTEN = 5  # instances: less is an incident, not a habit
_TRIMMED = 0.02  # of a rank's late instances, the latest: one pause is not a straggler


@dataclass(frozen=True, slots=True)
class Late:
    """By instance who came last, and what that added."""

    who: Ints  # global rank, or node
    added_ns: Floats


def _last_ranks(met: Met) -> Late:
    """The last rank of each instance; 0 where its own gap is not longer than the others'."""
    order = np.lexsort((met.duration, met.group))
    last, before = order[met.first], order[met.first + 1]
    margin = (met.duration[before] - met.duration[last]).astype(np.float64)
    usual = medians_by_group(met.gap, met.first, met.count)
    own = np.nan_to_num(met.gap[last] - usual, nan=0.0)
    return Late(met.rank[last], np.minimum(margin, np.maximum(own, 0.0)))


def _last_nodes(met: Met, node: Ints) -> Late:
    """The same by node: what the earliest rank of the last node adds to the latest of the others.

    Only where the node has several ranks in the instance: otherwise that is a rank.
    """
    groups = len(met.first)
    by = np.lexsort((node, met.group))
    change = np.flatnonzero(
        np.concatenate([[True], (np.diff(node[by]) != 0) | (np.diff(met.group[by]) != 0)])
    )
    sizes = np.diff(np.append(change, len(by)))
    longest = np.maximum.reduceat(met.duration[by], change)  # its earliest rank's
    shortest = np.minimum.reduceat(met.duration[by], change)
    gap = medians_by_group(met.gap[by], change, sizes)
    of, where = met.group[by][change], node[by][change]
    # By instance: the node whose ranks are shortest, and the shortest of all the others.
    order = np.lexsort((longest, of))
    first = np.searchsorted(of[order], np.arange(groups))
    several = np.diff(np.append(first, len(order))) > 1
    at = order[first]
    others = np.full(groups, np.inf)
    rest = np.ones(len(order), bool)
    rest[first] = False
    np.minimum.at(others, of[order][rest], shortest[order][rest].astype(np.float64))
    usual = medians_by_group(met.gap, met.first, met.count)
    own = np.nan_to_num(gap[at] - usual, nan=0.0)
    margin = np.where(several & (sizes[at] > 1), others - longest[at], 0.0)
    added = np.where(np.isfinite(margin), np.minimum(margin, own), 0.0)
    return Late(where[at], np.maximum(added, 0.0))


def _sums(late: Late, size: int) -> tuple[Floats, Floats, Ints]:
    """By rank: what it added, the same without its latest instances, how often."""
    total = np.bincount(late.who, late.added_ns, minlength=size).astype(np.float64)
    trimmed, often = total.copy(), np.zeros(size, np.int64)
    for one in np.flatnonzero(total):
        mine = late.added_ns[(late.who == one) & (late.added_ns > 0)]
        noted = mine[mine > 0.1 * mine.max()]
        often[one] = len(noted)
        top = max(int(len(mine) * _TRIMMED), 2)
        trimmed[one] -= np.sort(mine)[-top:].sum() if len(mine) > top else mine.sum()
    return total, trimmed, often


def _standing_out(total: Floats, trimmed: Floats, often: Ints, known: Ints, span: float) -> Ints:
    """Ranks that add far more than their peers, and enough to matter."""
    found = []
    for one in known:
        others = total[known[known != one]]
        if not len(others):
            continue
        usual = np.median(others) if len(others) > 2 else others.max()
        enough = trimmed[one] >= LOST_SHARE * span and often[one] >= _OFTEN
        if enough and total[one] > TIMES_PEERS * usual:
            found.append(one)
    return np.array(found, np.int64)


def find(frame: Frame) -> list[Finding]:
    """Stragglers, hosts before ranks."""
    met = frame.met
    if not len(met.first):
        return []
    known = np.unique(met.rank[met.rank != NONE])
    span = frame.span_ns / met.weight
    ranks = _last_ranks(met)
    size = int(known.max(initial=0)) + 1
    total, trimmed, often = _sums(ranks, size)
    standing = _standing_out(total, trimmed, often, known, span)
    node = frame.node_of[met.rank]
    nodes = np.unique(node)
    hosts = np.empty(0, np.int64)
    by_node = _sums(_last_nodes(met, node), int(nodes.max(initial=0)) + 1)
    if len(nodes) > 1:
        hosts = _standing_out(*by_node, nodes, span)
        # Ranks of a host that are late one by one, each in a communicator of its own.
        for one in nodes:
            mine = known[frame.node_of[known] == one]
            if len(mine) > 1 and np.isin(mine, standing).all() and len(mine) < len(known):
                hosts = np.union1d(hosts, [one])
    findings = [
        _of_host(
            frame,
            int(one),
            max(by_node[0][one], total[known[frame.node_of[known] == one]].max()) / span,
        )
        for one in hosts
    ]
    for one in standing:
        if frame.node_of[one] not in hosts:
            findings.append(_of_rank(frame, int(one), total[one] / span, int(often[one]), ranks))
    return findings or _nobody_in_particular(frame, met, ranks, span)


def _severity(share: float) -> str:
    return CRITICAL if share >= GRAVE_SHARE else WARNING


# ---- what makes it late ----
_CAUSES = {
    "compute": "it comes late to the call: its compute or its host code takes longer",
    "launch": "it calls in time, and its host is slow to launch the kernel",
    "gpu": "it launches in time, and its GPU is still busy with something else",
}
_ADVICE = {
    "compute": "look at this rank's share of work, its data loader, its GPU clocks and thermals",
    "launch": "look for a busy or throttled CPU on its host, wrong CPU affinity, other processes",
    "gpu": "compare its GPU clocks, thermals and kernel times with another rank's",
}


def _cause(frame: Frame, ranks: Ints) -> tuple[str, dict[str, float]]:
    """Which part of its gap is longer than others': before the call, until launch, until start."""
    met, ops = frame.met, frame.ops
    mine = np.isin(met.rank, ranks)
    column = {
        n: np.asarray(ops[n], np.float64)[met.row] for n in ("call_ns", "launch_end_ns", "start_ns")
    }
    for name, values in column.items():
        column[name] = np.where(values == NONE, np.nan, values)
    before = column["start_ns"] - met.gap
    parts = {
        "compute": column["call_ns"] - before,
        "launch": column["launch_end_ns"] - column["call_ns"],
        "gpu": column["start_ns"] - column["launch_end_ns"],
    }
    excess = {}
    for name, values in parts.items():
        usual = medians_by_group(np.where(mine, np.nan, values), met.first, met.count)
        beyond = (values - usual[met.group])[mine]
        beyond = beyond[~np.isnan(beyond)]
        excess[name] = float(np.mean(beyond)) if len(beyond) else 0.0
    return max(excess, key=lambda name: excess[name]), excess


def _lateness(excess: dict[str, float]) -> str:
    return ", ".join(f"{name} {duration(max(ns, 0))}" for name, ns in excess.items())


def _of_rank(frame: Frame, rank: int, share: float, often: int, late: Late) -> Finding:
    kind, excess = _cause(frame, np.array([rank]))
    host = frame.host_of.get(rank, "")
    mine = late.added_ns[(late.who == rank) & (late.added_ns > 0)]
    typical = float(np.median(mine[mine > 0.1 * mine.max()]))
    met = frame.met
    latest = int(np.argmax(np.where(late.who == rank, late.added_ns, -1)))
    instance = int(met.instance[latest])
    communicator = int(frame.model.tables["instances"]["communicator"][instance])
    name = frame.model.communicator_names[communicator]
    start = int(frame.model.tables["instances"]["last_start_ns"][instance])
    of = int(np.sum(np.isin(met.group, met.group[met.rank == rank]) & (met.rank == rank)))
    sentence = (
        f"rank {rank} ({host}) comes last to {often:,} of {of:,} collectives, typically "
        f"{duration(typical)} after everybody else; waiting for it costs {percent(share)} "
        "of the run"
    )
    return Finding(
        "straggler",
        _severity(share),
        sentence,
        f"{_CAUSES[kind]}: {_ADVICE[kind]}",
        kind,
        (rank,),
        (host,) if host else (),
        (name,),
        (
            Evidence(
                f"longer than the others by: {_lateness(excess)}",
                {f"{part}_us": round(ns / 1e3, 3) for part, ns in excess.items()},
            ),
            Evidence(
                f"most in {name}, {frame.at(start)} s after the start",
                {"instance": instance, "added_us": round(float(late.added_ns[latest]) / 1e3, 3)},
                f"ncclscope report {frame.model.path} --by rank --comm {name}",
            ),
        ),
        confidence=min(0.5 + 0.5 * often / (often + 10), 0.99),
        lost_share=min(share, 1.0),
    )


def _of_host(frame: Frame, node: int, share: float) -> Finding:
    host = frame.model.nodes[node]
    ranks = tuple(sorted(r for r, name in frame.host_of.items() if frame.node_of[r] == node))
    kind, excess = _cause(frame, np.array(ranks))
    sentence = (
        f"all {len(ranks)} ranks of {host} come late to collectives; waiting for them costs "
        f"{percent(share)} of the run"
    )
    return Finding(
        "straggler",
        _severity(share),
        sentence,
        f"{_CAUSES[kind]}: something of the whole host is slow (power, thermals, CPU, storage)",
        f"host {kind}",
        ranks,
        (host,),
        (),
        (
            Evidence(
                f"longer than on other hosts by: {_lateness(excess)}",
                {f"{part}_us": round(ns / 1e3, 3) for part, ns in excess.items()},
                f"ncclscope report {frame.model.path} --by host",
            ),
        ),
        confidence=0.9,
        lost_share=min(share, 1.0),
    )


def _nobody_in_particular(frame: Frame, met: Met, late: Late, span: float) -> list[Finding]:
    """Much waiting, each time for somebody else."""
    share = float(late.added_ns.sum()) / span
    if share < 0.1:
        return []
    return [
        Finding(
            "straggler",
            INFO,
            f"{percent(min(share, 1.0))} of the run passes in waiting for the last rank, each time "
            "another one",
            "uneven work from step to step, or noise of the system: no rank stands out",
            "anyone",
            evidence=(Evidence("by rank", {}, f"ncclscope report {frame.model.path} --by rank"),),
            confidence=0.6,
            lost_share=min(share, 1.0),
        )
    ]
