"""Communicators pooled by role, as all tp groups of a job: a large job has hundreds of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ncclscope.live.top_model import Rates, TopCommunicator, TopData
from ncclscope.model.match.communicator_names import role_of_name

MANY = 12  # communicators: more than a screen shows at a glance, as in `report`


@dataclass(frozen=True, slots=True)
class TopRole:
    """The row of one role."""

    key: str
    label: str  # its role, with its run's name if several jobs are shown
    communicators: int
    ranks: tuple[int, int]  # of one communicator, the least and the most
    nodes: tuple[int, int]
    rates: Rates
    wait_share: float | None  # of the time in kernels, as of a communicator
    late: int | None  # the late rank of the communicator whose ranks wait most
    in_flight: int  # on the rank that has most
    oldest_ns: int
    hung: bool


def role_key(row: TopCommunicator) -> str:
    """The key of a communicator's role: its job and the role's name."""
    return f"{row.key.partition(chr(0))[0]}\0{role_of_name(row.name)}"


def role_totals(data: TopData) -> tuple[TopRole, ...]:
    """All roles of all jobs, in the order of their first communicators."""
    pooled: dict[str, list[TopCommunicator]] = {}
    for row in data.communicators:
        pooled.setdefault(role_key(row), []).append(row)
    return tuple(_role(key, rows, len(data.jobs) > 1) for key, rows in pooled.items())


def _role(key: str, rows: Sequence[TopCommunicator], several_jobs: bool) -> TopRole:
    rates = Rates()
    for row in rows:
        rates = rates.plus(row.rates)
    name = role_of_name(rows[0].name)
    late = [row for row in rows if row.late is not None]
    return TopRole(
        key=key,
        label=f"{rows[0].run}/{name}" if several_jobs else name,
        communicators=len(rows),
        ranks=(min(row.ranks for row in rows), max(row.ranks for row in rows)),
        nodes=(min(row.nodes for row in rows), max(row.nodes for row in rows)),
        rates=rates,
        wait_share=_wait_share(rows),
        late=max(late, key=_waiting).late if late else None,
        in_flight=max(row.in_flight for row in rows),
        oldest_ns=max(row.oldest_ns for row in rows),
        hung=any(row.verdict is not None and row.verdict.hung for row in rows),
    )


def _waiting(row: TopCommunicator) -> float:
    """The waiting of all ranks, in their shares of time."""
    return sum(rank.excess or 0.0 for rank in row.rows)


def _wait_share(rows: Sequence[TopCommunicator]) -> float | None:
    measured = [rank for row in rows for rank in row.rows if rank.excess is not None]
    in_kernels = sum(rank.compared.gpu_share or 0.0 for rank in measured)
    return sum(rank.excess or 0.0 for rank in measured) / in_kernels if in_kernels > 0 else None
