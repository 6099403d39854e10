"""Who arrives last in collectives, and how much waiting that adds.

Of an instance in which everybody waits for the last, the last rank adds the time from the last but
one to itself, but no more than its own time (outside of operations, since its last one on that
communicator) exceeds the others'. So a rank that is late because it waited for a late one elsewhere
adds nothing.

    rank 0  ──[████████████]       own time 2
    rank 1  ───[███████████]       own time 3
    rank 2  ─────────[█████]       own time 9: it adds min(9 - 3 by durations, 9 - 3 by own times)

Ranks are judged in diagnose/rules/straggler.py; here are numbers only.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.own_time import OwnTimes
from ncclscope.analysis.robust_statistics import (
    median_lower_bound,
    medians_by_group,
    robust_spread,
)
from ncclscope.analysis.run import Run
from ncclscope.analysis.synchronized import SynchronizedInstances
from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.schema import NONE

_TRIMMED = 0.02  # of a rank's late instances: without the latest, one pause is not a habit
_NOTABLE = 0.1  # of the most that a rank added to an instance: less is not counted
_STEADY_INSTANCES = 10  # of one function and size on one communicator: fewer show no habit
_TIMES_NOISE = 8.0  # as far as ranks differ by chance
_NOTICED = 0.15  # of the median own time: less is not looked at


@dataclass(frozen=True, slots=True)
class LastArrivals:
    """By instance who arrived last, and how much waiting that added."""

    who: Ints  # global rank, or node; NONE where it is not known
    communicator: Ints
    added_ns: Floats


@dataclass(frozen=True, slots=True)
class Delay:
    """The waiting that one rank, or one node, adds to the run by arriving last."""

    who: int  # global rank, or node
    added_ns: float  # on the communicator on which it adds most
    trimmed_ns: float  # the same without its few latest instances
    times: int  # instances there with a notable part of that
    steady_ns: float = 0.0  # own time beyond its peers' in the median instance, where certain
    steady_total_ns: float = 0.0  # that, summed over instances


@dataclass(frozen=True, slots=True)
class Lateness:
    """Who is late in a run."""

    ranks: tuple[Delay, ...]  # all ranks on record, in order
    nodes: tuple[Delay, ...]
    span_ns: float  # the run, as long as the instances that were looked at stand for
    waiting_ns: float  # what the average rank waited for ranks that arrived last
    last_ranks: LastArrivals


@dataclass(frozen=True, slots=True)
class LateInstances:
    """The instances of one rank in which it arrived last."""

    instances: int  # that it takes part in
    late: int  # of these, notably late
    typical_ns: float  # median of what it adds to these
    worst: int  # row of the instance to which it adds most
    worst_ns: float


@dataclass(frozen=True, slots=True)
class OwnTimeExcess:
    """How much longer ranks take than others for the parts of their own time, on average."""

    compute_ns: float  # from the end of the operation before to the call
    launch_ns: float  # from the call to the end of the launch
    gpu_ns: float  # from the end of the launch to the start on the GPU

    def by_part(self) -> dict[str, float]:
        """The same by name."""
        return {"compute": self.compute_ns, "launch": self.launch_ns, "gpu": self.gpu_ns}

    @property
    def largest(self) -> str:
        """The part that is longest beyond others'."""
        parts = self.by_part()
        return max(parts, key=lambda name: parts[name])


def lateness(run: Run, instances: SynchronizedInstances) -> Lateness | None:
    """Who is late in a run; None where no instance shows it."""
    if not len(instances.first):
        return None
    ranks = np.unique(instances.rank[instances.rank != NONE])
    last_ranks = _last_ranks(instances)
    node = run.node_of[instances.rank]
    nodes = np.unique(node[node != NONE])
    waiting = float((last_ranks.added_ns * instances.count).sum())
    return Lateness(
        ranks=_with_steady(_delays(last_ranks, ranks), instances),
        nodes=_delays(_last_nodes(instances, node), nodes),
        span_ns=run.span_ns / instances.weight,
        waiting_ns=waiting / max(len(np.unique(instances.rank)), 1),
        last_ranks=last_ranks,
    )


# ---- who arrived last ----
def _usual_own_time(instances: SynchronizedInstances) -> Floats:
    """By operation the own time that is usual in its instance: the median of its ranks. Of two
    ranks it is the other one's, because the median of two lies half way to the late one.
    """
    usual = medians_by_group(instances.own_ns, instances.first, instances.count)[instances.group]
    pairs = instances.first[instances.count == 2]
    usual[pairs], usual[pairs + 1] = instances.own_ns[pairs + 1], instances.own_ns[pairs]
    return usual


def _last_ranks(instances: SynchronizedInstances) -> LastArrivals:
    """The last rank of each instance; it adds 0 where its own time is not longer than others'."""
    duration, own = instances.duration_ns, instances.own_ns
    order = np.lexsort((duration, instances.group))
    last, last_but_one = order[instances.first], order[instances.first + 1]
    margin = (duration[last_but_one] - duration[last]).astype(np.float64)
    beyond = np.nan_to_num(own[last] - _usual_own_time(instances)[last], nan=0.0)
    added = np.minimum(margin, np.maximum(beyond, 0.0))
    return LastArrivals(instances.rank[last], instances.communicator, added)


def _last_nodes(instances: SynchronizedInstances, node: Ints) -> LastArrivals:
    """The same by node: what the earliest rank of the last node adds to the latest of the others.
    It adds 0 where the node has one rank in the instance: then it is that rank that is late.
    """
    groups, duration = len(instances.first), instances.duration_ns
    by_node = np.lexsort((node, instances.group))
    changes = (np.diff(node[by_node]) != 0) | (np.diff(instances.group[by_node]) != 0)
    start = np.flatnonzero(np.concatenate([[True], changes]))
    size = np.diff(np.append(start, len(by_node)))
    longest = np.maximum.reduceat(duration[by_node], start)  # of the node's earliest rank
    shortest = np.minimum.reduceat(duration[by_node], start)
    own = medians_by_group(instances.own_ns[by_node], start, size)
    group, name = instances.group[by_node][start], node[by_node][start]
    # By instance: the node whose earliest rank is latest, and the latest rank of all others.
    order = np.lexsort((longest, group))
    first = np.searchsorted(group[order], np.arange(groups))
    nodes = np.diff(np.append(first, len(order)))
    last = order[first]
    others = np.full(groups, np.inf)
    rest = np.ones(len(order), bool)
    rest[first] = False
    np.minimum.at(others, group[order][rest], shortest[order][rest].astype(np.float64))
    usual = medians_by_group(instances.own_ns, instances.first, instances.count)
    two = nodes == 2  # the median of both lies half way to the late one
    usual[two] = own[order[first[two] + 1]]
    beyond = np.nan_to_num(own[last] - usual, nan=0.0)
    margin = np.where((nodes > 1) & (size[last] > 1), others - longest[last], 0.0)
    added = np.where(np.isfinite(margin), np.minimum(margin, beyond), 0.0)
    return LastArrivals(name[last], instances.communicator, np.maximum(added, 0.0))


# ---- sums over a run ----
def _delays(last: LastArrivals, who: Ints) -> tuple[Delay, ...]:
    """What each adds. A rank that is late on one communicator makes its peers there late on others:
    the communicator on which it adds most counts, or the same lateness would count twice.
    """
    size, width = int(who.max(initial=0)) + 1, int(last.communicator.max(initial=0)) + 1
    known = last.who != NONE
    key = last.who[known] * width + last.communicator[known]
    flat = np.bincount(key, last.added_ns[known], minlength=size * width)
    by_communicator = flat.astype(np.float64).reshape(size, width)
    total, most = by_communicator.max(axis=1), by_communicator.argmax(axis=1)
    delays = []
    for number in who.tolist():
        trimmed, times = float(total[number]), 0
        if total[number]:
            there = (last.who == number) & (last.communicator == most[number])
            added = np.sort(last.added_ns[there & (last.added_ns > 0)])
            times = int((added > _NOTABLE * added[-1]).sum())
            latest = max(int(len(added) * _TRIMMED), 2)
            trimmed -= float(added[-latest:].sum())
        delays.append(Delay(number, float(total[number]), trimmed, times))
    return tuple(delays)


def _with_steady(delays: tuple[Delay, ...], instances: SynchronizedInstances) -> tuple[Delay, ...]:
    """Delays of ranks with what is steady in them."""
    size = max((delay.who for delay in delays), default=0) + 1
    steady, total = _steady(instances, size)
    return tuple(
        Delay(
            delay.who, delay.added_ns, delay.trimmed_ns, delay.times,
            float(steady[delay.who]), float(total[delay.who]),
        )
        for delay in delays
    )  # fmt: skip


def _steady(instances: SynchronizedInstances, size: int) -> tuple[Floats, Floats]:
    """By rank how much longer its own time is than its peers' in the median instance, and the sum
    of that; 0 where it is not certain, or not far from what other ranks show.
    """
    beyond = instances.own_ns - _usual_own_time(instances)
    kind = instances.kind[instances.group]
    known = np.flatnonzero(~np.isnan(beyond) & (instances.rank != NONE))
    width = int(kind.max(initial=0)) + 1
    key = instances.rank[known] * width + kind[known]
    order = np.lexsort((beyond[known], key))
    keys, first, count = np.unique(key[order], return_index=True, return_counts=True)
    low = beyond[known][order][first + median_lower_bound(count)] if len(keys) else np.empty(0)
    shift = np.where(count >= _STEADY_INSTANCES, low, 0.0)
    steady, total = np.zeros(size), np.zeros(size)
    np.maximum.at(steady, keys // width, shift)
    np.maximum.at(total, keys // width, shift * count)
    noise = robust_spread(steady[np.unique(instances.rank[known])])
    own = instances.own_ns[~np.isnan(instances.own_ns)]
    least = _NOTICED * float(np.median(own[own > 0])) if (own > 0).any() else 0.0
    behind = steady > max(_TIMES_NOISE * noise, least)
    return np.where(behind, steady, 0.0), np.where(behind, total, 0.0)


# ---- one rank ----
def late_instances(late: Lateness, instances: SynchronizedInstances, rank: int) -> LateInstances:
    """The instances in which a rank arrived last."""
    last = late.last_ranks
    added = last.added_ns[(last.who == rank) & (last.added_ns > 0)]
    notable = added[added > _NOTABLE * added.max(initial=0.0)]
    worst = int(np.argmax(np.where(last.who == rank, last.added_ns, -1)))
    return LateInstances(
        instances=int((instances.rank == rank).sum()),
        late=len(notable),
        typical_ns=float(np.median(notable)) if len(notable) else 0.0,
        worst=int(instances.instance[worst]),
        worst_ns=float(last.added_ns[worst]),
    )


def own_time_excess(run: Run, own_times: OwnTimes, ranks: Ints) -> OwnTimeExcess:
    """Which part of their own time is longer on these ranks than on others."""
    rows = np.flatnonzero(run.timed & run.collective)
    rank = run.column("global_rank", rows)
    call, launch_end, start = (
        np.where(times == NONE, np.nan, times.astype(np.float64))
        for times in (run.column(n, rows) for n in ("call_ns", "launch_end_ns", "start_ns"))
    )
    before = start - own_times.gap_ns[rows]
    # A call that was made while the GPU was still busy is no reason; nor is waiting in a queue.
    called = np.maximum(call, before)
    launched = np.maximum(launch_end, called)
    parts = (called - before, launched - called, start - launched)
    return OwnTimeExcess(*(_excess(part, rank, ranks) for part in parts))


def _excess(times_ns: Floats, rank: Ints, ranks: Ints) -> float:
    """By how much the mean over these ranks exceeds the median of the others' means."""
    known = ~np.isnan(times_ns) & (rank != NONE)
    count = np.bincount(rank[known])
    mean = np.bincount(rank[known], times_ns[known]) / np.maximum(count, 1)
    among = np.isin(np.arange(len(count)), ranks)
    others = (count > 0) & ~among
    usual = np.median(mean[others]) if others.any() else 0.0
    return float(np.mean(mean[(count > 0) & among]) - usual) if count[among].any() else 0.0
