"""Collectives that move data more slowly the larger they are.

With one algorithm and protocol, a larger message uses a link at least as well as a smaller one. A
link that fails under load, or a buffer that overflows, shows as bandwidth that falls with size:

    1 MiB  12 GB/s      8 MiB  23 GB/s      16 MiB  6 GB/s
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows, rows_by_place
from ncclscope.analysis.measures import bus_bytes
from ncclscope.analysis.robust_statistics import median
from ncclscope.analysis.run import Run
from ncclscope.analysis.synchronized_instances import SynchronizedInstances
from ncclscope.arrays.types import Floats, Ints

_LEAST = 8  # collectives of a size


@dataclass(frozen=True, slots=True)
class SlowSizes:
    """Sizes of one function on one communicator that are slower than a smaller one."""

    communicator: int
    function: int  # code
    fast_bytes: int  # the smaller size with the highest bandwidth
    fast_gb_s: float  # of the bus, in the median
    slow_bytes: int  # the first size that is slower
    slow_gb_s: float
    lost_ns: float  # by all slower sizes, against that bandwidth


def slow_sizes(run: Run, instances: SynchronizedInstances, slower: float) -> tuple[SlowSizes, ...]:
    """Where larger collectives have less than the bandwidth of smaller ones divided by `slower`."""
    if not len(instances.first):
        return ()
    table, operations = run.model.tables["instances"], run.operations
    one_of = np.full(len(table["function"]), -1, np.int64)
    rows = np.flatnonzero(run.collective & (np.asarray(operations["instance"]) >= 0))
    one_of[run.column("instance", rows)] = rows
    row = one_of[instances.instance]
    names = ("communicator", "function", "algorithm", "protocol")
    kinds, kind = distinct_rows([run.column(name, row) for name in names])
    size = run.column("size_bytes", row)
    speed = bus_bytes(run.model, row) / np.maximum(instances.wire_ns, 1.0)
    known = ~np.isnan(speed) & (size > 0)
    found = []
    of_kind = rows_by_place(kind, len(kinds))
    for (communicator, function, *_), of_number in zip(kinds.tolist(), of_kind, strict=True):
        own = of_number[known[of_number]]
        sizes = _medians(size[own], speed[own])
        slow = _first_slow(sizes, slower)
        if slow is None:
            continue
        fast_bytes, fast_gb_s, slow_bytes, slow_gb_s = slow
        late = own[(size[own] >= slow_bytes) & (speed[own] < fast_gb_s / slower)]
        lost = instances.wire_ns[late] * (1 - speed[late] / fast_gb_s)
        found.append(
            SlowSizes(
                communicator, function, fast_bytes, fast_gb_s, slow_bytes, slow_gb_s,
                float(lost.sum()) * instances.weight,
            )
        )  # fmt: skip
    return tuple(found)


def _medians(size: Ints, speed: Floats) -> list[tuple[int, float]]:
    """Sizes that occur often, in order, each with its median bandwidth."""
    return [
        (int(value), median(speed[size == value]))
        for value, count in zip(*np.unique(size, return_counts=True), strict=True)
        if count >= _LEAST
    ]


def _first_slow(
    sizes: list[tuple[int, float]], slower: float
) -> tuple[int, float, int, float] | None:
    """The best size before the first one that is far slower, and that one."""
    best = (0, 0.0)
    for size, speed in sizes:
        if speed * slower < best[1]:
            return (*best, size, speed)
        best = max(best, (size, speed), key=lambda pair: pair[1])
    return None
