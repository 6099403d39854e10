"""What is on record against what was made, where processes recorded totals only for some of their
time: for how long single calls were recorded, and how many calls the counters have besides.
"""

from ncclscope.analysis.groups import Key
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary_from_counters import calls_by_key
from ncclscope.capture.reader import is_dataset
from ncclscope.model.model import Model, windows_by_process
from ncclscope.model.schema import NONE

# Keys by which counters and operations tell calls apart in the same way.
_COMPARABLE = {"communicator", "function", "size", "datatype", "rank", "host"}


def recorded_ns(model: Model, began_ns: int, ended_ns: int) -> dict[int, int]:
    """By global rank of processes that paused: how long of this time they recorded single calls."""
    of_process = {
        number: sum(max(min(end, ended_ns) - max(start, began_ns), 0) for start, end in recorded)
        for number, recorded in enumerate(windows_by_process(model))
        if recorded is not None
    }
    members = model.tables["members"]
    ranks = zip(members["process"].tolist(), members["global_rank"].tolist(), strict=True)
    return {rank: of_process[one] for one, rank in ranks if one in of_process and rank != NONE}


def calls_made(
    model: Model, chosen: Selection, by: tuple[str, ...]
) -> dict[tuple[Key, ...], int] | None:
    """Calls by group as the counters have them; None where all are on record, or where counters
    cannot tell: they know no times.
    """
    limited = (chosen.ranks, chosen.since_ns, chosen.until_ns) != (None, None, None)
    if not model.completeness.calls_outside or limited or is_dataset(model.path):
        return None
    return calls_by_key(model, chosen, by) if _COMPARABLE.issuperset(by) else None
