"""Verdicts at once: ranks that disagree, processes that died, ranks that never joined."""

from collections import Counter
from dataclasses import replace

from ncclscope.capture.liveness import ENDED, UNHEARD
from ncclscope.diagnose.hang.communicators import (
    CommunicatorState,
    Member,
    Signature,
    last_call_of,
    next_order,
    signature_in_flight,
)
from ncclscope.diagnose.hang.verdict import (
    APART_NS,
    DEAD,
    MISMATCH,
    NEVER_JOINED,
    NOTICEABLE_NS,
    OK,
    PATIENCE_NS,
    UNKNOWN,
    WAITING,
    CallGroup,
    Verdict,
    described,
    ranks_of,
)
from ncclscope.snapshot.types import PAIRED

_OF_SEVERAL = (
    ("its process is", "their processes are"),
    ("its shared", "their shared"),
    ("it has", "they have"),
    ("it exited by itself", "they exited by themselves"),
)  # fmt: skip


# ---- mismatch ----
def _same(a: Signature, b: Signature) -> bool:
    datatype = a.datatype == b.datatype or not a.datatype or not b.datatype
    root = a.root == b.root or -1 in (a.root, b.root)
    return a.function == b.function and a.size_bytes == b.size_bytes and datatype and root


def mismatched(base: Verdict, crew: CommunicatorState) -> Verdict | None:
    """Ranks that have called equally many collectives and whose last ones differ."""
    groups: dict[int, list[tuple[Member, Signature]]] = {}
    for member in crew.members:
        last = last_call_of(member, crew.ranks)
        if last is not None and last.function not in PAIRED:
            groups.setdefault(member.seat.calls, []).append((member, last))
    for calls in sorted(groups, reverse=True):
        group = groups[calls]
        if all(_same(group[0][1], other) for _, other in group):
            continue
        # Sends and receives are among the calls: count again without them.
        exact: dict[int, list[tuple[Member, Signature]]] = {}
        for member, signature in group:
            told = next_order(member)
            if told is not None:
                exact.setdefault(told[1], []).append((member, signature))
        for order, same_order in exact.items():
            sides = sides_of(same_order)
            if len(sides) > 1:
                return mismatch(base, crew, order, sides)
    return None


def sides_of(group: list[tuple[Member, Signature]]) -> list[CallGroup]:
    """Members by what they called, most first."""
    sides: list[tuple[Signature, list[Member]]] = []
    for member, signature in group:
        for known, members in sides:
            if _same(known, signature):
                members.append(member)
                break
        else:
            sides.append((signature, [member]))
    sides.sort(key=lambda side: -len(side[1]))
    return [CallGroup(ranks_of(members), signature) for signature, members in sides]


def mismatch(base: Verdict, crew: CommunicatorState, order: int, sides: list[CallGroup]) -> Verdict:
    """Ranks that called different things as the same number; the minority is to blame."""
    tie = len(sides[0].ranks) == len(sides[1].ranks)
    culprits = [rank for side in sides[1:] for rank in side.ranks]
    waiting = [m.rank for m in crew.members if m.flights and (tie or m.rank not in culprits)]
    waited = max((member.waited_ns() for member in crew.members), default=0)
    verdict = described(base, sides[0].called, order)
    return replace(
        verdict,
        verdict=MISMATCH,
        hung=True,
        culprits=() if tie else tuple(sorted(culprits)),
        waiting=tuple(waiting),
        waited_ns=waited,
        sides=tuple(sides),
    )


# ---- dead processes ----
def dead(base: Verdict, crew: CommunicatorState, post_mortem: bool) -> Verdict | None:
    """Members that cannot come any more while others need them."""
    members = [member for member in crew.members if not member.seat.closed]
    newest = max(member.pulse.at_ns for member in members)
    waiting = [member for member in members if member.seat.flights or member.unlaunched]
    if post_mortem:
        lost = [m for m in members if m.pulse.at_ns < newest - APART_NS and m.pulse.life != ENDED]
        lost = [m for m in lost if m not in waiting or m.waited_ns() < NOTICEABLE_NS]
        waiting = [member for member in waiting if member not in lost]
        if not waiting:
            return None
    else:
        lost = [member for member in members if not member.lives and member.pulse.life != ENDED]
    told = [found for member in waiting if (found := next_order(member))]
    order = min((first for first, _ in told), default=0)
    lost += _left(crew, waiting, order, post_mortem) if not lost else []
    if not lost or len(lost) == len(members):
        return None
    signature = next(
        (signature_in_flight(m.flights[0], crew.ranks) for m in waiting if m.flights), None
    )
    verdict = described(base, signature, order if signature else 0)
    return replace(
        verdict,
        verdict=DEAD,
        hung=True,
        culprits=ranks_of(lost),
        waiting=ranks_of([member for member in waiting if member not in lost]),
        waited_ns=max((member.waited_ns() for member in waiting), default=0),
        reason=_how_lost(lost, newest, post_mortem),
        died_first=post_mortem,
    )


def _left(
    crew: CommunicatorState, waiting: list[Member], order: int, post_mortem: bool
) -> list[Member]:
    """Members that have exited by themselves without coming to what the others wait in."""
    left = [m for m in crew.members if m.pulse.life == ENDED and not m.flights]
    if any(member.waited_ns() > APART_NS for member in waiting):
        return left
    if not post_mortem or not order:  # whoever lives may be through in a moment
        return []
    return [m for m in left if (told := next_order(m)) and told[1] < order]


def _how_lost(lost: list[Member], newest_ns: int, post_mortem: bool) -> str:
    """By what it was seen that they died, or died first."""
    if post_mortem and lost[0].pulse.life != ENDED:
        ago = (newest_ns - max(member.pulse.at_ns for member in lost)) / 1e9
        return f"last heard of {ago:,.0f} s before the others"
    how = Counter(member.pulse.how for member in lost).most_common(1)[0][0]
    for one, several in _OF_SEVERAL if len(lost) > 1 else ():
        how = how.replace(one, several)
    return how


def after_death(verdict: Verdict, crew: CommunicatorState, others_live: bool) -> Verdict:
    """The verdict about a communicator none of whose processes runs any more."""
    silent = [m for m in crew.members if m.pulse.life != ENDED and not m.seat.closed]
    heard = sorted(member.pulse.at_ns for member in silent)
    unheard = bool(silent) and all(member.pulse.life == UNHEARD for member in silent)
    gone = len({member.pulse.folder for member in crew.members})
    verdict = replace(verdict, gone=gone, silent=unheard)
    if verdict.verdict == WAITING:
        verdict = replace(verdict, verdict=DEAD, culprits=(), reason="")
    if others_live and not verdict.hung:  # of the job: they will miss them
        culprits = ranks_of(silent)
        verdict = replace(verdict, verdict=DEAD, hung=True, culprits=culprits, waiting=())
    if not verdict.is_death or verdict.reason or not heard:
        return verdict
    apart_ns = heard[-1] - heard[0]
    reason = "who died first cannot be told"
    if len(heard) > 1 and apart_ns > APART_NS:
        first = min(silent, key=lambda member: member.pulse.at_ns)
        reason = f"rank {first.rank} was last heard of {apart_ns / 1e9:,.0f} s before the others"
    elif len(heard) > 1:
        # Heartbeats are a second apart: less tells nothing.
        within_s = max(-(-apart_ns // 1_000_000_000), 1)
        reason += f": last heard of within {within_s} s of each other"
    return replace(verdict, reason=reason if len(heard) > 1 else "")


# ---- creation ----
def still_joining(
    base: Verdict, crew: CommunicatorState, members: list[Member], post_mortem: bool
) -> Verdict:
    """A communicator that nobody has used: have all ranks joined it?"""
    if not crew.ranks or len({member.seat.rank for member in crew.members}) >= crew.ranks:
        return base
    here = [member for member in members if not _went_on(member)]
    if not here:
        return base
    waited = max(member.seat.opened_ns for member in here)
    verdict = replace(
        base,
        verdict=NEVER_JOINED,
        culprits=crew.missing,
        waiting=ranks_of(here),
        waited_ns=waited,
        limit_ns=PATIENCE_NS,
        reason=f"{len(members)} of {crew.ranks} ranks have joined",
    )
    elsewhere = bool(crew.missing) and crew.present.issuperset(crew.missing)
    if post_mortem and not elsewhere:
        reason = f"{verdict.reason}, the others left no files"
        hung = waited >= PATIENCE_NS and bool(crew.missing)
        return replace(verdict, verdict=UNKNOWN, reason=reason, hung=hung)
    if waited < PATIENCE_NS:
        return replace(verdict, verdict=WAITING if waited >= NOTICEABLE_NS else OK)
    return replace(verdict, hung=True)


def _went_on(member: Member) -> bool:
    """Whether a rank has made another communicator or a call since: then this one is made."""
    for seat in member.pulse.seats:
        if seat.number == member.seat.number or seat.global_rank != member.seat.global_rank:
            continue
        since = seat.last.since_ns if seat.last is not None else seat.opened_ns
        if min(since, seat.opened_ns) < member.seat.opened_ns:
            return True
    return False


def unjoined(base: Verdict, members: list[Member]) -> Verdict:
    """Interfaces before v4 tell the id with the first collective only."""
    waited = max(member.waited_ns() for member in members)
    if waited < NOTICEABLE_NS:
        return base
    return replace(
        base,
        verdict=UNKNOWN,
        waited_ns=waited,
        waiting=tuple(member.rank for member in members if member.seat.flights),
        reason="this NCCL does not tell which ranks share the communicator",
    )
