"""Ranks that called different things as the same operation: both sides and the first divergence."""

from collections import Counter
from dataclasses import dataclass
from shlex import quote

import numpy as np

from ncclscope.diagnose.finding import CRITICAL, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import Ints, RuleContext
from ncclscope.humanize import binary_size, plural, ranks_in_words
from ncclscope.model.schema import COLLECTIVE, NONE
from ncclscope.nccl.functions import WITH_ROOT

_MOST = 8  # communicators
_NEAR = 8  # calls in which a swapped one is looked for
_ADVICE = {
    "function": "the program takes different paths on these ranks: look at what decides the branch",
    "size": "the buffers differ between ranks: uneven batches, parameters or shards",
    "datatype": "the datatypes differ between ranks: look at mixed precision and casts",
    "root": "ranks give different roots: the root must be the same on all of them",
    "order": "the same calls come in another order: calls from several threads, or sets that are "
    "walked in different orders",
}


@dataclass(frozen=True, slots=True)
class Call:
    """What one rank called."""

    function: str
    size_bytes: int
    datatype: str
    root: int

    def __str__(self) -> str:
        size = binary_size(self.size_bytes) if self.size_bytes >= 0 else "?"
        rooted = f" root {self.root}" if self.root != NONE else ""
        return f"{self.function} {size} {self.datatype}{rooted}".strip()


def _call(frame: RuleContext, row: int) -> Call:
    ops = frame.ops
    function = frame.word("function", int(ops["function"][row]))
    return Call(
        function,
        int(ops["size_bytes"][row]),
        frame.word("datatype", int(ops["datatype"][row])),
        int(ops["root"][row]) if function in WITH_ROOT else NONE,
    )


def _with_different_roots(frame: RuleContext) -> Ints:
    """Instances whose ranks gave different roots."""
    codes = [code for code, name in enumerate(frame.words["function"]) if name in WITH_ROOT]
    ops = frame.ops
    rooted = frame.collective & np.isin(ops["function"], codes) & (ops["instance"] != NONE)
    rows = np.flatnonzero(rooted & (ops["root"] != NONE))
    if not len(rows):
        return rows
    instance = np.asarray(ops["instance"], np.int64)[rows]
    order = np.argsort(instance, kind="stable")
    number, first = np.unique(instance[order], return_index=True)
    root = np.asarray(ops["root"], np.int64)[rows[order]]
    differ = np.maximum.reduceat(root, first) != np.minimum.reduceat(root, first)
    return np.asarray(number[differ])


def find(frame: RuleContext) -> list[Finding]:
    """The first divergence of each communicator."""
    instances = frame.model.tables["instances"]
    wrong = np.flatnonzero((instances["mismatch"] == 1) & (instances["form"] == COLLECTIVE))
    wrong = np.union1d(wrong, _with_different_roots(frame))
    findings = []
    communicator = np.asarray(instances["communicator"], np.int64)[wrong]
    order = np.asarray(instances["call_order"], np.int64)[wrong]
    for one in np.unique(communicator)[:_MOST].tolist():
        mine = wrong[communicator == one]
        first = int(mine[np.argmin(order[communicator == one])])
        finding = _describe(frame, int(one), first, len(mine))
        if finding is not None:
            findings.append(finding)
    return findings


def _describe(frame: RuleContext, communicator: int, instance: int, times: int) -> Finding | None:
    ops, name = frame.ops, frame.model.communicator_names[communicator]
    rows = np.flatnonzero((ops["instance"] == instance) & frame.current)
    calls = {int(ops["global_rank"][row]): _call(frame, row) for row in rows.tolist()}
    sides = Counter(calls.values()).most_common()
    if len(sides) < 2:
        return None
    tie = sides[0][1] == sides[1][1]
    usual = sides[0][0]
    ranks = tuple(sorted(rank for rank, call in calls.items() if call != usual))
    odd = calls[ranks[0]]
    number = int(frame.model.tables["instances"]["call_order"][instance]) + 1
    kind = _kind(frame, communicator, number - 1, usual, odd, ranks[0])
    blamed = () if tie else ranks
    told = "; ".join(
        _who(frame, tuple(sorted(r for r, call in calls.items() if call == side))) + f" {side}"
        for side, _ in sides[:4]
    )
    states = [frame.word("state", int(code)) for code in set(ops["state"][rows].tolist())]
    stuck = "in flight" in states
    evidence = (
        Evidence(
            f"{plural(times, 'operation')} of {name} {'differs' if times == 1 else 'differ'}, "
            f"#{number} is the first",
            {
                "order": number,
                "sides": [
                    {"ranks": sorted(r for r, c in calls.items() if c == side), "called": str(side)}
                    for side, _ in sides
                ],
            },
            f"ncclscope report {frame.path} --comm {quote(name)} --by +rank",
        ),
    )
    return Finding(
        "mismatch",
        CRITICAL if stuck or kind != "size" else WARNING,
        f"ranks disagree on {name} #{number} ({kind}): {told}",
        _ADVICE[kind],
        kind,
        blamed,
        tuple(sorted({frame.host_of[r] for r in blamed if r in frame.host_of})),
        (name,),
        evidence,
        confidence=0.99,
    )


def _who(frame: RuleContext, ranks: tuple[int, ...]) -> str:
    """Ranks, and of a single one where it is."""
    return ranks_in_words(ranks) + (frame.where(ranks[0]) if len(ranks) == 1 else "")


def _kind(
    frame: RuleContext, communicator: int, order: int, usual: Call, odd: Call, rank: int
) -> str:
    """In what they differ; the order, where both make the other's call a little later."""
    ops = frame.ops
    near = (ops["communicator"] == communicator) & frame.collective
    near &= (ops["call_order"] > order) & (ops["call_order"] <= order + _NEAR)
    rows = np.flatnonzero(near)
    of_rank = ops["global_rank"][rows] == rank
    later_odd = {_call(frame, row) for row in rows[of_rank].tolist()}
    later_usual = {_call(frame, row) for row in rows[~of_rank].tolist()}
    if usual in later_odd and odd in later_usual and usual.function != odd.function:
        return "order"
    for name in ("function", "datatype", "size", "root"):
        field = "size_bytes" if name == "size" else name
        if getattr(usual, field) != getattr(odd, field):
            return name
    return "function"
