"""Verdicts about communicators that were aborted or destroyed while some ranks waited in them."""

from dataclasses import replace

from ncclscope.diagnose.hang.communicators import (
    CommunicatorState,
    Member,
    last_call_of,
    next_order,
)
from ncclscope.diagnose.hang.verdict import (
    NEVER_CALLED,
    NOTICEABLE_NS,
    Verdict,
    limit_ns,
    ranks_of,
    with_operation,
)
from ncclscope.snapshot.types import PAIRED


def judge_aborted(base: Verdict, comm_state: CommunicatorState) -> Verdict:
    """The verdict about a communicator of processes that have all ended, with nothing in flight.

    Frameworks abort a communicator when an operation times out, and live pages forget what was in
    flight on it. What stays is how many collectives each rank called: they must be equal.
    """
    if not any(_waited_ns(m) >= NOTICEABLE_NS and not _went_on(m) for m in comm_state.members):
        return base
    calls = [(member, order[1]) for member in comm_state.members if (order := next_order(member))]
    fewest = min((made for _, made in calls), default=0)
    callers = [member for member, made in calls if made > fewest and member.rank_state.closed]
    if not callers or len(calls) < len(comm_state.members) or any(map(_went_on, callers)):
        return base
    waited = max(map(_waited_ns, callers))
    if waited < NOTICEABLE_NS or waited <= limit_ns(comm_state.members, post_mortem=True):
        return base
    absent = [member for member, made in calls if made == fewest]
    last = last_call_of(callers[0], comm_state.ranks)
    is_it = last is not None and last.function not in PAIRED
    next_call = all(made <= fewest + 1 for _, made in calls) and is_it
    return replace(
        with_operation(base, last if next_call else None, fewest + 1),
        verdict=NEVER_CALLED,
        hung=True,
        culprits=ranks_of(absent),
        waiting=ranks_of(callers),
        waited_ns=waited,
        reason="the others aborted or destroyed the communicator",
        exited=True,
    )


def _waited_ns(member: Member) -> int:
    """From a rank's last call to the end of the communicator."""
    last, closed_ns = member.rank_state.last, member.rank_state.closed_ns
    return max(last.since_ns - closed_ns, 0) if last is not None and closed_ns is not None else 0


def _went_on(member: Member) -> bool:
    """Whether its process made calls on other communicators after the end of this one."""
    closed_ns = member.rank_state.closed_ns or 0
    return any(
        state.number != member.rank_state.number
        and state.last is not None
        and state.last.since_ns < closed_ns
        for state in member.snapshot.rank_states
    )
