"""Verdicts about operations in flight: who has not called, launched, started or finished."""

from collections.abc import Sequence
from dataclasses import replace

from ncclscope.diagnose.hang.communicators import (
    CommunicatorState,
    Member,
    Signature,
    last_call_of,
    next_order,
    next_work,
    signature_in_flight,
    step_behind,
)
from ncclscope.diagnose.hang.dead_ranks import mismatch, sides_of
from ncclscope.diagnose.hang.verdict import (
    NEVER_CALLED,
    NOT_FINISHED,
    NOT_LAUNCHED,
    NOT_STARTED,
    STALLED,
    UNKNOWN,
    Verdict,
    apply_time_limit,
    described,
    ranks_of,
)
from ncclscope.humanize import ranks_in_words
from ncclscope.nccl.releases import loses_kernel_events_after
from ncclscope.snapshot.types import PAIRED


# ---- collectives ----
def judge_collective(base: Verdict, comm_state: CommunicatorState, post_mortem: bool) -> Verdict:
    """The first collective that not everybody has finished."""
    replays = any(
        operation.replay for member in comm_state.members for operation in member.in_flight
    )
    told = {}
    for member in comm_state.members:
        order = next_work(member) if replays else next_order(member)
        if order is not None:
            told[member.rank_state.rank] = (member, *order)
    busy = [m for m in comm_state.members if m.in_flight or m.unlaunched]
    if not told:
        return apply_time_limit(
            replace(base, verdict=UNKNOWN, waiting=ranks_of(busy), reason="calls were not counted"),
            busy,
            post_mortem,
        )
    stuck = min(first for _, first, _ in told.values())
    absent = [member for member, _, calls in told.values() if calls < stuck]
    at_it = [member for member, first, calls in told.values() if first == stuck <= calls]
    differing = sides_of(
        [
            (m, signature_in_flight(m.in_flight[0], comm_state.ranks))
            for m in at_it
            if m.in_flight and m.shows_all
        ]
    )
    if len(differing) > 1 and not replays:
        return mismatch(base, comm_state, stuck, differing)
    signature = _signature_at(at_it, stuck, told, comm_state.ranks)
    verdict = described(base, signature, stuck)
    waiting = [member for member in busy if member not in absent]
    if absent and waiting:
        verdict = replace(verdict, verdict=NEVER_CALLED, culprits=ranks_of(absent))
    elif comm_state.ranks > len({member.rank_state.rank for member in comm_state.members}):
        verdict = _without_files(verdict, comm_state, waiting)
    else:
        passed = [member for member, first, _ in told.values() if first > stuck]
        verdict = _everybody_in(verdict, at_it, passed)
    culprits = set(verdict.culprits)
    others = [member for member in waiting if member.rank not in culprits]
    verdict = replace(verdict, waiting=ranks_of(others))
    return apply_time_limit(verdict, waiting, post_mortem)


def _signature_at(
    at_it: list[Member], stuck: int, told: dict[int, tuple[Member, int, int]], ranks: int
) -> Signature | None:
    """What was called as number `stuck`."""
    for member in at_it:
        last = last_call_of(member, ranks)
        if (
            told[member.rank_state.rank][2] == stuck
            and last is not None
            and last.function not in PAIRED
        ):
            return last
    in_flight = [member.in_flight[0] for member in at_it if member.in_flight and member.shows_all]
    return signature_in_flight(in_flight[0], ranks) if in_flight else None


def _left_no_files(comm_state: CommunicatorState, absent: set[int]) -> str:
    """By their ranks in the job, where these can be told."""
    if comm_state.missing:
        return f"{ranks_in_words(comm_state.missing)} left no files"
    return f"{ranks_in_words(tuple(sorted(absent)))} of the communicator left no files"


def _without_files(
    verdict: Verdict, comm_state: CommunicatorState, waiting: list[Member]
) -> Verdict:
    """All ranks on record are in it, and some are not on record."""
    absent = set(range(comm_state.ranks)) - {
        member.rank_state.rank for member in comm_state.members
    }
    behind = [(member, step) for member in waiting if (step := step_behind(member))]
    pointed = [m for m, step in behind if step.peer in absent and step.step == 0 and not step.sends]
    if comm_state.missing and pointed:
        return replace(
            verdict,
            verdict=NEVER_CALLED,
            culprits=comm_state.missing,
            reason="it left no files: that it never called is inferred, nothing came from it",
        )
    return replace(
        verdict,
        verdict=UNKNOWN,
        culprits=comm_state.missing,
        reason=_left_no_files(comm_state, absent),
    )


def _everybody_in(verdict: Verdict, at_it: list[Member], passed: list[Member]) -> Verdict:
    """Who of those that have called it is furthest behind."""
    unlaunched = [member for member in at_it if not member.in_flight]
    silent = [member for member in at_it if not member.rank_state.reports_kernels]
    if silent:
        reason = "GPU timing was switched off: whether kernels run is not known"
        return replace(verdict, verdict=UNKNOWN, reason=reason)
    if unlaunched and (len(unlaunched) < len(at_it) or passed):
        return replace(verdict, verdict=NOT_LAUNCHED, culprits=ranks_of(unlaunched))
    if unlaunched:
        return replace(verdict, verdict=STALLED, reason="all ranks are inside the call")
    resting = [member for member in at_it if member.in_flight[0].started == 0]
    if resting and (len(resting) < len(at_it) or passed):
        return replace(verdict, verdict=NOT_STARTED, culprits=ranks_of(resting))
    if resting:
        return _nobody_started(verdict, at_it)
    if passed:
        return replace(verdict, verdict=NOT_FINISHED, culprits=ranks_of(at_it))
    blamed, reason = blamed_by_steps(at_it)
    return replace(verdict, verdict=STALLED, culprits=blamed, reason=reason)


def _nobody_started(verdict: Verdict, at_it: list[Member]) -> Verdict:
    """All have launched it and nobody's kernel runs, unless NCCL does not tell of its kernels."""
    if all(member.rank_state.done_ns is None and member.rank_state.works > 1 for member in at_it):
        reason = "NCCL reports no kernels of this communicator"
        return replace(verdict, verdict=UNKNOWN, culprits=(), reason=reason)
    # A Broadcast (2.31 and later) or a send to itself (before) costs a later work its events.
    for member in at_it:
        names = member.snapshot.strings.values()
        if loses_kernel_events_after(member.rank_state.version) in names:
            reason = "this NCCL does not report some kernels after a Broadcast or a send to itself"
            return replace(verdict, verdict=UNKNOWN, culprits=(), reason=reason)
    return replace(verdict, verdict=NOT_STARTED, culprits=ranks_of(at_it))


def blamed_by_steps(members: Sequence[Member]) -> tuple[tuple[int, ...], str]:
    """In a ring that stands still, the rank that the step furthest behind waits for."""
    by_rank = {member.rank_state.rank: member for member in members}
    behind = [(step.step, m, step) for m in members if (step := step_behind(m))]
    if not behind:
        return (), ""
    least = min(step for step, _, _ in behind)
    at_least = [(member, step) for number, member, step in behind if number == least]
    # Sender and receiver of one step may both stand there: the receiver tells more.
    at_least = [(m, step) for m, step in at_least if step.state == "RecvWait"] or at_least
    if len(at_least) != 1:
        return (), ""
    member, step = at_least[0]
    peer = by_rank.get(step.peer)
    if step.state == "RecvWait" and peer is not None:
        sending = (
            [s for s in peer.rank_state.parts.steps if s.sends] if peer.rank_state.parts else []
        )
        stuck = [s for s in sending if s.peer == member.rank_state.rank and s.state == "SendWait"]
        if stuck:
            link = f"rank {peer.rank} to rank {member.rank}"
            return ranks_of([peer, member]), f"the network from {link} stands still"
        return ranks_of([peer]), f"nothing comes from rank {peer.rank}"
    return ranks_of([member]), ""


# ---- sends and receives ----
def judge_p2p(base: Verdict, comm_state: CommunicatorState, post_mortem: bool) -> Verdict:
    """Who does not answer a send or a receive."""
    by_rank = {member.rank_state.rank: member for member in comm_state.members}
    waiting = [member for member in comm_state.members if member.pairs]
    silent: set[int] = set()
    absent: set[int] = set()
    resting: list[Member] = []
    for member in waiting:
        for one in member.pairs:
            peer = None if one.peer is None else by_rank.get(one.peer)
            if one.peer is None or peer is None:
                absent |= {one.peer} if one.peer is not None else set()
            elif not any(
                other.peer == member.rank_state.rank and other.function != one.function
                for other in peer.pairs
            ):
                silent.add(peer.rank)
            elif one.started == 0:
                resting.append(member)
    culprits = tuple(sorted(silent))
    in_flight = [(m, one) for m in waiting for one in m.pairs]
    telling = [(m, one) for m, one in in_flight if comm_state.in_the_job(one.peer or 0) in silent]
    operation = max(telling or in_flight, key=lambda pair: pair[1].since_ns)[1]
    verdict = described(base, signature_in_flight(operation, 1), operation.order)
    if silent:
        verdict = replace(verdict, verdict=NEVER_CALLED, culprits=culprits)
    elif absent:
        reason = _left_no_files(comm_state, absent)
        verdict = replace(verdict, verdict=UNKNOWN, culprits=comm_state.missing, reason=reason)
    elif resting and len(resting) < len(waiting):
        verdict = replace(verdict, verdict=NOT_STARTED, culprits=ranks_of(resting))
    else:
        blamed, reason = blamed_by_steps(waiting)
        verdict = replace(verdict, verdict=STALLED, culprits=blamed, reason=reason)
    others = [member for member in waiting if member.rank not in verdict.culprits]
    return apply_time_limit(replace(verdict, waiting=ranks_of(others)), waiting, post_mortem)
