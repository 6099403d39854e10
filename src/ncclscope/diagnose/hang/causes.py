"""Which communicators hang because of others, and which wait for each other in a circle."""

from dataclasses import replace

from ncclscope.diagnose.hang.communicators import CommunicatorState
from ncclscope.diagnose.hang.verdict import CIRCLE, EXTRA_CALL, NEVER_JOINED, WAITING, Verdict
from ncclscope.humanize import ranks_in_words

Causes = dict[int, int]  # a verdict's number -> that of the verdict it follows from


def with_causes(verdicts: list[Verdict], comm_states: list[CommunicatorState]) -> list[Verdict]:
    """Verdicts with the communicator that each follows from, and circles.

    Example: rank 3 never calls on `tp`. Rank 2 waits for it there, and so never calls on `dp`,
    where rank 6 waits. The verdict about `dp` blames rank 2; all its culprits are blocked in `tp`,
    so `dp` hangs because of `tp`.
    """
    blocked = blocked_ranks(verdicts, comm_states)
    waits_on = _waits_on(verdicts, blocked)
    circles = _circles(waits_on)
    causes = _causes_by_blocking(verdicts, waits_on)
    causes = {n: _first_of(circles, cause) for n, cause in causes.items()}
    for number in {number for circle in circles for number in circle}:
        causes.pop(number, None)
    verdicts = _with_circles(verdicts, circles, blocked)
    causes |= _causes_by_culprits(verdicts, comm_states, causes)
    causes |= _causes_of_deaths(verdicts, causes)
    return [
        replace(verdict, because_of=verdicts[causes[number]].name) if number in causes else verdict
        for number, verdict in enumerate(verdicts)
    ]


def blocked_ranks(verdicts: list[Verdict], comm_states: list[CommunicatorState]) -> dict[int, int]:
    """By rank the communicator in which it is blocked: that of its oldest operation, or one that it
    is joining.
    """
    blocked: dict[int, tuple[int, int]] = {}  # by rank: how long, where
    joining = {n: v.waiting for n, v in enumerate(verdicts) if v.verdict == NEVER_JOINED}
    for number, comm_state in enumerate(comm_states):
        for member in comm_state.members:
            waited = member.waited_ns()
            if member.rank in joining.get(number, ()):
                waited = member.rank_state.opened_ns
            if waited and waited > blocked.get(member.rank, (0, 0))[0]:
                blocked[member.rank] = waited, number
    return {rank: number for rank, (_, number) in blocked.items()}


def _waits_on(verdicts: list[Verdict], blocked: dict[int, int]) -> dict[int, set[int]]:
    """Communicators all of whose culprits are blocked in others that hang, with those others."""
    waits_on: dict[int, set[int]] = {}
    for number, verdict in enumerate(verdicts):
        waits = verdict.hung or verdict.verdict == WAITING
        # Dead ranks wait for nobody, and who made a call too many is to blame for it.
        if not waits or verdict.is_death or verdict.verdict == EXTRA_CALL:
            continue
        elsewhere = {blocked[rank] for rank in verdict.culprits if rank in blocked}
        hung = {other for other in elsewhere if other != number and verdicts[other].hung}
        blamed = {rank for other in hung for rank in verdicts[other].culprits}
        free = [rank for rank in verdict.culprits if rank not in blocked and rank not in blamed]
        if hung and not free and number not in elsewhere:
            waits_on[number] = hung
    return waits_on


def _causes_by_blocking(verdicts: list[Verdict], waits_on: dict[int, set[int]]) -> Causes:
    """Of the communicators that one waits on, the one that waited longest; one that leads to a
    culprit that waits for nobody comes first.
    """
    rooted = _rooted(waits_on)
    return {
        number: max(others, key=lambda n: (n in rooted, verdicts[n].waited_ns))
        for number, others in waits_on.items()
    }


def _rooted(waits_on: dict[int, set[int]]) -> set[int]:
    """Communicators from which the waiting leads to one that waits on no other."""
    rooted = {n for others in waits_on.values() for n in others if n not in waits_on}
    while more := {n for n, others in waits_on.items() if others & rooted} - rooted:
        rooted |= more
    return rooted


def _circles(waits_on: dict[int, set[int]]) -> list[list[int]]:
    """Communicators that wait on each other in a circle, each circle in the order of waiting.

    Example: rank 0 waits in A for rank 1, which waits in B for rank 0: A waits on B, B waits on A.
    Where the waiting also leads out of a circle, its cause is there, and it is none.
    """
    rooted = _rooted(waits_on)
    circles: list[list[int]] = []
    in_circles: set[int] = set()
    for start in sorted(set(waits_on) - rooted):
        path = [start]
        while (after := min(waits_on[path[-1]])) not in path:
            path.append(after)
        circle = path[path.index(after) :]
        if not in_circles & set(circle):
            in_circles |= set(circle)
            circles.append(circle)
    return circles


def _first_of(circles: list[list[int]], number: int) -> int:
    """The first communicator of the circle that a number is in, else the number."""
    return next((circle[0] for circle in circles if number in circle), number)


def _with_circles(
    verdicts: list[Verdict], circles: list[list[int]], blocked: dict[int, int]
) -> list[Verdict]:
    """The verdicts with those of circles, which blame all ranks of the circle."""
    out = list(verdicts)
    for circle in circles:
        links: list[tuple[str, tuple[int, ...], str]] = []
        for number, after in zip(circle, [*circle[1:], circle[0]], strict=True):
            ranks = tuple(r for r in verdicts[number].culprits if blocked.get(r) == after)
            links.append((verdicts[number].name, ranks, verdicts[after].name))
        reason = "; ".join(
            f"{name} waits for {ranks_in_words(ranks)}, which {'is' if len(ranks) == 1 else 'are'} "
            f"in {after}"
            for name, ranks, after in links
        )
        culprits = tuple(sorted({rank for _, ranks, _ in links for rank in ranks}))
        names = tuple(verdicts[number].name for number in circle)
        for number in circle:
            waiting = tuple(r for r in verdicts[number].waiting if r not in culprits)
            out[number] = replace(
                verdicts[number], verdict=CIRCLE, hung=True, culprits=culprits, waiting=waiting,
                reason=reason, circle=names, cut_short=False,
            )  # fmt: skip
    return out


def _beginnings_ns(comm_states: list[CommunicatorState]) -> list[int]:
    """When the first rank of each communicator began to wait. Among living ranks that is as long
    ago as they have waited, whatever clocks their hosts have. Killed ones ended at different
    moments, so the wall clock tells.
    """
    alive = any(member.is_alive for comm_state in comm_states for member in comm_state.members)
    return [
        min(
            (
                (0 if alive else member.snapshot.at_ns) - member.waited_ns()
                for member in comm_state.members
                if member.waited_ns()
            ),
            default=0,
        )
        for comm_state in comm_states
    ]


def _causes_by_culprits(
    verdicts: list[Verdict], comm_states: list[CommunicatorState], causes: Causes
) -> Causes:
    """Of several communicators that blame the same ranks, all but the one that waited first."""
    began_ns = _beginnings_ns(comm_states)
    # Where no process of a communicator is left, others show more of it.
    by_wait = sorted(
        range(len(verdicts)),
        key=lambda n: (
            verdicts[n].dead_processes > 0,
            not verdicts[n].waited_ns,
            began_ns[n],
            -verdicts[n].ranks,
        ),
    )
    roots: dict[tuple[int, ...], int] = {}
    more: Causes = {}
    for number in by_wait:
        verdict = verdicts[number]
        if verdict.hung and verdict.culprits and not verdict.circle and number not in causes:
            first = roots.setdefault(verdict.culprits, number)
            if first != number:
                more[number] = first
    return more


def _causes_of_deaths(verdicts: list[Verdict], causes: Causes) -> Causes:
    """Of communicators with dead processes, those that say no more than another one: it names more
    of the dead, or its culprits are why the others were killed in the middle of their operations.
    """
    roots = [n for n, verdict in enumerate(verdicts) if verdict.hung and n not in causes]
    blamed = [n for n in roots if verdicts[n].culprits]
    worst = max(blamed, key=lambda n: verdicts[n].waited_ns, default=None)
    more = {}
    for number, verdict in enumerate(verdicts):
        if not verdict.is_death or number in causes:
            continue
        if not verdict.culprits and worst is not None:
            more[number] = worst
        wider = [
            n for n in blamed
            if verdicts[n].is_death and set(verdicts[n].culprits) > set(verdict.culprits)
        ]  # fmt: skip
        if verdict.culprits and wider:
            more[number] = max(wider, key=lambda n: len(verdicts[n].culprits))
    return more
