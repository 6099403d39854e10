"""What most ranks of an instance say of it: function, datatype and size.

Boyer and Moore's majority vote: a value that more than half of the ranks have wins, and any
disagreement is a mismatch. Whether ranks disagree does not depend on their order, but where nobody
has a majority, the winner does. So of processes that were counted apart, the votes of mismatching
instances are counted again, in the order of the processes. There are few of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.library import full_array
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE, RECV, SEND
from ncclscope.model.streams import Columns

AGREED = ("function", "datatype", "size_bytes")
VOTE = (*AGREED, "form", "rank")  # columns of operations


def span(places: Ints) -> Ints | slice:
    """Places as a slice where they follow each other: numpy is much quicker with that."""
    if len(places) and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def part_of_rank(columns: Columns) -> Ints:
    """A number by which one process's operations of an instance differ: a rank has one of them, and
    two of a send to itself.
    """
    part: Ints = columns["rank"].astype(np.int64) * 2 + (columns["form"] == RECV)
    return part


class Votes:
    """By row of instances how many ranks were seen, whether they disagree, and the majority."""

    def __init__(self, rows: int, send: int) -> None:
        self._send = send
        self.seen = full_array(rows, np.int32, 0)
        self.mismatch = full_array(rows, np.int8, 0)
        self._votes = full_array(rows, np.int32, 0)
        self.agreed: dict[str, npt.NDArray[Any]] = {
            "function": full_array(rows, np.int8, NONE),
            "datatype": full_array(rows, np.int8, NONE),
            "size_bytes": full_array(rows, np.int64, NONE),
        }

    def add(self, columns: Columns, use: Ints, row: Ints) -> None:
        """Adds operations of different instances. `use`: their places in the columns."""
        places, at = span(use), span(row)
        same = np.ones(len(use), bool)
        pair = (columns["form"][places] == SEND) | (columns["form"][places] == RECV)
        for name in AGREED:
            own, majority = columns[name][places], self.agreed[name][at]
            agree = (own == majority) | (own == NONE) | (majority == NONE)
            # A pair is a Send on one side and a Recv on the other.
            same &= agree | pair if name == "function" else agree
        fresh = self._votes[at] == 0
        self.mismatch[at] |= ~same & (self.seen[at] > 0)
        self.seen[at] += 1
        self._votes[at] += np.where(fresh | same, 1, -1).astype(np.int32)
        for name in AGREED:
            own, majority = columns[name][places], self.agreed[name][at]
            take = (fresh | (same & (majority == NONE))) & (own != NONE)
            self.agreed[name][at] = np.where(take, own, majority)
        if self._send != NONE and pair.any():
            self.agreed["function"][row[pair]] = self._send

    def merge(self, other: "Votes", pair: Bools) -> None:
        """Adds the votes of processes that come after these; of mismatching rows the majority is
        not right then. `pair`: rows of sends and receives.
        """
        both = (self.seen > 0) & (other.seen > 0)
        for name in AGREED:
            own, more = self.agreed[name], other.agreed[name]
            differs = both & (own != more) & (own != NONE) & (more != NONE)
            self.mismatch |= differs & ~pair if name == "function" else differs
            np.copyto(own, more, where=own == NONE)
        self.mismatch |= other.mismatch
        self.seen += other.seen

    def set_agreed(self, rows: Ints, agreed: Mapping[str, npt.NDArray[Any]]) -> None:
        """Sets the majority's values of some rows."""
        for name in AGREED:
            values = self.agreed[name].copy()  # the one that is there may be read only
            values[rows] = agreed[name]
            self.agreed[name] = values


def ballots(columns: Columns, row: Ints, chosen: Ints) -> list[dict[str, npt.NDArray[Any]]]:
    """One process's votes on some instances: columns VOTE and `row`, by parts of which each has at
    most one vote on an instance. `row`: of each operation; `chosen`: rows, in order.
    """
    use = np.flatnonzero(np.isin(row, chosen))
    part = part_of_rank(columns)[use]
    return [
        {"row": row[own], **{name: np.asarray(columns[name])[own] for name in VOTE}}
        for own in (use[part == number] for number in np.unique(part).tolist())
    ]


def majority(
    cast: Sequence[dict[str, npt.NDArray[Any]]], chosen: Ints, send: int
) -> dict[str, npt.NDArray[Any]]:
    """The majority's values of some rows, by ballots in the order of the processes."""
    votes = Votes(len(chosen), send)
    for ballot in cast:
        votes.add(ballot, np.arange(len(ballot["row"])), np.searchsorted(chosen, ballot["row"]))
    return votes.agreed
