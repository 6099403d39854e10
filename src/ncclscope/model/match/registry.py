"""Processes, nodes and communicators of a whole capture, as rows that operations refer to."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ncclscope.capture.header import launcher_rank, number_in, restarts_before
from ncclscope.capture.process import Process
from ncclscope.capture.recording_windows import windows_of
from ncclscope.model.match.attempts import ProcessSpan, attempts_of, joined
from ncclscope.model.match.communicator_names import Membership, name_communicators
from ncclscope.model.process.communicators import LocalCommunicators
from ncclscope.model.schema import COMMUNICATORS, MEMBERS, NONE, WINDOWS, Columns, empty
from ncclscope.nccl.releases import release_of_code, text_of

Ints = npt.NDArray[np.int64]
_LARGEST_PID = (1 << 31) - 1
_LATEST_NS = 1 << 62  # since 1970
_MOST_CALLS = 1 << 48  # of one process: more is damage


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process, as reports name it."""

    folder: str
    host: str
    node: int
    pid: int
    global_rank: int  # NONE where nobody tells; of several ranks, the lowest
    mode: str
    nccl_version: str
    interface: int
    gpu: str  # bus id or uuid
    attempt: int
    started_ns: int  # wall clock
    ended: bool  # False: killed, or still running
    gpu_clock_error_ns: int = 0
    calls: int = 0  # on record
    calls_counted: int = 0
    lived_ns: int = 0
    recorded_ns: int = 0
    fullest_mode: str = ""  # that it was in: `mode` is that of its start

    @property
    def paused(self) -> bool:
        """Whether it recorded totals only for some of its time."""
        return self.recorded_ns < self.lived_ns


def nccl_release(identity: dict[str, str]) -> str:
    """NCCL's release as people write it, "" where it is not known."""
    number = number_in(identity, "nccl_version")
    if number is None:
        return ""
    return text_of(release_of_code(number))


def _world_size(identity: dict[str, str]) -> int:
    names = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE")
    return number_in(identity, *(f"env.{name}" for name in names)) or 0


@dataclass
class _Comm:
    """A communicator while processes are added."""

    id: int
    name: str = ""
    told: Counter[tuple[int, int]] = field(default_factory=Counter)  # (ranks, nodes), as inits say
    members: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        """As most inits say, 0 where none does."""
        return self._most_told()[0]

    @property
    def nodes(self) -> int:
        """Likewise."""
        return self._most_told()[1]

    def _most_told(self) -> tuple[int, int]:
        return max(self.told, key=lambda pair: (self.told[pair], pair), default=(0, 0))


class Registry:
    """Grows process by process; rows never change once they are given."""

    def __init__(self) -> None:
        self.processes: list[ProcessRow] = []
        self.nodes: list[str] = []
        self._worlds: list[int] = []  # by process: ranks of its job as launchers say, 0
        self._windows: list[tuple[int, int, int]] = []  # process, from, to
        self.heard_ns: list[int] = []  # by process: when it last said anything
        self._node_rows: dict[tuple[str, str], int] = {}
        self._comms: list[_Comm] = []
        self._comm_rows: dict[tuple[int, int, int], int] = {}

    def add(
        self, process: Process, local: LocalCommunicators, gpu_clock_error_ns: int, calls: int
    ) -> tuple[int, Ints, Ints]:
        """The process's row; by its communicator numbers the rows and the global ranks."""
        row = len(self.processes)
        node = self._node(process)
        global_ranks = _global_ranks(process, local)
        comm_rows = np.full(len(local.id), NONE, np.int64)
        for comm in process.communicators:
            comm_rows[comm.number] = self._comm_row(row, comm.number, int(local.id[comm.number]))
            known = self._comms[comm_rows[comm.number]]
            known.name = known.name or comm.name
            if local.ranks[comm.number] > 0:
                pair = int(local.ranks[comm.number]), int(local.nodes[comm.number])
                known.told[pair] += 1
            times = np.array([comm.t_open, comm.t_close or comm.t_open], np.uint64)
            opened, closed = process.clock.to_ns(times).tolist()
            known.members.append(
                (
                    int(local.rank[comm.number]),
                    row,
                    int(global_ranks[comm.number]),
                    node,
                    opened,
                    NONE if comm.t_close is None else closed,
                )
            )
        self._add_row(process, node, global_ranks, gpu_clock_error_ns, calls)
        return row, comm_rows, global_ranks

    def _add_row(
        self, process: Process, node: int, global_ranks: Ints, gpu_clock_error_ns: int, calls: int
    ) -> None:
        identity, comms = process.identity, process.communicators
        known = [int(rank) for rank in global_ranks if rank != NONE]
        launched = launcher_rank(identity)
        self._worlds.append(_world_size(identity))
        windows = windows_of(process)
        self.heard_ns.append(windows.ended_ns)
        if windows.recorded_ns < windows.lived_ns:
            row = len(self.processes)
            self._windows += [(row, begin, end) for begin, end in windows.recorded]
        self.processes.append(
            ProcessRow(
                folder=process.folder,
                host=process.host,
                node=node,
                pid=process.header.pid if process.header.pid <= _LARGEST_PID else NONE,
                global_rank=min(known) if known else NONE if launched is None else launched,
                mode=identity.get("mode", ""),
                nccl_version=nccl_release(identity),
                interface=max((comm.version for comm in comms), default=0),
                gpu=next((c.gpu_bus_id or c.gpu_uuid for c in comms if c.gpu_uuid), ""),
                attempt=restarts_before(identity),
                started_ns=min(process.header.start_realtime_ns, _LATEST_NS),
                ended=process.ended,
                gpu_clock_error_ns=gpu_clock_error_ns,
                calls=calls,
                calls_counted=min(process.calls_counted(), _MOST_CALLS),
                lived_ns=windows.lived_ns,
                recorded_ns=windows.recorded_ns,
                fullest_mode=windows.fullest_mode,
            )
        )

    def _node(self, process: Process) -> int:
        identity = process.identity
        key = (
            identity.get("boot_id") or process.host,
            identity.get("time_namespace", ""),
        )
        if key not in self._node_rows:
            self._node_rows[key] = len(self.nodes)
            self.nodes.append(process.host)
        return self._node_rows[key]

    def _comm_row(self, process: int, number: int, comm_id: int) -> int:
        # A communicator whose id nobody tells cannot be joined across processes.
        key = (comm_id, NONE, NONE) if comm_id else (0, process, number)
        if key not in self._comm_rows:
            self._comm_rows[key] = len(self._comms)
            self._comms.append(_Comm(comm_id))
        return self._comm_rows[key]

    def tell_attempts_apart(self) -> None:
        """Once all processes are there: whose attempt of the job each of them belongs to."""
        attempts = attempts_of(
            [
                ProcessSpan(
                    row.global_rank,
                    row.attempt,
                    mine,
                    row.started_ns,
                    row.started_ns + row.lived_ns,
                )
                for row, mine in zip(self.processes, self._ids_by_process(), strict=True)
            ]
        )
        self.processes = [
            replace(row, attempt=attempt)
            for row, attempt in zip(self.processes, attempts, strict=True)
        ]

    def tables(self) -> tuple[Columns, Columns, list[str]]:
        """Communicators, members, and the communicators' names."""
        comms = empty(COMMUNICATORS, len(self._comms))
        flat = [(row, member) for row, comm in enumerate(self._comms) for member in comm.members]
        members = empty(MEMBERS, len(flat))
        for place, (row, member) in enumerate(flat):
            values = (row, member[0], member[1], member[2], member[3], member[4], member[5])
            for column, value in zip(MEMBERS, values, strict=True):
                members[column.name][place] = value
        for row, comm in enumerate(self._comms):
            comms["ranks"][row] = _ranks_of(comm)
            comms["nodes"][row] = (
                comm.nodes if comm.nodes > 0 else len({member[3] for member in comm.members})
            )
            comms["id"][row] = comm.id
            comms["created_ns"][row] = min(member[4] for member in comm.members)
        names = [""] * len(self._comms)
        for attempt in sorted({row.attempt for row in self.processes}):
            mine = self._comms_of(attempt)
            later = "" if attempt == self._last_attempt else f"@{attempt}"
            given = name_communicators(
                [_membership(self._comms[row]) for row in mine], self._world_size(attempt)
            )
            for row, name in zip(mine, given, strict=True):
                names[row] = name.text + later
                comms["name_inferred"][row] = name.inferred
                comms["parent"][row] = NONE if name.parent == NONE else mine[name.parent]
        return comms, members, names

    @property
    def _last_attempt(self) -> int:
        return max((row.attempt for row in self.processes), default=0)

    def _comms_of(self, attempt: int) -> list[int]:
        """Rows of the communicators that processes of an attempt made."""
        return [
            row
            for row, comm in enumerate(self._comms)
            if self.processes[comm.members[0][1]].attempt == attempt
        ]

    def members_of(self, processes: list[int]) -> Counter[int]:
        """How many ranks of each communicator these processes are, by its row."""
        mine = set(processes)
        return Counter(
            row for row, comm in enumerate(self._comms) for one in comm.members if one[1] in mine
        )

    def processes_of(self, row: int) -> list[int]:
        """Those that are ranks of a communicator, as often as they are."""
        return [member[1] for member in self._comms[row].members]

    def windows(self) -> Columns:
        """When processes that did not always do so recorded single calls."""
        columns = empty(WINDOWS, len(self._windows))
        for place, values in enumerate(self._windows):
            for column, value in zip(WINDOWS, values, strict=True):
                columns[column.name][place] = value
        return columns

    def expected_processes(self) -> int:
        """So many as the last attempt's communicators need, else as launchers say. Processes that
        share none with others, not even through others, are a job of their own.
        """
        ids = self._ids_by_process()
        party_of = joined(ids)
        widest: Counter[int] = Counter()
        held: dict[int, set[int]] = {}  # ranks by process
        for comm in map(self._comms.__getitem__, self._comms_of(self._last_attempt)):
            party = party_of[comm.members[0][1]] if comm.id else NONE
            widest[party] = max(widest[party], comm.ranks)
            for _, process, global_rank, *_ in comm.members:
                held.setdefault(process, set()).add(global_rank)
        each: Counter[int] = Counter()
        for process, ranks in held.items():
            each[party_of[process]] = max(each[party_of[process]], len(ranks))
        needed = sum(-(-ranks // max(each[party], 1)) for party, ranks in widest.items())
        return max(needed or self._told_world(self._last_attempt), 1)

    def _ids_by_process(self) -> list[frozenset[int]]:
        """Of communicators that other processes may know, too."""
        ids: list[set[int]] = [set() for _ in self.processes]
        for comm in self._comms:
            for _, process, *_ in comm.members if comm.id else ():
                ids[process].add(comm.id)
        return [frozenset(mine) for mine in ids]

    def ranks_of_communicators(self) -> Ints:
        """How many ranks each communicator has."""
        return np.array([_ranks_of(comm) for comm in self._comms], np.int64)

    def ranks_were_told(self) -> npt.NDArray[np.bool_]:
        """Which communicators' numbers of ranks came from NCCL."""
        return np.array([comm.ranks > 0 for comm in self._comms], bool)

    def move_times(self, to_reference: Callable[[int, Ints], Ints]) -> None:
        """Moves times from their nodes' clocks to the one clock."""
        for comm in self._comms:
            for place, (rank, process, global_rank, node, opened, closed) in enumerate(
                comm.members
            ):
                times = to_reference(node, np.array([opened, closed], np.int64)).tolist()
                closed = NONE if closed == NONE else times[1]
                comm.members[place] = (rank, process, global_rank, node, times[0], closed)

        for place, heard in enumerate(self.heard_ns):
            node = self.processes[place].node
            self.heard_ns[place] = int(to_reference(node, np.array([heard], np.int64))[0])
        for place, (process, begin, end) in enumerate(self._windows):
            times = np.array([begin, end], np.int64)
            begin, end = to_reference(self.processes[process].node, times).tolist()
            self._windows[place] = (process, begin, end)

    def _told_world(self, attempt: int) -> int:
        """Ranks of an attempt as launchers say, 0."""
        told = zip(self.processes, self._worlds, strict=True)
        return max((world for row, world in told if row.attempt == attempt), default=0)

    def _world_size(self, attempt: int) -> int:
        """Ranks of an attempt, as launchers say or as many as were seen."""
        comms = [self._comms[row] for row in self._comms_of(attempt)]
        seen = {member[2] for comm in comms for member in comm.members}
        return max(self._told_world(attempt), len(seen - {NONE}))

    def found_processes(self) -> int:
        """Processes of the last attempt."""
        last = self._last_attempt
        return sum(row.attempt == last for row in self.processes)

    def attempts(self) -> int:
        """How many attempts of the job left processes here."""
        return len({row.attempt for row in self.processes})


def _ranks_of(comm: _Comm) -> int:
    """As init told, else as many as the highest rank that was seen needs."""
    highest = max((member[0] for member in comm.members), default=NONE) + 1
    return comm.ranks if comm.ranks > 0 else highest


def _membership(comm: _Comm) -> Membership:
    seen = {(rank, node) for _, _, rank, node, _, _ in comm.members}
    return Membership(comm.name, _ranks_of(comm), tuple(sorted(seen)))


def _global_ranks(process: Process, local: LocalCommunicators) -> Ints:
    """By communicator number the job's rank: the rank in the widest communicator of that GPU, else
    the launcher's.
    """
    out = np.full(len(local.id), NONE, np.int64)
    given, world = launcher_rank(process.identity), _world_size(process.identity)
    for gpu in np.unique(local.gpu):
        mine = [comm for comm in process.communicators if local.gpu[comm.number] == gpu]
        ranked = [comm for comm in mine if local.rank[comm.number] != NONE]
        if not ranked:
            continue
        widest = max(ranked, key=lambda comm: (int(local.ranks[comm.number]), -comm.number))
        rank = int(local.rank[widest.number])
        alone = len(np.unique(local.gpu[[comm.number for comm in process.communicators]])) == 1
        if given is not None and alone and world > local.ranks[widest.number]:
            rank = given
        for comm in mine:
            out[comm.number] = rank
    if given is not None:
        out[out == NONE] = given
    return out
