"""The account of waiting of a long run, one window of time after another.

What the account keeps of an operation is about 450 bytes. In windows, memory is bounded by their
size and not by the length of the run. An operation belongs to the window in which the last rank
came to it, so each wait is in one window, and sums conserve. A window also holds the calls right
before it, because waits are followed back in time.

    calls of rank 0    ·  ·  ·  ·  ·  ·  ·  ·  ·
    calls of rank 1    ·  ·  ·  ·  ·  ·  ·  ·  ·
    window 1           [             )
    window 2              (before)   [             )

What is usual is learned in each window. So a change between two windows is no delay of either;
rules about change look at the whole run.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.kernels import timed_rows
from ncclscope.analysis.waiting.origins import Origin, RankWaiting, WaitingAccount
from ncclscope.analysis.waiting.path_parts import PathPart
from ncclscope.analysis.waiting.usual_lengths import THREADS
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

WINDOW = 500_000  # operations; two windows at once need about 0.8 GB
MOST_AT_ONCE = 2_000_000  # operations of a run that is judged as a whole
_AT_ONCE = 1 << 20  # operations whose columns are read at once
_CALLS_BEFORE = 512  # of each rank: waits are followed back by some 20 edges
_MOST_BEFORE = 0.1  # of a window


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a run; in the first one and the last one a limit is None."""

    rows: Ints  # of `operations`: those of the window, and calls right before it
    own: Bools  # by row whether it is the window's
    since_ns: int | None
    until_ns: int | None


Part = tuple[WaitingAccount, tuple[PathPart, ...]]
Found = TypeVar("Found")


def by_window(run: Run, part_of: Callable[[Window], Found | None], size: int) -> list[Found]:
    """What is found in each window of the timed operations, in the order of time; two are worked on
    at a time.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda make: part_of(make()), windows_of(run, timed_rows(run), size))
        return [part for part in found if part is not None]


def in_windows(run: Run, part_of: Callable[[Window], Part | None], size: int) -> Part | None:
    """What all windows come to together."""
    parts = by_window(run, part_of, size)
    if not parts:
        return None
    accounts, paths = zip(*parts, strict=True)
    return merged_accounts(accounts), _merged_paths(paths)


class _Rows:
    """Timed operations by rank, some ranks at a time: columns of all of them would be as long as
    the run.
    """

    def __init__(self, run: Run, rows: Ints) -> None:
        self._operations = run.operations
        self._last_start_ns = np.append(
            np.asarray(run.model.tables["instances"]["last_start_ns"]), NONE
        )
        rank = np.asarray(run.operations["global_rank"])
        is_whole = len(rows) == len(rank)
        rank = rank if is_whole else rank[rows]
        if (rank[1:] < rank[:-1]).any():
            order = np.argsort(rank, kind="stable")
            rows, rank = rows[order], rank[order]
        elif is_whole:
            rows = rows[:0]
        # All of them in their order are none here: they are their own places.
        self._rows = rows.astype(np.int32 if len(rank) <= np.iinfo(np.int32).max else np.int64)
        self.first = np.flatnonzero(np.append(True, rank[1:] != rank[:-1]))  # by rank
        self.count = len(rank)

    def places(self, places: Ints) -> Ints:
        """Rows of `operations` at these places."""
        return self._rows[places].astype(np.int64) if len(self._rows) else places

    def parts(self) -> Iterator[slice]:
        """Places of whole ranks, some at a time."""
        begin = 0
        for end in (*self.first[1:].tolist(), self.count):
            if end - begin >= _AT_ONCE or end == self.count:
                yield slice(begin, end)
                begin = end

    def column(self, name: str, part: slice) -> Ints:
        """A column of some of them as it is."""
        values = np.asarray(self._operations[name])
        return values[self._rows[part]] if len(self._rows) else values[part]

    def met_ns(self, part: slice) -> Ints:
        """By operation when the last rank had come to it; of a group, to all of it."""
        last = self._last_start_ns[self.column("instance", part)]
        met = np.maximum(self.column("start_ns", part), last)
        group = self.column("group_call", part)
        same = group[1:] != NONE
        for values in (
            group, self.column("communicator", part), self.column("global_rank", part),
        ):  # fmt: skip
            same &= values[1:] == values[:-1]
        if not same.any():
            return np.asarray(met)
        new = np.append(True, ~same)
        return np.asarray(np.maximum.reduceat(met, np.flatnonzero(new))[np.cumsum(new) - 1])


def windows_of(run: Run, rows: Ints, size: int) -> list[Callable[[], Window]]:
    """Makers of a run's windows, in the order of time."""
    table = _Rows(run, rows)
    cuts = _cuts(table, max(round(table.count / size), 1))
    number = np.empty(table.count, np.int16)
    for part in table.parts():
        number[part] = np.searchsorted(cuts, table.met_ns(part), side="right")
    first, end = table.first, np.append(table.first[1:], table.count)
    before = int(min(_CALLS_BEFORE, _MOST_BEFORE * size / max(len(first), 1)))
    limits = [None, *cuts.tolist(), None]

    def window(place: int) -> Window:
        bounds = zip(first.tolist(), end.tolist(), strict=True)
        chosen = [_around(number[a:b] == place, a, before) for a, b in bounds]
        places = np.concatenate(chosen)
        own = number[places] == place
        return Window(table.places(places), own, limits[place], limits[place + 1])

    return [partial(window, place) for place in range(len(cuts) + 1)]


def _around(is_own: Bools, first: int, before: int) -> Ints:
    """Places of a rank's operations in a window, and right before it; `first`: the rank's first."""
    own = np.flatnonzero(is_own)
    if not len(own):
        return own
    return first + np.arange(max(int(own[0]) - before, 0), int(own[-1]) + 1)


def _cuts(table: _Rows, windows: int) -> Ints:
    """Times that part windows of about as many operations. Each is the end of an operation, from
    which a critical path can go back.
    """
    every = max(table.count // 100_000, 1)
    met, ends = [], []
    for part in table.parts():
        sample = slice(-part.start % every, None, every)
        met.append(table.met_ns(part)[sample])
        ends.append(table.column("end_ns", part)[sample])
    wanted = np.quantile(np.concatenate(met), np.arange(1, windows) / windows)
    end_ns = np.sort(np.concatenate(ends))
    places = np.maximum(np.searchsorted(end_ns, wanted, side="right") - 1, 0)
    return np.unique(end_ns[places])


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
