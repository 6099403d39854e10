"""Communicators by the last snapshots of their members: how far each rank is, and in what."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ncclscope.capture.liveness import ALIVE, STOPPED
from ncclscope.model.match.attempts import ProcessSpan, attempts_of
from ncclscope.model.match.communicator_names import Membership, name_communicators
from ncclscope.model.schema import NONE
from ncclscope.nccl.events import FIRST_WITH_CALLS
from ncclscope.nccl.functions import COLL_COUNTS_BYTES, WITH_ROOT
from ncclscope.nccl.limits import MOST_RANKS
from ncclscope.nccl.operation_bytes import operation_bytes
from ncclscope.snapshot.process import ProcessSnapshot, collective_calls
from ncclscope.snapshot.types import PAIRED, OperationInFlight, RankState, Step


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of a communicator, with its process."""

    snapshot: ProcessSnapshot
    rank_state: RankState

    @property
    def rank(self) -> int:
        """Its global rank; where that is not known, its rank in the communicator."""
        return (
            self.rank_state.global_rank
            if self.rank_state.global_rank != NONE
            else self.rank_state.rank
        )

    @property
    def in_flight(self) -> tuple[OperationInFlight, ...]:
        """Collectives in flight, oldest first."""
        return tuple(op for op in self.rank_state.in_flight if op.function not in PAIRED)

    @property
    def p2p_in_flight(self) -> tuple[OperationInFlight, ...]:
        """Sends and receives in flight."""
        return tuple(op for op in self.rank_state.in_flight if op.function in PAIRED)

    @property
    def shows_all(self) -> bool:
        """Whether all operations in flight are known: then it is stuck in the first."""
        return self.rank_state.works - self.rank_state.finished <= len(self.rank_state.in_flight)

    @property
    def is_inside_call(self) -> bool:
        """Whether its last call has not been launched: the call itself has not returned."""
        parts, last = self.rank_state.parts, self.rank_state.last
        if parts is None or parts.inside_call_ns is None or last is None:
            return False
        if last.since_ns > parts.inside_call_ns:  # that call has no event yet
            return False
        return all(
            operation.since_ns > parts.inside_call_ns for operation in self.rank_state.in_flight
        )

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, or is stopped."""
        return self.snapshot.life in (ALIVE, STOPPED)

    def waited_ns(self) -> int:
        """How long it has been in what it is in."""
        if not self.rank_state.in_flight and self.rank_state.parts is None:
            return 0  # most ranks of most jobs
        since = [operation.since_ns for operation in self.rank_state.in_flight]
        if self.is_inside_call and self.rank_state.parts:
            since.append(self.rank_state.parts.inside_call_ns or 0)
        return max(since, default=0)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a rank called. Below the call, NCCL counts AllGather and Broadcast in bytes."""

    function: str
    size_bytes: int
    datatype: str
    root: int


@dataclass(frozen=True, slots=True)
class CommunicatorState:
    """A communicator with those of its ranks that are on record."""

    name: str
    id: int
    ranks: int  # how many; 0 where it is not known
    members: tuple[Member, ...]
    missing: tuple[int, ...]  # global ranks that are not on record, where they can be inferred
    present: frozenset[int] = frozenset()  # global ranks on record in any communicator

    def global_rank(self, rank: int) -> int:
        """The global rank of a rank of the communicator; itself where it is not known."""
        for member in self.members:
            if member.rank_state.rank == rank:
                return member.rank
        absent = sorted(
            set(range(self.ranks)) - {member.rank_state.rank for member in self.members}
        )
        if len(absent) == len(self.missing) and rank in absent:
            return self.missing[absent.index(rank)]
        return rank


def last_call_of(member: Member, ranks: int) -> Signature | None:
    """The last call of a member; None where it made none."""
    last = member.rank_state.last
    if last is None:
        return None
    in_coll = member.rank_state.version < FIRST_WITH_CALLS
    size = operation_bytes(last.function, last.datatype, last.count, ranks, in_coll=in_coll)
    root = last.root if last.function in WITH_ROOT else NONE
    return Signature(last.function, NONE if size is None else size, last.datatype, root)


def signature_in_flight(operation: OperationInFlight, ranks: int) -> Signature:
    """An operation in flight; its datatype may be NCCL's own choice, its root is not known."""
    size = operation_bytes(
        operation.function, operation.datatype, operation.count, ranks, in_coll=True
    )
    datatype = "" if operation.function in COLL_COUNTS_BYTES else operation.datatype
    return Signature(operation.function, NONE if size is None else size, datatype, NONE)


def next_order(member: Member) -> tuple[int, int] | None:
    """The number of the collective that a member must finish next, and how many it has called. None
    where its calls were not counted.
    """
    calls = collective_calls(member.snapshot, member.rank_state)
    if calls is None:
        return None
    last_is_open = member.is_inside_call and member.rank_state.last is not None
    open_calls = 1 if last_is_open and member.rank_state.last.function not in PAIRED else 0  # type: ignore[union-attr]
    eager = sum(not operation.replay for operation in member.in_flight)
    if member.in_flight and not member.p2p_in_flight and eager == len(member.in_flight):
        # A live page has room for a few only.
        eager = max(eager, member.rank_state.works - member.rank_state.finished)
    return calls - eager - open_calls + 1, calls


def next_work(member: Member) -> tuple[int, int]:
    """The same counted in NCCL's works, for replays of captured calls."""
    works = member.rank_state.works
    first = min((operation.order for operation in member.in_flight), default=works + 1)
    return first, works


def step_behind(member: Member) -> Step | None:
    """Of a member's open proxy steps the one furthest behind: what its channel waits for."""
    # Some releases never end some steps: only steps count that began after what is in flight.
    since = max((operation.since_ns for operation in member.rank_state.in_flight), default=0)
    parts = member.rank_state.parts
    steps = [step for step in parts.steps if step.since_ns <= since] if parts else []
    return min(steps, key=lambda s: (s.step, s.sends, s.channel), default=None)


def last_attempt(snapshots: Sequence[ProcessSnapshot]) -> list[ProcessSnapshot]:
    """Processes of the last attempt."""
    attempts = attempts_of(
        [
            ProcessSpan(
                snapshot.global_rank,
                snapshot.restarts,
                frozenset(rank_state.id for rank_state in snapshot.rank_states if rank_state.id),
                snapshot.started_ns,
                snapshot.at_ns,
            )
            for snapshot in snapshots
        ]
    )
    last = max(attempts, default=0)
    return [
        snapshot for snapshot, number in zip(snapshots, attempts, strict=True) if number == last
    ]


def communicator_states(snapshots: Sequence[ProcessSnapshot]) -> list[CommunicatorState]:
    """The communicators of some processes."""
    members_of: dict[tuple[int, str, int], list[Member]] = {}
    for snapshot in snapshots:
        for rank_state in snapshot.rank_states:
            key = (
                (rank_state.id, "", 0) if rank_state.id else (0, snapshot.folder, rank_state.number)
            )
            members_of.setdefault(key, []).append(Member(snapshot, rank_state))
    hosts = {host: number for number, host in enumerate(dict.fromkeys(p.host for p in snapshots))}
    ranks = [_ranks_of(members) for members in members_of.values()]
    everybody = [member for members in members_of.values() for member in members]
    seen = {member.rank_state.global_rank for member in everybody} - {NONE}
    world = max([snapshot.world for snapshot in snapshots] + [len(seen)], default=0)
    memberships = [
        Membership(
            next((m.rank_state.name for m in members if m.rank_state.name), ""),
            count,
            tuple(sorted({(m.rank_state.global_rank, hosts[m.snapshot.host]) for m in members})),
        )
        for members, count in zip(members_of.values(), ranks, strict=True)
    ]
    names = [name.text for name in name_communicators(memberships, world)]
    strides = _strides(members_of.values(), ranks)
    present = frozenset(seen)
    comm_states = []
    for (key, members), count, name in zip(members_of.items(), ranks, names, strict=True):
        members.sort(key=lambda member: member.rank)
        stride = strides.get((members[0].rank_state.name, count), 0)
        missing = _missing(members, count, world, stride)
        comm_states.append(CommunicatorState(name, key[0], count, tuple(members), missing, present))
    return comm_states


def _strides(groups: Iterable[list[Member]], ranks: list[int]) -> dict[tuple[str, int], int]:
    """By name and size of communicators how far apart neighbouring ranks are in the job, where all
    such communicators agree: one of them alone may not show it.
    """
    steps_of: dict[tuple[str, int], set[int]] = {}
    for members, count in zip(groups, ranks, strict=True):
        steps = _steps({m.rank_state.rank: m.rank_state.global_rank for m in members})
        steps_of.setdefault((members[0].rank_state.name, count), set()).update(steps)
    return {key: steps.pop() for key, steps in steps_of.items() if key[0] and len(steps) == 1}


def _steps(global_rank_of: dict[int, int]) -> set[int]:
    """Distances in the job between neighbouring ranks of a communicator."""
    known = sorted((rank, number) for rank, number in global_rank_of.items() if number != NONE)
    steps = {(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(known) if b[0] > a[0]}
    # 0: there is no pattern.
    return {int(step) if step == int(step) and step > 0 else 0 for step in steps}


def _ranks_of(members: list[Member]) -> int:
    """The number of ranks that most members have; 0 where that is impossible."""
    ranks = Counter(member.rank_state.ranks for member in members).most_common(1)[0][0]
    return ranks if 0 < ranks <= MOST_RANKS else 0


def _missing(members: list[Member], ranks: int, world: int, stride: int) -> tuple[int, ...]:
    """Global ranks of a communicator's ranks that are not on record, where they can be inferred."""
    seen = {member.rank_state.rank: member.rank_state.global_rank for member in members}
    absent = sorted(set(range(ranks)) - set(seen))
    if not absent:
        return ()
    if ranks == world:
        return tuple(absent)
    # Ranks of a communicator mostly have equal distances in the job.
    known = [(rank, number) for rank, number in seen.items() if number != NONE]
    steps = _steps(seen) or {stride}
    if known and len(steps) == 1 and (step := steps.pop()) > 0:
        first = known[0][1] - known[0][0] * step
        return tuple(first + rank * step for rank in absent)
    return ()
