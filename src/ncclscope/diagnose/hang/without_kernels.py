"""Operations in flight where no kernel events are recorded: with sampled GPU timing, or without.

Nothing says then when an operation ends. But a rank that made more calls of a communicator than
another one cannot have finished what that one has not called. Example: ranks 0 to 2 have called
101 collectives, the last one 18 s ago, rank 3 has called 100: the first three are in number 101.
Where all ranks made the same calls, nothing is known and nothing is assumed.
"""

from dataclasses import replace

from ncclscope.diagnose.hang.communicators import CommunicatorState, Member
from ncclscope.snapshot.process import collective_calls
from ncclscope.snapshot.types import PAIRED, OperationInFlight


def with_assumed_operations(comm_state: CommunicatorState) -> CommunicatorState:
    """The communicator with the operations that ranks must be in, by their calls."""
    members = comm_state.members
    if any(m.rank_state.reports_kernels or m.rank_state.in_flight for m in members):
        return comm_state
    if any(m.rank_state.closed for m in members) or len(members) < comm_state.ranks:
        return comm_state
    counts = [collective_calls(m.snapshot, m.rank_state) for m in members]
    given = [count for count in counts if count is not None]
    if len(given) < len(members) or not given:
        return comm_state
    fewest = min(given)
    assumed = [_in_flight(m, count - fewest) for m, count in zip(members, given, strict=True)]
    return replace(comm_state, members=tuple(assumed))


def _in_flight(member: Member, ahead: int) -> Member:
    """The member in the first of the `ahead` calls that another rank has not made."""
    last = member.rank_state.last
    if ahead <= 0 or last is None or last.function in PAIRED:
        return member
    state = member.rank_state
    operation = OperationInFlight(
        order=max(state.works - ahead, 0) + 1,
        function=last.function,
        datatype=last.datatype,
        algorithm="",
        count=last.count,
        peer=None,
        channels=0,
        started=0,
        stopped=0,
        replay=False,
        since_ns=last.since_ns,
    )
    state = replace(state, in_flight=(operation,), finished=state.works - ahead)
    return replace(member, rank_state=state)
