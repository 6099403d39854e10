"""Verdicts about calls that some ranks made and the others never will: a batch too many."""

from dataclasses import replace

from ncclscope.capture.liveness import ENDED
from ncclscope.diagnose.hang.causes import blocked_ranks
from ncclscope.diagnose.hang.communicators import CommunicatorState, Member, next_order
from ncclscope.diagnose.hang.verdict import DEAD, EXTRA_CALL, NEVER_CALLED, Verdict, ranks_of
from ncclscope.humanize import ranks_in_words
from ncclscope.snapshot.types import PAIRED


def with_extra_calls(
    verdicts: list[Verdict], comm_states: list[CommunicatorState]
) -> list[Verdict]:
    """The verdicts, where those who called are to blame instead of those who did not.

    Example: rank 3 of 4 calls AllReduce #31. Ranks 0 and 2 have destroyed the communicator after
    #30, and rank 1 waits for rank 3 in `dp`. Nobody can come any more: #31 is a call too many.
    """
    blocked = blocked_ranks(verdicts, comm_states)
    return [
        _extra_call(number, verdicts, comm_state, blocked) or verdict
        for number, (verdict, comm_state) in enumerate(zip(verdicts, comm_states, strict=True))
    ]


def _extra_call(
    number: int, verdicts: list[Verdict], comm_state: CommunicatorState, blocked: dict[int, int]
) -> Verdict | None:
    verdict = verdicts[number]
    if not verdict.hung or verdict.verdict not in (NEVER_CALLED, DEAD) or not verdict.order:
        return None
    if verdict.function in PAIRED or not any(map(_is_through, comm_state.members)):
        return None
    calls = [(member, order[1]) for member in comm_state.members if (order := next_order(member))]
    callers = [m for m, made in calls if made >= verdict.order and _is_inside(m)]
    absent = [m for m, made in calls if made < verdict.order]
    through = [m for m in absent if not _is_inside(m) and _is_through(m)]
    waiting = [m for m in absent if m not in through]
    if not callers or not through or not _wait_for(callers, waiting, number, verdicts, blocked):
        return None
    # Of ranks that exited without a word to NCCL, an exception may be the reason: the minority is
    # to blame. Who destroys a communicator knows that it is through.
    destroyed = all(member.rank_state.closed for member in through)
    if len(callers) > len(absent) - (not destroyed):
        return None
    did = "destroyed the communicator" if destroyed else "ended"
    reason = f"{ranks_in_words(ranks_of(through))} {did} after #{verdict.order - 1}"
    if waiting:
        names = {verdicts[blocked[member.rank]].name for member in waiting}
        waits = "waits" if len(waiting) == 1 else "wait"
        whom = ranks_in_words(ranks_of(callers))
        who = ranks_in_words(ranks_of(waiting))
        reason += f", {who} {waits} for {whom} in {', '.join(sorted(names))}"
    return replace(
        verdict,
        verdict=EXTRA_CALL,
        culprits=ranks_of(callers),
        waiting=ranks_of(waiting),
        waited_ns=max(member.waited_ns() for member in callers),
        reason=reason,
        died_first=False,
        cut_short=False,
    )


def _is_inside(member: Member) -> bool:
    return bool(member.rank_state.in_flight) or member.is_inside_call


def _is_through(member: Member) -> bool:
    """Whether a rank makes no more calls on the communicator, by its own doing."""
    return member.rank_state.closed or member.snapshot.life == ENDED


def _wait_for(
    callers: list[Member],
    waiting: list[Member],
    number: int,
    verdicts: list[Verdict],
    blocked: dict[int, int],
) -> bool:
    """Whether all of `waiting` wait in other communicators for nobody but the callers and each
    other.
    """
    allowed = {member.rank for member in (*callers, *waiting)}
    for member in waiting:
        where = blocked.get(member.rank, number)
        culprits = set(verdicts[where].culprits)
        if where == number or not culprits or not culprits <= allowed:
            return False
    return True
