"""Verdicts about communicators some or all of whose processes died."""

from collections import Counter
from dataclasses import replace

from ncclscope.capture.liveness import ENDED, UNHEARD
from ncclscope.diagnose.hang.communicators import (
    CommunicatorState,
    Member,
    next_order,
    signature_in_flight,
)
from ncclscope.diagnose.hang.verdict import (
    APART_NS,
    DEAD,
    NOT_FINISHED,
    NOT_STARTED,
    NOTICEABLE_NS,
    STALLED,
    WAITING,
    Verdict,
    ranks_of,
    with_operation,
)

_PLURALS = (
    ("its process is", "their processes are"),
    ("its shared", "their shared"),
    ("it has", "they have"),
    ("it exited by itself", "they exited by themselves"),
)  # fmt: skip


def judge_deaths(base: Verdict, comm_state: CommunicatorState, post_mortem: bool) -> Verdict | None:
    """The verdict where members cannot come any more while others wait for them."""
    members = [member for member in comm_state.members if not member.rank_state.closed]
    newest = max(member.snapshot.at_ns for member in members)
    waiting = [member for member in members if member.rank_state.in_flight or member.is_inside_call]
    if post_mortem:
        lost = [
            m for m in members if m.snapshot.at_ns < newest - APART_NS and m.snapshot.life != ENDED
        ]
        lost = [m for m in lost if m not in waiting or m.waited_ns() < NOTICEABLE_NS]
        waiting = [member for member in waiting if member not in lost]
        if not waiting:
            return None
    else:
        lost = [m for m in members if not m.is_alive and m.snapshot.life != ENDED]
    orders = [next_order(m) for m in waiting if m.in_flight or m.is_inside_call]
    order = min((numbers[0] for numbers in orders if numbers), default=0)
    lost += _exited_early(comm_state, waiting, order, post_mortem) if not lost else []
    if not lost or len(lost) == len(members):
        return None
    signature = next(
        (signature_in_flight(m.in_flight[0], comm_state.ranks) for m in waiting if m.in_flight),
        None,
    )
    return replace(
        with_operation(base, signature, order if signature else 0),
        verdict=DEAD,
        hung=True,
        culprits=ranks_of(lost),
        waiting=ranks_of([member for member in waiting if member not in lost]),
        waited_ns=max((member.waited_ns() for member in waiting), default=0),
        reason=_how_lost(lost, newest, post_mortem),
        died_first=post_mortem,
    )


def _exited_early(
    comm_state: CommunicatorState, waiting: list[Member], order: int, post_mortem: bool
) -> list[Member]:
    """Members that have exited by themselves without coming to what the others wait in."""
    # Who was in an operation of another communicator waited there, and gave up as well.
    exited = [m for m in comm_state.members if m.snapshot.life == ENDED and not _is_busy(m)]
    if all(member.snapshot.life == ENDED for member in waiting):
        # All have exited. Who exited after the others gave up was alive while they waited.
        gave_up_ns = max((member.snapshot.at_ns for member in waiting), default=0)
        exited = [member for member in exited if member.snapshot.at_ns < gave_up_ns]
    for_long = any(member.waited_ns() > APART_NS for member in waiting)
    if not for_long and not post_mortem:  # ranks that are alive may be done in a moment
        return []
    peers = {operation.peer for member in waiting for operation in member.p2p_in_flight}

    def is_waited_for(member: Member) -> bool:
        if member.rank_state.rank in peers:
            return True
        calls = next_order(member) if order else None
        return calls[1] < order if calls else bool(order) and for_long

    return [member for member in exited if is_waited_for(member)]


def _is_busy(member: Member) -> bool:
    """Whether something of the rank is in flight, on any communicator."""
    return any(
        state.in_flight
        for state in member.snapshot.rank_states
        if state.global_rank == member.rank_state.global_rank
    )


def _how_lost(lost: list[Member], newest_ns: int, post_mortem: bool) -> str:
    """How it was seen that they died, or died first."""
    if post_mortem and lost[0].snapshot.life != ENDED:
        ago = (newest_ns - max(member.snapshot.at_ns for member in lost)) / 1e9
        return f"last heard of {ago:,.0f} s before the others"
    how = Counter(member.snapshot.how for member in lost).most_common(1)[0][0]
    for singular, plural in _PLURALS if len(lost) > 1 else ():
        how = how.replace(singular, plural)
    return how


def after_exit(verdict: Verdict, base: Verdict, busy: list[Member]) -> Verdict:
    """The verdict about a communicator whose ranks have exited by themselves: what was in flight
    for a moment, or for reasons that nobody can tell, is no hang. Nor is an operation that all
    ranks called and of which no kernel runs: some releases do not report the end of every one.
    """
    if not verdict.hung:
        return base
    runs = any(o.started > o.stopped for member in busy for o in member.rank_state.in_flight)
    if verdict.verdict in (STALLED, NOT_FINISHED, NOT_STARTED) and not runs:
        return base
    return replace(verdict, exited=True, cut_short=False, died_first=False)


def after_death(verdict: Verdict, comm_state: CommunicatorState, others_live: bool) -> Verdict:
    """The verdict about a communicator none of whose processes runs any more."""
    silent = [m for m in comm_state.members if m.snapshot.life != ENDED and not m.rank_state.closed]
    heard = sorted(member.snapshot.at_ns for member in silent)
    unheard = bool(silent) and all(member.snapshot.life == UNHEARD for member in silent)
    processes = len({member.snapshot.folder for member in comm_state.members})
    verdict = replace(verdict, dead_processes=processes, unheard=unheard)
    if verdict.verdict == WAITING:
        verdict = replace(verdict, verdict=DEAD, culprits=(), reason="")
    if others_live and not verdict.hung:  # other processes of the job wait for them, or will
        culprits = ranks_of(silent)
        verdict = replace(verdict, verdict=DEAD, hung=True, culprits=culprits, waiting=())
    if not verdict.is_death or verdict.reason or not heard:
        return verdict
    apart_ns = heard[-1] - heard[0]
    reason = "who died first cannot be told"
    if len(heard) > 1 and apart_ns > APART_NS:
        first = min(silent, key=lambda member: member.snapshot.at_ns)
        reason = f"rank {first.rank} was last heard of {apart_ns / 1e9:,.0f} s before the others"
    elif len(heard) > 1:
        # Heartbeats are a second apart: less tells nothing.
        within_s = max(-(-apart_ns // 1_000_000_000), 1)
        reason += f": last heard of within {within_s} s of each other"
    return replace(verdict, reason=reason if len(heard) > 1 else "")
