"""How calls and bytes are distributed over the ranks of a communicator, function by function."""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.distinct import rows_by_place
from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.model import windows_by_process
from ncclscope.model.schema import NONE

Windows = list[tuple[int, int]]  # from, to in ns
_LEAST_CALLS = 10  # of a rank, where only windows are on record: their edges cut off some


@dataclass(frozen=True, slots=True)
class FunctionBalance:
    """What each rank of a communicator did with one function; rows are ranks."""

    communicator: int
    function: str
    ranks: Ints  # global
    calls: Floats
    bytes: Floats
    busy_ns: Floats  # sum of durations
    module: int = NONE  # row of `modules`, where they are apart


def balances(run: Run, least_ranks: int) -> tuple[FunctionBalance, ...]:
    """By communicator of at least `least_ranks` ranks, and function."""
    operations = run.operations
    is_counted = (operations["size_bytes"] != NONE) & (operations["global_rank"] != NONE)
    return _balances(run, least_ranks, np.flatnonzero(run.current & is_counted))


def module_balances(run: Run, least_ranks: int) -> tuple[FunctionBalance, ...]:
    """The same for each module of the program: experts of one layer can be uneven where all layers
    together are even.
    """
    if not run.model.has_context:
        return ()
    operations, modules = run.operations, np.asarray(run.operations["module"])
    is_counted = (operations["size_bytes"] != NONE) & (operations["global_rank"] != NONE)
    rows = np.flatnonzero(run.current & is_counted & (modules != NONE))
    per_module: list[FunctionBalance] = []
    numbers, place = np.unique(modules[rows], return_inverse=True)
    for module, own in zip(numbers.tolist(), rows_by_place(place, len(numbers)), strict=True):
        balances_here = _balances(run, least_ranks, rows[own])
        per_module += [replace(balance, module=module) for balance in balances_here]
    return tuple(per_module)


def _balances(run: Run, least_ranks: int, rows: Ints) -> tuple[FunctionBalance, ...]:
    if not len(rows):
        return ()
    key = run.column("communicator", rows) << 8 | run.column("function", rows) + 1  # NONE: 0
    order = np.argsort(key, kind="stable")
    numbers, first = np.unique(key[order], return_index=True)
    windows = windows_by_process(run.model)
    per_function = []
    for number, own in zip(numbers.tolist(), np.split(rows[order], first[1:]), strict=True):
        communicator, code = number >> 8, (number & 0xFF) - 1
        ranks = run.ranks_of(communicator)
        if len(ranks) < least_ranks:
            continue
        common = common_windows([windows[run.process_of[r]] for r in ranks if r in run.process_of])
        if common is not None:
            own = own[_within(run.column("call_ns", own), common)]
            if len(own) < _LEAST_CALLS * len(ranks):
                continue
        function = run.word("function", code)
        per_function.append(_function_balance(run, communicator, function, ranks, own))
    return tuple(per_function)


def _function_balance(
    run: Run, communicator: int, function: str, ranks: list[int], rows: Ints
) -> FunctionBalance:
    known, rank = np.array(ranks), run.column("global_rank", rows)
    place = np.minimum(np.searchsorted(known, rank), len(known) - 1)
    is_member = known[place] == rank  # others are of a damaged capture
    if not is_member.all():
        rows, place = rows[is_member], place[is_member]
    size = run.column("size_bytes", rows).astype(np.float64)
    busy = np.maximum(run.column("duration_ns", rows), 0).astype(np.float64)
    count = len(known)  # some of them may have done nothing
    return FunctionBalance(
        communicator,
        function,
        known,
        np.bincount(place, minlength=count).astype(np.float64),
        np.bincount(place, size, minlength=count).astype(np.float64),
        np.bincount(place, busy, minlength=count).astype(np.float64),
    )


def are_hubs(run: Run, balance: FunctionBalance, chosen: Bools) -> bool:
    """Whether the other ranks of a communicator send to these and receive from these alone, as
    workers do with their parameter servers.
    """
    code = run.model.words["function"].index(balance.function)
    operations = run.operations
    own = run.p2p & (operations["communicator"] == balance.communicator)
    rows = np.flatnonzero(own & (operations["function"] == code) & (operations["peer"] != NONE))
    hubs = np.unique(
        run.column("rank", rows)[np.isin(run.column("global_rank", rows), balance.ranks[chosen])]
    )
    others = ~np.isin(run.column("rank", rows), hubs)
    return bool(others.any()) and bool(np.isin(run.column("peer", rows[others]), hubs).all())


def common_windows(windows: list[Windows | None]) -> Windows | None:
    """When all of some processes recorded single calls; None: all the time. Windows that `ctl`
    opened do not begin together: calls in one of them alone would look like more work.

    >>> common_windows([None, [(0, 5), (7, 9)], [(4, 8)]])
    [(4, 5), (7, 8)]
    """
    limited = [own for own in windows if own is not None]
    if not limited:
        return None
    edges = sorted(
        edge for own in limited for start, end in own for edge in ((start, 1), (end, -1))
    )
    common, recording, since = [], 0, 0
    for at, change in edges:
        if recording == len(limited):
            common.append((since, at))
        recording, since = recording + change, at
    return [(start, end) for start, end in common if start < end]


def _within(times: Ints, windows: Windows) -> Bools:
    inside = np.zeros(len(times), bool)
    for start, end in windows:
        inside |= (times >= start) & (times <= end)
    return inside
