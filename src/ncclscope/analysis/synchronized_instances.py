"""Collectives in which every rank waits for the last one: who is late shows in durations alone.

All ranks of such an instance end together, so the last to arrive has the shortest duration, and the
shortest duration is the time on the wire. No common clock is needed.

    rank 0  ──[██████████]     arrives first, waits longest
    rank 1  ─────[███████]
    rank 2  ─────────[███]     arrives last: its duration is the time on the wire

Where a sample of operations was timed, it is the same on all ranks. The first calls of a kind are
left out: they connect ranks. The operation before a timed one has no times, so a rank's own time is
not known as `own_time` defines it. But if it was the same collective before on all ranks, they left
it together, and own times differ by as much as durations do: own = time between the two calls +
longest duration - duration. Otherwise it stays unknown, and nobody is blamed.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows
from ncclscope.analysis.own_time import OwnTimes
from ncclscope.analysis.run import Run
from ncclscope.arrays.joins import running_count
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.schema import NONE, NOT_SAMPLED
from ncclscope.model.streams import meets_of, rules_of
from ncclscope.nccl.functions import EVERYBODY, waits_for

_FIRST_CALLS = 4
MOST_ROWS = 4_000_000  # beyond, only every n-th instance is looked at


@dataclass(frozen=True, slots=True)
class SynchronizedInstances:
    """Instances of at least two ranks, and their operations sorted by instance.

    By instance: `first` and `count` delimit its operations here, `instance` is its row in the
    model, `kind` numbers its communicator, function and size. By operation: `rank`, `group` (place
    of its instance here), durations and own times.
    """

    first: Ints
    count: Ints
    instance: Ints
    communicator: Ints
    kind: Ints
    group: Ints
    rank: Ints  # global
    duration_ns: Ints
    own_ns: Floats  # as in OwnTimes
    weight: float  # how many instances this one stands for, where not all are looked at
    one_in: int  # every how many instances one was looked at, because there are too many

    @property
    def wire_ns(self) -> Floats:
        """By instance the time on the wire: the duration on the rank that arrived last."""
        return np.minimum.reduceat(self.duration_ns, self.first).astype(np.float64)


def synchronized_instances(run: Run, own_times: OwnTimes) -> SynchronizedInstances:
    """The instances of a run in which everybody waits for the last, where their stamps show it."""
    operations, words = run.operations, run.model.words
    waits_for = meets_of(operations, rules_of(words["function"], words["algorithm"]))
    keep = run.current & (waits_for == EVERYBODY) & (operations["instance"] != NONE)
    keep &= operations["duration_ns"] != NONE
    rows, weight, every = np.flatnonzero(keep), 1.0, 1
    instance = run.column("instance", rows)
    if len(rows) > MOST_ROWS:
        every = -(-len(rows) // MOST_ROWS)
        sample = instance % every == 0
        rows, instance, weight = rows[sample], instance[sample], float(every)
    order = np.argsort(instance, kind="stable")
    rows, instance = rows[order], instance[order]
    number, count = np.unique(instance, return_counts=True)
    table = run.model.tables["instances"]
    # Where the last rank has no duration, those of others have their waiting in them.
    several = (count > 1) & (count >= np.asarray(table["ranks_seen"])[number])
    sampled = NOT_SAMPLED in words.get("reason", ())
    if sampled:
        several &= running_count(_kinds(run, number)) >= _FIRST_CALLS
    rows, count, number = rows[np.repeat(several, count)], count[several], number[several]
    first = np.cumsum(count) - count
    own_ns = own_times.own_ns[rows]
    if sampled and len(rows):
        weight = _stands_for(run, len(rows))
        own_ns = np.where(np.isnan(own_ns), _own_by_durations(run, rows, first, count), own_ns)
    return SynchronizedInstances(
        first=first,
        count=count,
        instance=number,
        communicator=np.asarray(table["communicator"], np.int64)[number],
        kind=_kinds(run, number),
        group=np.repeat(np.arange(len(first)), count),
        rank=run.column("global_rank", rows),
        duration_ns=run.column("duration_ns", rows),
        own_ns=own_ns,
        weight=weight,
        one_in=every,
    )


def _stands_for(run: Run, timed: int) -> float:
    """How many operations one timed one stands for."""
    operations, words = run.operations, run.model.words
    all_wait = np.array([*(waits_for(name) == EVERYBODY for name in words["function"]), False])
    whole = run.collective & all_wait[operations["function"]] & (operations["instance"] != NONE)
    return max(float(np.count_nonzero(whole)) / max(timed, 1), 1.0)


def _own_by_durations(run: Run, rows: Ints, first: Ints, count: Ints) -> Floats:
    """Own times of ranks that left the collective before together; NaN elsewhere."""
    before = np.maximum(rows - 1, 0)  # rows of a process are in the order of calls
    names = ("process", "communicator", "global_rank", "function", "part_of")
    same = rows > 0
    for name in names:
        same &= run.column(name, before) == run.column(name, rows)
    together = np.repeat(np.logical_and.reduceat(same, first), count)
    between = run.column("call_ns", rows) - run.column("call_ns", before)
    duration = run.column("duration_ns", rows)
    longest = np.repeat(np.maximum.reduceat(duration, first), count)
    return np.where(together, (between + longest - duration).astype(np.float64), np.nan)


def _kinds(run: Run, instances: Ints) -> Ints:
    """By instance a number for its communicator, function and size."""
    table = run.model.tables["instances"]
    names = ("communicator", "function", "size_bytes")
    return distinct_rows([np.asarray(table[name], np.int64)[instances] for name in names])[1]
