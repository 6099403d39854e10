"""Training steps by the period of calls, of captures that recorded no ranges.

In a training loop nearly every kind of call (communicator, function, size) occurs the same number
of times in every step. So the number of steps is the largest number of which most kinds occur a
whole multiple; of the kinds that occur just so often, the one that follows the longest pauses
begins a step. Example, a log entry every third step:

    g r r r o | g r r r o | g r r r o L | g …     kinds: g 4, r 12, o 4, L 1

Three of four kinds occur a multiple of 4 times, so there are 4 steps. Equal calls are a step each;
replays of a CUDA graph of equal calls are not, because a replay makes many of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Ints
from ncclscope.model.model import PERIODIC, Model, process_rows
from ncclscope.model.schema import NONE, STEPS, Columns, empty

_FEWEST = 4  # steps
_SHARE = 2 / 3  # of kinds whose counts must fit
_REGULAR = 0.25  # of the median: most that half of the distances may differ by


def with_periodic_steps(model: Model, processes: Sequence[int] | None = None) -> Model:
    """The model with steps by the period of its calls, where it has no others. `processes`: of
    these alone; what it says of others means nothing.
    """
    if len(model.tables["steps"]["step"]):
        return model
    operations = model.tables["operations"]
    # Zeros that nobody looks at take no memory.
    step = np.zeros(len(operations["event"]), np.int32)
    if processes is None:
        step[:] = NONE  # also of operations of no process
    parts: list[Columns] = []
    for process in range(len(model.processes)) if processes is None else processes:
        first, last = process_rows(operations, process)
        step[first:last] = NONE
        rows = np.arange(first, last)[np.asarray(operations["part_of"][first:last]) == NONE]
        starts = _starts(operations, rows)
        if starts is None:
            continue
        when = _when(operations, slice(first, last))
        begins = when[starts - first]
        step[first:last] = np.searchsorted(begins, when, side="right") - 1
        table = empty(STEPS, len(begins))
        table["process"][:], table["step"][:] = process, np.arange(len(begins))
        table["start_ns"][:], table["end_ns"][:-1] = begins, begins[1:]
        table["origin"][:] = PERIODIC
        parts.append(table)
    if not parts:
        return model
    steps = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    tables = {**model.tables, "operations": {**operations, "step": step}, "steps": steps}
    return replace(model, tables=tables, whole={**model.whole, "steps": frozenset()})


def _when(operations: Columns, rows: slice | Ints) -> Ints:
    """When operations were called, else launched, else queued, else begun; never going back."""
    times = np.asarray(operations["call_ns"][rows]).astype(np.int64)
    for name in ("launch_ns", "enqueue_ns", "start_ns"):
        unknown = times == NONE
        times[unknown] = operations[name][rows][unknown]
    return np.maximum.accumulate(times) if len(times) else times


def _starts(operations: Columns, rows: Ints) -> Ints | None:
    """Rows of the calls that begin the steps of one process; None without a period."""
    if len(rows) < _FEWEST:
        return None
    key = np.asarray(operations["communicator"][rows]).astype(np.int64) << 8
    key = (key | np.asarray(operations["function"][rows]).astype(np.int64) & 0xFF) * 1_000_003
    kind, kinds = factorize(np.abs(key ^ np.asarray(operations["size_bytes"][rows]) << np.int64(1)))
    counts = np.bincount(kind, minlength=kinds)
    order = np.argsort(kind, kind="stable")
    edges = np.concatenate([[0], np.cumsum(counts)])
    fits = _number_of_steps(counts, order, edges)
    replayed = np.asarray(operations["call_ns"][rows]) == NONE
    if fits is None or (fits == len(rows) and replayed.any() and not replayed.all()):
        return None
    when = _when(operations, rows)
    pause = np.diff(when, prepend=when[:1])
    best, longest = None, -1.0
    for number in np.flatnonzero(counts == fits).tolist():
        places = order[edges[number] : edges[number + 1]]
        before = float(np.median(pause[places]))
        if _is_regular(places) and before > longest:
            best, longest = places, before
    return None if best is None else rows[best]


def _is_regular(places: Ints) -> bool:
    distance = np.diff(places)
    usual = float(np.median(distance))
    return bool(np.median(np.abs(distance - usual)) <= _REGULAR * usual)


def _number_of_steps(counts: Ints, order: Ints, edges: Ints) -> int | None:
    """The largest count of which most counts are multiples."""
    for count in map(int, np.unique(counts)[::-1].tolist()):
        if count < _FEWEST:
            return None
        off = np.abs(counts - np.maximum(np.round(counts / count), 1) * count)
        if (off <= np.maximum(1, counts // 100)).mean() >= _SHARE:
            members = np.flatnonzero(counts == count)[:1]
            places = order[edges[members[0]] : edges[members[0] + 1]]
            if _is_regular(places):
                return count
    return None
