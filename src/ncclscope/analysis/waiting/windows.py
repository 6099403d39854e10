"""The account of waiting of a long run, one window of time after another.

What the account keeps of an operation is about 450 bytes. In windows, memory is bounded by their
size and not by the length of the run. An operation belongs to the window in which the last rank
came to it, so each wait is in one window, and sums conserve. A window also holds the calls right
before it, because waits are followed back in time.

    calls of rank 0    ·  ·  ·  ·  ·  ·  ·  ·  ·
    calls of rank 1    ·  ·  ·  ·  ·  ·  ·  ·  ·
    window 1           [             )
    window 2              (before)   [             )

Where windows are is found process by process, and each is judged by its own operations alone: so
both are tasks, on this machine or on a cluster, and what the command holds is a bit for each
operation at most.

What is usual is learned in each window. So a change between two windows is no delay of either;
rules about change look at the whole run.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.kernels import is_timed
from ncclscope.analysis.waiting.origins import Origin, RankWaiting, WaitingAccount
from ncclscope.analysis.waiting.path_parts import PathPart
from ncclscope.analysis.waiting.usual_lengths import THREADS
from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture.segment import expand
from ncclscope.model.model import Model, process_edges
from ncclscope.model.schema import NONE, Columns
from ncclscope.threads import in_threads

WINDOW = 500_000  # operations; two windows at once need about 0.8 GB
MOST_AT_ONCE = 2_000_000  # operations of a run that is judged as a whole
_AT_ONCE = 1 << 20  # operations whose columns are read at once
_CALLS_BEFORE = 512  # of each rank: waits are followed back by some 20 edges
_MOST_BEFORE = 0.1  # of a window
_SAMPLE = 100_000  # operations that tell where windows begin


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a run; in the first one and the last one a limit is None."""

    run: Run  # of its operations alone: those of the window, and calls right before it, by rank
    rows: Ints  # of `operations` of the whole run
    own: Bools  # by operation whether it is the window's
    since_ns: int | None
    until_ns: int | None


Part = tuple[WaitingAccount, tuple[PathPart, ...]]
Found = TypeVar("Found")
ModelOf = Callable[[], Model]  # a task asks for the model where it runs


@dataclass(frozen=True, slots=True)
class Tasks:
    """What carries out tasks, and how these get the model.

    each   `do(item)` of each item, in their order
    """

    model_of: ModelOf
    each: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


def tasks_here(model: Model) -> Tasks:
    """This machine, with a model that is open; two tasks at a time."""
    return Tasks(lambda: model, partial(in_threads, most=THREADS))


@dataclass(frozen=True, slots=True)
class Windows:
    """Where the windows of a run are, in the order of time.

    sending   by communicator whether ranks send and receive on it; the last place is of NONE
    """

    places: list["WindowPlace"]
    sending: Bools
    current: int  # operations of the last attempt
    timed: int  # of these, operations with a start and an end by the GPU


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """Where one window is: for each rank a run of its timed operations.

    runs       rank, first row, row behind the last, and from which operation of the run on all are
               the window's; NONE there: `scattered` has a bit for each, by the number of the run
    """

    runs: Ints
    scattered: dict[int, npt.NDArray[np.uint8]]
    since_ns: int | None
    until_ns: int | None


# ---- a part of a model ----
class _ColumnsAt(Columns):
    """Columns at some rows, each taken when it is asked for."""

    def __init__(self, whole: Columns, rows: Ints | slice) -> None:
        super().__init__()
        self._whole, self._rows = whole, rows

    def __missing__(self, name: str) -> npt.NDArray[Any]:
        values = np.asarray(self._whole[name])[self._rows]
        self[name] = values
        return values


def _run_at(model: Model, rows: Ints | slice, sending: Bools | None = None) -> Run:
    """A run of these operations alone; their instances are those of the whole run."""
    operations = _ColumnsAt(model.tables["operations"], rows)
    tables = {**model.tables, "operations": operations}
    return Run(replace(model, tables=tables, seal=""), sending)


class _Bundle:
    """Timed operations of some processes, by rank."""

    def __init__(self, model: Model, rows: slice) -> None:
        self.run = _run_at(model, rows)
        self.first_row = rows.start
        self._last_start_ns = np.asarray(model.tables["instances"]["last_start_ns"])
        timed = np.flatnonzero(is_timed(self.run))
        rank = np.asarray(self.run.operations["global_rank"])[timed]
        if (rank[1:] < rank[:-1]).any():
            order = np.argsort(rank, kind="stable")
            timed, rank = timed[order], rank[order]
        self.timed = timed
        self.first = np.flatnonzero(np.diff(rank, prepend=NONE))  # by rank
        self.ranks = rank[self.first].astype(np.int64)
        self.count = np.diff(self.first, append=len(rank))

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of the timed operations."""
        return np.asarray(self.run.operations[name])[self.timed]

    def met_ns(self) -> Ints:
        """By operation when the last rank had come to it; of a group, to all of it."""
        instance = self.column("instance")
        start = self.column("start_ns")
        matched = np.flatnonzero(instance != NONE)
        met = start.astype(np.int64)
        met[matched] = np.maximum(start[matched], self._last_start_ns[instance[matched]])
        group = self.column("group_call")
        same = group[1:] != NONE
        for values in (group, self.column("communicator"), self.column("global_rank")):
            same &= values[1:] == values[:-1]
        if not same.any():
            return met
        new = np.append(True, ~same)
        return np.asarray(np.maximum.reduceat(met, np.flatnonzero(new))[np.cumsum(new) - 1])


# ---- where windows are ----
@dataclass(frozen=True, slots=True)
class _Counts:
    """How many operations a bundle has."""

    ranks: Ints
    timed: Ints  # by rank
    current: int
    sending: Ints  # communicators


@dataclass(frozen=True, slots=True)
class _Count:
    """Counts a bundle's operations."""

    model_of: ModelOf

    def __call__(self, rows: slice) -> _Counts:
        bundle = _Bundle(self.model_of(), rows)
        run = bundle.run
        sending = np.unique(np.asarray(run.operations["communicator"])[run.p2p])
        return _Counts(bundle.ranks, bundle.count, int(run.current.sum()), sending)


@dataclass(frozen=True, slots=True)
class _SampleTimes:
    """When a bundle's operations were met and ended, of every n-th of the run."""

    model_of: ModelOf
    every: int
    place: dict[int, int]  # of a rank's first operation among those of the run

    def __call__(self, rows: slice) -> tuple[Ints, Ints]:
        bundle = _Bundle(self.model_of(), rows)
        places = [np.empty(0, np.int64)]
        for rank, first, count in zip(bundle.ranks, bundle.first, bundle.count, strict=True):
            begin = first + -self.place[int(rank)] % self.every
            places.append(np.arange(begin, first + count, self.every))
        chosen = np.concatenate(places)
        return bundle.met_ns()[chosen], bundle.column("end_ns")[chosen]


@dataclass(frozen=True, slots=True)
class _FindRuns:
    """By window the runs of a bundle's ranks in it, and what is scattered."""

    model_of: ModelOf
    cuts: Ints
    before: int  # calls of a rank right before a window

    def __call__(self, rows: slice) -> list[tuple[int, list[int], npt.NDArray[np.uint8] | None]]:
        bundle = _Bundle(self.model_of(), rows)
        number = np.searchsorted(self.cuts, bundle.met_ns(), side="right")
        found = []
        for rank, first, count in zip(
            bundle.ranks.tolist(), bundle.first.tolist(), bundle.count.tolist(), strict=True
        ):
            own = number[first : first + count]
            order = np.argsort(own, kind="stable")
            edges = np.flatnonzero(np.diff(own[order], prepend=-1, append=-1))
            for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                places = order[low:high]
                begin, end = int(places[0]), int(places[-1]) + 1
                since = max(begin - self.before, 0)
                row = bundle.first_row + bundle.timed[[first + since, first + end - 1]]
                run = [rank, int(row[0]), int(row[1]) + 1, begin - since]
                bits = None
                if end - begin != high - low:
                    mask = np.zeros(end - since, bool)
                    mask[places - since] = True
                    run[3], bits = NONE, np.packbits(mask)
                found.append((int(own[begin]), run, bits))
        return found


def _bundles(model: Model) -> list[slice]:
    """Rows of whole processes, some at a time."""
    operations = model.tables["operations"]
    rows, begin = len(operations["process"]), 0
    bundles = []
    for end in process_edges(operations, range(1, len(model.processes) + 1)):
        if end - begin >= _AT_ONCE or (end == rows and end > begin):
            bundles.append(slice(begin, end))
            begin = end
    return bundles if begin == rows else [slice(0, rows)]


def find_windows(model: Model, size: int, tasks: Tasks) -> Windows:
    """Windows of about `size` timed operations."""
    bundles = _bundles(model)
    counts: list[_Counts] = tasks.each(_Count(tasks.model_of), bundles)
    ranks = np.concatenate([np.empty(0, np.int64), *(one.ranks for one in counts)])
    if len(np.unique(ranks)) < len(ranks):  # a rank of several processes is one course of calls
        bundles = [slice(0, len(model.tables["operations"]["event"]))]
        counts = tasks.each(_Count(tasks.model_of), bundles)
        ranks = counts[0].ranks
    timed = np.concatenate([np.empty(0, np.int64), *(one.timed for one in counts)])
    order = np.argsort(ranks)
    total = int(timed.sum())
    place = dict(
        zip(ranks[order].tolist(), (np.cumsum(timed[order]) - timed[order]).tolist(), strict=True)
    )
    sample = tasks.each(_SampleTimes(tasks.model_of, max(total // _SAMPLE, 1), place), bundles)
    cuts = _cuts(sample, max(round(total / size), 1))
    before = int(min(_CALLS_BEFORE, _MOST_BEFORE * size / max(len(ranks), 1)))
    found = tasks.each(_FindRuns(tasks.model_of, cuts, before), bundles)
    sending = np.zeros(len(model.communicator_names) + 1, bool)
    for one in counts:
        sending[one.sending] = True
    current = sum(one.current for one in counts)
    return Windows(_places(found, cuts), sending, current, total)


def _cuts(sample: Iterable[tuple[Ints, Ints]], windows: int) -> Ints:
    """Times that part windows of about as many operations. Each is the end of an operation, from
    which a critical path can go back.
    """
    met, ends = (np.concatenate(parts) for parts in zip(*sample, strict=True))
    if not len(met):
        return met
    wanted = np.quantile(met, np.arange(1, windows) / windows)
    end_ns = np.sort(ends)
    places = np.maximum(np.searchsorted(end_ns, wanted, side="right") - 1, 0)
    return np.unique(end_ns[places])


def _places(found: Iterable[Any], cuts: Ints) -> list[WindowPlace]:
    by_window: dict[int, list[tuple[list[int], npt.NDArray[np.uint8] | None]]] = {}
    for of_bundle in found:
        for window, run, bits in of_bundle:
            by_window.setdefault(window, []).append((run, bits))
    limits = [None, *cuts.tolist(), None]
    places = []
    for window in sorted(by_window):
        runs = sorted(by_window[window], key=lambda one: one[0][0])  # by rank
        scattered = {number: bits for number, (_, bits) in enumerate(runs) if bits is not None}
        table = np.array([run for run, _ in runs], np.int64)
        places.append(WindowPlace(table, scattered, limits[window], limits[window + 1]))
    return places


def window_at(model: Model, place: WindowPlace, sending: Bools) -> Window:
    """The window at a place."""
    rank, first, end, own_from = place.runs.T
    number = np.repeat(np.arange(len(first)), end - first)
    rows = expand(first, end - first)
    run = _run_at(model, rows, sending)
    chosen = is_timed(run) & (run.operations["global_rank"] == rank[number])
    if not chosen.all():
        rows, number = rows[chosen], number[chosen]
        run = _run_at(model, rows, sending)
    begin = np.searchsorted(number, np.arange(len(first)))
    own = np.arange(len(rows)) - begin[number] >= own_from[number]
    ends = np.append(begin[1:], len(rows))
    for scattered, bits in place.scattered.items():
        part = slice(begin[scattered], ends[scattered])
        own[part] = np.unpackbits(bits, count=part.stop - part.start)
    return Window(run, rows, own, place.since_ns, place.until_ns)


def window_between(model: Model, since_ns: int | None, until_ns: int) -> Window | None:
    """The window between two times, with all operations of the model before it: what was usual is
    learned of these, too. None where no operation is in it.
    """
    tasks = tasks_here(model)
    rows = len(model.tables["operations"]["event"])
    cuts = np.array(([] if since_ns is None else [since_ns]) + [until_ns], np.int64)
    found = _FindRuns(tasks.model_of, cuts, rows)(slice(0, rows))
    number = len(cuts) - 1
    places = _places([[one for one in found if one[0] == number]], cuts)
    if not places:
        return None
    sending = Run(model).sending
    return window_at(model, places[0], sending)


@dataclass(frozen=True, slots=True)
class _InWindow:
    """What is found in one window."""

    model_of: ModelOf
    sending: Bools
    part_of: Callable[[Window], Any]

    def __call__(self, place: WindowPlace) -> Any:
        return self.part_of(window_at(self.model_of(), place, self.sending))


def by_window(
    windows: Windows, part_of: Callable[[Window], Found | None], tasks: Tasks
) -> list[Found]:
    """What is found in each window, in the order of time."""
    found = tasks.each(_InWindow(tasks.model_of, windows.sending, part_of), windows.places)
    return [part for part in found if part is not None]


def in_windows(
    windows: Windows, part_of: Callable[[Window], Part | None], tasks: Tasks
) -> Part | None:
    """What all windows come to together."""
    parts = by_window(windows, part_of, tasks)
    if not parts:
        return None
    accounts, paths = zip(*parts, strict=True)
    return merged_accounts(accounts), _merged_paths(paths)


# ---- together ----
def merged_accounts(accounts: Iterable[WaitingAccount]) -> WaitingAccount:
    """One account of several windows."""
    accounts = list(accounts)
    by_origin: dict[tuple[str, int | None, int | None], list[Origin]] = {}
    ranks: dict[int, RankWaiting] = {}
    unseen: dict[str, int] = {}
    for account in accounts:
        for origin in account.origins:
            key = origin.kind, origin.rank, origin.communicator
            by_origin.setdefault(key, []).append(origin)
        for row in account.ranks:
            ranks[row.rank] = _sum_of_ranks(ranks[row.rank], row) if row.rank in ranks else row
        for reason, count in account.unseen.items():
            unseen[reason] = unseen.get(reason, 0) + count
    origins = [_merged_origin(parts) for parts in by_origin.values()]
    return WaitingAccount(
        total_ns=sum(account.total_ns for account in accounts),
        origins=tuple(sorted(origins, key=lambda origin: -origin.waiting_ns)),
        structure_ns=sum(account.structure_ns for account in accounts),
        start_up_ns=sum(account.start_up_ns for account in accounts),
        below_clock_error_ns=sum(account.below_clock_error_ns for account in accounts),
        unknown_ns=sum(account.unknown_ns for account in accounts),
        ranks=tuple(sorted(ranks.values(), key=lambda row: (-row.origin_ns, row.rank))),
        unseen=unseen,
    )


def _sum_of_ranks(one: RankWaiting, other: RankWaiting) -> RankWaiting:
    return RankWaiting(
        one.rank,
        one.times_last + other.times_last,
        one.caused_ns + other.caused_ns,
        one.own_ns + other.own_ns,
        one.origin_ns + other.origin_ns,
        one.waited_ns + other.waited_ns,
    )


def _merged_origin(parts: list[Origin]) -> Origin:
    """One origin in several windows. In windows in which it was hardly late, noise is typical: they
    do not count for how often it was late, nor for when.
    """
    order = sorted(parts, key=lambda part: part.typical_ns)
    weights = np.cumsum([part.waiting_ns + part.on_path_ns for part in order])
    middle = int(np.searchsorted(weights, weights[-1] / 2))
    typical = order[middle].typical_ns
    counted = [part for part in parts if part.typical_ns * 2 >= typical]
    return Origin(
        kind=parts[0].kind,
        rank=parts[0].rank,
        communicator=parts[0].communicator,
        waiting_ns=sum(part.waiting_ns for part in parts),
        times=sum(part.times for part in counted),
        typical_ns=typical,
        excess_ns=sum(part.excess_ns for part in parts),
        on_path_ns=sum(part.on_path_ns for part in parts),
        first_ns=min(part.first_ns for part in counted),
        last_ns=max(part.last_ns for part in counted),
    )


def _merged_paths(paths: Iterable[tuple[PathPart, ...]]) -> tuple[PathPart, ...]:
    merged: dict[tuple[str, int | None, int | None, str], PathPart] = {}
    for parts in paths:
        for part in parts:
            key = part.kind, part.rank, part.communicator, part.function
            own = merged.get(key)
            merged[key] = part if own is None else replace(
                part,
                length_ns=own.length_ns + part.length_ns,
                edges=own.edges + part.edges,
                excess_ns=own.excess_ns + part.excess_ns,
            )  # fmt: skip
    return tuple(sorted(merged.values(), key=lambda part: -part.length_ns))
