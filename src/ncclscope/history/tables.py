"""The tables of a history: one dataclass a row. Unknown values are None, NULL in the files."""

from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

_LARGEST = (1 << 63) - 1  # of a BIGINT


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job: one row in its file of `jobs`."""

    label: str  # what people call it: the capture's name unless they said another one
    capture: str  # where it was
    started_ns: int  # by the wall clock: ns since 1970
    span_ns: int  # from the first call to the last end; in mode profile, of its processes
    ranks: int
    hosts: int
    mode: str  # of recording
    gpu_timing: str
    simulation: bool
    complete: bool  # nothing is missing in the capture
    waiting_ns: int | None  # of all ranks together; None where it cannot be seen
    structure_ns: int | None  # of it, what no excess explains
    round_kind: str  # the kind of call that marks rounds; "" without rounds
    round_ns: float | None
    mean_round_ns: float | None
    steps: int  # training steps that ended
    step_ns: float | None  # their median
    step_p99_ns: float | None


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host of a job."""

    host: str
    place: int  # among the hosts of the job, by its lowest rank
    ranks: int
    job_ns: int  # of the whole job: its ranks times its span
    origin_ns: int | None  # waiting of all ranks that began on this host
    waited_ns: int | None
    times_last: int | None  # kernels of its ranks that others waited for


@dataclass(frozen=True, slots=True)
class CommunicatorRow:
    """Calls of one function, size and datatype on the communicators of one role."""

    role: str
    ranks: int  # of one communicator
    communicators: int
    function: str
    size_bytes: int
    datatype: str
    calls: int
    median_ns: float | None  # of the shortest over ranks; None where single calls are not timed
    p99_ns: float | None
    wait_ns: float | None  # median of what the longest rank took beyond
    busbw_gbs: float | None  # at the median
    total_ns: float | None
    exact: bool  # whether times are the GPU's and no lower bounds


@dataclass(frozen=True, slots=True)
class LinkRow:
    """Transfers from one host to another, or within one."""

    source: str
    destination: str
    slowness: float  # times the median of transfers of the same size
    operations: int
    busy_ns: float


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """Operations that move the data of one module of the user's model."""

    module: str
    operations: int
    timed: int
    total_ns: int
    wait_ns: int


@dataclass(frozen=True, slots=True)
class JobSums:
    """What is kept of a job."""

    identity: str  # the same whenever the same capture is added
    shape: str  # equal jobs have the same
    job: JobRow
    hosts: tuple[HostRow, ...] = ()
    communicators: tuple[CommunicatorRow, ...] = ()
    links: tuple[LinkRow, ...] = ()
    modules: tuple[ModuleRow, ...] = ()


JOBS, HOSTS, COMMUNICATORS, LINKS, MODULES = "jobs", "hosts", "communicators", "links", "modules"
TABLES: dict[str, type] = {
    JOBS: JobRow,
    HOSTS: HostRow,
    COMMUNICATORS: CommunicatorRow,
    LINKS: LinkRow,
    MODULES: ModuleRow,
}
_SQL_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}


def column_names(row_type: type) -> list[str]:
    """The columns of a table."""
    return [column.name for column in fields(row_type)]


def sql_type(column: Field[Any]) -> str:
    """The SQL type of a column."""
    for python_type, name in _SQL_TYPES.items():
        if column.type in (python_type, python_type | None):
            return name
    raise TypeError(f"{column.name}: {column.type}")


def columns_of(row_type: type, rows: Sequence[Any]) -> dict[str, tuple[str, list[Any]]]:
    """By column its SQL type and its values."""
    return {
        column.name: (sql_type(column), [_within_range(getattr(row, column.name)) for row in rows])
        for column in fields(row_type)
    }


def _within_range(value: Any) -> Any:
    """Sums over a damaged capture can be larger than a column's 64 bits."""
    return max(min(value, _LARGEST), -_LARGEST) if isinstance(value, int) else value
