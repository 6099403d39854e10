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


def mismatched(base: Verdict, comm_state: CommunicatorState) -> Verdict | None:
    """Ranks that have called equally many collectives and whose last ones differ."""
    groups: dict[int, list[tuple[Member, Signature]]] = {}
    for member in comm_state.members:
        last = last_call_of(member, comm_state.ranks)
        if last is not None and last.function not in PAIRED:
            groups.setdefault(member.rank_state.calls, []).append((member, last))
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
                return mismatch(base, comm_state, order, sides)
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


def mismatch(
    base: Verdict, comm_state: CommunicatorState, order: int, sides: list[CallGroup]
) -> Verdict:
    """Ranks that called different things as the same number; the minority is to blame."""
    tie = len(sides[0].ranks) == len(sides[1].ranks)
    culprits = [rank for side in sides[1:] for rank in side.ranks]
    waiting = [
        m.rank for m in comm_state.members if m.in_flight and (tie or m.rank not in culprits)
    ]
    waited = max((member.waited_ns() for member in comm_state.members), default=0)
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
def dead(base: Verdict, comm_state: CommunicatorState, post_mortem: bool) -> Verdict | None:
    """Members that cannot come any more while others need them."""
    members = [member for member in comm_state.members if not member.rank_state.closed]
    newest = max(member.snapshot.at_ns for member in members)
    waiting = [member for member in members if member.rank_state.in_flight or member.unlaunched]
    if post_mortem:
        lost = [
            m for m in members if m.snapshot.at_ns < newest - APART_NS and m.snapshot.life != ENDED
        ]
        lost = [m for m in lost if m not in waiting or m.waited_ns() < NOTICEABLE_NS]
        waiting = [member for member in waiting if member not in lost]
        if not waiting:
            return None
    else:
        lost = [member for member in members if not member.lives and member.snapshot.life != ENDED]
    told = [found for member in waiting if (found := next_order(member))]
    order = min((first for first, _ in told), default=0)
    lost += _left(comm_state, waiting, order, post_mortem) if not lost else []
    if not lost or len(lost) == len(members):
        return None
    signature = next(
        (signature_in_flight(m.in_flight[0], comm_state.ranks) for m in waiting if m.in_flight),
        None,
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
    comm_state: CommunicatorState, waiting: list[Member], order: int, post_mortem: bool
) -> list[Member]:
    """Members that have exited by themselves without coming to what the others wait in."""
    left = [m for m in comm_state.members if m.snapshot.life == ENDED and not m.in_flight]
    if any(member.waited_ns() > APART_NS for member in waiting):
        return left
    if not post_mortem or not order:  # whoever lives may be through in a moment
        return []
    return [m for m in left if (told := next_order(m)) and told[1] < order]


def _how_lost(lost: list[Member], newest_ns: int, post_mortem: bool) -> str:
    """By what it was seen that they died, or died first."""
    if post_mortem and lost[0].snapshot.life != ENDED:
        ago = (newest_ns - max(member.snapshot.at_ns for member in lost)) / 1e9
        return f"last heard of {ago:,.0f} s before the others"
    how = Counter(member.snapshot.how for member in lost).most_common(1)[0][0]
    for one, several in _OF_SEVERAL if len(lost) > 1 else ():
        how = how.replace(one, several)
    return how


def after_death(verdict: Verdict, comm_state: CommunicatorState, others_live: bool) -> Verdict:
    """The verdict about a communicator none of whose processes runs any more."""
    silent = [m for m in comm_state.members if m.snapshot.life != ENDED and not m.rank_state.closed]
    heard = sorted(member.snapshot.at_ns for member in silent)
    unheard = bool(silent) and all(member.snapshot.life == UNHEARD for member in silent)
    gone = len({member.snapshot.folder for member in comm_state.members})
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
        first = min(silent, key=lambda member: member.snapshot.at_ns)
        reason = f"rank {first.rank} was last heard of {apart_ns / 1e9:,.0f} s before the others"
    elif len(heard) > 1:
        # Heartbeats are a second apart: less tells nothing.
        within_s = max(-(-apart_ns // 1_000_000_000), 1)
        reason += f": last heard of within {within_s} s of each other"
    return replace(verdict, reason=reason if len(heard) > 1 else "")


# ---- creation ----
def still_joining(
    base: Verdict, comm_state: CommunicatorState, members: list[Member], post_mortem: bool
) -> Verdict:
    """A communicator that nobody has used: have all ranks joined it?"""
    if (
        not comm_state.ranks
        or len({member.rank_state.rank for member in comm_state.members}) >= comm_state.ranks
    ):
        return base
    here = [member for member in members if not _went_on(member)]
    if not here:
        return base
    waited = max(member.rank_state.opened_ns for member in here)
    verdict = replace(
        base,
        verdict=NEVER_JOINED,
        culprits=comm_state.missing,
        waiting=ranks_of(here),
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
    """Whether a rank has made another communicator or a call since: then this one is made."""
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


def unjoined(base: Verdict, members: list[Member]) -> Verdict:
    """Interfaces before v4 tell the id with the first collective only."""
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
