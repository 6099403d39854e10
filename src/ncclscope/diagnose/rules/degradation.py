"""When communication became slower, by how much, on which communicators; within nodes or between.

The time on the wire of a collective is the duration on the rank that came last. It is compared with
the median of the same function and size on the same communicator; changes are found by ranks
(Pettitt), so single outliers do not matter.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.diagnose.finding import CRITICAL, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import Floats, Ints, RuleContext, spread
from ncclscope.humanize import percent, plural

_LEAST = 24  # instances of a communicator
_SLOWER = 1.2
_CERTAIN = 1e-6
_TIMES_NOISE = 1.5
_LOST_SHARE = 0.01
_GRAVE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Wires:
    """Times on the wire by instance, in the order of time."""

    communicator: Ints
    time_ns: Ints
    wire_ns: Floats
    relative: Floats  # log of wire / median of its kind


@dataclass(frozen=True, slots=True)
class Change:
    """A communicator that became slower."""

    communicator: int
    factor: float
    lost_ns: float


def wires_of(frame: RuleContext) -> Wires:
    """All collectives in which everybody waits for the last."""
    met, instances = frame.met, frame.model.tables["instances"]
    if not len(met.first):
        none = np.empty(0, np.int64)
        return Wires(none, none, none.astype(float), none.astype(float))
    wire = np.minimum.reduceat(met.duration, met.first).astype(np.float64)
    kind = met.kind
    ended = np.asarray(instances["last_end_ns"], np.int64)[met.instance]
    order = np.lexsort((wire, kind))
    _, first, count = np.unique(kind[order], return_index=True, return_counts=True)
    median = wire[order][first + count // 2]
    relative = np.log(np.maximum(wire, 1.0) / np.maximum(median[kind], 1.0))
    relative[(count < 6)[kind]] = np.nan
    by_time = np.argsort(ended, kind="stable")
    keep = by_time[~np.isnan(relative[by_time])]
    return Wires(met.communicator[keep], ended[keep], wire[keep], relative[keep])


def change_point(values: Floats) -> tuple[int, float]:
    """Where a series changes most, by ranks, and how likely chance alone does that (Pettitt)."""
    n = len(values)
    ranks = np.empty(n)
    ranks[np.argsort(values, kind="stable")] = np.arange(1, n + 1)
    u = 2 * np.cumsum(ranks)[:-1] - np.arange(1, n) * (n + 1)
    at = int(np.argmax(np.abs(u)))
    k = abs(float(u[at]))
    return at + 1, float(2 * np.exp(-6 * k * k / (n**3 + n**2)))


def _change(wires: Wires, rows: Ints) -> int | None:
    """The first of these instances from which on they take longer; None where they do not."""
    values = wires.relative[rows]
    if len(values) < _LEAST:
        return None
    at, chance = change_point(values)
    before, after = values[:at], values[at:]
    if chance > _CERTAIN or min(len(before), len(after)) < _LEAST // 4:
        return None
    step = float(np.median(after) - np.median(before))
    noise = max(spread(before), spread(after))
    if step < np.log(_SLOWER) or step < _TIMES_NOISE * noise:
        return None
    return int(rows[_refined(values, at)])


def _refined(values: Floats, at: int) -> int:
    """The split with the least absolute deviation from both medians: ranks alone lean towards the
    middle.
    """
    before, after = np.median(values[:at]), np.median(values[at:])
    gain = np.abs(values - after) - np.abs(values - before)
    return int(np.argmax(np.cumsum(gain)[:-1])) + 1


def _hit(wires: Wires, rows: Ints, at_ns: int) -> Change | None:
    """How a communicator changed at a given time, if it did."""
    later = wires.time_ns[rows] >= at_ns
    before, after = wires.relative[rows[~later]], wires.relative[rows[later]]
    if min(len(before), len(after)) < _LEAST // 4:
        return None
    step = float(np.median(after) - np.median(before))
    if step < np.log(_SLOWER) or not _surely_more(after, before):
        return None
    factor = float(np.exp(step))
    lost = float(wires.wire_ns[rows[later]].sum()) * (1 - 1 / factor)
    return Change(int(wires.communicator[rows[0]]), factor, lost)


def _slower_too(wires: Wires, spared: list[Ints], at_ns: int) -> bool:
    """Whether communicators that were hardly hit, all together, did become slower: where latency
    counts most, less bandwidth shows little, and does not spare them.
    """
    if not spared:
        return False
    rows = np.concatenate(spared)
    later = wires.time_ns[rows] >= at_ns
    return _surely_more(wires.relative[rows[later]], wires.relative[rows[~later]])


def _surely_more(after: Floats, before: Floats) -> bool:
    """Whether values are larger than others, by their ranks (Mann-Whitney, one in a thousand)."""
    both = np.concatenate([after, before])
    ranks = np.empty(len(both))
    ranks[np.argsort(both, kind="stable")] = np.arange(1, len(both) + 1)
    n, m = len(after), len(before)
    u = ranks[:n].sum() - n * (n + 1) / 2
    return bool(u - n * m / 2 > 3.1 * np.sqrt(n * m * (n + m + 1) / 12))


def find(frame: RuleContext) -> list[Finding]:
    """Changes of all communicators together, of those within or between nodes, then of each.

    Looking at many at once finds what noise hides in one; whom it hit is asked afterwards.
    """
    wires = wires_of(frame)
    order = np.argsort(wires.communicator, kind="stable")
    split = np.flatnonzero(np.diff(wires.communicator[order])) + 1
    groups = np.split(order, split) if len(order) else []
    each = {int(wires.communicator[g[0]]): g for g in groups if len(g) >= _LEAST}
    nodes = frame.model.tables["communicators"]["nodes"].tolist()
    inter = [one for one in each if nodes[one] > 1]
    intra = [one for one in each if nodes[one] <= 1]
    findings: list[Finding] = []
    told: set[int] = set()
    for pool in ([*each], inter, intra, *([one] for one in each)):
        fresh = [one for one in pool if one not in told]
        if not fresh:
            continue
        rows = np.sort(np.concatenate([each[one] for one in fresh]))
        first = _change(wires, rows)
        if first is None:
            continue
        at_ns = int(wires.time_ns[first])
        changes = [change for one in fresh if (change := _hit(wires, each[one], at_ns))]
        told |= {change.communicator for change in changes}
        if changes:
            # What is slow ends late: it began when the first slow one had only data to move.
            began_ns = at_ns - int(wires.wire_ns[first])
            hit = {change.communicator for change in changes}
            spared = [rows for one, rows in each.items() if one not in hit]
            tested = hit if _slower_too(wires, spared, at_ns) else set(each)
            findings += _describe(frame, changes, tested, began_ns)
    return findings


def _describe(
    frame: RuleContext, changes: list[Change], tested: set[int], at_ns: int
) -> list[Finding]:
    names, nodes = frame.model.communicator_names, frame.model.tables["communicators"]["nodes"]
    # Communicators of different ranks run side by side: the worst hit counts.
    lost: dict[int, float] = {}
    for change in changes:
        for rank in frame.ranks_of(change.communicator):
            lost[rank] = lost.get(rank, 0.0) + change.lost_ns
    share = min(max(lost.values(), default=0.0) * frame.met.weight / frame.span_ns, 1.0)
    if share < _LOST_SHARE:
        return []
    factor = float(np.median([change.factor for change in changes]))
    comms = tuple(names[change.communicator] for change in changes)
    ranks = tuple(sorted(lost))
    severity = CRITICAL if share >= _GRAVE_SHARE else WARNING
    shown = ", ".join(comms[:4]) + (f" and {len(comms) - 4} more" if len(comms) > 4 else "")
    sentence = (
        f"from {frame.at(at_ns)} s on collectives take {factor:.3g} times as long on the wire on "
        f"{plural(len(comms), 'communicator')} ({shown}); {percent(share)} of the run lost"
    )
    evidence = (
        Evidence(
            f"median time on the wire before and after {frame.at(at_ns)} s",
            {
                "at_s": float(frame.at(at_ns)),
                "factor": round(factor, 4),
                "communicators": list(comms),
            },
            f"ncclscope report {frame.path} --since {frame.at(at_ns)}",
        ),
    )
    hit = {change.communicator for change in changes}
    everybody = len(ranks) == len(frame.host_of)
    base = Finding(
        "degradation",
        severity,
        sentence,
        "look for what began then: link errors, other jobs on the network, thermal throttling",
        "slower",
        () if everybody else ranks,
        (),
        comms,
        evidence,
        confidence=0.9,
        lost_share=share,
    )
    scope = _scope(hit, tested, nodes.tolist())
    if scope is None:
        return [base]
    other = "within nodes" if scope == "inter-node" else "between nodes"
    where = "between nodes" if scope == "inter-node" else "within nodes"
    split = Finding(
        "intra_inter",
        severity,
        f"communication {where} became {factor:.3g} times as slow at {frame.at(at_ns)} s, "
        f"communication {other} did not",
        "the network adapters and switches"
        if scope == "inter-node"
        else "NVLink or PCIe of the nodes",
        scope,
        base.ranks,
        (),
        comms,
        evidence,
        confidence=0.85,
        lost_share=share * 0.999,
    )
    return [base, split]


def _scope(hit: set[int], tested: set[int], nodes: list[int]) -> str | None:
    """inter-node or intra-node, where only one of both became slower."""
    spared = tested - hit
    scopes = {nodes[one] > 1 for one in hit}
    if len(scopes) != 1 or not spared:
        return None
    inter = scopes.pop()
    if all((nodes[one] > 1) != inter for one in spared):
        return "inter-node" if inter else "intra-node"
    return None
