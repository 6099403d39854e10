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


def judge(pulses: Sequence[ProcessSnapshot], unreadable: Sequence[str] = ()) -> Status:
    """All communicators, those that are not fine first."""
    mine = last_attempt(pulses)
    crews = communicator_states(mine)
    alive = sum(pulse.life in ("alive", "stopped") for pulse in mine)
    post_mortem = alive == 0
    places = _places(crews)
    verdicts = [_explained(_judge_crew(crew, not post_mortem), crew, places) for crew in crews]
    widest = max((crew.ranks for crew in crews), default=0)
    world = max((pulse.world for pulse in mine), default=0)
    each = max((len({seat.global_rank for seat in p.seats}) for p in mine), default=1)
    return Status(
        verdicts=tuple(sorted(_caused(verdicts, crews), key=_urgency)),
        processes=len(mine),
        alive=alive,
        ended=sum(pulse.life == ENDED for pulse in mine),
        unheard=sum(pulse.life == UNHEARD for pulse in mine),
        expected=max(-(-widest // max(each, 1)), world if each <= 1 else 0, len(mine)),
        newest_ns=max((pulse.at_ns for pulse in mine), default=0),
        post_mortem=post_mortem,
        unreadable=tuple(unreadable),
        simulated=any(pulse.simulated for pulse in mine),
        quiet_ns=0 if post_mortem else _quiet_ns(mine),
        called=any(seat.calls or seat.works for pulse in mine for seat in pulse.seats),
    )


def _quiet_ns(pulses: Sequence[ProcessSnapshot]) -> int:
    """How long ago the last call of any process was; 0 where something is in flight."""
    seats = [seat for pulse in pulses for seat in pulse.seats]
    if any(seat.flights for seat in seats):
        return 0
    return min((s.last.since_ns if s.last else s.opened_ns for s in seats), default=0)


def _urgency(verdict: Verdict) -> tuple[bool, bool, bool, int, str]:
    fine = verdict.verdict == OK
    return fine, not verdict.hung, bool(verdict.because_of), -verdict.waited_ns, verdict.name


# ---- one communicator ----
def _judge_crew(crew: CommunicatorState, job_lives: bool) -> Verdict:
    base = Verdict(crew.name, crew.id, crew.ranks, OK, missing=crew.missing)
    members = [member for member in crew.members if not member.seat.closed]
    if not members or all(member.pulse.life == ENDED for member in members):
        return base
    gone = not any(member.lives for member in crew.members)
    verdict = _judge_members(base, crew, members, gone)
    return after_death(verdict, crew, job_lives) if gone else verdict


def _judge_members(
    base: Verdict, crew: CommunicatorState, members: list[Member], post_mortem: bool
) -> Verdict:
    if not crew.id and crew.ranks != 1:
        return unjoined(base, members)
    verdict = mismatched(base, crew) or dead(base, crew, post_mortem)
    if verdict is not None:
        return verdict
    if all(member.seat.calls == 0 and member.seat.works == 0 for member in members):
        return still_joining(base, crew, members, post_mortem)
    if any(member.flights or member.unlaunched for member in members):
        return judge_collective(base, crew, post_mortem)
    if any(member.pairs for member in members):
        return judge_p2p(base, crew, post_mortem)
    return base


# ---- what everybody does, and what follows from what ----
def _places(crews: list[CommunicatorState]) -> dict[int, list[Place]]:
    """Where each rank sits."""
    found: dict[int, list[Place]] = {}
    for crew in crews:
        for member in crew.members:
            found.setdefault(member.rank, []).append((crew, member))
    return found


def _explained(
    verdict: Verdict, crew: CommunicatorState, elsewhere: dict[int, list[Place]]
) -> Verdict:
    """The verdict with what its ranks do."""
    if verdict.verdict == OK:
        return verdict
    members = {member.rank: member for member in crew.members}
    doing = [
        _doing(rank, crew, members.get(rank), elsewhere.get(rank, []))
        for rank in (*verdict.culprits, *verdict.waiting)
    ]
    return replace(verdict, doing=tuple(one for one in doing if one is not None))


def _doing(
    rank: int, crew: CommunicatorState, member: Member | None, elsewhere: list[Place]
) -> RankActivity | None:
    """What a rank is in; the operation of this communicator before those of others."""
    places = ([(crew, member)] if member else []) + [
        place for place in elsewhere if place[1] is not member
    ]
    if not places:
        return None
    pulse, seat = places[0][1].pulse, places[0][1].seat
    several = len({one.gpu for one in pulse.seats}) > 1  # ranks, each with its own
    gpu = seat.gpu_bus_id or seat.gpu if several else pulse.gpu
    base = RankActivity(
        rank, pulse.host, gpu, pulse.pid, pulse.life, pulse.how, "", "", 0, 0, False
    )
    for where, one in places:
        if one.seat.flights:
            flight = one.seat.flights[0]
            behind = step_behind(one)
            step = replace(behind, peer=where.in_the_job(behind.peer)) if behind else None
            channels = f"{flight.started} of {flight.channels or '?'} channels started, "
            return replace(
                base,
                communicator=where.name,
                function=flight.function,
                order=flight.order,
                since_ns=flight.since_ns,
                in_flight=True,
                step=step,
                channels=f"{channels}{flight.stopped} ended",
            )
    called_last = [place for place in places if place[1].seat.last is not None]
    if not called_last:
        return base
    where, one = min(called_last, key=lambda place: place[1].seat.last.since_ns)  # type: ignore[union-attr]
    last = one.seat.last
    assert last is not None
    told = next_order(one)
    return replace(
        base,
        communicator=where.name,
        function=last.function,
        since_ns=last.since_ns,
        order=told[1] if told and last.function not in PAIRED else one.seat.calls,
        in_flight=one.unlaunched,
    )


def _caused(verdicts: list[Verdict], crews: list[CommunicatorState]) -> list[Verdict]:
    """Marks communicators that hang because of another one.

    A rank is blocked in the oldest of its operations. Where all culprits of a communicator are
    blocked in others, it follows from those; of several that blame the same ranks, the one that
    has waited longest comes first.
    """
    # By rank: since when, in which communicator; its creation blocks who came to it.
    blocked: dict[int, tuple[int, int]] = {}
    joining = {n: one.waiting for n, one in enumerate(verdicts) if one.verdict == NEVER_JOINED}
    for number, crew in enumerate(crews):
        for member in crew.members:
            waited = member.waited_ns()
            if member.rank in joining.get(number, ()):
                waited = member.seat.opened_ns
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
