"""Communicators of a whole capture and their members, as rows that operations refer to."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Ints
from ncclscope.capture.process import Process
from ncclscope.model.match.communicator_names import Membership, Name
from ncclscope.model.match.process_table import ToReference
from ncclscope.model.process.communicators import LocalCommunicators
from ncclscope.model.schema import COMMUNICATORS, MEMBERS, NONE, Columns, columns_from
from ncclscope.model.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One row of `members`, less its communicator."""

    rank: int
    process: int  # row
    global_rank: int
    node: int
    opened_ns: int
    closed_ns: int  # NONE: open at the end


@dataclass(slots=True)
class CommunicatorBuilder:
    """A communicator while processes are added."""

    id: int  # NCCL's hash, 0 where nobody tells
    name: str = ""  # the user's
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)  # (ranks, nodes), by init
    members: list[MemberRow] = field(default_factory=list)

    def _init_size(self) -> tuple[int, int]:
        """Ranks and nodes as most inits say; (0, 0) where none does."""
        return max(self.sizes, key=lambda size: (self.sizes[size], size), default=(0, 0))

    @property
    def ranks_are_known(self) -> bool:
        """Whether NCCL said how many ranks it has."""
        return self._init_size()[0] > 0

    @property
    def ranks(self) -> int:
        """Ranks by init, else as many as the highest rank that was seen needs."""
        highest = max((member.rank for member in self.members), default=NONE)
        return self._init_size()[0] or highest + 1

    @property
    def nodes(self) -> int:
        """Nodes by init, else as many as were seen."""
        by_init = self._init_size()[1]
        return by_init if by_init > 0 else len({member.node for member in self.members})

    def membership(self) -> Membership:
        """What its name is inferred from."""
        places = {(member.global_rank, member.node) for member in self.members}
        return Membership(self.name, self.ranks, tuple(sorted(places)))


class CommunicatorTable:
    """Rows of `communicators` and `members`. Grows process by process; row numbers never change
    once they are given.
    """

    def __init__(self) -> None:
        self.rows: list[CommunicatorBuilder] = []
        self._row_of: dict[tuple[int, int, int], int] = {}

    def add(
        self, process: Process, row: int, node: int, local: LocalCommunicators, ranks: Ints
    ) -> Ints:
        """The rows of a process's communicators by their numbers in it. `row`: the process's;
        `ranks`: global ranks by communicator number.
        """
        out = np.full(len(local.id), NONE, np.int64)
        for comm in process.communicators:
            number = comm.number
            out[number] = self._row(row, number, int(local.id[number]))
            communicator = self.rows[out[number]]
            communicator.name = communicator.name or comm.name
            if local.ranks[number] > 0:
                communicator.sizes[int(local.ranks[number]), int(local.nodes[number])] += 1
            times = np.array([comm.t_open, comm.t_close or comm.t_open], np.uint64)
            opened_ns, closed_ns = process.clock.to_ns(times).tolist()
            communicator.members.append(
                MemberRow(
                    rank=int(local.rank[number]),
                    process=row,
                    global_rank=int(ranks[number]),
                    node=node,
                    opened_ns=opened_ns,
                    closed_ns=NONE if comm.t_close is None else closed_ns,
                )
            )
        return out

    def _row(self, process: int, number: int, comm_id: int) -> int:
        # A communicator without an id cannot be joined across processes.
        key = (comm_id, NONE, NONE) if comm_id else (0, process, number)
        if key not in self._row_of:
            self._row_of[key] = len(self.rows)
            self.rows.append(CommunicatorBuilder(comm_id))
        return self._row_of[key]

    def ids_by_process(self, processes: int) -> list[frozenset[int]]:
        """By process the ids of its communicators, those that other processes may have as well."""
        ids: list[set[int]] = [set() for _ in range(processes)]
        for communicator in self.rows:
            for member in communicator.members if communicator.id else ():
                ids[member.process].add(communicator.id)
        return [frozenset(of_process) for of_process in ids]

    def count_members(self, processes: Collection[int]) -> Counter[int]:
        """How many ranks of each communicator these processes are, by its row."""
        return Counter(
            row
            for row, communicator in enumerate(self.rows)
            for member in communicator.members
            if member.process in processes
        )

    def processes_of(self, row: int) -> list[int]:
        """The processes of a communicator's ranks, one entry for each rank."""
        return [member.process for member in self.rows[row].members]

    def ranks(self) -> Ints:
        """How many ranks each communicator has."""
        return np.array([communicator.ranks for communicator in self.rows], np.int64)

    def ranks_are_known(self) -> npt.NDArray[np.bool_]:
        """Of which communicators NCCL said how many ranks they have."""
        return np.array([communicator.ranks_are_known for communicator in self.rows], bool)

    def move_times(self, to_reference: ToReference) -> None:
        """Moves times from their nodes' clocks to the one clock."""
        for communicator in self.rows:
            communicator.members = [_moved(member, to_reference) for member in communicator.members]

    def tables(self, names: Iterable[Name], words: Vocabulary) -> tuple[Columns, Columns]:
        """The columns of `communicators` and of `members`. `names`: one for each communicator."""
        named = list(names)
        communicators: dict[str, list[int]] = {
            "id": [communicator.id for communicator in self.rows],
            "name_inferred": [name.inferred for name in named],
            "ranks": [communicator.ranks for communicator in self.rows],
            "nodes": [communicator.nodes for communicator in self.rows],
            "parent": [name.parent for name in named],
            "created_ns": [min(one.opened_ns for one in c.members) for c in self.rows],
            "dimension": dimension_codes([name.dimension for name in named], words),
        }
        flat = [(row, member) for row, one in enumerate(self.rows) for member in one.members]
        members: dict[str, list[int]] = {
            name: [getattr(member, name) for _, member in flat] for name in MemberRow.__slots__
        }
        members["communicator"] = [row for row, _ in flat]
        return columns_from(COMMUNICATORS, communicators), columns_from(MEMBERS, members)


def dimension_codes(dimensions: Iterable[str], words: Vocabulary) -> list[int]:
    """Codes of dimensions, NONE for "" alone."""
    return [words.code("dimension", name) if name else NONE for name in dimensions]


def _moved(member: MemberRow, to_reference: ToReference) -> MemberRow:
    local = np.array([member.opened_ns, member.closed_ns], np.int64)
    opened_ns, closed_ns = to_reference(member.node, local).tolist()
    if member.closed_ns == NONE:
        closed_ns = NONE
    return replace(member, opened_ns=opened_ns, closed_ns=closed_ns)
