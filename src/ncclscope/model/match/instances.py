"""Instances: the operations of all ranks that belong together, who arrived last, who waited.

Two passes over the processes: the first gathers what concerns an instance, here, the second sets
each operation's wait and wire (waits.py). Times are on the one clock by then. Processes may be
gathered apart from each other, and their states merged.

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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.library import empty_array, full_array
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model import schema
from ncclscope.model.align.host_clocks import HostClocks
from ncclscope.model.match.votes import Votes, part_of_rank, span
from ncclscope.model.schema import COLLECTIVE, NONE, SEND
from ncclscope.model.streams import (
    NEEDED,
    PAIRS,
    ROUGH,
    Columns,
    Rules,
    Streams,
    distinct,
    meets_of,
    started_of,
)
from ncclscope.nccl.functions import EVERYBODY

_NEVER = np.iinfo(np.int64).max
_LOW = (1 << 32) - 1
_LEAST = ("_first_start", "_shortest", "_low_node")
_MOST = ("_last_start", "_last_end", "_width", "_high_node")
# Columns of operations that a state is made of.
ADDED = (
    *NEEDED, "node", "global_rank", "datatype", "size_bytes", "source", "symmetric", "algorithm",
    "root", "start_ns", "end_ns", "duration_ns",
)  # fmt: skip


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
        self._votes = Votes(rows, rules.send)
        self._timed = full_array(rows, np.int32, 0)
        self._first_start = full_array(rows, np.int64, _NEVER)
        self._last_start = full_array(rows, np.int64, -_NEVER)
        self._second_start = full_array(rows, np.int64, -_NEVER)  # the last but one
        self._last_end = full_array(rows, np.int64, NONE)
        self._root_start = full_array(rows, np.int64, NONE)
        self._shortest = full_array(rows, np.int64, _NEVER)  # twice; odd: a rough one
        self._last_rank = full_array(rows, np.int32, NONE)
        self._width = full_array(rows, np.int64, 0)
        self._low_node = full_array(rows, np.int32, np.iinfo(np.int32).max)
        self._high_node = full_array(rows, np.int32, NONE)
        self.gpus: Counter[int] = Counter()  # by node

    def rules(self) -> tuple[Streams, Rules]:
        """What another state of the same rows is made with."""
        return self._streams, self._rules

    # ---- first pass ----
    def add(self, columns: Columns, width_ns: int = 0) -> None:
        """Adds the operations of one process. `width_ns`: how far its times may be off within its
        node (half the width of the GPU's mapping).
        """
        count = len(columns["rank"])
        row, part = empty_array(count, np.int64), empty_array(count, np.int64)
        started, meets = empty_array(count, np.bool_), empty_array(count, np.int8)
        parts = []
        for chunk in row_chunks(count):
            some = {name: values[chunk] for name, values in columns.items()}
            _, row[chunk] = self._streams.find(some)
            started[chunk] = started_of(some)
            meets[chunk] = meets_of(some, self._rules, rough=True)
            part[chunk] = part_of_rank(some)
            parts.append(distinct(part[chunk][row[chunk] != NONE]))
        self.count_gpus(columns)
        for own_part in _distinct_of(parts).tolist():
            for chunk in row_chunks(count):
                some = {name: values[chunk] for name, values in columns.items()}
                use = np.flatnonzero((part[chunk] == own_part) & (row[chunk] != NONE))
                self._add_part(some, use, row[chunk], started[chunk], meets[chunk], width_ns)

    def count_gpus(self, columns: Columns) -> None:
        """Adds the GPUs of one process."""
        gpus = [
            _gpus_of({name: columns[name][chunk] for name in ("node", "global_rank")})
            for chunk in row_chunks(len(columns["rank"]))
        ]
        self.gpus.update((_distinct_of(gpus) >> 32).tolist())

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
        self._votes.add(columns, use, row[use])
        timed = use[started[use]]
        self._arrive(columns, timed, row[timed], width_ns)
        all_meet = use[meets[use] == EVERYBODY]
        places, at = span(all_meet), span(row[all_meet])
        duration = columns["duration_ns"][places].astype(np.int64)
        duration = 2 * duration + (columns["source"][places] == ROUGH)
        self._shortest[at] = np.minimum(self._shortest[at], duration)
        root = timed[columns["root"][timed] == columns["rank"][timed]]
        root = root[columns["source"][root] != ROUGH]
        self._root_start[row[root]] = columns["start_ns"][root]

    def _arrive(self, columns: Columns, timed: Ints, row: Ints, width_ns: int) -> None:
        """Adds starts and ends of operations with exact starts."""
        places, at = span(timed), span(row)
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
    def count(self) -> int:
        """How many instances there are: rows of the table."""
        return int(np.count_nonzero(self._votes.seen))

    def mismatches(self) -> Ints:
        """Rows of instances whose ranks disagree."""
        return np.flatnonzero(self._votes.mismatch)

    def set_agreed(self, rows: Ints, agreed: Columns) -> None:
        """Sets the majority's values of some rows."""
        self._votes.set_agreed(rows, agreed)

    def table(
        self, clocks: HostClocks, nodes: Mapping[int, Ints], ranks: Ints, first_instance: int = 0
    ) -> tuple[schema.Columns, schema.Columns]:
        """The columns of `instances`, and for each row what its operations' waits depend on, with
        the columns of waits.STATE. `nodes`: by communicator its nodes; `ranks`: by communicator
        the number of its ranks; `first_instance`: the number of the first row of the table.
        """
        out = schema.empty(schema.INSTANCES, self.count())
        states = self._states()
        first = 0
        for chunk in row_chunks(self._streams.rows):
            place, order = self._streams.by_row(chunk)
            error = states["error_ns"][chunk]
            error[:] = self._errors(clocks, nodes, place, chunk)
            seen = np.flatnonzero(self._votes.seen[chunk])
            target = slice(first, first + len(seen))
            states["instance"][chunk][seen] = first_instance + np.arange(target.start, target.stop)
            rows = seen + chunk.start
            shown = self._shown(rows, place[seen], order[seen], error[seen], ranks)
            for name, value in shown.items():
                out[name][target] = value
            first = target.stop
        return out, states

    def _states(self) -> dict[str, npt.NDArray[Any]]:
        rows = self._streams.rows
        return {
            "instance": full_array(rows, np.int64, NONE),
            "error_ns": full_array(rows, np.int64, NONE),
            "mismatch": self._votes.mismatch,
            "ranks_timed": self._timed,
            "last_start_ns": self._last_start,
            "root_start_ns": self._root_start,
            "shortest_ns": self._shortest >> 1,
            "shortest_is_rough": (self._shortest & 1).astype(np.int8),
            "all_timed": (self._timed >= self._votes.seen).astype(np.int8),
        }

    def _shown(
        self, use: Ints, place: Ints, order: Ints, error: Ints, ranks: Ints
    ) -> dict[str, npt.NDArray[np.generic]]:
        """Columns of some rows. `place`, `order`: their streams and their numbers in them."""
        pair = self._streams.kind[place] == PAIRS
        communicator = self._streams.communicator[place]
        timed = self._timed[use]
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
            "ranks_seen": self._votes.seen[use],
            "ranks_expected": np.where(pair, 2, ranks[communicator]),
            "ranks_timed": timed,
            "mismatch": self._votes.mismatch[use],
            "first_start_ns": np.where(known, self._first_start[use], NONE),
            "last_start_ns": np.where(known, self._last_start[use], NONE),
            "last_end_ns": self._last_end[use],
            "last_communicator_rank": np.where(certain, self._last_rank[use], NONE),
            "skew_ns": np.where(compared, skew, NONE),
            "error_ns": error,
            "function": self._votes.agreed["function"][use],
            "size_bytes": self._votes.agreed["size_bytes"][use],
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
        same = apart & (max(self.gpus.values(), default=1) == 1)
        width = np.where(same, 0, 2 * self._width[chunk])
        total = np.ceil(np.where(tied, error, 0.0)).astype(np.int64) + width
        return np.where(tied & (timed > 0), total, NONE)

    # ---- parts of the processes ----
    def _merge(self, other: "Instances") -> None:
        """Adds what another state has of processes that come after this one's."""
        for name in _LEAST:
            own: npt.NDArray[Any] = getattr(self, name)
            np.minimum(own, getattr(other, name), out=own)
        later = other._last_start > self._last_start
        second = np.minimum(self._last_start, other._last_start)
        np.maximum(second, other._second_start, out=second)
        np.maximum(self._second_start, second, out=self._second_start)
        self._last_rank[later] = other._last_rank[later]
        for name in _MOST:
            own = getattr(self, name)
            np.maximum(own, getattr(other, name), out=own)
        self._timed += other._timed
        root = other._root_start != NONE
        self._root_start[root] = other._root_start[root]
        pair = np.repeat(self._streams.kind == PAIRS, self._streams.length)
        self._votes.merge(other._votes, pair)
        self.gpus.update(other.gpus)


def merge_instances(states: Sequence[Instances]) -> Instances:
    """One state of the same rows from several, whose processes follow each other. They stay as they
    are. Where ranks disagree, the majority's values have to be found again: votes.py says why.
    """
    merged = Instances(*states[0].rules())
    for state in states:
        merged._merge(state)
    return merged
