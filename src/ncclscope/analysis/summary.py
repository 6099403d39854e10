"""Everything that a report shows, from operations or from counters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.groups import Group, GroupSums, Key, merge
from ncclscope.analysis.kernel_exposure import KernelExposure
from ncclscope.analysis.measures import size_class
from ncclscope.analysis.ranks import ArrivalCoverage, RankRow, TrafficRow
from ncclscope.analysis.sampling import Estimate
from ncclscope.analysis.training_steps import StepSummary
from ncclscope.analysis.waiting.origins import WaitingAccount
from ncclscope.analysis.waiting.path_parts import PathPart
from ncclscope.errors import UsageError
from ncclscope.model.completeness import Completeness
from ncclscope.model.match.communicator_names import role_of_name
from ncclscope.model.model import Model

# What rows can be sorted by: the user's word -> whether the largest come first.
SORTS = {
    "time": True, "calls": True, "operations": True, "bytes": True, "size": False, "min": True,
    "median": True, "mean": True, "p99": True, "max": True, "algbw": True, "busbw": True,
    "wire": True, "wait": True, "run": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommunicatorRow:
    """One communicator that was used."""

    row: int  # of the model's table
    id: str  # NCCL's hash
    name: str
    name_inferred: bool
    ranks: int | None
    nodes: int | None
    total: Group  # keys are empty
    slices: tuple[int, ...]  # bytes begun in each slice of time; empty where it is not known

    @staticmethod
    def of(model: Model, row: int, total: Group, slices: tuple[int, ...]) -> "CommunicatorRow":
        """What the model knows of a communicator, with its sums."""
        table = model.tables["communicators"]
        ranks, nodes = int(table["ranks"][row]), int(table["nodes"][row])
        return CommunicatorRow(
            row=row,
            id=f"0x{int(table['id'][row]) % (1 << 64):016x}",
            name=model.communicator_names[row],
            name_inferred=int(table["name_inferred"][row]) == 1,
            ranks=ranks if ranks >= 0 else None,
            nodes=nodes if nodes >= 0 else None,
            total=total,
            slices=slices,
        )

    @property
    def total_ns(self) -> int:
        """What communicators are sorted by."""
        return _total_ns(self.total)


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """Communicators within one node, or across several."""

    scope: str
    communicators: int
    total: Group


@dataclass(frozen=True, slots=True)
class RoleRow:
    """Communicators of one role, as all tp groups of a job."""

    role: (
        str  # the dimension of parallelism where it is known, else what their names have in common
    )
    communicators: int
    ranks: tuple[int, int]  # of one, the least and the most; 0 where not known
    nodes: tuple[int, int]
    total: Group


@dataclass(frozen=True, slots=True)
class SizeRow:
    """Messages of a size from `low_bytes` to below twice that."""

    low_bytes: int
    operations: int
    bytes: int
    gpu_ns: int
    estimate_ns: Estimate | None = None  # of `gpu_ns`, where it comes from a sample


@dataclass(frozen=True, slots=True)
class Summary:
    """The common form of all reports."""

    model: Model
    completeness: Completeness  # the model's; from counters, with their counts
    from_counters: bool  # profile mode: what needs single operations is None
    by: tuple[str, ...]
    began_ns: int | None  # of what is shown, on the model's clock
    ended_ns: int | None
    ranks_seen: int
    total: Group
    groups: tuple[Group, ...]
    communicators: tuple[CommunicatorRow, ...]
    scopes: tuple[ScopeRow, ...]
    sizes: tuple[SizeRow, ...]
    untimed: dict[str, int]  # operations without a GPU time, by reason
    slices: tuple[int, ...] | None  # bytes begun in each slice of time
    ranks: tuple[RankRow, ...] | None
    waiting: WaitingAccount | None  # where waiting began; None where it cannot be seen
    path: tuple[PathPart, ...]  # what the critical path runs through
    arrivals: ArrivalCoverage | None
    traffic: tuple[TrafficRow, ...] | None
    notes: tuple[str, ...]
    # Of captures with a training context.
    steps: StepSummary | None = None
    modules: tuple[Group, ...] = ()
    dimensions: tuple[Group, ...] = ()
    roles: tuple[RoleRow, ...] = ()  # where there are many communicators
    exposure: KernelExposure | None = None  # of steps whose CUDA kernels were taken

    @property
    def span_ns(self) -> int:
        """From the first operation shown to the last, in ns; 0 where it is not known."""
        if self.began_ns is None or self.ended_ns is None:
            return 0
        return max(self.ended_ns - self.began_ns, 0)


def size_rows(
    by_size: Iterable[tuple[int | None, int, int | None, int | None]],
    estimates: Mapping[int, Estimate] | None = None,
) -> tuple[SizeRow, ...]:
    """Classes of sizes that occur, from (size, operations, bytes, GPU time). `estimates`: GPU times
    of classes, where a sample was timed.
    """
    rows = list(by_size)
    lows = size_class(np.array([size or 0 for size, *_ in rows], np.int64)).tolist()
    classes: dict[int, list[int]] = {}
    for low, (_, *numbers) in zip(lows, rows, strict=True):
        sums = classes.setdefault(low, [0, 0, 0])
        classes[low] = [a + (b or 0) for a, b in zip(sums, numbers, strict=True)]
    return tuple(
        _size_row(low, classes[low], (estimates or {}).get(low)) for low in sorted(classes)
    )


def _size_row(low: int, sums: list[int], estimate: Estimate | None) -> SizeRow:
    operations, moved, gpu_ns = sums
    return SizeRow(low, operations, moved, round(estimate.value) if estimate else gpu_ns, estimate)


def scope_of(nodes: int) -> str:
    """The scope of a communicator on so many nodes."""
    return "intra-node" if nodes == 1 else "inter-node"


def scope_rows(sums_of: dict[int, GroupSums], nodes: list[int]) -> tuple[ScopeRow, ...]:
    """Communicators on one node against those on several."""
    scopes = []
    placed = [row for row in sums_of if row >= 0 and nodes[row] > 0]
    for scope in (scope_of(1), scope_of(2)):
        rows = [row for row in placed if scope_of(nodes[row]) == scope]
        if rows:
            scopes.append(ScopeRow(scope, len(rows), merge(sums_of[row] for row in rows)))
    return tuple(scopes)


def communicator_role(model: Model, row: int) -> str:
    """The role of a communicator: its dimension where that is known, else its name's first part."""
    return model.dimensions[row] or role_of_name(model.communicator_names[row])


_MANY = 12  # communicators: more than a screen shows at a glance


def role_rows(sums_of: dict[int, GroupSums], model: Model) -> tuple[RoleRow, ...]:
    """Communicators pooled by role, those with most GPU time first; none where there are few
    communicators, or where no two have the same role.

    tp, tp#2, tp#3, dp:0,2 and dp:1,3 have the roles tp and dp.
    """
    by_role: dict[str, list[int]] = {}
    for row in sums_of:
        if row >= 0:
            by_role.setdefault(communicator_role(model, row), []).append(row)
    communicators = sum(map(len, by_role.values()))
    if communicators <= _MANY or len(by_role) == communicators:
        return ()
    table = model.tables["communicators"]

    def spread(column: str, rows: list[int]) -> tuple[int, int]:
        values = [max(int(table[column][row]), 0) for row in rows]
        return min(values), max(values)

    pooled = [
        RoleRow(
            role,
            len(rows),
            spread("ranks", rows),
            spread("nodes", rows),
            merge(sums_of[row] for row in rows),
        )
        for role, rows in by_role.items()
    ]
    return tuple(sorted(pooled, key=lambda row: -_total_ns(row.total)))


def _total_ns(group: Group) -> int:
    return group.durations.total_ns if group.durations else 0


def sort_value(group: Group, column: str) -> float | None:
    """What a row is sorted by."""
    times = group.durations
    if column in ("min", "median", "mean", "p99", "max", "time"):
        name = {"min": "shortest", "max": "longest", "time": "total"}.get(column, column)
        value: float | None = None if times is None else getattr(times, f"{name}_ns")
        return value
    if column == "size":
        size = group.keys.get("size")
        return None if size is None else float(size)
    name = {
        "algbw": "algbw_gbs",
        "busbw": "busbw_gbs",
        "wire": "busbw_wire_gbs",
        "wait": "wait_share",
        "run": "run_share",
    }.get(column, column)
    measure: float | None = getattr(group, name)
    return measure


def _text(value: Key) -> tuple[int, float, str]:
    """Numbers before names, names in order, nothing last."""
    if value is None:
        return (2, 0.0, "")
    return (0, float(value), "") if isinstance(value, int) else (1, 0.0, value)


def check_sort(column: str, by: tuple[str, ...]) -> None:
    """Raises a UsageError where rows cannot be sorted by this column."""
    if column not in SORTS and column not in by:
        message = f"cannot sort by {column}: there is no such column"
        raise UsageError(message, f"Columns are {', '.join(dict.fromkeys((*by, *SORTS)))}")


def sorted_groups(groups: Iterable[Group], column: str) -> tuple[Group, ...]:
    """Rows by one column: measures from the largest, keys from the first; unknown ones last."""
    rows = sorted(groups, key=lambda group: tuple(map(_text, group.keys.values())))
    if column not in SORTS:
        return tuple(sorted(rows, key=lambda group: _text(group.keys.get(column))))
    sign = -1 if SORTS[column] else 1
    values = [(sort_value(group, column), group) for group in rows]
    values.sort(key=lambda pair: (pair[0] is None, sign * (pair[0] or 0)))
    return tuple(group for _, group in values)
