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

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import Origin, RankWaiting, WaitingAccount
from ncclscope.analysis.waiting.path_parts import PathPart
from ncclscope.analysis.waiting.usual_lengths import THREADS
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

WINDOW = 500_000  # operations; two windows at once need about 0.8 GB
MOST_AT_ONCE = 2_000_000  # operations of a run that is judged as a whole
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


def in_windows(
    run: Run, rows: Ints, part_of: Callable[[Window], Part | None], size: int
) -> Part | None:
    """What all windows of these operations come to together; two are worked on at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda make: part_of(make()), windows_of(run, rows, size))
        parts = [part for part in found if part is not None]
    if not parts:
        return None
    accounts, paths = zip(*parts, strict=True)
    return merged_accounts(accounts), _merged_paths(paths)


class _Rows:
    """Timed operations by rank, and when the last rank had come to each."""

    def __init__(self, run: Run, rows: Ints) -> None:
        rank = np.asarray(run.operations["global_rank"])[rows]
        ordered = not (np.diff(rank) < 0).any()
        self.rows = rows if ordered else rows[np.argsort(rank, kind="stable")]
        self._all = len(rows) == len(run.operations["event"]) and ordered
        self._run = run

    def column(self, name: str) -> Ints:
        """A column of these operations as it is."""
        values = np.asarray(self._run.operations[name])
        return values if self._all else values[self.rows]

    def met_ns(self) -> Ints:
        """By operation when the last rank had come to it; of a group, to all of it."""
        last = np.append(np.asarray(self._run.model.tables["instances"]["last_start_ns"]), NONE)
        met = np.maximum(self.column("start_ns"), last[self.column("instance")])
        group = self.column("group_call")
        same = group[1:] != NONE
        for values in (group, self.column("communicator"), self.column("global_rank")):
            same &= values[1:] == values[:-1]
        if not same.any():
            return np.asarray(met)
        new = np.append(True, ~same)
        return np.asarray(np.maximum.reduceat(met, np.flatnonzero(new))[np.cumsum(new) - 1])


def windows_of(run: Run, rows: Ints, size: int) -> list[Callable[[], Window]]:
    """Makers of a run's windows, in the order of time."""
    table = _Rows(run, rows)
    rank, met = table.column("global_rank"), table.met_ns()
    cuts = _cuts(met, table.column("end_ns"), max(round(len(met) / size), 1))
    number = np.searchsorted(cuts, met, side="right").astype(np.int16)
    first = np.flatnonzero(np.append(True, np.diff(rank) != 0))
    end = np.append(first[1:], len(rank))
    before = int(min(_CALLS_BEFORE, _MOST_BEFORE * size / max(len(first), 1)))
    limits = [None, *cuts.tolist(), None]

    def window(place: int) -> Window:
        bounds = zip(first.tolist(), end.tolist(), strict=True)
        chosen = [_around(number[a:b] == place, a, before) for a, b in bounds]
        places = np.concatenate(chosen)
        own = number[places] == place
        return Window(table.rows[places], own, limits[place], limits[place + 1])

    return [partial(window, place) for place in range(len(cuts) + 1)]


def _around(is_own: Bools, first: int, before: int) -> Ints:
    """Places of a rank's operations in a window, and right before it; `first`: the rank's first."""
    own = np.flatnonzero(is_own)
    if not len(own):
        return own
    return first + np.arange(max(int(own[0]) - before, 0), int(own[-1]) + 1)


def _cuts(met_ns: Ints, end_ns: Ints, windows: int) -> Ints:
    """Times that part windows of about as many operations. Each is the end of an operation, from
    which a critical path can go back.
    """
    every = max(len(met_ns) // 100_000, 1)
    wanted = np.quantile(met_ns[::every], np.arange(1, windows) / windows)
    ends = np.sort(end_ns[::every])
    places = np.maximum(np.searchsorted(ends, wanted, side="right") - 1, 0)
    return np.unique(ends[places])


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
