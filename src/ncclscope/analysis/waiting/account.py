"""The account of waiting and the critical path of selected operations, for reports."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.kernels import is_timed, kernels_of, untimed_of
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
from ncclscope.analysis.waiting.windows import MOST_AT_ONCE, WINDOW, Window, in_windows
from ncclscope.model.model import Model

Answer = tuple[WaitingAccount | None, tuple[PathPart, ...]]
AccountOf = Callable[[Model, Selection], Answer]  # waiting_account, or kept_waiting_account


def waiting_account(model: Model, selection: Selection, most_at_once: int = MOST_AT_ONCE) -> Answer:
    """Where the waiting of the selected operations of the last attempt began, wherever that was,
    and the critical path of the selected time; None where no waiting can be seen. Runs of more than
    `most_at_once` operations are judged window by window.
    """
    run = Run(model)
    if len(model.tables["operations"]["event"]) > most_at_once:
        return _in_windows(run, selection, min(WINDOW, most_at_once))
    waiting = waiting_of(run)
    if waiting is None:
        return None, ()
    parts = path_parts(waiting, selected_path(waiting, selection))
    if selection == Selection():
        return account_of(waiting), parts
    rows = len(model.tables["operations"]["event"])
    chosen = selection.rows(model, slice(0, rows))[waiting.kernels.row]
    return account_of(waiting, chosen), parts


def _in_windows(run: Run, selection: Selection, size: int) -> Answer:
    """The same, window by window."""
    model = run.model
    rows = len(model.tables["operations"]["event"])
    selected = None if selection == Selection() else selection.rows(model, slice(0, rows))

    def of_window(window: Window) -> tuple[WaitingAccount, tuple[PathPart, ...]] | None:
        own = np.zeros(rows, bool)
        own[window.rows[window.own]] = True
        kernels = kernels_of(run, window.rows, own)
        if kernels is None:
            return None
        waiting = waiting_of_kernels(run, kernels, Span(window.since_ns, window.until_ns))
        chosen = own[kernels.row]
        if selected is not None:
            chosen &= selected[kernels.row]
        return account_of(waiting, chosen), _parts_in_window(waiting, selection)

    found = in_windows(run, of_window, size)
    if found is None:
        return None, ()
    account, parts = found
    return replace(
        account, unseen=untimed_of(run, int(is_timed(run).sum())) | account.unseen
    ), parts


def _parts_in_window(waiting: Waiting, selection: Selection) -> tuple[PathPart, ...]:
    """What the critical path runs through in a window, in the selected time."""
    path = path_in_window(waiting, selection)
    return () if path is None else path_parts(waiting, path)
