"""The other ranks' sides of a Gather or Scatter: one send to the root, or one receive from it.

By itself such a send looks like any other. Once a root's group is recognised as a Gather, the sends
that it received are the other ranks' sides of it, if each was alone in its group call. A send that
was not alone shows that the user made the group; then all of them stay sends and receives.
"""

import numpy as np

from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SEND, Columns
from ncclscope.model.streams import NEEDED, streams_and_orders
from ncclscope.model.vocabulary import Vocabulary

_PROCESS_SHIFT = 48  # bits of a group call's key
_FUNCTIONS = ("Gather", "Scatter")
# Columns that are changed.
CHANGED = ("call_order", "root", "function", "size_bytes", "form", "inferred", "peer")


def may_be_rooted(words: Vocabulary) -> bool:
    """Whether there can be anything to complete."""
    return len(words.occurring_codes("function", _FUNCTIONS)) > 0


def complete_rooted(operations: Columns, words: Vocabulary) -> bool:
    """Turns other ranks' sends and receives into the Gathers and Scatters that they belong to, in
    place; returns whether anything changed.
    """
    codes = words.occurring_codes("function", _FUNCTIONS)
    roots = np.flatnonzero((operations["inferred"] == 1) & np.isin(operations["function"], codes))
    if not len(roots):
        return False
    operations["root"][roots] = operations["rank"][roots]
    parts = np.flatnonzero(np.isin(operations["part_of"], roots))
    parts = parts[operations["peer"][parts] != operations["rank"][parts]]
    place = np.searchsorted(roots, operations["part_of"][parts])
    others, part = _counterparts(operations, parts)
    belongs = _belong(operations, others, parts[part])
    is_whole = np.ones(len(roots), bool)  # no other rank's side speaks against it
    is_whole[place[part[~belongs]]] = False
    _number(operations, roots, is_whole)
    chosen = belongs & is_whole[place[part]]
    _turn(operations, others[chosen], roots[place[part[chosen]]])
    operations["call_order"][parts[is_whole[place]]] = NONE  # they have no counterparts any more
    return True


def _counterparts(operations: Columns, parts: Ints) -> tuple[Ints, Ints]:
    """Rows of the sends and receives on the other side of `parts`, and the parts' places."""
    pairs = np.isin(operations["form"], (SEND, RECV)) & (operations["replay"] == 0)
    pairs &= np.isin(operations["communicator"], np.unique(operations["communicator"][parts]))
    pairs[parts] = False
    rows = np.concatenate([parts, np.flatnonzero(pairs)])
    stream, order = streams_and_orders({name: operations[name][rows] for name in NEEDED})
    by_key = np.lexsort((np.arange(len(rows)), order, stream))
    a, b = by_key[:-1], by_key[1:]
    both = (stream[a] == stream[b]) & (order[a] == order[b]) & (stream[a] != NONE)
    both &= (a < len(parts)) & (b >= len(parts))
    return rows[b[both]], a[both]


def _belong(operations: Columns, others: Ints, parts: Ints) -> Bools:
    """Whether each of the others was alone in its group call, has the part's size, and is not a
    part of another operation.
    """
    if not len(others):
        return np.empty(0, bool)
    all_calls = operations["process"].astype(np.int64) << _PROCESS_SHIFT | operations["group_call"]
    call, members = np.unique(all_calls, return_counts=True)
    members = members[np.searchsorted(call, all_calls[others])]
    alone: Bools = (members == 1) & (operations["group_call"][others] != NONE)
    alone &= operations["part_of"][others] == NONE
    alone &= operations["size_bytes"][others] == operations["size_bytes"][parts]
    return alone


def _number(operations: Columns, roots: Ints, is_whole: Bools) -> None:
    """Numbers the roots' operations on their communicators: by root, and each root's in order.
    Those whose other sides stay sends and receives get no number, and no instance.
    """
    names = ("call_order", "rank", "function", "communicator")
    by_root = roots[np.lexsort([operations[name][roots] for name in names])]
    of = operations["communicator"][by_root].astype(np.int64) << 8 | operations["function"][by_root]
    first = np.flatnonzero(np.diff(of, prepend=of[0] - 1))
    count = np.diff(np.append(first, len(of)))
    operations["call_order"][by_root] = np.arange(len(of)) - np.repeat(first, count)
    operations["call_order"][roots[~is_whole]] = NONE


def _turn(operations: Columns, rows: Ints, roots: Ints) -> None:
    """Makes each row the same operation as its root's, in place."""
    for name in ("function", "size_bytes", "call_order", "root"):
        operations[name][rows] = operations[name][roots]
    operations["form"][rows] = COLLECTIVE
    operations["inferred"][rows] = 1
    operations["peer"][rows] = NONE
