"""AlltoAll, Gather and Scatter, which NCCL reports as the sends and receives it makes of them.

A group call of depth 1 with several sends or receives was made by NCCL itself. A user's own group
with the same sends and receives looks alike, so the function is always marked as inferred. Of a
Gather or Scatter only the root's side differs from plain sends and receives; `inferred_rooted`
finds the other ranks' sides.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.process.durations import NO_SOURCE
from ncclscope.model.process.operation_bytes import total_bytes
from ncclscope.model.schema import CAPTURED, COLLECTIVE, NONE, RECV, SEND, Columns
from ncclscope.model.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class _Groups:
    """Sends and receives of one group call and communicator, as runs of `rows`."""

    rows: Ints
    first: Ints  # of each run, in `rows`
    count: Ints

    def where(self, mask: Bools) -> "_Groups":
        """The groups of a mask."""
        count = self.count[mask]
        kept = np.repeat(mask, self.count)
        return _Groups(self.rows[kept], np.cumsum(count) - count, count)


def expand_groups(columns: Columns, ranks_of_comm: Ints, words: Vocabulary) -> Columns:
    """The columns with a row at the end for each operation that sends and receives are parts of."""
    groups = _groups(columns)
    if not len(groups.first):
        return columns
    function = _functions(columns, groups, ranks_of_comm, words)
    chosen = groups.where(function != NONE)
    if not len(chosen.first):
        return columns
    incomplete = words.code("reason", "some of its sends and receives have no time")
    wholes = _wholes(columns, chosen, function[function != NONE], ranks_of_comm, incomplete)
    part_of = columns["part_of"].copy()
    part_of[chosen.rows] = len(part_of) + np.repeat(np.arange(len(chosen.first)), chosen.count)
    columns = columns | {"part_of": part_of}
    return {name: np.concatenate([columns[name], wholes[name]]) for name in columns}


def has_parts(operations: Columns, rows: slice) -> Bools:
    """Which of these rows have parts; their `event` is that of a part. `rows`: all operations of
    some processes.
    """
    part_of = np.asarray(operations["part_of"][rows])
    out = np.zeros(len(part_of), bool)
    place = part_of[part_of != NONE] - rows.start
    out[place[(place >= 0) & (place < len(out))]] = True
    return out


def _groups(columns: Columns) -> _Groups:
    """Groups of at least three sends and receives; sends first, by peer."""
    rows = np.flatnonzero((columns["form"] == SEND) | (columns["form"] == RECV))
    rows = rows[(columns["group_call"][rows] != NONE) & (columns["peer"][rows] != NONE)]
    rows = rows[(columns["replay"][rows] == 0) & (columns["state"][rows] != CAPTURED)]
    names = ("peer", "form", "communicator", "group_call")
    rows = rows[np.lexsort([columns[name][rows] for name in names])]
    call, comm = columns["group_call"][rows], columns["communicator"][rows]
    new = np.ones(len(rows), bool)
    new[1:] = (np.diff(call) != 0) | (np.diff(comm) != 0)
    first = np.flatnonzero(new)
    groups = _Groups(rows, first, np.diff(np.append(first, len(rows))))
    return groups.where(groups.count >= 3)


def _functions(columns: Columns, groups: _Groups, ranks_of_comm: Ints, words: Vocabulary) -> Ints:
    """The code of each group's function; NONE: it is just its sends and receives."""
    rows, first, count = groups.rows, groups.first, groups.count
    peer, size = columns["peer"][rows], columns["size_bytes"][rows]
    is_send = columns["form"][rows] == SEND
    sends = np.add.reduceat(is_send.astype(np.int64), first)
    ranks = ranks_of_comm[columns["communicator"][rows[first]]]
    own = np.repeat(columns["rank"][rows[first]], count)
    # In order, peers of sends to all ranks are 0, 1, 2 …; a lone send goes to the rank itself.
    place = np.arange(len(rows)) - np.repeat(first, count)
    place -= np.where(is_send, 0, np.repeat(sends, count))
    lone = np.where(is_send, np.repeat(sends, count), np.repeat(count - sends, count)) == 1
    fits = np.logical_and.reduceat(peer == np.where(lone, own, place), first)
    fits &= (np.minimum.reduceat(size, first) == np.maximum.reduceat(size, first)) & (ranks >= 2)
    out = np.full(len(first), NONE, np.int64)
    for name, of_sends, of_receives in (
        ("AlltoAll", ranks, ranks),
        ("Gather", np.ones_like(ranks), ranks),
        ("Scatter", ranks, np.ones_like(ranks)),
    ):
        matches = fits & (sends == of_sends) & (count - sends == of_receives)
        if matches.any():
            out[matches] = words.code("function", name)
    return out


def _wholes(
    columns: Columns, groups: _Groups, function: Ints, ranks_of_comm: Ints, incomplete: int
) -> Columns:
    """One row for each group: its first part's, with the extent of all parts."""
    members, edges, count = groups.rows, groups.first, len(groups.first)
    leader = np.minimum.reduceat(members, edges)
    wholes = {name: values[leader].copy() for name, values in columns.items()}
    many = np.int64(1) << 62
    for name, smallest in (
        ("call_ns", True),
        ("call_end_ns", False),
        ("enqueue_ns", True),
        ("start_ns", True),
        ("end_ns", False),
    ):
        values = columns[name][members]
        if smallest:
            least = np.minimum.reduceat(np.where(values == NONE, many, values), edges)
            wholes[name] = np.where(least == many, NONE, least)
        else:
            wholes[name] = np.maximum.reduceat(values, edges)
    timed = (wholes["start_ns"] != NONE) & (wholes["end_ns"] != NONE)
    wholes["duration_ns"] = np.where(timed, wholes["end_ns"] - wholes["start_ns"], NONE)
    for name in ("state", "channels"):  # the worst, the most
        wholes[name] = np.maximum.reduceat(columns[name][members], edges)
    _set_source(columns, wholes, members, edges, incomplete)
    ranks = ranks_of_comm[wholes["communicator"]]
    wholes["size_bytes"] = total_bytes(wholes["size_bytes"], ranks)
    wholes["form"] = np.full(count, COLLECTIVE, np.int8)
    wholes["function"] = function.astype(np.int8)
    wholes["inferred"] = np.ones(count, np.int8)
    for name in ("peer", "call_order", "part_of"):
        wholes[name] = np.full(count, NONE, wholes[name].dtype)
    return wholes


def _set_source(
    columns: Columns, wholes: Columns, members: Ints, edges: Ints, incomplete: int
) -> None:
    """Sets the worst source of the parts that have a time, and the reason of a part that has it."""
    source = columns["source"][members].astype(np.int64)
    timed = source != NO_SOURCE
    worst = np.maximum.reduceat(np.where(timed, source, -1), edges)
    some_missing = np.minimum.reduceat(timed, edges) == 0
    group = np.repeat(np.arange(len(edges)), np.diff(np.append(edges, len(members))))
    wholes["source"] = np.where(worst >= 0, worst, NO_SOURCE).astype(np.int8)
    showing = np.flatnonzero(source == wholes["source"][group])
    first, place = np.unique(group[showing], return_index=True)
    wholes["reason"][first] = columns["reason"][members[showing[place]]]
    wholes["reason"][some_missing & (worst >= 0)] = incomplete
