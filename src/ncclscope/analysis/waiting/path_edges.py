"""The critical path edge by edge, in the order of time: for timelines and exports."""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.critical_path import CriticalPath, critical_path
from ncclscope.analysis.waiting.kernels import kernels_of
from ncclscope.analysis.waiting.origins import (
    KINDS,
    Span,
    Waiting,
    waiting_of,
    waiting_of_kernels,
)
from ncclscope.analysis.waiting.windows import (
    MOST_AT_ONCE,
    WINDOW,
    Window,
    by_window,
    find_windows,
    tasks_here,
)
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE

START_UP = "start-up"
PATH_KINDS = (*KINDS.values(), START_UP)  # edges by their place here


@dataclass(frozen=True, slots=True)
class PathEdges:
    """One row an edge. Edges follow each other without gaps."""

    start_ns: Ints
    end_ns: Ints
    kind: Ints  # place in PATH_KINDS
    operation: Ints  # row of `operations` that the edge leads to the call, start or end of
    excess_ns: Ints  # beyond the usual

    def __len__(self) -> int:
        return len(self.start_ns)


def selected_path(waiting: Waiting, selection: Selection) -> CriticalPath:
    """The critical path of the selected time; without one, since the start-up."""
    if selection.window == Selection():
        return waiting.path
    return critical_path(
        waiting.time_ns, waiting.dependencies, selection.since_ns, selection.until_ns
    )


def path_in_window(waiting: Waiting, selection: Selection) -> CriticalPath | None:
    """The critical path of a window in the selected time; None where that is outside of it."""
    span = waiting.span
    since, until = selection.since_ns, selection.until_ns
    if until is not None and span.since_ns is not None and until <= span.since_ns:
        return None
    if since is not None and span.until_ns is not None and since >= span.until_ns:
        return None
    known = [time for time in (since, span.since_ns) if time is not None]
    ends = [time for time in (until, span.until_ns) if time is not None]
    inside = Selection(
        since_ns=max(known) if selection.window != Selection() and known else None,
        until_ns=min(ends) if selection.window != Selection() and ends else None,
    )
    return selected_path(waiting, inside)


def path_edges_of(
    model: Model, selection: Selection, most_at_once: int = MOST_AT_ONCE
) -> PathEdges | None:
    """The critical path of the last attempt in the selected time; None where no rank can be seen
    to wait for another. Of runs of more than `most_at_once` operations it is found window by
    window, as the account of waiting is.
    """
    if len(model.tables["operations"]["event"]) > most_at_once:
        return _edges_by_window(model, selection, min(WINDOW, most_at_once))
    waiting = waiting_of(Run(model))
    return None if waiting is None else path_edges(waiting, selected_path(waiting, selection))


def _edges_by_window(model: Model, selection: Selection, size: int) -> PathEdges | None:
    def of_window(window: Window) -> PathEdges | None:
        kernels = kernels_of(window.run, np.arange(len(window.rows)))
        if kernels is None:
            return None
        span = Span(window.since_ns, window.until_ns)
        waiting = waiting_of_kernels(window.run, kernels, span)
        path = path_in_window(waiting, selection)
        if path is None:
            return None
        edges = path_edges(waiting, path)
        return replace(edges, operation=window.rows[edges.operation])

    tasks = tasks_here(model)
    found = by_window(find_windows(model, size, tasks), of_window, tasks)
    if not found:
        return None
    names = ("start_ns", "end_ns", "kind", "operation", "excess_ns")
    columns = [np.concatenate([getattr(edges, name) for edges in found]) for name in names]
    return PathEdges(*columns)


def path_edges(waiting: Waiting, path: CriticalPath) -> PathEdges:
    """The edges of a path that last, the first one first."""
    lasting = path.length_ns > 0
    events, length = path.events[lasting][::-1], path.length_ns[lasting][::-1]
    end = waiting.time_ns[events]
    excess = np.minimum(waiting.excess_ns[events], length).astype(np.int64)
    place = np.full(int(max(KINDS)) + 2, PATH_KINDS.index(START_UP), np.int64)
    for number, code in enumerate(KINDS):
        place[code] = number
    edge = waiting.shown_edge[events].astype(np.int64)
    return PathEdges(end - length, end, place[edge], waiting.kernels.row[events // 3], excess)


def path_names(model: Model, edges: PathEdges) -> tuple[list[str], Ints]:
    """Names for edges, and by edge which one it has: the function of a transfer, else the kind."""
    functions = model.words["function"]
    function = np.asarray(model.tables["operations"]["function"])[edges.operation].astype(np.int64)
    is_transfer = edges.kind == PATH_KINDS.index(KINDS[_abi.EDGE_TRANSFER])
    known = is_transfer & (function != NONE)
    return [*PATH_KINDS, *functions], np.where(known, len(PATH_KINDS) + function, edges.kind)
