"""How long each operation waited for other ranks: the second pass over the processes."""

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Bools, Ints
from ncclscope.model import schema
from ncclscope.model.schema import NONE, SOURCES, table_columns
from ncclscope.model.streams import ROUGH, Columns, Rules, Streams, meets_of
from ncclscope.nccl.functions import EVERYBODY, NOBODY, ROOT_FIRST, ROOT_LAST

GPU_EVENT = SOURCES.index("gpu-event")
_MOST_ERROR_SHARE = 0.25  # of the clocks, in an operation that was timed by CUDA events
# What an operation's wait depends on, by row of its instance in `Streams`.
STATE = table_columns(
    ("instance", "i8", "row of `instances`"),
    ("error_ns", "i8", "how far differences of its ranks' times may be off"),
    ("mismatch", "i1", "1: its ranks disagree"),
    ("ranks_timed", "i4", "ranks with an exact start"),
    ("last_start_ns", "i8", "the last arrival"),
    ("root_start_ns", "i8", "the root's arrival"),
    ("shortest_ns", "i8", "the shortest duration"),
    ("shortest_is_rough", "i1", "1: it is too short for CUDA events"),
    ("all_timed", "i1", "1: all of its ranks have exact starts"),
)


class Waits:
    """Waits by the states of instances: columns STATE."""

    def __init__(self, streams: Streams, rules: Rules, states: schema.Columns) -> None:
        self._streams, self._rules, self._states = streams, rules, states

    def of(self, columns: Columns) -> dict[str, Ints]:
        """`instance`, `wait_ns`, `wire_ns` and `relative_wait_ns` of operations of one process."""
        _, row = self._streams.find(columns)
        known = row != NONE
        at = np.where(known, row, 0)
        size = len(row)
        out = {name: np.full(size, NONE, np.int64) for name in ("wait_ns", "wire_ns")}
        out["relative_wait_ns"] = np.full(size, NONE, np.int64)
        out["instance"] = np.full(size, NONE, np.int64)
        if not self._streams.rows:
            return out
        states = {name: values[at] for name, values in self._states.items()}
        out["instance"] = np.where(known, states["instance"], NONE)
        meets = meets_of(columns, self._rules, rough=True)
        meets = np.where(known & (states["mismatch"] == 0), meets, NOBODY)
        arrival, defined = _arrivals(columns, meets, states)
        start = columns["start_ns"].astype(np.int64)
        duration = columns["end_ns"].astype(np.int64) - start
        # Events are seen late, so their clock is often too poor to say who waited. Where events do
        # not show the shortest duration, they do not show the time on the wire either.
        is_rough = columns["source"] == ROUGH
        by_events = is_rough | (columns["source"] == GPU_EVENT)
        whole = ~by_events | (states["all_timed"] == 1)
        defined &= ~by_events | (states["error_ns"] <= duration * _MOST_ERROR_SHARE)
        defined &= whole
        wait = np.clip(arrival - start, 0, duration)
        out["wait_ns"] = np.where(defined, wait, NONE)
        exact = ~is_rough & (~by_events | (states["shortest_is_rough"] == 0))
        out["wire_ns"] = np.where(defined & exact, duration - wait, NONE)
        relative = columns["duration_ns"].astype(np.int64) - states["shortest_ns"]
        together = (meets == EVERYBODY) & (states["ranks_timed"] > 1) & whole
        out["relative_wait_ns"] = np.where(together, relative, NONE)
        return out


def _arrivals(
    columns: Columns, meets: npt.NDArray[np.int8], states: schema.Columns
) -> tuple[Ints, Bools]:
    """By operation the arrival it waited for, and whether that is defined."""
    from_root = meets == ROOT_FIRST
    arrival = np.where(from_root, states["root_start_ns"], states["last_start_ns"])
    is_root = columns["root"] == columns["rank"]
    defined = (meets == EVERYBODY) | (from_root & (arrival != NONE))
    defined |= (meets == ROOT_LAST) & is_root
    return arrival, defined & (states["ranks_timed"] > 1) & (states["error_ns"] != NONE)
