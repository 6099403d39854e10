"""Which communicators of a capture hang, and who is to blame, by the last snapshots of ranks."""

from collections.abc import Sequence
from dataclasses import replace

from ncclscope.capture.liveness import ALIVE, ENDED, STOPPED, UNHEARD
from ncclscope.diagnose.hang.aborted_communicators import judge_aborted
from ncclscope.diagnose.hang.causes import with_causes
from ncclscope.diagnose.hang.communicators import (
    CommunicatorState,
    Member,
    communicator_states,
    last_attempt,
    next_order,
    step_behind,
)
from ncclscope.diagnose.hang.dead_ranks import after_death, after_exit, judge_deaths
from ncclscope.diagnose.hang.extra_calls import with_extra_calls
from ncclscope.diagnose.hang.in_flight import judge_collective, judge_p2p
from ncclscope.diagnose.hang.mismatch import judge_last_calls
from ncclscope.diagnose.hang.unused_communicators import judge_unidentified, judge_unused
from ncclscope.diagnose.hang.verdict import OK, RankActivity, Status, Verdict
from ncclscope.diagnose.hang.without_kernels import with_assumed_operations
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import PAIRED

Place = tuple[CommunicatorState, Member]


def judge(snapshots: Sequence[ProcessSnapshot], unreadable: Sequence[str] = ()) -> Status:
    """The verdicts about all communicators, those that are not fine first."""
    current = last_attempt(snapshots)
    comm_states = [with_assumed_operations(state) for state in communicator_states(current)]
    alive = sum(snapshot.life in (ALIVE, STOPPED) for snapshot in current)
    post_mortem = alive == 0
    verdicts = [_judge_communicator(comm_state, not post_mortem) for comm_state in comm_states]
    verdicts = with_causes(with_extra_calls(verdicts, comm_states), comm_states)
    places = {} if all(verdict.verdict == OK for verdict in verdicts) else _places(comm_states)
    verdicts = [
        _with_activities(verdict, comm_state, places)
        for verdict, comm_state in zip(verdicts, comm_states, strict=True)
    ]
    widest = max((comm_state.ranks for comm_state in comm_states), default=0)
    world = max((snapshot.world for snapshot in current), default=0)
    ranks_each = max(
        (len({rank_state.global_rank for rank_state in p.rank_states}) for p in current), default=1
    )
    expected = -(-widest // max(ranks_each, 1))
    return Status(
        verdicts=tuple(sorted(verdicts, key=_urgency)),
        processes=len(current),
        alive=alive,
        ended=sum(snapshot.life == ENDED for snapshot in current),
        unheard=sum(snapshot.life == UNHEARD for snapshot in current),
        expected=max(expected, world if ranks_each <= 1 else 0, len(current)),
        newest_ns=max((snapshot.at_ns for snapshot in current), default=0),
        post_mortem=post_mortem,
        unreadable=tuple(unreadable),
        simulated=any(snapshot.simulated for snapshot in current),
        quiet_ns=0 if post_mortem else _quiet_ns(current),
        called=any(
            rank_state.calls or rank_state.works
            for snapshot in current
            for rank_state in snapshot.rank_states
        ),
        sees_ends=any(m.rank_state.reports_kernels for state in comm_states for m in state.members),
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
def _judge_communicator(comm_state: CommunicatorState, job_lives: bool) -> Verdict:
    base = Verdict(comm_state.name, comm_state.id, comm_state.ranks, OK, missing=comm_state.missing)
    members = [member for member in comm_state.members if not member.rank_state.closed]
    all_ended = all(member.snapshot.life == ENDED for member in comm_state.members)
    busy = [m for m in members if m.rank_state.in_flight or m.is_inside_call]
    if all_ended and not busy:
        return judge_aborted(base, comm_state)
    if not members:
        return base
    all_dead = not any(member.is_alive for member in comm_state.members)
    # Who exits out of an operation waits no longer: there is nothing to wait for any more.
    gave_up = bool(busy) and all(member.snapshot.life == ENDED for member in busy)
    verdict = _judge_members(base, comm_state, members, all_dead or gave_up)
    if all_ended or (gave_up and not all_dead):
        return after_exit(verdict, base, busy)
    return after_death(verdict, comm_state, job_lives) if all_dead else verdict


def _judge_members(
    base: Verdict, comm_state: CommunicatorState, members: list[Member], post_mortem: bool
) -> Verdict:
    if not comm_state.id and comm_state.ranks != 1:
        return judge_unidentified(base, members)
    verdict = judge_last_calls(base, comm_state) or judge_deaths(base, comm_state, post_mortem)
    if verdict is not None:
        return verdict
    if all(member.rank_state.calls == 0 and member.rank_state.works == 0 for member in members):
        return judge_unused(base, comm_state, members, post_mortem)
    pairs = any(member.p2p_in_flight for member in members)
    if not any(member.in_flight or member.is_inside_call for member in members):
        return judge_p2p(base, comm_state, post_mortem) if pairs else base
    verdict = judge_collective(base, comm_state, post_mortem)
    absent = [m for m in members if m.rank in verdict.culprits and not m.in_flight]
    if pairs and any(member.p2p_in_flight for member in absent):
        # Who does not come to the collective waits in a send or receive: that shows for whom.
        return judge_p2p(base, comm_state, post_mortem)
    return verdict


# ---- what ranks are doing ----
def _places(comm_states: list[CommunicatorState]) -> dict[int, list[Place]]:
    """By global rank its communicators."""
    places: dict[int, list[Place]] = {}
    for comm_state in comm_states:
        for member in comm_state.members:
            places.setdefault(member.rank, []).append((comm_state, member))
    return places


def _with_activities(
    verdict: Verdict, comm_state: CommunicatorState, elsewhere: dict[int, list[Place]]
) -> Verdict:
    """The verdict with what its ranks are doing."""
    if verdict.verdict == OK:
        return verdict
    members = {member.rank: member for member in comm_state.members}
    activities = [
        _activity(rank, comm_state, members.get(rank), elsewhere.get(rank, []))
        for rank in (*verdict.culprits, *verdict.waiting)
    ]
    return replace(verdict, activities=tuple(a for a in activities if a is not None))


def _activity(
    rank: int, comm_state: CommunicatorState, member: Member | None, elsewhere: list[Place]
) -> RankActivity | None:
    """What a rank is doing; an operation of this communicator comes before those of others."""
    places = ([(comm_state, member)] if member else []) + [
        place for place in elsewhere if place[1] is not member
    ]
    if not places:
        return None
    snapshot, rank_state = places[0][1].snapshot, places[0][1].rank_state
    several = len({state.gpu for state in snapshot.rank_states}) > 1  # ranks, each with its own
    gpu = rank_state.gpu_bus_id or rank_state.gpu if several else snapshot.gpu
    base = RankActivity(
        rank, snapshot.host, gpu, snapshot.pid, snapshot.life, snapshot.how, "", "", 0, 0, False,
        training=snapshot.training,
    )  # fmt: skip
    for where, there in places:
        if there.rank_state.in_flight:
            operation = there.rank_state.in_flight[0]
            behind = step_behind(there)
            step = replace(behind, peer=where.global_rank(behind.peer)) if behind else None
            channels = f"{operation.started} of {operation.channels or '?'} channels started, "
            peer = None if operation.peer is None else where.global_rank(operation.peer)
            return replace(
                base,
                communicator=where.name,
                function=operation.function,
                order=operation.order,
                since_ns=operation.since_ns,
                in_flight=True,
                step=step,
                channels=f"{channels}{operation.stopped} ended",
                peer=peer,
            )
    last_calls = [
        (where, there, last) for where, there in places if (last := there.rank_state.last)
    ]
    if not last_calls:
        return base
    where, there, last = min(last_calls, key=lambda call: call[2].since_ns)
    order = next_order(there)
    return replace(
        base,
        communicator=where.name,
        function=last.function,
        since_ns=last.since_ns,
        order=order[1] if order and last.function not in PAIRED else there.rank_state.calls,
        in_flight=there.is_inside_call,
    )
