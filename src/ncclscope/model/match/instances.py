"""Instances: the operations of all ranks that belong together, who arrived last, who waited.

Two passes over the processes, one after the other: the first gathers what concerns an instance, the
second sets each operation's wait and wire. Times are on the one clock by then.

Example, times in µs: an AllReduce of three ranks, clocks of their nodes exact to 2.

    rank   start   end    wait   wire
    0        100   190      60     30
    1        160   190       0     30
    2        130   191      30     31

The last arrival is 160, of rank 1. That is certain, because the last but one, 130, is farther away
than the clocks' error: `last_communicator_rank` is 1, `skew_ns` 60. Until 160 ranks 0 and 2 waited,
then the data travelled. If rank 1 had started at 131, the last rank would not be certain, but the
waits would still be right to 2. `relative_wait_ns` needs no clock: the shortest duration, 30, is
taken to contain no wait, so rank 0 waited 90 - 30 = 60.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.library import empty_array, full_array
from ncclscope.model import schema
from ncclscope.model.align.host_clocks import HostClocks
from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SEND
from ncclscope.model.streams import (
    PAIRS,
    Bools,
    Columns,
    Ints,
    Rules,
    Streams,
    distinct,
    meets_of,
    started_of,
)
from ncclscope.nccl.functions import EVERYBODY, NOBODY, ROOT_FIRST, ROOT_LAST

_NEVER = np.iinfo(np.int64).max
_LOW = (1 << 32) - 1
GPU_EVENT = schema.SOURCES.index("gpu-event")
_MOST_ERROR_SHARE = 0.25  # of the clocks, in an operation that was timed by CUDA events
_AGREED = ("function", "datatype", "size_bytes")


def _span(places: Ints) -> Ints | slice:
    """Places as a slice where they follow each other: numpy is much quicker with that."""
    if len(places) and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _gpus_of(columns: Columns) -> Ints:
    """The distinct pairs of node and global rank: node << 32 | rank + 1."""
    node, rank = (columns[name].astype(np.int64) for name in ("node", "global_rank"))
    return distinct(node << 32 | rank + 1)


def _distinct_of(parts: list[Ints]) -> Ints:
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))


class Instances:
    """One row for each number of each stream; rows without operations are left out of the table."""

    def __init__(self, streams: Streams, rules: Rules) -> None:
        self._streams, self._rules = streams, rules
        rows = streams.rows
        self._seen = full_array(rows, np.int32, 0)
        self._timed = full_array(rows, np.int32, 0)
        self._mismatch = full_array(rows, np.int8, 0)
        self._votes = full_array(rows, np.int32, 0)
        self._agreed: dict[str, npt.NDArray[Any]] = {
            "function": full_array(rows, np.int8, NONE),
            "datatype": full_array(rows, np.int8, NONE),
            "size_bytes": full_array(rows, np.int64, NONE),
        }
        self._first_start = full_array(rows, np.int64, _NEVER)
        self._last_start = full_array(rows, np.int64, -_NEVER)
        self._second_start = full_array(rows, np.int64, -_NEVER)  # the last but one
        self._last_end = full_array(rows, np.int64, NONE)
        self._root_start = full_array(rows, np.int64, NONE)
        self._shortest = full_array(rows, np.int64, _NEVER)
        self._last_rank = full_array(rows, np.int32, NONE)
        self._width = full_array(rows, np.int64, 0)
        self._low_node = full_array(rows, np.int32, np.iinfo(np.int32).max)
        self._high_node = full_array(rows, np.int32, NONE)
        self._error = full_array(rows, np.int64, NONE)
        self._place = full_array(rows, np.int64, NONE)
        self._gpus: Counter[int] = Counter()  # by node

    # ---- first pass ----
    def add(self, columns: Columns, width_ns: int = 0) -> None:
        """Adds the operations of one process. `width_ns`: how far its times may be off within its
        node (half the width of the GPU's mapping).
        """
        count = len(columns["rank"])
        row, part = empty_array(count, np.int64), empty_array(count, np.int64)
        started, meets = empty_array(count, np.bool_), empty_array(count, np.int8)
        gpus, parts = [], []
        for chunk in row_chunks(count):
            some = {name: values[chunk] for name, values in columns.items()}
            _, row[chunk] = self._streams.find(some)
            started[chunk], meets[chunk] = started_of(some), meets_of(some, self._rules)
            # A rank has one operation of an instance, and two of a send to itself.
            part[chunk] = some["rank"].astype(np.int64) * 2 + (some["form"] == RECV)
            parts.append(distinct(part[chunk][row[chunk] != NONE]))
            gpus.append(_gpus_of(some))
        self._gpus.update((_distinct_of(gpus) >> 32).tolist())
        for own_part in _distinct_of(parts).tolist():
            for chunk in row_chunks(count):
                some = {name: values[chunk] for name, values in columns.items()}
                use = np.flatnonzero((part[chunk] == own_part) & (row[chunk] != NONE))
                self._add_part(some, use, row[chunk], started[chunk], meets[chunk], width_ns)

    def _add_part(
        self,
        columns: Columns,
        use: Ints,
        row: Ints,
        started: Bools,
        meets: npt.NDArray[np.int8],
        width_ns: int,
    ) -> None:
        """Adds operations of different instances, so that each row is written once. `use`: their
        places in the columns.
        """
        self._vote(columns, use, row[use])
        timed = use[started[use]]
        self._arrive(columns, timed, row[timed], width_ns)
        all_meet = use[meets[use] == EVERYBODY]
        places, at = _span(all_meet), _span(row[all_meet])
        duration = columns["duration_ns"][places].astype(np.int64)
        self._shortest[at] = np.minimum(self._shortest[at], duration)
        root = timed[columns["root"][timed] == columns["rank"][timed]]
        self._root_start[row[root]] = columns["start_ns"][root]

    def _vote(self, columns: Columns, use: Ints, row: Ints) -> None:
        """Boyer and Moore's majority vote over ranks, on function, datatype and size: a value that
        more than half of them have wins; any disagreement is a mismatch.
        """
        places, at = _span(use), _span(row)
        same = np.ones(len(use), bool)
        pair = (columns["form"][places] == SEND) | (columns["form"][places] == RECV)
        for name in _AGREED:
            own, majority = columns[name][places], self._agreed[name][at]
            agree = (own == majority) | (own == NONE) | (majority == NONE)
            # A pair is a Send on one side and a Recv on the other.
            same &= agree | pair if name == "function" else agree
        fresh = self._votes[at] == 0
        self._mismatch[at] |= ~same & (self._seen[at] > 0)
        self._seen[at] += 1
        self._votes[at] += np.where(fresh | same, 1, -1).astype(np.int32)
        for name in _AGREED:
            own, majority = columns[name][places], self._agreed[name][at]
            take = (fresh | (same & (majority == NONE))) & (own != NONE)
            self._agreed[name][at] = np.where(take, own, majority)
        if self._rules.send != NONE and pair.any():
            self._agreed["function"][row[pair]] = self._rules.send

    def _arrive(self, columns: Columns, timed: Ints, row: Ints, width_ns: int) -> None:
        """Adds starts and ends of operations with exact starts."""
        places, at = _span(timed), _span(row)
        start = columns["start_ns"][places].astype(np.int64)
        node = columns["node"][places].astype(np.int32)
        self._timed[at] += 1
        self._first_start[at] = np.minimum(self._first_start[at], start)
        last = self._last_start[at].copy()
        later = start > last
        self._second_start[at] = np.where(later, last, np.maximum(self._second_start[at], start))
        self._last_start[at] = np.maximum(last, start)
        self._last_rank[at] = np.where(later, columns["rank"][places], self._last_rank[at])
        end = columns["end_ns"][places].astype(np.int64)
        self._last_end[at] = np.maximum(self._last_end[at], end)
        self._width[at] = np.maximum(self._width[at], width_ns)
        self._low_node[at] = np.minimum(self._low_node[at], node)
        self._high_node[at] = np.maximum(self._high_node[at], node)

    # ---- the table ----
    def table(
        self, clocks: HostClocks, nodes: Mapping[int, Ints], ranks: Ints
    ) -> dict[str, npt.NDArray[np.generic]]:
        """The columns of `instances`; ends the first pass. `nodes`: by communicator its nodes;
        `ranks`: by communicator the number of its ranks.
        """
        out = schema.empty(schema.INSTANCES, int(np.count_nonzero(self._seen)))
        first = 0
        for chunk in row_chunks(self._streams.rows):
            place, order = self._streams.by_row(chunk)
            self._error[chunk] = self._errors(clocks, nodes, place, chunk)
            seen = np.flatnonzero(self._seen[chunk])
            target = slice(first, first + len(seen))
            self._place[chunk][seen] = np.arange(target.start, target.stop)
            rows = seen + chunk.start
            for name, value in self._shown(rows, place[seen], order[seen], ranks).items():
                out[name][target] = value
            first = target.stop
        return out

    def _shown(
        self, use: Ints, place: Ints, order: Ints, ranks: Ints
    ) -> dict[str, npt.NDArray[np.generic]]:
        """Columns of some rows. `place`, `order`: their streams and their numbers in them."""
        pair = self._streams.kind[place] == PAIRS
        communicator = self._streams.communicator[place]
        timed, error = self._timed[use], self._error[use]
        skew = self._last_start[use] - self._first_start[use]
        margin = self._last_start[use] - self._second_start[use]
        known = timed > 0
        compared = (timed > 1) & (error != NONE)
        certain = compared & (margin > error)
        return {
            "communicator": communicator,
            "form": np.where(pair, SEND, COLLECTIVE),
            "call_order": order,
            "source_rank": self._streams.source_rank[place],
            "destination_rank": self._streams.destination_rank[place],
            "ranks_seen": self._seen[use],
            "ranks_expected": np.where(pair, 2, ranks[communicator]),
            "ranks_timed": timed,
            "mismatch": self._mismatch[use],
            "first_start_ns": np.where(known, self._first_start[use], NONE),
            "last_start_ns": np.where(known, self._last_start[use], NONE),
            "last_end_ns": self._last_end[use],
            "last_communicator_rank": np.where(certain, self._last_rank[use], NONE),
            "skew_ns": np.where(compared, skew, NONE),
            "error_ns": error,
            "function": self._agreed["function"][use],
            "size_bytes": self._agreed["size_bytes"][use],
        }

    def _errors(
        self, clocks: HostClocks, nodes: Mapping[int, Ints], place: Ints, chunk: slice
    ) -> Ints:
        """By row of a chunk how far differences of its ranks' times may be off; NONE where nothing
        ties their clocks.
        """
        error = np.zeros(len(place))
        low, high, timed = self._low_node[chunk], self._high_node[chunk], self._timed[chunk]
        apart = (low < high) & (timed > 1)
        pair = self._streams.kind[place] == PAIRS
        communicator = self._streams.communicator[place]
        # Pairs by their two nodes, all others by the nodes of their communicator.
        two = low.astype(np.int64) << 32 | high.astype(np.int64)
        for chosen, key in ((apart & pair, two), (apart & ~pair, communicator)):
            rows = np.flatnonzero(chosen)
            rows = rows[np.argsort(key[rows], kind="stable")]
            groups = np.split(rows, np.flatnonzero(np.diff(key[rows])) + 1) if len(rows) else []
            for group in groups:
                shared = int(key[group[0]])
                if key is communicator:
                    members = nodes[shared]
                else:
                    members = np.array([shared >> 32, shared & _LOW])
                error[group] = clocks.error_among(members, self._last_start[chunk][group])
        tied = np.isfinite(error)
        # With one GPU per node, the nodes' errors contain the GPU's mapping already.
        same = apart & (max(self._gpus.values(), default=1) == 1)
        width = np.where(same, 0, 2 * self._width[chunk])
        total = np.ceil(np.where(tied, error, 0.0)).astype(np.int64) + width
        return np.where(tied & (timed > 0), total, NONE)

    # ---- second pass ----
    def waits(self, columns: Columns) -> dict[str, Ints]:
        """`instance`, `wait_ns`, `wire_ns` and `relative_wait_ns` of operations of one process.
        Call `table` before.
        """
        _, row = self._streams.find(columns)
        known = row != NONE
        at = np.where(known, row, 0)
        size = len(row)
        out = {name: np.full(size, NONE, np.int64) for name in ("wait_ns", "wire_ns")}
        out["relative_wait_ns"] = np.full(size, NONE, np.int64)
        out["instance"] = np.full(size, NONE, np.int64)
        if not self._streams.rows:
            return out
        out["instance"] = np.where(known, self._place[at], NONE)
        meets = np.where(known & (self._mismatch[at] == 0), meets_of(columns, self._rules), NOBODY)
        arrival, defined = self._arrivals(columns, meets, at)
        start = columns["start_ns"].astype(np.int64)
        duration = columns["end_ns"].astype(np.int64) - start
        # Events are seen late, so their clock is often too poor to say who waited.
        by_events = columns["source"] == GPU_EVENT
        defined &= ~by_events | (self._error[at] <= duration * _MOST_ERROR_SHARE)
        wait = np.clip(arrival - start, 0, duration)
        out["wait_ns"] = np.where(defined, wait, NONE)
        out["wire_ns"] = np.where(defined, duration - wait, NONE)
        relative = columns["duration_ns"].astype(np.int64) - self._shortest[at]
        together = (meets == EVERYBODY) & (self._timed[at] > 1)
        out["relative_wait_ns"] = np.where(together, relative, NONE)
        return out

    def _arrivals(
        self, columns: Columns, meets: npt.NDArray[np.int8], at: Ints
    ) -> tuple[Ints, Bools]:
        """By operation the arrival it waited for, and whether that is defined."""
        from_root = meets == ROOT_FIRST
        arrival = np.where(from_root, self._root_start[at], self._last_start[at])
        is_root = columns["root"] == columns["rank"]
        defined = (meets == EVERYBODY) | (from_root & (arrival != NONE))
        defined |= (meets == ROOT_LAST) & is_root
        return arrival, defined & (self._timed[at] > 1) & (self._error[at] != NONE)
