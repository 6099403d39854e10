"""The run that an analysis is about: the last attempt of a capture, its operations and ranks."""

from functools import cached_property

import numpy as np

from ncclscope.analysis.measures import extent
from ncclscope.arrays.intervals import union_lengths
from ncclscope.arrays.joins import is_identity
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SEND, Columns


class Run:
    """The last attempt of a capture; with several, it is the one that people ask about.

    model        the whole capture
    operations   its table, with the operations of earlier attempts
    current      mask of the operations of the last attempt; parts of others are left out
    timed        of these, the ones with a start and an end
    collective   of these, collectives
    p2p          of these, sends and receives
    node_of      row of `nodes` by global rank; host_of and process_of likewise
    extent       when the attempt began and ended: measures.extent
    span_ns      how long single calls were recorded in it
    """

    def __init__(self, model: Model, sending: Bools | None = None) -> None:
        """`sending`: of a run that is a part of another one, that one's."""
        self.model = model
        self._sending = sending
        self.operations: Columns = model.tables["operations"]
        attempt = np.array([row.attempt for row in model.processes] or [0])
        self._is_last: Bools = attempt == attempt.max()  # by process
        self.current: Bools = self._is_last[self.operations["process"]]
        self.current &= self.operations["part_of"] == NONE

    # ---- operations ----
    @cached_property
    def timed(self) -> Bools:
        """Operations with a start and an end."""
        has_times = (self.operations["start_ns"] != NONE) & (self.operations["end_ns"] != NONE)
        return np.asarray(has_times & self.current)

    @cached_property
    def collective(self) -> Bools:
        """Collectives."""
        return np.asarray(self.current & (self.operations["form"] == COLLECTIVE))

    @cached_property
    def p2p(self) -> Bools:
        """Sends and receives."""
        form = self.operations["form"]
        return np.asarray(self.current & ((form == SEND) | (form == RECV)))

    @cached_property
    def sending(self) -> Bools:
        """By communicator whether ranks send and receive on it; the last place is of NONE."""
        if self._sending is not None:
            return self._sending
        sending = np.zeros(len(self.model.communicator_names) + 1, bool)
        sending[self.operations["communicator"][self.p2p]] = True
        return sending

    def column(self, name: str, rows: Ints) -> Ints:
        """A column of some operations as 64-bit integers."""
        values = np.asarray(self.operations[name])
        whole = len(rows) == len(values) and len(rows) > 0 and is_identity(rows)
        return (values if whole else values[rows]).astype(np.int64)

    def word(self, sort: str, code: int) -> str:
        """The name of a code; "" for NONE."""
        return self.model.words[sort][code] if code >= 0 else ""

    # ---- time ----
    @cached_property
    def extent(self) -> tuple[int, int]:
        """When the attempt began and ended; (0, 0) where no time is known."""
        return extent(self.operations, lambda rows: self.current[rows]) or (0, 0)

    @cached_property
    def span_ns(self) -> int:
        """How long the attempt was, without the times in which all processes recorded totals
        only; at least 1.
        """
        first, last = self.extent
        if not all(row.paused for row in self.model.processes):
            return max(last - first, 1)
        windows = self.model.tables["windows"]
        start = np.clip(np.asarray(windows["start_ns"], np.int64), first, last)
        end = np.clip(np.asarray(windows["end_ns"], np.int64), first, last)
        return max(int(union_lengths(np.zeros(len(start), np.int32), 1, start, end)[0]), 1)

    # ---- ranks ----
    @cached_property
    def _members(self) -> Columns:
        """Members of communicators of the last attempt."""
        members = self.model.tables["members"]
        current = self._is_last[members["process"]]
        return {name: values[current] for name, values in members.items()}

    def _by_rank(self, column: str) -> dict[int, int]:
        members = self._members
        pairs = zip(members["global_rank"].tolist(), members[column].tolist(), strict=True)
        return {rank: value for rank, value in pairs if rank != NONE}

    @cached_property
    def host_of(self) -> dict[int, str]:
        """Host names by global rank."""
        return {rank: self.model.nodes[node] for rank, node in self._by_rank("node").items()}

    @cached_property
    def process_of(self) -> dict[int, int]:
        """Rows of processes by global rank."""
        return self._by_rank("process")

    @cached_property
    def node_of(self) -> Ints:
        """Rows of nodes by global rank, NONE where there is none, also of ranks that are members of
        nothing in a damaged capture. The last place stands for the rank NONE.
        """
        members = self._members
        ranks = np.asarray(members["global_rank"], np.int64)
        most = max(ranks.max(initial=-1), self.operations["global_rank"].max(initial=-1))
        nodes = np.full(int(most) + 2, NONE, np.int64)
        nodes[ranks] = members["node"]
        nodes[-1] = NONE
        return nodes

    def ranks_of(self, communicator: int) -> list[int]:
        """Global ranks of a communicator's members on record, in order."""
        communicators, ranks = self._members_in_order
        first, last = np.searchsorted(communicators, (communicator, communicator + 1)).tolist()
        return sorted(set(ranks[first:last].tolist()) - {NONE})

    @cached_property
    def _members_in_order(self) -> tuple[Ints, Ints]:
        """Communicators and global ranks of all members, in the order of communicators."""
        members = self.model.tables["members"]
        communicators = np.asarray(members["communicator"], np.int64)
        order = np.argsort(communicators, kind="stable")
        return communicators[order], np.asarray(members["global_rank"], np.int64)[order]
