"""Processes, nodes and communicators of an import, as rows that its operations refer to."""

from dataclasses import dataclass, field

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.ingest.records import ImportedCommunicator, ImportedProcess
from ncclscope.model.match.communicator_names import Membership, name_communicators
from ncclscope.model.match.communicator_table import dimension_codes
from ncclscope.model.rows import ProcessRow
from ncclscope.model.schema import COMMUNICATORS, MEMBERS, NONE, Columns, empty
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.limits import MOST_RANKS
from ncclscope.regular_files import is_path_within


@dataclass(slots=True)
class _CommunicatorRow:
    """A communicator while files are read: every file may add to it."""

    id: int = 0
    name: str = ""
    ranks: int = 0
    nodes: int = 0
    members: dict[tuple[int, int], int] = field(default_factory=dict)  # (process, rank) -> global

    def add(self, record: ImportedCommunicator) -> None:
        """Takes what a record says of it."""
        self.id = self.id or record.id
        self.name = self.name or record.name
        self.ranks = max(self.ranks, record.ranks if record.ranks <= MOST_RANKS else 0)
        self.nodes = max(self.nodes, record.nodes if record.nodes <= MOST_RANKS else 0)

    @property
    def all_ranks(self) -> int:
        """How many ranks it has: by records, else as many as the highest rank needs."""
        return self.ranks or max((rank for _, rank in self.members), default=NONE) + 1


class ImportRegistry:
    """Grows record by record; row numbers never change once they are given."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._processes: dict[ImportedProcess, int] = {}
        self._nodes: dict[tuple[str, str], int] = {}
        self._rows: dict[str, int] = {}
        self._communicators: list[_CommunicatorRow] = []
        self._row_of: dict[ImportedCommunicator, int] = {}  # of records that were seen before

    @property
    def processes(self) -> list[ImportedProcess]:
        """By row."""
        return list(self._processes)

    @property
    def nodes(self) -> list[str]:
        """Names of hosts, by row."""
        return [host for host, _ in self._nodes]

    def process(self, process: ImportedProcess) -> int:
        """The process's row."""
        row = self._processes.get(process)
        if row is None:
            row = self._processes[process] = len(self._processes)
            self.node(process)
        return row

    def node(self, process: ImportedProcess) -> int:
        """The row of the process's node: its host, or a node of its own if it has its own clock or
        its host is not known.
        """
        alone = process.own_clock or not process.host
        key = (process.host, f"{process.file}:{process.pid}" if alone else "")
        return self._nodes.setdefault(key, len(self._nodes))

    def communicator(self, record: ImportedCommunicator | None) -> int:
        """The communicator's row."""
        if record is None:
            return NONE
        row = self._row_of.get(record)
        if row is None:
            row = self._rows.setdefault(record.key, len(self._rows))
            if row == len(self._communicators):
                self._communicators.append(_CommunicatorRow())
            self._communicators[row].add(record)
            self._row_of[record] = row
        return row

    def member(self, communicator: int, process: int, rank: int, global_rank: int = NONE) -> None:
        """Adds a rank of a communicator."""
        if communicator == NONE or not 0 <= rank < MOST_RANKS:
            return
        members = self._communicators[communicator].members
        if members.get((process, rank), NONE) == NONE:
            members[process, rank] = global_rank

    def ranks_of_communicators(self) -> Ints:
        """How many ranks each communicator has."""
        return np.array([comm.all_ranks for comm in self._communicators], np.int64)

    def global_ranks(self) -> dict[tuple[int, int, int], int]:
        """By (process, communicator, rank) the rank in the job: by the file, else the rank in the
        widest communicator if the process has only one there.
        """
        ranks = self.ranks_of_communicators()
        widest = int(ranks.max(initial=0))
        in_widest: dict[int, set[int]] = {}  # ranks by process
        for row, comm in enumerate(self._communicators):
            if ranks[row] == widest and widest > 1:
                for process, rank in comm.members:
                    in_widest.setdefault(process, set()).add(rank)
        by_file = {row: process.global_rank for process, row in self._processes.items()}
        out: dict[tuple[int, int, int], int] = {}
        for row, comm in enumerate(self._communicators):
            for (process, rank), global_rank in comm.members.items():
                own = in_widest.get(process, set())
                if global_rank == NONE:
                    global_rank = by_file[process]
                if global_rank == NONE:
                    global_rank = rank if ranks[row] == widest else NONE
                if global_rank == NONE and len(own) == 1:
                    global_rank = next(iter(own))
                out[process, row, rank] = global_rank
        return out

    def process_rows(
        self, first_wall_ns: dict[int, int], gpu_clock_error_ns: int
    ) -> list[ProcessRow]:
        """The table `processes`. `first_wall_ns`: by process its first time by the wall clock."""
        ranks: dict[int, int] = {}
        for (process, _, _), rank in self.global_ranks().items():
            if rank != NONE:
                ranks[process] = min(ranks.get(process, rank), rank)
        return [
            ProcessRow(
                folder=_folder_of(process),
                host=process.host,
                node=self.node(process),
                pid=process.pid,
                global_rank=ranks.get(row, process.global_rank),
                mode=self._mode,
                nccl_version=process.nccl_version,
                interface=NONE,
                gpu=process.gpu,
                attempt=0,
                started_ns=first_wall_ns.get(row, NONE),
                ended=True,
                gpu_clock_error_ns=gpu_clock_error_ns or NONE,
            )
            for process, row in self._processes.items()
        ]

    def tables(self, words: Vocabulary) -> tuple[Columns, Columns, list[str]]:
        """Communicators, members, and the communicators' names."""
        ranks, global_ranks = self.ranks_of_communicators(), self.global_ranks()
        node_of = [self.node(process) for process in self._processes]
        placed = [bool(process.host) for process in self._processes]
        comms = empty(COMMUNICATORS, len(self._communicators))
        members = empty(MEMBERS, sum(len(comm.members) for comm in self._communicators))
        memberships, place = [], 0
        for row, comm in enumerate(self._communicators):
            seen, hosts_known = set(), all(placed[process] for process, _ in comm.members)
            for process, rank in sorted(comm.members, key=lambda pair: pair[1]):
                global_rank, node = global_ranks[process, row, rank], node_of[process]
                seen.add((global_rank, node if hosts_known else 0))
                for name, value in (
                    ("communicator", row), ("rank", rank), ("process", process),
                    ("global_rank", global_rank), ("node", node),
                ):  # fmt: skip
                    members[name][place] = value
                place += 1
            comms["id"][row] = comm.id
            comms["ranks"][row] = ranks[row] or NONE
            whole = hosts_known and len(comm.members) >= ranks[row] > 0
            hosts = len({node for _, node in seen})
            comms["nodes"][row] = comm.nodes or (hosts if whole else NONE)
            memberships.append(Membership(comm.name, int(ranks[row]), tuple(sorted(seen))))
        names = name_communicators(memberships, int(ranks.max(initial=0)))
        for row, given in enumerate(names):
            comms["name_inferred"][row], comms["parent"][row] = given.inferred, given.parent
        comms["dimension"][:] = dimension_codes([given.dimension for given in names], words)
        return comms, members, [given.text for given in names]

    def expected_processes(self) -> int:
        """As many processes as the widest communicator needs."""
        held: dict[int, set[int]] = {}
        ranks = self.ranks_of_communicators()
        widest = int(ranks.max(initial=0))
        for row, comm in enumerate(self._communicators):
            if ranks[row] == widest:
                for process, rank in comm.members:
                    held.setdefault(process, set()).add(rank)
        each = max((len(of) for of in held.values()), default=1)
        return max(-(-widest // each), len(self._processes), 1)


def _folder_of(process: ImportedProcess) -> str:
    """What stands for a folder of a capture: a host's name may be anything in a damaged log."""
    name = process.file or f"{process.host}.{process.pid}"
    return name if is_path_within(name) else name.replace("/", "_").replace("\0", "_")
