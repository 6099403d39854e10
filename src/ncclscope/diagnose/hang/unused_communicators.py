"""Verdicts about communicators that nobody has used yet: have all ranks joined them?"""

from dataclasses import replace

from ncclscope.diagnose.hang.communicators import CommunicatorState, Member
from ncclscope.diagnose.hang.verdict import (
    NEVER_JOINED,
    NOTICEABLE_NS,
    OK,
    PATIENCE_NS,
    UNKNOWN,
    WAITING,
    Verdict,
    ranks_of,
)


def judge_unused(
    base: Verdict, comm_state: CommunicatorState, members: list[Member], post_mortem: bool
) -> Verdict:
    """The verdict about a communicator that nobody has used."""
    if (
        not comm_state.ranks
        or len({member.rank_state.rank for member in comm_state.members}) >= comm_state.ranks
    ):
        return base
    waiting = [member for member in members if not _went_on(member)]
    if not waiting:
        return base
    waited = max(member.rank_state.opened_ns for member in waiting)
    verdict = replace(
        base,
        verdict=NEVER_JOINED,
        culprits=comm_state.missing,
        waiting=ranks_of(waiting),
        waited_ns=waited,
        limit_ns=PATIENCE_NS,
        reason=f"{len(members)} of {comm_state.ranks} ranks have joined",
    )
    elsewhere = bool(comm_state.missing) and comm_state.present.issuperset(comm_state.missing)
    if post_mortem and not elsewhere:
        reason = f"{verdict.reason}, the others left no files"
        hung = waited >= PATIENCE_NS and bool(comm_state.missing)
        return replace(verdict, verdict=UNKNOWN, reason=reason, hung=hung)
    if waited < PATIENCE_NS:
        return replace(verdict, verdict=WAITING if waited >= NOTICEABLE_NS else OK)
    return replace(verdict, hung=True)


def _went_on(member: Member) -> bool:
    """Whether a rank has made another communicator or a call since: then this one is complete."""
    for rank_state in member.snapshot.rank_states:
        if (
            rank_state.number == member.rank_state.number
            or rank_state.global_rank != member.rank_state.global_rank
        ):
            continue
        since = rank_state.last.since_ns if rank_state.last is not None else rank_state.opened_ns
        if min(since, rank_state.opened_ns) < member.rank_state.opened_ns:
            return True
    return False


def judge_unidentified(base: Verdict, members: list[Member]) -> Verdict:
    """The verdict about a communicator without an id: interfaces before v4 give it with the first
    collective only.
    """
    waited = max(member.waited_ns() for member in members)
    if waited < NOTICEABLE_NS:
        return base
    return replace(
        base,
        verdict=UNKNOWN,
        waited_ns=waited,
        waiting=tuple(member.rank for member in members if member.rank_state.in_flight),
        reason="this NCCL does not tell which ranks share the communicator",
    )
