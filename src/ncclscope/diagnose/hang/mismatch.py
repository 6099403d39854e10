"""Verdicts about ranks that called different things as the same operation."""

from dataclasses import replace

from ncclscope.diagnose.hang.communicators import (
    CommunicatorState,
    Member,
    Signature,
    last_call_of,
    next_order,
)
from ncclscope.diagnose.hang.verdict import (
    MISMATCH,
    CallGroup,
    Verdict,
    ranks_of,
    with_operation,
)
from ncclscope.model.schema import NONE
from ncclscope.snapshot.types import PAIRED

Call = tuple[Member, Signature]


def judge_last_calls(base: Verdict, comm_state: CommunicatorState) -> Verdict | None:
    """The verdict where ranks have called equally many collectives and the last ones differ."""
    by_calls: dict[int, list[Call]] = {}
    for member in comm_state.members:
        last = last_call_of(member, comm_state.ranks)
        if last is not None and last.function not in PAIRED:
            by_calls.setdefault(member.rank_state.calls, []).append((member, last))
    for calls in sorted(by_calls, reverse=True):
        group = by_calls[calls]
        if all(_is_same(group[0][1], other) for _, other in group):
            continue
        # Sends and receives are among the calls: count again without them.
        by_order: dict[int, list[Call]] = {}
        for member, signature in group:
            order = next_order(member)
            if order is not None:
                by_order.setdefault(order[1], []).append((member, signature))
        for number, same_order in by_order.items():
            sides = group_by_call(same_order)
            if len(sides) > 1:
                return mismatch_verdict(base, comm_state, number, sides)
    return None


def _is_same(a: Signature, b: Signature) -> bool:
    """Whether two calls agree in all that is known of both."""
    datatype = a.datatype == b.datatype or not a.datatype or not b.datatype
    root = a.root == b.root or NONE in (a.root, b.root)
    return a.function == b.function and a.size_bytes == b.size_bytes and datatype and root


def group_by_call(calls: list[Call]) -> list[CallGroup]:
    """Members by what they called, the largest group first."""
    groups: list[tuple[Signature, list[Member]]] = []
    for member, signature in calls:
        for other, members in groups:
            if _is_same(other, signature):
                members.append(member)
                break
        else:
            groups.append((signature, [member]))
    groups.sort(key=lambda group: -len(group[1]))
    return [CallGroup(ranks_of(members), signature) for signature, members in groups]


def mismatch_verdict(
    base: Verdict, comm_state: CommunicatorState, order: int, sides: list[CallGroup]
) -> Verdict:
    """Ranks called different things as the same number; the minority is to blame."""
    tie = len(sides[0].ranks) == len(sides[1].ranks)
    culprits = [rank for side in sides[1:] for rank in side.ranks]
    waiting = [
        m.rank for m in comm_state.members if m.in_flight and (tie or m.rank not in culprits)
    ]
    return replace(
        with_operation(base, sides[0].call, order),
        verdict=MISMATCH,
        hung=True,
        culprits=() if tie else tuple(sorted(culprits)),
        waiting=tuple(waiting),
        waited_ns=max((member.waited_ns() for member in comm_state.members), default=0),
        sides=tuple(sides),
    )
