"""Is it hung, and who is to blame: all communicators of a capture from its ranks' last moments."""

from collections.abc import Sequence
from dataclasses import replace

from ncclscope.capture.liveness import ENDED, UNHEARD
from ncclscope.diagnose.hang.communicators import (
    CommunicatorState,
    Member,
    communicator_states,
    last_attempt,
    next_order,
    step_behind,
)
from ncclscope.diagnose.hang.dead_ranks import (
    after_death,
    dead,
    mismatched,
    still_joining,
    unjoined,
)
from ncclscope.diagnose.hang.in_flight import judge_collective, judge_p2p
from ncclscope.diagnose.hang.verdict import NEVER_JOINED, OK, WAITING, RankActivity, Status, Verdict
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import PAIRED

Place = tuple[CommunicatorState, Member]


def judge(snapshots: Sequence[ProcessSnapshot], unreadable: Sequence[str] = ()) -> Status:
    """All communicators, those that are not fine first."""
    mine = last_attempt(snapshots)
    comm_states = communicator_states(mine)
    alive = sum(snapshot.life in ("alive", "stopped") for snapshot in mine)
    post_mortem = alive == 0
    places = _places(comm_states)
    verdicts = [
        _explained(_judge_crew(comm_state, not post_mortem), comm_state, places)
        for comm_state in comm_states
    ]
    widest = max((comm_state.ranks for comm_state in comm_states), default=0)
    world = max((snapshot.world for snapshot in mine), default=0)
    each = max(
        (len({rank_state.global_rank for rank_state in p.rank_states}) for p in mine), default=1
    )
    return Status(
        verdicts=tuple(sorted(_caused(verdicts, comm_states), key=_urgency)),
        processes=len(mine),
        alive=alive,
        ended=sum(snapshot.life == ENDED for snapshot in mine),
        unheard=sum(snapshot.life == UNHEARD for snapshot in mine),
        expected=max(-(-widest // max(each, 1)), world if each <= 1 else 0, len(mine)),
        newest_ns=max((snapshot.at_ns for snapshot in mine), default=0),
        post_mortem=post_mortem,
        unreadable=tuple(unreadable),
        simulated=any(snapshot.simulated for snapshot in mine),
        quiet_ns=0 if post_mortem else _quiet_ns(mine),
        called=any(
            rank_state.calls or rank_state.works
            for snapshot in mine
            for rank_state in snapshot.rank_states
        ),
    )


def _quiet_ns(snapshots: Sequence[ProcessSnapshot]) -> int:
    """How long ago the last call of any process was; 0 where something is in flight."""
    rank_states = [rank_state for snapshot in snapshots for rank_state in snapshot.rank_states]
    if any(rank_state.in_flight for rank_state in rank_states):
        return 0
    return min((s.last.since_ns if s.last else s.opened_ns for s in rank_states), default=0)


def _urgency(verdict: Verdict) -> tuple[bool, bool, bool, int, str]:
    fine = verdict.verdict == OK
    return fine, not verdict.hung, bool(verdict.because_of), -verdict.waited_ns, verdict.name


# ---- one communicator ----
def _judge_crew(comm_state: CommunicatorState, job_lives: bool) -> Verdict:
    base = Verdict(comm_state.name, comm_state.id, comm_state.ranks, OK, missing=comm_state.missing)
    members = [member for member in comm_state.members if not member.rank_state.closed]
    if not members or all(member.snapshot.life == ENDED for member in members):
        return base
    gone = not any(member.lives for member in comm_state.members)
    verdict = _judge_members(base, comm_state, members, gone)
    return after_death(verdict, comm_state, job_lives) if gone else verdict


def _judge_members(
    base: Verdict, comm_state: CommunicatorState, members: list[Member], post_mortem: bool
) -> Verdict:
    if not comm_state.id and comm_state.ranks != 1:
        return unjoined(base, members)
    verdict = mismatched(base, comm_state) or dead(base, comm_state, post_mortem)
    if verdict is not None:
        return verdict
    if all(member.rank_state.calls == 0 and member.rank_state.works == 0 for member in members):
        return still_joining(base, comm_state, members, post_mortem)
    if any(member.in_flight or member.unlaunched for member in members):
        return judge_collective(base, comm_state, post_mortem)
    if any(member.pairs for member in members):
        return judge_p2p(base, comm_state, post_mortem)
    return base


# ---- what everybody does, and what follows from what ----
def _places(comm_states: list[CommunicatorState]) -> dict[int, list[Place]]:
    """Where each rank sits."""
    found: dict[int, list[Place]] = {}
    for comm_state in comm_states:
        for member in comm_state.members:
            found.setdefault(member.rank, []).append((comm_state, member))
    return found


def _explained(
    verdict: Verdict, comm_state: CommunicatorState, elsewhere: dict[int, list[Place]]
) -> Verdict:
    """The verdict with what its ranks do."""
    if verdict.verdict == OK:
        return verdict
    members = {member.rank: member for member in comm_state.members}
    doing = [
        _doing(rank, comm_state, members.get(rank), elsewhere.get(rank, []))
        for rank in (*verdict.culprits, *verdict.waiting)
    ]
    return replace(verdict, doing=tuple(one for one in doing if one is not None))


def _doing(
    rank: int, comm_state: CommunicatorState, member: Member | None, elsewhere: list[Place]
) -> RankActivity | None:
    """What a rank is in; the operation of this communicator before those of others."""
    places = ([(comm_state, member)] if member else []) + [
        place for place in elsewhere if place[1] is not member
    ]
    if not places:
        return None
    snapshot, rank_state = places[0][1].snapshot, places[0][1].rank_state
    several = len({one.gpu for one in snapshot.rank_states}) > 1  # ranks, each with its own
    gpu = rank_state.gpu_bus_id or rank_state.gpu if several else snapshot.gpu
    base = RankActivity(
        rank, snapshot.host, gpu, snapshot.pid, snapshot.life, snapshot.how, "", "", 0, 0, False
    )
    for where, one in places:
        if one.rank_state.in_flight:
            operation = one.rank_state.in_flight[0]
            behind = step_behind(one)
            step = replace(behind, peer=where.in_the_job(behind.peer)) if behind else None
            channels = f"{operation.started} of {operation.channels or '?'} channels started, "
            return replace(
                base,
                communicator=where.name,
                function=operation.function,
                order=operation.order,
                since_ns=operation.since_ns,
                in_flight=True,
                step=step,
                channels=f"{channels}{operation.stopped} ended",
            )
    called_last = [place for place in places if place[1].rank_state.last is not None]
    if not called_last:
        return base
    where, one = min(called_last, key=lambda place: place[1].rank_state.last.since_ns)  # type: ignore[union-attr]
    last = one.rank_state.last
    assert last is not None
    told = next_order(one)
    return replace(
        base,
        communicator=where.name,
        function=last.function,
        since_ns=last.since_ns,
        order=told[1] if told and last.function not in PAIRED else one.rank_state.calls,
        in_flight=one.unlaunched,
    )


def _caused(verdicts: list[Verdict], comm_states: list[CommunicatorState]) -> list[Verdict]:
    """Marks communicators that hang because of another one.

    A rank is blocked in the oldest of its operations. Where all culprits of a communicator are
    blocked in others, it follows from those; of several that blame the same ranks, the one that
    has waited longest comes first.
    """
    # By rank: since when, in which communicator; its creation blocks who came to it.
    blocked: dict[int, tuple[int, int]] = {}
    joining = {n: one.waiting for n, one in enumerate(verdicts) if one.verdict == NEVER_JOINED}
    for number, comm_state in enumerate(comm_states):
        for member in comm_state.members:
            waited = member.waited_ns()
            if member.rank in joining.get(number, ()):
                waited = member.rank_state.opened_ns
            if waited and waited > blocked.get(member.rank, (0, 0))[0]:
                blocked[member.rank] = waited, number
    causes: dict[int, int] = {}
    for number, verdict in enumerate(verdicts):
        waits = verdict.hung or verdict.verdict == WAITING
        if not waits or verdict.is_death:  # the dead wait for nobody
            continue
        elsewhere = {blocked[rank][1] for rank in verdict.culprits if rank in blocked}
        hung = {other for other in elsewhere if other != number and verdicts[other].hung}
        known = {rank for other in hung for rank in verdicts[other].culprits}
        free = [rank for rank in verdict.culprits if rank not in blocked and rank not in known]
        if hung and not free and number not in elsewhere:
            causes[number] = max(hung, key=lambda other: verdicts[other].waited_ns)
    roots: dict[tuple[int, ...], int] = {}
    # Where nobody of a communicator is left, others show more of it.
    by_wait = sorted(
        range(len(verdicts)),
        key=lambda n: (verdicts[n].gone > 0, -verdicts[n].waited_ns, -verdicts[n].ranks),
    )
    for number in by_wait:
        verdict = verdicts[number]
        if verdict.hung and verdict.culprits and number not in causes:
            first = roots.setdefault(verdict.culprits, number)
            if first != number:
                causes[number] = first
    causes |= _among_the_dead(verdicts, causes)
    for number in list(causes):  # in a circle everybody waits for everybody: nothing follows
        if _in_circle(causes, number):
            del causes[number]
    return [
        replace(verdict, because_of=verdicts[causes[number]].name) if number in causes else verdict
        for number, verdict in enumerate(verdicts)
    ]


def _among_the_dead(verdicts: list[Verdict], causes: dict[int, int]) -> dict[int, int]:
    """Of communicators with dead processes, those that say no more than another one: it names more
    of the dead; or its culprits are why the others were killed in the midst of their operations.
    """
    roots = [n for n, one in enumerate(verdicts) if one.hung and n not in causes]
    blamed = [n for n in roots if verdicts[n].culprits]
    worst = max(blamed, key=lambda n: verdicts[n].waited_ns, default=None)
    found = {}
    for number, verdict in enumerate(verdicts):
        if not verdict.is_death or number in causes:
            continue
        if not verdict.culprits and worst is not None:
            found[number] = worst
        wider = [
            n for n in blamed
            if verdicts[n].is_death and set(verdicts[n].culprits) > set(verdict.culprits)
        ]  # fmt: skip
        if verdict.culprits and wider:
            found[number] = max(wider, key=lambda n: len(verdicts[n].culprits))
    return found


def _in_circle(causes: dict[int, int], start: int) -> bool:
    at, seen = causes.get(start), set()
    while at is not None and at not in seen:
        if at == start:
            return True
        seen.add(at)
        at = causes.get(at)
    return False
