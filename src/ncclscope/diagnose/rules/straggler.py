"""Ranks and hosts that others wait for, how late they are, by what, and what that costs.

Of each instance, what the last rank alone adds counts: from the last but one to the last, and no
more than its own time (outside of operations, since the last on that communicator) exceeds the
others'. So a rank that is late because it waited for a late one
elsewhere is not blamed.
"""

from dataclasses import dataclass
from shlex import quote

import numpy as np

from ncclscope.diagnose.finding import CRITICAL, INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import (
    Floats,
    Ints,
    RuleContext,
    SynchronizedInstances,
    medians_by_group,
    spread,
)
from ncclscope.humanize import duration, percent
from ncclscope.model.schema import NONE

LOST_SHARE = 0.02  # of the run: less is nobody's concern
GRAVE_SHARE = 0.25
TIMES_PEERS = 6.0  # as much as the median rank adds
TIMES_NEXT = 3.0  # as much as the next but one
_STEADY = 10  # instances of one function and size on one communicator
_TIMES_NOISE = 8.0
_NOTICED = 0.15  # of the time that ranks take between operations
_OFTEN = 5  # instances: less is an incident, not a habit
_MOMENTS = ("call_ns", "launch_end_ns", "start_ns")
_TRIMMED = 0.02  # of a rank's late instances, the latest: one pause is not a straggler


@dataclass(frozen=True, slots=True)
class Late:
    """By instance who came last, and what that added."""

    who: Ints  # global rank, or node
    where: Ints  # communicator
    added_ns: Floats


def _usual(met: SynchronizedInstances) -> Floats:
    """By rank of an instance what others take of their own there: the median; of two, the other,
    because the median of two lies half way to the late one.
    """
    usual = medians_by_group(met.own, met.first, met.count)[met.group]
    pairs = met.first[met.count == 2]
    usual[pairs], usual[pairs + 1] = met.own[pairs + 1], met.own[pairs]
    return usual


def _last_ranks(met: SynchronizedInstances) -> Late:
    """The last rank of each instance; 0 where its own time is not longer than the others'."""
    order = np.lexsort((met.duration, met.group))
    last, before = order[met.first], order[met.first + 1]
    margin = (met.duration[before] - met.duration[last]).astype(np.float64)
    own = np.nan_to_num(met.own[last] - _usual(met)[last], nan=0.0)
    return Late(met.rank[last], met.communicator, np.minimum(margin, np.maximum(own, 0.0)))


def _last_nodes(met: SynchronizedInstances, node: Ints) -> Late:
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
    gap = medians_by_group(met.own[by], change, sizes)
    of, where = met.group[by][change], node[by][change]
    # By instance: the node whose ranks are shortest, and the shortest of all the others.
    order = np.lexsort((longest, of))
    first = np.searchsorted(of[order], np.arange(groups))
    nodes = np.diff(np.append(first, len(order)))
    at = order[first]
    others = np.full(groups, np.inf)
    rest = np.ones(len(order), bool)
    rest[first] = False
    np.minimum.at(others, of[order][rest], shortest[order][rest].astype(np.float64))
    usual = medians_by_group(met.own, met.first, met.count)
    two = nodes == 2  # the median of both lies half way to the late one
    usual[two] = gap[order[first[two] + 1]]
    own = np.nan_to_num(gap[at] - usual, nan=0.0)
    margin = np.where((nodes > 1) & (sizes[at] > 1), others - longest[at], 0.0)
    added = np.where(np.isfinite(margin), np.minimum(margin, own), 0.0)
    return Late(where[at], met.communicator, np.maximum(added, 0.0))


def _sums(late: Late, size: int) -> tuple[Floats, Floats, Ints]:
    """By rank: what it added, the same without its latest instances, how often.

    A rank that is late on one communicator makes its peers there late on others: the one on which
    it adds most counts, or the same lateness would count twice.
    """
    width = int(late.where.max(initial=0)) + 1
    flat = np.bincount(late.who * width + late.where, late.added_ns, minlength=size * width)
    each = flat.astype(np.float64).reshape(size, width)
    total, most = each.max(axis=1), each.argmax(axis=1)
    trimmed, often = total.copy(), np.zeros(size, np.int64)
    for one in np.flatnonzero(total):
        here = (late.who == one) & (late.where == most[one])
        mine = late.added_ns[here & (late.added_ns > 0)]
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
        # One more may be as late; of many, some add much by chance alone.
        usual = np.median(others) if len(others) > 2 else others.max()
        next_but_one = np.sort(others)[::-1][min(len(others) - 1, 1)]
        enough = trimmed[one] >= LOST_SHARE * span and often[one] >= _OFTEN
        if enough and total[one] > max(TIMES_PEERS * usual, TIMES_NEXT * next_but_one):
            found.append(one)
    return np.array(found, np.int64)


def _all_later(
    mine: Ints, others: Ints, total: Floats, trimmed: Floats, often: Ints, span: float
) -> bool:
    """Whether each rank of a host adds far more than any rank elsewhere. Of two hosts none has
    peers to be compared with, and of their ranks half are late.
    """
    if len(mine) < 2 or not len(others):
        return False
    enough = trimmed[mine].min() >= LOST_SHARE * span and often[mine].min() >= _OFTEN
    return bool(enough and total[mine].min() > TIMES_NEXT * total[others].max())


def _steadily_behind(met: SynchronizedInstances, size: int) -> tuple[Floats, Floats]:
    """By rank how much more time of its own it takes than its peers, in the median instance, where
    that is certain and far from what other ranks show, 0 elsewhere; and the sum of it.
    """
    beyond = met.own - _usual(met)
    where = met.kind[met.group]
    known = np.flatnonzero(~np.isnan(beyond) & (met.rank != NONE))
    width = int(where.max(initial=0)) + 1
    key = met.rank[known] * width + where[known]
    order = np.lexsort((beyond[known], key))
    keys, first, count = np.unique(key[order], return_index=True, return_counts=True)
    values = beyond[known][order]
    # The lower end of the median's interval: nothing is assumed about how values are spread.
    low = first + np.maximum((count - 1) // 2 - np.ceil(1.5 * np.sqrt(count)).astype(np.int64), 0)
    shift = np.where(count >= _STEADY, values[low], 0.0)
    out, total = np.zeros(size), np.zeros(size)
    np.maximum.at(out, keys // width, shift)
    np.maximum.at(total, keys // width, shift * count)
    noise = spread(out[np.unique(met.rank[known])])
    own = met.own[~np.isnan(met.own)]
    least = _NOTICED * float(np.median(own[own > 0])) if (own > 0).any() else 0.0
    behind = out > max(_TIMES_NOISE * noise, least)
    return np.where(behind, out, 0.0), np.where(behind, total, 0.0)


def find(frame: RuleContext) -> list[Finding]:
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
    # Lateness of every time matters where its sum does, also where others hide much of it.
    steady, steady_sum = _steadily_behind(met, size)
    matters = steady_sum[known] >= LOST_SHARE * span
    standing = np.union1d(standing, known[matters]).astype(np.int64)
    node = frame.node_of[met.rank]
    nodes = np.unique(node)
    hosts = np.empty(0, np.int64)
    by_node = _sums(_last_nodes(met, node), int(nodes.max(initial=0)) + 1)
    if len(nodes) > 1:
        hosts = _standing_out(*by_node, nodes, span)
        # Ranks of a host that are late one by one, each in a communicator of its own.
        for one in nodes:
            mine = known[frame.node_of[known] == one]
            late = np.isin(mine, standing) | (steady[mine] > 0)
            if len(mine) > 1 and late.all() and np.isin(mine, standing).any():
                hosts = np.union1d(hosts, [one]) if len(mine) < len(known) else hosts
            others = known[frame.node_of[known] != one]
            if _all_later(mine, others, total, trimmed, often, span):
                hosts = np.union1d(hosts, [one])
    findings = [
        _of_host(
            frame, int(one), float(max(by_node[0][one], _most_of(frame, total, int(one)))) / span
        )
        for one in hosts
    ]
    for one in standing:
        if frame.node_of[one] not in hosts:
            share = float(total[one]) / span
            count, each = int(often[one]), float(steady[one])
            findings.append(_of_rank(frame, int(one), share, count, ranks, each))
    return findings or _nobody_in_particular(frame, met, ranks, span)


def _most_of(frame: RuleContext, total: Floats, node: int) -> float:
    """What a node's ranks add, each in communicators of its own: as much as the worst of them."""
    ranks = np.array([rank for rank in frame.host_of if rank < len(total)])
    return float(total[ranks[frame.node_of[ranks] == node]].max(initial=0.0))


def _severity(share: float) -> str:
    if share >= LOST_SHARE / 2:
        return CRITICAL if share >= GRAVE_SHARE else WARNING
    return INFO  # it is late each time, and others hide it


# ---- what makes it late ----
_CAUSES = {
    "compute": "it comes late to the call: its compute or its host code takes longer",
    "launch": "it calls in time, and its host is slow to launch the kernel",
    "gpu": "it launches in time, and its GPU is still busy with something else",
}
_HOST_CAUSES = {
    "compute": "its ranks come late to their calls",
    "launch": "its ranks call in time, and are slow to launch",
    "gpu": "its ranks launch in time, and their GPUs are still busy",
}
_ADVICE = {
    "compute": "look at this rank's share of work, its data loader, its GPU clocks and thermals",
    "launch": "look for a busy or throttled CPU on its host, wrong CPU affinity, other processes",
    "gpu": "compare its GPU clocks, thermals and kernel times with another rank's",
}


def _cause(frame: RuleContext, ranks: Ints) -> tuple[str, dict[str, float]]:
    """Which part of its own time is longer: before calls, until launch, until start."""
    ops, rows = frame.ops, np.flatnonzero(frame.timed & frame.collective)
    rank = np.asarray(ops["global_rank"], np.int64)[rows]
    column = {n: np.asarray(ops[n], np.float64)[rows] for n in _MOMENTS}
    for name, values in column.items():
        column[name] = np.where(values == NONE, np.nan, values)
    before = column["start_ns"] - frame.gap[rows]
    # A call that was made while the GPU was still busy is no reason; nor is waiting in a queue.
    called = np.maximum(column["call_ns"], before)
    launched = np.maximum(column["launch_end_ns"], called)
    parts = {
        "compute": called - before,
        "launch": launched - called,
        "gpu": column["start_ns"] - launched,
    }
    excess = {}
    for name, values in parts.items():
        known = ~np.isnan(values) & (rank != NONE)
        count = np.bincount(rank[known])
        mean = np.bincount(rank[known], values[known]) / np.maximum(count, 1)
        mine = np.isin(np.arange(len(count)), ranks)
        usual = np.median(mean[(count > 0) & ~mine]) if ((count > 0) & ~mine).any() else 0.0
        excess[name] = (
            float(np.mean(mean[(count > 0) & mine]) - usual) if count[mine].any() else 0.0
        )
    return max(excess, key=lambda name: excess[name]), excess


def _lateness(excess: dict[str, float]) -> str:
    return ", ".join(f"{name} {duration(max(ns, 0))}" for name, ns in excess.items())


def _of_rank(
    frame: RuleContext, rank: int, share: float, often: int, late: Late, steady_ns: float
) -> Finding:
    kind, excess = _cause(frame, np.array([rank]))
    host = frame.host_of.get(rank, "")
    mine = late.added_ns[(late.who == rank) & (late.added_ns > 0)]
    noted = mine[mine > 0.1 * mine.max(initial=0.0)]
    typical = float(np.median(noted)) if len(noted) else 0.0
    met = frame.met
    latest = int(np.argmax(np.where(late.who == rank, late.added_ns, -1)))
    instance = int(met.instance[latest])
    communicator = int(frame.model.tables["instances"]["communicator"][instance])
    name = frame.model.communicator_names[communicator]
    start = int(frame.model.tables["instances"]["last_start_ns"][instance])
    of = int(np.sum(np.isin(met.group, met.group[met.rank == rank]) & (met.rank == rank)))
    sentence = (
        f"rank {rank}{frame.where(rank)} comes last to {len(noted):,} of {of:,} collectives, "
        f"typically {duration(typical)} after everybody else; waiting for it costs "
        f"{percent(share)} of the run"
    )
    if often < _OFTEN:
        sentence = (
            f"rank {rank}{frame.where(rank)} takes {duration(steady_ns)} longer than its peers "
            f"each time, which others mostly hide: {percent(share)} of the run"
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
                f"longer than others, on average of its operations: {_lateness(excess)}",
                {f"{part}_us": round(ns / 1e3, 3) for part, ns in excess.items()},
            ),
            Evidence(
                f"most in {name}, {frame.at(start)} s after the start",
                {"instance": instance, "added_us": round(float(late.added_ns[latest]) / 1e3, 3)},
                f"ncclscope report {frame.path} --by rank --comm {quote(name)}",
            ),
        ),
        confidence=min(0.5 + 0.5 * often / (often + 10), 0.99),
        lost_share=min(share, 1.0),
    )


def _of_host(frame: RuleContext, node: int, share: float) -> Finding:
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
        "something of the whole host is slow: look at its power, thermals, CPU and storage; "
        f"{_HOST_CAUSES[kind]}",
        f"host {kind}",
        ranks,
        (host,),
        (),
        (
            Evidence(
                f"longer than on other hosts, on average of operations: {_lateness(excess)}",
                {f"{part}_us": round(ns / 1e3, 3) for part, ns in excess.items()},
                f"ncclscope report {frame.path} --by host",
            ),
        ),
        confidence=0.9,
        lost_share=min(share, 1.0),
    )


def _nobody_in_particular(
    frame: RuleContext, met: SynchronizedInstances, late: Late, span: float
) -> list[Finding]:
    """Much waiting, each time for somebody else: of the average rank's time."""
    ranks = max(len(np.unique(met.rank)), 1)
    share = float((late.added_ns * met.count).sum()) / ranks / span
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
            evidence=(Evidence("by rank", {}, f"ncclscope report {frame.path} --by rank"),),
            confidence=0.6,
            lost_share=min(share, 1.0),
        )
    ]
