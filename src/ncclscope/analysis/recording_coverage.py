"""How much of a run is on record, where processes recorded only totals for some of their time: for
how long they recorded single calls, and how many calls the counters have.
"""

from ncclscope.analysis.groups import Key
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary_from_counters import calls_by_key
from ncclscope.capture.reader import is_dataset
from ncclscope.model.model import Model, windows_by_process
from ncclscope.model.schema import NONE

# Keys by which counters and operations group calls in the same way.
_COMPARABLE = {"communicator", "function", "size", "datatype", "rank", "host"}


def recorded_ns(model: Model, began_ns: int, ended_ns: int) -> dict[int, int]:
    """By global rank how long of this time processes that paused recorded single calls."""
    of_process = {
        row: sum(max(min(end, ended_ns) - max(start, began_ns), 0) for start, end in windows)
        for row, windows in enumerate(windows_by_process(model))
        if windows is not None
    }
    members = model.tables["members"]
    ranks = zip(members["process"].tolist(), members["global_rank"].tolist(), strict=True)
    return {rank: of_process[row] for row, rank in ranks if row in of_process and rank != NONE}


def calls_made(
    model: Model, selection: Selection, by: tuple[str, ...]
) -> dict[tuple[Key, ...], int] | None:
    """Calls by group from the counters; None where all calls are on record, or where counters
    cannot answer: they have no times of single calls.
    """
    limited = (selection.ranks, selection.since_ns, selection.until_ns) != (None, None, None)
    if not model.completeness.calls_outside or limited or is_dataset(model.path):
        return None
    return calls_by_key(model, selection, by) if _COMPARABLE.issuperset(by) else None
