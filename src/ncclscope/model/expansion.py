"""AlltoAll, Gather and Scatter, which NCCL reports as the sends and receives it makes of them.

A group call of depth 1 with several sends or receives was made by NCCL itself. One that a user
opened looks alike when its sends and receives are the same; so the function is always marked as
inferred. Of a Gather or Scatter only the root's side can be told from plain sends and receives.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.model.decode import Ints
from ncclscope.model.outcome import CAPTURED, NO_SOURCE
from ncclscope.model.sizes import total_bytes
from ncclscope.model.tables import COLLECTIVE, NONE, RECV, SEND, Columns
from ncclscope.model.words import Words


@dataclass(frozen=True, slots=True)
class _Groups:
    """Sends and receives of one group call and communicator, as runs of `rows`."""

    rows: Ints
    first: Ints  # of each run, in `rows`
    count: Ints


def expand_groups(columns: Columns, ranks_of_comm: Ints, words: Words) -> Columns:
    """The columns with a row at the end for each operation that sends and receives are parts of."""
    groups = _groups(columns)
    if not len(groups.first):
        return columns
    function = _functions(columns, groups, ranks_of_comm, words)
    chosen = np.flatnonzero(function != NONE)
    if not len(chosen):
        return columns
    incomplete = words.code("reason", "some of its sends and receives have no time")
    wholes = _wholes(columns, groups, chosen, function[chosen], ranks_of_comm, incomplete)
    count = len(columns["event"])
    part_of = columns["part_of"].copy()
    for number, group in enumerate(chosen.tolist()):
        first = groups.first[group]
        part_of[groups.rows[first : first + groups.count[group]]] = count + number
    columns = columns | {"part_of": part_of}
    return {name: np.concatenate([columns[name], wholes[name]]) for name in columns}


def _groups(columns: Columns) -> _Groups:
    """Groups of at least three sends and receives; replays are told apart by their launch."""
    p2p = np.isin(columns["form"], (SEND, RECV)) & (columns["group_call"] != NONE)
    p2p &= (columns["replay"] == 0) & (columns["state"] != CAPTURED) & (columns["peer"] != NONE)
    rows = np.flatnonzero(p2p)
    comm, call = columns["communicator"][rows], columns["group_call"][rows]
    rows = rows[np.lexsort((rows, comm, call))]
    key_call, key_comm = columns["group_call"][rows], columns["communicator"][rows]
    new = np.ones(len(rows), bool)
    new[1:] = (np.diff(key_call) != 0) | (np.diff(key_comm) != 0)
    first = np.flatnonzero(new)
    count = np.diff(np.append(first, len(rows)))
    large = count >= 3
    return _Groups(rows, first[large], count[large])


def _functions(columns: Columns, groups: _Groups, ranks_of_comm: Ints, words: Words) -> Ints:
    """What each group is, as the code of a function; NONE: what it says."""
    out = np.full(len(groups.first), NONE, np.int64)
    for number, (first, count) in enumerate(
        zip(groups.first.tolist(), groups.count.tolist(), strict=True)
    ):
        rows = groups.rows[first : first + count]
        ranks = int(ranks_of_comm[columns["communicator"][rows[0]]])
        name = _function(columns, rows, ranks)
        if name:
            out[number] = words.code("function", name)
    return out


def _function(columns: Columns, rows: Ints, ranks: int) -> str:
    if not 2 <= ranks <= len(rows) or len(np.unique(columns["size_bytes"][rows])) > 1:
        return ""
    own = int(columns["rank"][rows[0]])
    sends = columns["peer"][rows][columns["form"][rows] == SEND]
    receives = columns["peer"][rows][columns["form"][rows] == RECV]
    everybody = list(range(ranks))
    to_all = sorted(sends.tolist()) == everybody
    from_all = sorted(receives.tolist()) == everybody
    if to_all and from_all:
        return "AlltoAll"
    if from_all and sends.tolist() == [own]:
        return "Gather"
    if to_all and receives.tolist() == [own]:
        return "Scatter"
    return ""


def _wholes(
    columns: Columns,
    groups: _Groups,
    chosen: Ints,
    function: Ints,
    ranks_of_comm: Ints,
    incomplete: int,
) -> Columns:
    """One row for each chosen group: from its first part, with the extent of all of them."""
    starts, counts = groups.first[chosen], groups.count[chosen]
    members = np.concatenate(
        [groups.rows[a : a + n] for a, n in zip(starts.tolist(), counts.tolist(), strict=True)]
    )
    edges = np.cumsum(counts) - counts
    leader = members[edges]
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
            found = np.minimum.reduceat(np.where(values == NONE, many, values), edges)
            wholes[name] = np.where(found == many, NONE, found)
        else:
            wholes[name] = np.maximum.reduceat(values, edges)
    timed = (wholes["start_ns"] != NONE) & (wholes["end_ns"] != NONE)
    wholes["duration_ns"] = np.where(timed, wholes["end_ns"] - wholes["start_ns"], NONE)
    for name in ("state", "channels"):  # the worst, the most
        wholes[name] = np.maximum.reduceat(columns[name][members], edges)
    _set_source(columns, wholes, members, edges, incomplete)
    ranks = ranks_of_comm[wholes["communicator"]]
    wholes["size_bytes"] = total_bytes(wholes["size_bytes"], ranks)
    wholes["form"] = np.full(len(chosen), COLLECTIVE, np.int8)
    wholes["function"] = function.astype(np.int8)
    wholes["inferred"] = np.ones(len(chosen), np.int8)
    for name in ("peer", "call_order", "part_of"):
        wholes[name] = np.full(len(chosen), NONE, wholes[name].dtype)
    return wholes


def _set_source(
    columns: Columns, wholes: Columns, members: Ints, edges: Ints, incomplete: int
) -> None:
    """The worst source of the parts that have a time; the reason of one that has it."""
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
