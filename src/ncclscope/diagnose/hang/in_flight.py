"""Verdicts about operations in flight: who has not called, launched, started or finished them."""

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
from ncclscope.diagnose.hang.mismatch import group_by_call, mismatch_verdict
from ncclscope.diagnose.hang.verdict import (
    CIRCLE,
    NEVER_CALLED,
    NOT_FINISHED,
    NOT_LAUNCHED,
    NOT_STARTED,
    STALLED,
    UNKNOWN,
    Pair,
    Verdict,
    apply_time_limit,
    ranks_of,
    with_operation,
)
from ncclscope.humanize import ranks_in_words
from ncclscope.model.schema import NONE
from ncclscope.nccl.releases import loses_kernel_events_after
from ncclscope.snapshot.types import PAIRED, OperationInFlight


# ---- collectives ----
def judge_collective(base: Verdict, comm_state: CommunicatorState, post_mortem: bool) -> Verdict:
    """The verdict about the first collective that not all ranks have finished."""
    replays = any(
        operation.replay for member in comm_state.members for operation in member.in_flight
    )
    orders: dict[int, tuple[Member, int, int]] = {}  # by rank: number to finish next, calls made
    for member in comm_state.members:
        order = next_work(member) if replays else next_order(member)
        if order is not None:
            orders[member.rank_state.rank] = (member, *order)
    busy = [m for m in comm_state.members if m.in_flight or m.is_inside_call]
    if not orders:
        return apply_time_limit(
            replace(base, verdict=UNKNOWN, waiting=ranks_of(busy), reason="calls were not counted"),
            busy,
            post_mortem,
        )
    stuck = min(first for _, first, _ in orders.values())
    absent = [member for member, _, calls in orders.values() if calls < stuck]
    at_it = [member for member, first, calls in orders.values() if first == stuck <= calls]
    sides = group_by_call(
        [
            (m, signature_in_flight(m.in_flight[0], comm_state.ranks))
            for m in at_it
            if m.in_flight and m.shows_all
        ]
    )
    if len(sides) > 1 and not replays:
        return mismatch_verdict(base, comm_state, stuck, sides)
    signature = _signature_at(at_it, stuck, orders, comm_state.ranks)
    verdict = with_operation(base, signature, stuck)
    waiting = [member for member in busy if member not in absent]
    if absent and waiting:
        verdict = replace(verdict, verdict=NEVER_CALLED, culprits=ranks_of(absent))
    elif comm_state.ranks > len({member.rank_state.rank for member in comm_state.members}):
        verdict = _without_files(verdict, comm_state, waiting)
    else:
        passed = [member for member, first, _ in orders.values() if first > stuck]
        verdict = _everybody_in(verdict, at_it, passed)
    culprits = set(verdict.culprits)
    others = [member for member in waiting if member.rank not in culprits]
    verdict = replace(verdict, waiting=ranks_of(others))
    return apply_time_limit(verdict, waiting, post_mortem)


def _signature_at(
    at_it: list[Member], stuck: int, orders: dict[int, tuple[Member, int, int]], ranks: int
) -> Signature | None:
    """What was called as number `stuck`."""
    for member in at_it:
        last = last_call_of(member, ranks)
        if (
            orders[member.rank_state.rank][2] == stuck
            and last is not None
            and last.function not in PAIRED
        ):
            return last
    in_flight = [member.in_flight[0] for member in at_it if member.in_flight and member.shows_all]
    return signature_in_flight(in_flight[0], ranks) if in_flight else None


def _left_no_files(comm_state: CommunicatorState, absent: set[int]) -> str:
    """Which ranks left no files: global ranks where these can be inferred."""
    if comm_state.missing:
        return f"{ranks_in_words(comm_state.missing)} left no files"
    return f"{ranks_in_words(tuple(sorted(absent)))} of the communicator left no files"


def _without_files(
    verdict: Verdict, comm_state: CommunicatorState, waiting: list[Member]
) -> Verdict:
    """The verdict where all ranks on record are in it, and some ranks are not on record."""
    absent = set(range(comm_state.ranks)) - {
        member.rank_state.rank for member in comm_state.members
    }
    steps = [step for member in waiting if (step := step_behind(member))]
    nothing_came = any(s.peer in absent and s.step == 0 and not s.sends for s in steps)
    if comm_state.missing and nothing_came:
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
    """The verdict where all ranks have called it: which of them are furthest behind."""
    unlaunched = [member for member in at_it if not member.in_flight]
    if any(not member.rank_state.reports_kernels for member in at_it):
        reason = "kernel events are not recorded: whether kernels run is not known"
        return replace(verdict, verdict=UNKNOWN, reason=reason)
    if unlaunched and (len(unlaunched) < len(at_it) or passed):
        return replace(verdict, verdict=NOT_LAUNCHED, culprits=ranks_of(unlaunched))
    if unlaunched:
        return replace(verdict, verdict=STALLED, reason="all ranks are inside the call")
    not_started = [member for member in at_it if member.in_flight[0].started == 0]
    if not_started and (len(not_started) < len(at_it) or passed):
        return replace(verdict, verdict=NOT_STARTED, culprits=ranks_of(not_started))
    if not_started:
        return _nobody_started(verdict, at_it)
    if passed:
        return replace(verdict, verdict=NOT_FINISHED, culprits=ranks_of(at_it))
    blamed, reason = blamed_by_steps(at_it)
    return replace(verdict, verdict=STALLED, culprits=blamed, reason=reason)


def _nobody_started(verdict: Verdict, at_it: list[Member]) -> Verdict:
    """The verdict where all have launched it and no kernel runs, unless NCCL does not report its
    kernels.
    """
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
    """In a ring without progress, the rank that the step furthest behind waits for, and why."""
    by_rank = {member.rank_state.rank: member for member in members}
    steps = [(member, step) for member in members if (step := step_behind(member))]
    if not steps:
        return (), ""
    least = min(step.step for _, step in steps)
    last = [(member, step) for member, step in steps if step.step == least]
    # Sender and receiver of one step may both wait there: the receiver shows more.
    last = [(member, step) for member, step in last if step.state == "RecvWait"] or last
    if len(last) != 1:
        return (), ""
    member, step = last[0]
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
    """The verdict about sends and receives: which ranks do not answer them."""
    by_rank = {member.rank_state.rank: member for member in comm_state.members}
    waiting = [member for member in comm_state.members if member.p2p_in_flight]
    waits_for: dict[int, set[int]] = {}  # by global rank, those that do not answer it
    absent: set[int] = set()
    not_started: list[Member] = []
    for member in waiting:
        for operation in member.p2p_in_flight:
            peer = None if operation.peer is None else by_rank.get(operation.peer)
            if operation.peer is None or peer is None:
                absent |= {operation.peer} if operation.peer is not None else set()
            elif not _is_answered(member, operation, peer):
                waits_for.setdefault(member.rank, set()).add(peer.rank)
            elif operation.started == 0:
                not_started.append(member)
    culprits, circle = _ends_of_waiting(waits_for)
    verdict = _with_oldest_pair(base, comm_state, waiting, culprits)
    if culprits:
        verdict = replace(verdict, verdict=NEVER_CALLED, culprits=culprits)
    elif circle:
        reason = "; ".join(
            f"rank {rank} waits for rank {after}"
            for rank, after in zip(circle, [*circle[1:], circle[0]], strict=True)
        )
        verdict = replace(
            verdict, verdict=CIRCLE, culprits=tuple(sorted(circle)), reason=reason, pair=None,
            circle=(comm_state.name,),
        )  # fmt: skip
    elif absent:
        reason = _left_no_files(comm_state, absent)
        verdict = replace(verdict, verdict=UNKNOWN, culprits=comm_state.missing, reason=reason)
    elif not_started and len(not_started) < len(waiting):
        verdict = replace(verdict, verdict=NOT_STARTED, culprits=ranks_of(not_started))
    else:
        blamed, reason = blamed_by_steps(waiting)
        verdict = replace(verdict, verdict=STALLED, culprits=blamed, reason=reason)
    others = [member for member in waiting if member.rank not in verdict.culprits]
    return apply_time_limit(replace(verdict, waiting=ranks_of(others)), waiting, post_mortem)


def _is_answered(member: Member, operation: OperationInFlight, peer: Member) -> bool:
    return any(
        other.peer == member.rank_state.rank and other.function != operation.function
        for other in peer.p2p_in_flight
    )


def _ends_of_waiting(waits_for: dict[int, set[int]]) -> tuple[tuple[int, ...], list[int]]:
    """Ranks that others wait for and that wait for nobody themselves; where there are none, a
    circle of ranks, each of which waits for the next.

    Example: rank 0 sends to 1, rank 1 sends to 2, and rank 2 receives from neither: rank 2.
    """
    ends = {peer for peers in waits_for.values() for peer in peers if peer not in waits_for}
    if ends or not waits_for:
        return tuple(sorted(ends)), []
    path = [min(waits_for)]
    while (after := min(waits_for[path[-1]])) not in path:
        path.append(after)
    return (), path[path.index(after) :]


def _with_oldest_pair(
    base: Verdict, comm_state: CommunicatorState, waiting: list[Member], culprits: tuple[int, ...]
) -> Verdict:
    """The verdict with the oldest send or receive, of those that culprits do not answer."""
    pairs = [(member, operation) for member in waiting for operation in member.p2p_in_flight]
    by_rank = {member.rank_state.rank: member for member in comm_state.members}
    unanswered = [
        (member, operation)
        for member, operation in pairs
        if (peer := by_rank.get(NONE if operation.peer is None else operation.peer))
        and peer.rank in culprits
        and not _is_answered(member, operation, peer)
    ]
    member, oldest = max(unanswered or pairs, key=lambda pair: pair[1].since_ns)
    verdict = with_operation(base, signature_in_flight(oldest, 1), oldest.order)
    if oldest.peer is None:
        return verdict
    answer = "Recv" if oldest.function == "Send" else "Send"
    return replace(verdict, pair=Pair(member.rank, comm_state.global_rank(oldest.peer), answer))
