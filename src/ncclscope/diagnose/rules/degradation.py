"""Communication that became slower in the course of the run, within nodes or between them."""

from dataclasses import replace

import numpy as np

from ncclscope.analysis.change import INTER_NODE, Slowdown
from ncclscope.analysis.waiting.what_if import Change
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
from ncclscope.humanize import percent, plural

_MOST_REPLAYED = 1_000  # slow collectives
_MOST_NAMES = 4
_NARROW = 0.02  # of the run: a range that is a number
# Findings are sorted by the time that they cost: this one follows the slowdown that it is about.
_RIGHT_AFTER = 0.999


def find(context: RuleContext) -> list[Finding]:
    """A finding for each slowdown, and one more where it spared the other scope."""
    findings = []
    for slowdown in context.slowdowns:
        finding = None if _is_named(context, slowdown) else _slower(context, slowdown)
        if finding is not None:
            findings.append(finding)
            findings += _one_scope(context, slowdown, finding)
    return findings


def _factor(slowdown: Slowdown) -> float:
    return float(np.median([change.factor for change in slowdown.changes]))


def _is_named(context: RuleContext, slowdown: Slowdown) -> bool:
    """Whether slow_link.py names all communicators that are slow now and then."""
    causes = context.root_causes
    named = set(causes.communicators) if causes is not None else set()
    rows = {change.communicator for change in slowdown.changes}
    return slowdown.at_times is not None and rows <= named


def _is_replayed(slowdown: Slowdown) -> bool:
    return slowdown.at_times is None or len(slowdown.at_times.began_ns) <= _MOST_REPLAYED


def _kind(slowdown: Slowdown) -> str:
    if slowdown.at_times is not None:
        return "slower at times"
    if slowdown.is_gradual:
        return "slower and slower"
    return "slower" if slowdown.ended_ns is None else "slower for a while"


def _hides_all_work(slowdown: Slowdown) -> bool:
    """Whether transfers are longer from the first ones on, so that work beside them is hidden in
    every step on record: a replay keeps what it can have taken. The time on the wire is the most.
    """
    return any(
        change.rise is not None and change.rise.from_the_first for change in slowdown.changes
    )


def _as_before(slowdown: Slowdown) -> Change:
    """Transfers that are as fast as before: some of the slow ones hide behind other work."""
    factor = {change.communicator: change.factor for change in slowdown.changes}
    if slowdown.at_times is not None:
        slow = slowdown.at_times
        columns = (slow.communicator.tolist(), slow.began_ns.tolist(), slow.ended_ns.tolist())
        # An end on one rank is hardly later than on others.
        return Change(
            faster=tuple(
                (c, factor[c], (a + b) // 2, b + (b - a) // 2)
                for c, a, b in zip(*columns, strict=True)
            )
        )
    until = slowdown.ended_ns if slowdown.ended_ns is not None else np.iinfo(np.int64).max
    faster: list[tuple[int, float, int, int]] = []
    for change in slowdown.changes:
        window = (change.communicator, change.factor, slowdown.began_ns, int(until))
        parts = () if change.rise is None else change.rise.stretches
        faster += [
            (change.communicator, part.factor, part.began_ns, part.ended_ns) for part in parts
        ] or [window]
    return Change(faster=tuple(faster))


def _slower(context: RuleContext, slowdown: Slowdown) -> Finding | None:
    run = context.run
    # Communicators of different ranks run side by side: the rank that lost most counts.
    lost: dict[int, float] = {}
    for change in slowdown.changes:
        for rank in run.ranks_of(change.communicator):
            lost[rank] = lost.get(rank, 0.0) + change.lost_ns
    most = max(lost.values(), default=0.0)
    share = on_wire = min(most * context.synchronized.weight / run.span_ns, 1.0)
    at_most = "up to "  # transfers may hide behind other work
    if context.what_if is not None and not context.what_if.why_not and _is_replayed(slowdown):
        share = min(share, context.what_if.predict(_as_before(slowdown)).gained_share)
        at_most = ""
    if share < (LEAST_SHARE if slowdown.at_times is None else PROBLEM_SHARE):  # networks vary
        return None
    lost_words = f"{at_most}{percent(share)}"
    if not at_most and _hides_all_work(slowdown) and on_wire - share > _NARROW:
        lost_words = f"{percent(share).removesuffix(' %')} to {percent(on_wire)}"
        share = (share + on_wire) / 2
    factor, at = _factor(slowdown), context.at(slowdown.began_ns)
    when = context.during(slowdown.began_ns, slowdown.ended_ns)
    until, compared = "", f"before and after {at} s"
    if slowdown.ended_ns is not None:
        until, compared = context.at(slowdown.ended_ns), "in that time and outside of it"
    if slowdown.at_times is not None:
        times, of_all = len(slowdown.at_times.began_ns), slowdown.at_times.of_all
        when, compared = f"now and then, {times:,} of {of_all:,}", "in these and in all others"
    longer = f"{factor:.3g} times as long on the wire"
    advice = "look for what began then: link errors, other jobs on the network, thermal throttling"
    if slowdown.is_gradual:
        longer = (
            f"longer and longer on the wire, in the end {factor:.3g} times as long as at first,"
        )
        compared = "in the end and at first"
        advice = "look for what grows: link errors, other jobs on the network, heat"
    names = tuple(run.model.communicator_names[c.communicator] for c in slowdown.changes)
    more = len(names) - _MOST_NAMES
    listed = ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    ranks = tuple(sorted(lost))
    return Finding(
        "degradation",
        CRITICAL if share >= GRAVE_SHARE else WARNING,
        f"{when} collectives take {longer} on "
        f"{plural(len(names), 'communicator')} ({listed}); {lost_words} of the run lost",
        advice
        if slowdown.at_times is None
        else "look for what comes and goes: other jobs on the network, packets that are lost",
        kind=_kind(slowdown),
        ranks=() if len(ranks) == len(run.host_of) else ranks,
        hosts=(),
        communicators=names,
        evidence=(
            Evidence(
                f"median time on the wire {compared}",
                {"at_s": float(at), "factor": round(factor, 4), "communicators": list(names)}
                | ({"until_s": float(until)} if until else {}),
                f"ncclscope report {context.path} --since {at}"
                + (f" --until {until}" if until else ""),
            ),
        ),
        confidence=0.9,
        lost_share=share,
    )


def _one_scope(context: RuleContext, slowdown: Slowdown, slower: Finding) -> list[Finding]:
    """That only communication between nodes, or within nodes, became slower."""
    if slowdown.scope is None:
        return []
    across = slowdown.scope == INTER_NODE
    where, other = "between nodes", "within nodes"
    if not across:
        where, other = other, where
    return [
        replace(
            slower,
            family="intra_inter",
            sentence=f"communication {where} became {_factor(slowdown):.3g} times as slow at "
            f"{context.at(slowdown.began_ns)} s, communication {other} did not",
            advice="the network adapters and switches" if across else "NVLink or PCIe of the nodes",
            kind=slowdown.scope,
            confidence=0.85,
            lost_share=slower.lost_share * _RIGHT_AFTER,
        )
    ]
