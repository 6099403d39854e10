"""When communication became slower, by how much, on which communicators; within nodes or between.

The time on the wire of a collective is the duration on the rank that came last. It is compared with
the median of the same function and size on the same communicator; changes are found by ranks
(Pettitt), so single outliers do not matter.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.diagnose.finding import CRITICAL, WARNING, Evidence, Finding
from ncclscope.diagnose.frame import Floats, Frame, Ints, spread
from ncclscope.words import percent, plural

_LEAST = 24  # instances of a communicator
_SLOWER = 1.2
_CERTAIN = 1e-6
_TIMES_NOISE = 1.5
_LOST_SHARE = 0.01
_GRAVE_SHARE = 0.25
_TOGETHER = 0.05  # of the run: changes that near to each other are one


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
    at_ns: int
    factor: float
    lost_ns: float


def wires_of(frame: Frame) -> Wires:
    """All collectives in which everybody waits for the last."""
    met, instances = frame.met, frame.model.tables["instances"]
    if not len(met.first):
        none = np.empty(0, np.int64)
        return Wires(none, none, none.astype(float), none.astype(float))
    wire = np.minimum.reduceat(met.duration, met.first).astype(np.float64)
    table = {
        n: np.asarray(instances[n], np.int64)[met.instance]
        for n in ("communicator", "function", "size_bytes", "last_end_ns")
    }
    # The algorithm may change with the size only: it is NCCL's choice.
    _, kind = np.unique(
        np.stack([table["communicator"], table["function"], table["size_bytes"]]),
        axis=1,
        return_inverse=True,
    )
    kind = kind.reshape(-1)
    order = np.lexsort((wire, kind))
    _, first, count = np.unique(kind[order], return_index=True, return_counts=True)
    median = wire[order][first + count // 2]
    relative = np.log(np.maximum(wire, 1.0) / np.maximum(median[kind], 1.0))
    relative[(count < 6)[kind]] = np.nan
    by_time = np.argsort(table["last_end_ns"], kind="stable")
    keep = by_time[~np.isnan(relative[by_time])]
    return Wires(
        table["communicator"][keep], table["last_end_ns"][keep], wire[keep], relative[keep]
    )


def change_point(values: Floats) -> tuple[int, float]:
    """Where a series changes most, by ranks, and how likely chance alone does that (Pettitt)."""
    n = len(values)
    ranks = np.empty(n)
    ranks[np.argsort(values, kind="stable")] = np.arange(1, n + 1)
    u = 2 * np.cumsum(ranks)[:-1] - np.arange(1, n) * (n + 1)
    at = int(np.argmax(np.abs(u)))
    k = abs(float(u[at]))
    return at + 1, float(2 * np.exp(-6 * k * k / (n**3 + n**2)))


def _change(wires: Wires, rows: Ints) -> Change | None:
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
    factor = float(np.exp(step))
    lost = float(wires.wire_ns[rows[at:]].sum()) * (1 - 1 / factor)
    return Change(int(wires.communicator[rows[0]]), int(wires.time_ns[rows[at]]), factor, lost)


def find(frame: Frame) -> list[Finding]:
    """Changes that came together are one finding."""
    wires = wires_of(frame)
    order = np.argsort(wires.communicator, kind="stable")
    split = np.flatnonzero(np.diff(wires.communicator[order])) + 1
    groups = np.split(order, split) if len(order) else []
    changes = [change for rows in groups if (change := _change(wires, rows))]
    tested = {int(wires.communicator[rows[0]]) for rows in groups if len(rows) >= _LEAST}
    changes.sort(key=lambda change: change.at_ns)
    findings: list[Finding] = []
    near = max(_TOGETHER * frame.span_ns, 1e6)
    while changes:
        together = [c for c in changes if c.at_ns - changes[0].at_ns <= near]
        changes = [c for c in changes if c not in together]
        findings += _describe(frame, together, tested)
    return findings


def _describe(frame: Frame, changes: list[Change], tested: set[int]) -> list[Finding]:
    names, nodes = frame.model.communicator_names, frame.model.tables["communicators"]["nodes"]
    # Communicators of different ranks run side by side: the worst hit counts.
    lost: dict[int, float] = {}
    for change in changes:
        for rank in frame.ranks_of(change.communicator):
            lost[rank] = lost.get(rank, 0.0) + change.lost_ns
    share = min(max(lost.values(), default=0.0) * frame.met.weight / frame.span_ns, 1.0)
    if share < _LOST_SHARE:
        return []
    at_ns = int(np.median([change.at_ns for change in changes]))
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
            f"ncclscope report {frame.model.path} --since {frame.at(at_ns)}",
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
