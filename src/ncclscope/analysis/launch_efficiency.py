"""Where time goes besides moving data: small messages, launches, algorithms, missing overlap."""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows, rows_by_place
from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.schema import GPU_CODES, NONE

_BACK_TO_BACK_NS = 20_000  # less between two kernels is no time of the program's own


@dataclass(frozen=True, slots=True)
class SmallMessages:
    """Collectives below a size."""

    calls_share: float  # of all collectives
    bytes_share: float
    time_share: float  # of the run, on the wire, on the average rank


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """A function and size that was carried out in several ways, on communicators of one shape."""

    function: str
    size_bytes: int
    slow: str  # algorithm and protocol
    fast: str
    slow_ns: float  # median time on the wire
    fast_ns: float
    operations: int  # with the slow one
    lost_share: float  # of the run


@dataclass(frozen=True, slots=True)
class LaunchDelays:
    """Collectives by the time from call to launch."""

    operations: int
    longer_share: float  # of them take longer to launch than to run
    time_share: float  # of the run, in launching, on the average rank
    median_ns: float


@dataclass(frozen=True, slots=True)
class BackToBack:
    """Kernels of different communicators on the first rank's GPU, one after the other."""

    changes: int  # from one communicator to another
    overlaps: int  # of these, kernels that ran at the same time
    close: int  # of these, kernels that followed at once
    time_share: float  # of the run, in the latter


def _wire_or_duration(run: Run, rows: Ints) -> Ints:
    wire, duration = run.column("wire_ns", rows), run.column("duration_ns", rows)
    return np.where(wire != NONE, wire, duration)


def small_messages(run: Run, below_bytes: int) -> SmallMessages | None:
    """Collectives of less than that many bytes; None where there are no collectives."""
    size = run.operations["size_bytes"]
    known = run.collective & (size > 0)
    small = known & (size < below_bytes)
    calls = int(known.sum())
    if not calls:
        return None
    # Times of the host are up to 40 times the truth: they say nothing about small messages.
    source = run.operations["source"]
    by_gpu = np.isin(source, GPU_CODES)
    timed = np.flatnonzero(small & by_gpu & (run.operations["duration_ns"] > 0))
    ranks = max(len(np.unique(run.operations["global_rank"][timed])), 1)
    return SmallMessages(
        float(small.sum()) / calls,
        float(size[small].sum()) / max(float(size[known].sum()), 1),
        float(_wire_or_duration(run, timed).sum()) / ranks / run.span_ns,
    )


def algorithm_choices(run: Run) -> tuple[AlgorithmChoice, ...]:
    """Functions and sizes with several algorithms: the slowest against the fastest."""
    operations, table = run.operations, run.model.tables["communicators"]
    is_measured = (operations["wire_ns"] > 0) & (operations["size_bytes"] > 0)
    for name in ("algorithm", "protocol", "communicator"):
        is_measured &= operations[name] != NONE
    rows = np.flatnonzero(run.collective & is_measured)
    if not len(rows):
        return ()
    communicator = run.column("communicator", rows)
    columns = [np.asarray(table[name], np.int64)[communicator] for name in ("ranks", "nodes")]
    columns += [run.column(name, rows) for name in ("function", "size_bytes")]
    kinds, kind = distinct_rows(columns)
    way = run.column("algorithm", rows) * 128 + run.column("protocol", rows)
    wire = run.column("wire_ns", rows).astype(np.float64)
    choices = []
    of_kind = rows_by_place(kind, len(kinds))
    for (ranks, _, function, size), own in zip(kinds.tolist(), of_kind, strict=True):
        if way[own].min() < way[own].max():
            choices.append(_choice(run, ranks, function, size, way[own], wire[own]))
    return tuple(choices)


def _choice(
    run: Run, ranks: int, function: int, size_bytes: int, way: Ints, wire_ns: Floats
) -> AlgorithmChoice:
    medians = {int(code): float(np.median(wire_ns[way == code])) for code in np.unique(way)}
    slow, fast = max(medians, key=lambda c: medians[c]), min(medians, key=lambda c: medians[c])
    slow_name, fast_name = (
        f"{run.word('algorithm', code // 128)} {run.word('protocol', code % 128)}"
        for code in (slow, fast)
    )
    operations = int((way == slow).sum())
    lost = operations * (medians[slow] - medians[fast]) / max(ranks, 1) / run.span_ns
    return AlgorithmChoice(
        function=run.word("function", function),
        size_bytes=size_bytes,
        slow=slow_name,
        fast=fast_name,
        slow_ns=medians[slow],
        fast_ns=medians[fast],
        operations=operations,
        lost_share=lost,
    )


def launches(run: Run) -> LaunchDelays | None:
    """Collectives with times of call, launch and kernel; None where there are none."""
    operations = run.operations
    known = run.collective & (operations["launch_end_ns"] != NONE) & (operations["call_ns"] != NONE)
    known &= np.isin(operations["source"], GPU_CODES) & (operations["duration_ns"] > 0)
    rows = np.flatnonzero(known)
    if not len(rows):
        return None
    launch = (run.column("launch_end_ns", rows) - run.column("call_ns", rows)).astype(np.float64)
    ranks = max(len(np.unique(operations["global_rank"][rows])), 1)
    return LaunchDelays(
        len(rows),
        float(np.mean(launch > _wire_or_duration(run, rows))),
        float(launch.sum()) / ranks / run.span_ns,
        float(np.median(launch)),
    )


def back_to_back(run: Run) -> BackToBack | None:
    """How kernels of several communicators follow each other; None with one communicator."""
    operations = run.operations
    rows = np.flatnonzero(run.timed & run.collective)
    rank = run.column("global_rank", rows)
    if not len(rows) or len(np.unique(operations["communicator"][rows])) < 2:
        return None
    rows = rows[rank == rank.min()]
    rows = rows[np.argsort(operations["start_ns"][rows], kind="stable")]
    start, end = run.column("start_ns", rows), run.column("end_ns", rows)
    other = np.diff(operations["communicator"][rows]) != 0
    between = start[1:] - end[:-1]
    close = other & (between >= 0) & (between < _BACK_TO_BACK_NS)
    return BackToBack(
        int(other.sum()),
        int((other & (between < 0)).sum()),
        int(close.sum()),
        float((end - start)[1:][close].sum()) / run.span_ns,
    )
