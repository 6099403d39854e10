"""The other ranks' sides of a Gather or Scatter: one send to the root, or one receive from it.

By itself such a send looks like any other. Once the root's side is known for a Gather, the sends
that it received are the others' sides of it, if each was alone in its group call. One that was not
shows that the user made the group; then all of them stay what they are.
"""

import numpy as np
import numpy.typing as npt

from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SEND, Columns
from ncclscope.model.streams import NEEDED, streams_and_orders
from ncclscope.model.vocabulary import Vocabulary

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_PROCESS_SHIFT = 48  # group calls are keys of so many bits
_FUNCTIONS = ("Gather", "Scatter")


def complete_rooted(operations: Columns, words: Vocabulary) -> bool:
    """Turns other ranks' sends and receives into the Gathers and Scatters that they belong to, in
    place. Whether anything has changed.
    """
    codes = words.known("function", _FUNCTIONS)
    if not len(codes):
        return False
    roots = np.flatnonzero((operations["inferred"] == 1) & np.isin(operations["function"], codes))
    if not len(roots):
        return False
    operations["root"][roots] = operations["rank"][roots]
    parts = np.flatnonzero(np.isin(operations["part_of"], roots))
    parts = parts[operations["peer"][parts] != operations["rank"][parts]]
    place = np.searchsorted(roots, operations["part_of"][parts])
    others, part = _counterparts(operations, parts)
    theirs = _are_theirs(operations, others, parts[part])
    whole = np.ones(len(roots), bool)  # nobody's side speaks against it
    whole[place[part[~theirs]]] = False
    _number(operations, roots, whole)
    chosen = theirs & whole[place[part]]
    _turn(operations, others[chosen], roots[place[part[chosen]]])
    operations["call_order"][parts[whole[place]]] = NONE  # they have no counterparts any more
    return True


def _counterparts(operations: Columns, parts: Ints) -> tuple[Ints, Ints]:
    """Rows of sends and receives on the other side of `parts`, and the places of those parts."""
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


def _are_theirs(operations: Columns, others: Ints, parts: Ints) -> Bools:
    """Whether each was alone in its group call, of the part's size and nothing else's part."""
    if not len(others):
        return np.empty(0, bool)
    everybody = operations["process"].astype(np.int64) << _PROCESS_SHIFT | operations["group_call"]
    call, members = np.unique(everybody, return_counts=True)
    members = members[np.searchsorted(call, everybody[others])]
    alone: Bools = (members == 1) & (operations["group_call"][others] != NONE)
    alone &= operations["part_of"][others] == NONE
    alone &= operations["size_bytes"][others] == operations["size_bytes"][parts]
    return alone


def _number(operations: Columns, roots: Ints, whole: Bools) -> None:
    """Numbers them on their communicators alike for all ranks: by root, each in its order. Those
    whose other sides stay sends and receives have no instance.
    """
    names = ("call_order", "rank", "function", "communicator")
    by_root = roots[np.lexsort([operations[name][roots] for name in names])]
    of = operations["communicator"][by_root].astype(np.int64) << 8 | operations["function"][by_root]
    first = np.flatnonzero(np.diff(of, prepend=of[0] - 1))
    count = np.diff(np.append(first, len(of)))
    operations["call_order"][by_root] = np.arange(len(of)) - np.repeat(first, count)
    operations["call_order"][roots[~whole]] = NONE


def _turn(operations: Columns, rows: Ints, roots: Ints) -> None:
    """Makes rows the same operation as that of their roots."""
    for name in ("function", "size_bytes", "call_order", "root"):
        operations[name][rows] = operations[name][roots]
    operations["form"][rows] = COLLECTIVE
    operations["inferred"][rows] = 1
    operations["peer"][rows] = NONE
