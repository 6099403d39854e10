"""The account of waiting and the critical path of selected operations, for reports."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.kernels import is_sparse, kernels_of, untimed_of
from ncclscope.analysis.waiting.origins import (
    Span,
    Waiting,
    WaitingAccount,
    account_of,
    waiting_of,
    waiting_of_kernels,
)
from ncclscope.analysis.waiting.path_edges import path_in_window, selected_path
from ncclscope.analysis.waiting.path_parts import PathPart, path_parts
from ncclscope.analysis.waiting.rank_delays import delays_of
from ncclscope.analysis.waiting.windows import (
    MOST_AT_ONCE,
    WINDOW,
    Part,
    Tasks,
    Window,
    find_windows,
    in_windows,
    tasks_here,
    window_between,
)
from ncclscope.model.model import Model

_MOST_ASKED = 8  # ranks whose delays are looked at

Answer = tuple[WaitingAccount | None, tuple[PathPart, ...]]
AccountOf = Callable[[Model, Selection], Answer]  # waiting_account, or kept_waiting_account


def waiting_account(
    model: Model,
    selection: Selection,
    most_at_once: int = MOST_AT_ONCE,
    tasks: Tasks | None = None,
) -> Answer:
    """Where the waiting of the selected operations of the last attempt began, wherever that was,
    and the critical path of the selected time; None where no waiting can be seen. Runs of more than
    `most_at_once` operations are judged window by window: by `tasks`, or else on this machine.
    """
    if len(model.tables["operations"]["event"]) > most_at_once:
        size = min(WINDOW, most_at_once)
        return _in_windows(model, selection, size, tasks or tasks_here(model))
    waiting = waiting_of(Run(model))
    if waiting is None:
        return None, ()
    chosen = None
    if selection != Selection():
        rows = len(model.tables["operations"]["event"])
        chosen = selection.rows(model, slice(0, rows))[waiting.kernels.row]
    account = account_of(waiting, chosen)
    if is_sparse(model, waiting.kernels.timed_share):
        return _of_sample(account), ()
    return account, path_parts(waiting, selected_path(waiting, selection))


def _of_sample(account: WaitingAccount) -> WaitingAccount:
    """An account of a sparse sample: what has no origin in it began between timed operations, and
    so does most of the critical path.
    """
    unknown_ns = account.unknown_ns + account.structure_ns
    origins = tuple(replace(origin, on_path_ns=0) for origin in account.origins)
    return replace(account, origins=origins, structure_ns=0, unknown_ns=unknown_ns)


@dataclass(frozen=True, slots=True)
class _OfWindow:
    """The account of a window's own operations, and the critical path in it."""

    selection: Selection

    def __call__(self, window: Window) -> Part | None:
        run, rows = window.run, len(window.rows)
        kernels = kernels_of(run, np.arange(rows), window.own)
        if kernels is None:
            return None
        waiting = waiting_of_kernels(run, kernels, Span(window.since_ns, window.until_ns))
        chosen = window.own[kernels.row]
        if self.selection != Selection():
            chosen &= self.selection.rows(run.model, slice(0, rows))[kernels.row]
        return account_of(waiting, chosen), _parts_in_window(waiting, self.selection)


def _in_windows(model: Model, selection: Selection, size: int, tasks: Tasks) -> Answer:
    """The same, window by window."""
    windows = find_windows(model, size, tasks)
    found = in_windows(windows, _OfWindow(selection), tasks)
    if found is None:
        return None, ()
    account, parts = found
    untimed = untimed_of(windows.current, windows.timed)
    account = replace(account, unseen=untimed | account.unseen)
    sparse = is_sparse(model, windows.timed / max(windows.current, 1))
    return (_of_sample(account), ()) if sparse else (account, parts)


@dataclass(frozen=True, slots=True)
class RecentWaiting:
    """The account of a part of a run, and ranks that were late for want of work."""

    account: WaitingAccount
    idle_roots: tuple[int, ...]  # of the ranks in which most waiting began


def account_between(model: Model, since_ns: int | None, until_ns: int) -> RecentWaiting | None:
    """The account of what the last rank came to between two times; None where no waiting can be
    seen there. Without `since_ns` from the beginning of the run on.
    """
    window = window_between(model, since_ns, until_ns)
    if window is None:
        return None
    kernels = kernels_of(window.run, np.arange(len(window.rows)), window.own)
    if kernels is None:
        return None
    waiting = waiting_of_kernels(window.run, kernels, Span(since_ns, until_ns))
    account = account_of(waiting, window.own[kernels.row])
    most = [row.rank for row in account.ranks[:_MOST_ASKED] if row.origin_ns]
    idle = tuple(rank for rank in most if delays_of(waiting, rank).as_idle_root)
    return RecentWaiting(account, idle)


def _parts_in_window(waiting: Waiting, selection: Selection) -> tuple[PathPart, ...]:
    """What the critical path runs through in a window, in the selected time."""
    path = path_in_window(waiting, selection)
    return () if path is None else path_parts(waiting, path)
