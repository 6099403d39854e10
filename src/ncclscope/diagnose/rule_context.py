"""What the families look at: a model's collectives by instance, as arrays, and who its ranks are.

Times come from the GPU. A rank's own time (between its operations, since the last one on the same
communicator) is made of differences within one clock; so are durations. Lateness is taken from
durations where everybody leaves together: who comes last has the shortest.
"""

import re
import shlex
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.intervals import union_lengths
from ncclscope.model.model import Model
from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SEND, Columns
from ncclscope.model.streams import meets_of, rules_of, started_of
from ncclscope.nccl.functions import EVERYBODY

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_BUS_ID = re.compile(r"[0-9A-Fa-f]+:([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)")
MOST_ROWS = 4_000_000  # beyond, every so many-th instance is looked at


@dataclass(frozen=True, slots=True)
class SynchronizedInstances:
    """Operations of instances whose ranks all wait for the last, sorted by instance; a row each."""

    row: Ints  # of operations
    first: Ints  # by instance: its first row here
    count: Ints  # by instance: how many rows
    instance: Ints  # by instance: row of instances
    rank: Ints  # by row: global
    duration: Ints
    own: Floats  # time outside of operations since the last one there; NaN for the first
    weight: float  # one instance stands for so many
    group: Ints  # by row the place of its instance
    communicator: Ints  # by instance
    kind: Ints  # by instance: communicator, function and size


class RuleContext:
    """A model with what several families need of it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.path = shlex.quote(str(model.path))  # as commands have it
        self.ops = model.tables["operations"]
        self.words = model.words
        self.rules = rules_of(model.words["function"], model.words["algorithm"])
        # With several attempts in one capture, the last one is what people ask about.
        attempt = np.array([row.attempt for row in model.processes] or [0])
        self._of_last: Bools = attempt == attempt.max()  # by process
        self.current: Bools = self._of_last[self.ops["process"]]
        self.current &= self.ops["part_of"] == NONE

    @cached_property
    def host_of(self) -> dict[int, str]:
        """By global rank."""
        members = self._members
        pairs = zip(members["global_rank"].tolist(), members["node"].tolist(), strict=True)
        return {rank: self.model.nodes[node] for rank, node in pairs if rank != NONE}

    @cached_property
    def _members(self) -> Columns:
        """Of communicators of the last attempt."""
        members = self.model.tables["members"]
        mine = self._of_last[members["process"]]
        return {name: values[mine] for name, values in members.items()}

    @cached_property
    def process_of(self) -> dict[int, int]:
        """Rows of processes by global rank, of the last attempt."""
        members = self._members
        pairs = zip(members["global_rank"].tolist(), members["process"].tolist(), strict=True)
        return {rank: row for rank, row in pairs if rank != NONE}

    @cached_property
    def _ranks_in(self) -> Counter[int]:
        """By process, of the last attempt."""
        return Counter(self.process_of.values())

    def where(self, rank: int) -> str:
        """Where a rank is, in brackets: (node7 GPU 1b:00.0; pid 811). "" where nobody tells."""
        if rank not in self.process_of:
            return ""
        process = self.process_of[rank]
        row = self.model.processes[process]
        # Of a process with several ranks only the first one's GPU is known here.
        bus = _BUS_ID.fullmatch(row.gpu) if self._ranks_in[process] == 1 else None
        place = f"{row.host} GPU {bus[1].lower()}" if bus else row.host
        return f" ({place}; pid {row.pid})" if row.pid > 0 else f" ({place})"

    @cached_property
    def node_of(self) -> Ints:
        """By global rank, NONE where nobody is."""
        members = self._members
        ranks = np.asarray(members["global_rank"], np.int64)
        out = np.full(int(ranks.max(initial=-1)) + 2, NONE, np.int64)
        out[ranks] = members["node"]
        out[-1] = NONE
        return out

    @cached_property
    def extent(self) -> tuple[int, int]:
        """When the run began and ended: first call, last end."""
        call, end = self.ops["call_ns"][self.current], self.ops["end_ns"][self.current]
        start = self.ops["start_ns"][self.current]
        begins = np.where(call != NONE, call, start)
        begins, ends = begins[begins != NONE], end[end != NONE]
        if not len(begins):
            return 0, 0
        return int(begins.min()), int(max(ends.max(initial=0), begins.max()))

    @property
    def span_ns(self) -> int:
        """How long the run was, without times in which everybody recorded totals only."""
        first, last = self.extent
        if not all(row.paused for row in self.model.processes):
            return max(last - first, 1)
        windows = self.model.tables["windows"]
        start = np.clip(np.asarray(windows["start_ns"], np.int64), first, last)
        end = np.clip(np.asarray(windows["end_ns"], np.int64), first, last)
        return max(int(union_lengths(np.zeros(len(start), np.int32), 1, start, end)[0]), 1)

    @cached_property
    def _by_rank(self) -> tuple[Ints, Bools]:
        """Rows with times in the order of process, rank and start; which are a rank's first."""
        start, rank, process = (
            np.asarray(self.ops[name], np.int64) for name in ("start_ns", "global_rank", "process")
        )
        rows = np.flatnonzero(self.timed)
        rows = rows[np.lexsort((start[rows], rank[rows], process[rows]))]
        fresh = np.ones(len(rows), bool)
        fresh[1:] = (np.diff(rank[rows]) != 0) | (np.diff(process[rows]) != 0)
        return rows, fresh

    @cached_property
    def gap(self) -> Floats:
        """By operation the time since the rank's last operation ended; NaN for its first, and where
        one without times came in between, or a time in which totals only were recorded.
        """
        out = np.full(len(self.timed), np.nan)
        rows, fresh = self._by_rank
        if not len(rows):
            return out
        start = np.asarray(self.ops["start_ns"], np.int64)[rows]
        end = np.asarray(self.ops["end_ns"], np.int64)[rows]
        place = np.cumsum(fresh) - 1
        origin = int(start.min())
        width = int(end.max()) - origin + 1
        latest = np.maximum.accumulate(end - origin + place * width) - place * width
        before = np.concatenate([[0], latest[:-1]])
        gap = np.maximum(start - origin - before, 0).astype(np.float64)
        # Rows of a process are in the order of calls.
        untimed = np.cumsum(self.current & ~self.timed)[rows]
        paused = self._window_of(rows)
        for after in (untimed, paused):
            gap[np.diff(after, prepend=after[0]) != 0] = np.nan
        gap[fresh] = np.nan
        out[rows] = gap
        return out

    def _window_of(self, rows: Ints) -> Ints:
        """How often the process had begun or ceased to record calls before each operation."""
        found = np.zeros(len(rows), np.int64)
        windows = self.model.tables["windows"]
        process, start = (np.asarray(self.ops[name])[rows] for name in ("process", "start_ns"))
        for one in np.unique(windows["process"]).tolist():
            mine = process == one
            its = windows["process"] == one
            edges = np.sort(np.concatenate([windows[name][its] for name in ("start_ns", "end_ns")]))
            found[mine] = np.searchsorted(edges, start[mine], "right")
        return found

    @cached_property
    def own(self) -> Floats:
        """By operation the rank's time outside of operations since its last one on the same
        communicator; NaN for its first there, and where that is not known.
        """
        out = np.full(len(self.timed), np.nan)
        rows, _ = self._by_rank
        if not len(rows):
            return out
        gap = self.gap[rows]
        total, unknown = np.cumsum(np.nan_to_num(gap)), np.cumsum(np.isnan(gap))
        keys = [
            np.asarray(self.ops[n], np.int64)[rows]
            for n in ("communicator", "global_rank", "process")
        ]
        by = np.lexsort((np.arange(len(rows)), *keys))
        same = np.zeros(len(rows), bool)
        same[1:] = np.logical_and.reduce([np.diff(key[by]) == 0 for key in keys])
        same[1:] &= np.diff(unknown[by]) == 0
        since = np.concatenate([[0.0], np.diff(total[by])])
        out[rows[by]] = np.where(same, since, np.nan)
        return out

    @cached_property
    def timed(self) -> Bools:
        """Operations with a start and an end."""
        known = (self.ops["start_ns"] != NONE) & (self.ops["end_ns"] != NONE)
        return np.asarray(known & self.current)

    @cached_property
    def met(self) -> SynchronizedInstances:
        """Collectives in which everybody waits for the last, where their stamps show it."""
        meets = meets_of(self.ops, self.rules)
        keep = self.current & (meets == EVERYBODY) & (self.ops["instance"] != NONE)
        keep &= self.ops["duration_ns"] != NONE
        rows, weight = np.flatnonzero(keep), 1.0
        instance = np.asarray(self.ops["instance"], np.int64)[rows]
        if len(rows) > MOST_ROWS:
            every = -(-len(rows) // MOST_ROWS)
            chosen = instance % every == 0
            rows, instance, weight = rows[chosen], instance[chosen], float(every)
        order = np.argsort(instance, kind="stable")
        rows, instance = rows[order], instance[order]
        number, first, count = np.unique(instance, return_index=True, return_counts=True)
        several = count > 1
        kept = np.repeat(several, count)
        rows, count, number = rows[kept], count[several], number[several]
        first = np.cumsum(count) - count
        return SynchronizedInstances(
            rows,
            first,
            count,
            number,
            np.asarray(self.ops["global_rank"], np.int64)[rows],
            np.asarray(self.ops["duration_ns"], np.int64)[rows],
            self.own[rows],
            weight,
            np.repeat(np.arange(len(first)), count),
            np.asarray(self.model.tables["instances"]["communicator"], np.int64)[number],
            self._kinds(number),
        )

    def _kinds(self, instances: Ints) -> Ints:
        table = self.model.tables["instances"]
        names = ("communicator", "function", "size_bytes")
        stacked = np.stack([np.asarray(table[name], np.int64)[instances] for name in names])
        return np.asarray(np.unique(stacked, axis=1, return_inverse=True)[1]).reshape(-1)

    @cached_property
    def started(self) -> Bools:
        """Operations whose start is known."""
        return started_of(self.ops) & self.current

    @cached_property
    def collective(self) -> Bools:
        """Collectives, as against sends and receives."""
        return np.asarray(self.current & (self.ops["form"] == COLLECTIVE))

    @cached_property
    def pairs(self) -> Bools:
        """Sends and receives."""
        form = self.ops["form"]
        return np.asarray(self.current & ((form == SEND) | (form == RECV)))

    def word(self, sort: str, code: int) -> str:
        """The name behind a code."""
        return self.words[sort][code] if code >= 0 else ""

    def ranks_of(self, communicator: int) -> list[int]:
        """Global ranks of a communicator's members that are on record."""
        members = self.model.tables["members"]
        mine = members["global_rank"][members["communicator"] == communicator]
        return sorted(set(mine.tolist()) - {NONE})

    def at(self, time_ns: int) -> str:
        """A time as `--since` takes it: seconds from the start."""
        return f"{(time_ns - self.extent[0]) / 1e9:.3f}"


def medians_by_group(values: Floats, first: Ints, count: Ints) -> Floats:
    """The median of each group of neighbouring values; NaN counts as largest."""
    if not len(first):
        return np.empty(0)
    group = np.repeat(np.arange(len(first)), count)
    ordered = values[np.lexsort((values, group))]
    known = np.add.reduceat((~np.isnan(values)).astype(np.int64), first)
    low, high = first + np.maximum(known - 1, 0) // 2, first + known // 2
    high = np.where(known > 0, np.minimum(high, first + np.maximum(known - 1, 0)), first)
    return np.asarray((ordered[low] + ordered[high]) / 2)


def spread(values: Floats) -> float:
    """The median absolute deviation, as a standard deviation of normal values."""
    if not len(values):
        return 0.0
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
