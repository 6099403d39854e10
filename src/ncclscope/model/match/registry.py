"""Processes and communicators of a capture together: what needs both of them."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from ncclscope import launchers
from ncclscope.arrays.types import Ints
from ncclscope.model.match.attempts import connected_components
from ncclscope.model.match.communicator_names import Name, name_communicators
from ncclscope.model.match.communicator_table import CommunicatorTable
from ncclscope.model.match.global_ranks import LocalRank, global_ranks
from ncclscope.model.match.process_table import ProcessTable, ToReference
from ncclscope.model.process.decoded_process import DecodedProcess
from ncclscope.model.rows import ProcessRow
from ncclscope.model.schema import NONE


@dataclass(slots=True)
class Registry:
    """The rows that operations refer to."""

    processes: ProcessTable = field(default_factory=ProcessTable)
    communicators: CommunicatorTable = field(default_factory=CommunicatorTable)
    # Descriptions of process groups by their global ranks.
    groups: dict[frozenset[int], dict[str, None]] = field(default_factory=dict)

    def add(self, decoded: DecodedProcess) -> tuple[ProcessRow, Ints, Ints]:
        """A process's row; by its communicator numbers the rows and the global ranks."""
        process, local, number = decoded.process, decoded.local, len(self.processes.rows)
        by_number = global_ranks(
            (
                LocalRank(
                    number=comm.number,
                    gpu=str(local.gpu[comm.number]),
                    rank=int(local.rank[comm.number]),
                    ranks=int(local.ranks[comm.number]),
                    id=int(local.id[comm.number]),
                )
                for comm in process.communicators
            ),
            process.identity,
        )
        given = launchers.global_rank(process.identity, launchers.RECORDED)
        ranks = np.full(len(local.id), NONE if given is None else given, np.int64)
        for comm, rank in by_number.items():
            ranks[comm] = rank
        row = self.processes.add(
            process,
            by_number,
            decoded.gpu_clock_error_ns,
            decoded.counts.calls,
            decoded.counts.calls_counted,
            decoded.event_excess,
        )
        comm_rows = self.communicators.add(process, number, row.node, local, ranks)
        for group in decoded.job.groups:
            texts = self.groups.setdefault(frozenset(group.ranks), {})
            texts.setdefault(group.description or group.name)
        return row, comm_rows, ranks

    def assign_attempts(self) -> None:
        """Sets each process's attempt, once all processes are there."""
        self.processes.assign_attempts(self._ids_by_process())

    def _ids_by_process(self) -> list[frozenset[int]]:
        return self.communicators.ids_by_process(len(self.processes.rows))

    def move_times(self, to_reference: ToReference) -> None:
        """Moves times from their nodes' clocks to the one clock."""
        self.processes.move_times(to_reference)
        self.communicators.move_times(to_reference)

    def communicators_of(self, attempt: int) -> list[int]:
        """Rows of the communicators that processes of an attempt made."""
        return [
            row
            for row, communicator in enumerate(self.communicators.rows)
            if self.processes.rows[communicator.members[0].process].attempt == attempt
        ]

    def communicator_names(self) -> list[Name]:
        """A name for each communicator; those of earlier attempts end in @ and the attempt."""
        names: dict[int, Name] = {}
        for attempt in self.processes.attempts:
            rows = self.communicators_of(attempt)
            ending = "" if attempt == self.processes.last_attempt else f"@{attempt}"
            memberships = [self.communicators.rows[row].membership() for row in rows]
            memberships = [
                replace(own, descriptions=self.descriptions_of(row))
                for row, own in zip(rows, memberships, strict=True)
            ]
            for row, name in zip(
                rows, name_communicators(memberships, self.world_size(attempt)), strict=True
            ):
                parent = NONE if name.parent == NONE else rows[name.parent]
                names[row] = Name(name.text + ending, name.inferred, parent, name.dimension)
        return [names[row] for row in range(len(self.communicators.rows))]

    def descriptions_of(self, row: int) -> tuple[str, ...]:
        """What the program calls its process groups with the ranks of a communicator."""
        if not self.groups:
            return ()
        communicator = self.communicators.rows[row]
        ranks = frozenset(member.global_rank for member in communicator.members)
        known = len(ranks) == communicator.ranks and NONE not in ranks
        return tuple(self.groups.get(ranks, ())) if known else ()

    def descriptions(self) -> list[str]:
        """The same in words for each communicator, "" where the program says nothing."""
        rows = range(len(self.communicators.rows))
        return [", ".join(self.descriptions_of(row)) for row in rows]

    def world_size(self, attempt: int) -> int:
        """Ranks of an attempt, as launchers say or as many as were seen."""
        seen = {
            member.global_rank
            for row in self.communicators_of(attempt)
            for member in self.communicators.rows[row].members
        }
        return max(self.processes.world_size(attempt), len(seen - {NONE}))

    def expected_processes(self) -> int:
        """As many processes as the last attempt's communicators need, else as launchers say.

        Processes that share no communicator with others, not even through others, are a job of
        their own: each job needs as many processes as its widest communicator has ranks, divided
        by the ranks that one process of it holds. A mesh may have no communicator of all ranks:
        then the processes that are on record are needed, and where a communicator's member is
        not on record, as many as launchers say.
        """
        job_of = connected_components(self._ids_by_process())
        widest: Counter[int] = Counter()  # ranks, by job
        held: dict[int, set[int]] = {}  # global ranks by process
        members_missing = False
        for row in self.communicators_of(self.processes.last_attempt):
            communicator = self.communicators.rows[row]
            job = job_of[communicator.members[0].process] if communicator.id else NONE
            init_ranks = communicator.ranks if communicator.ranks_are_known else 0
            widest[job] = max(widest[job], init_ranks)
            members_missing |= len(communicator.members) < init_ranks
            for member in communicator.members:
                held.setdefault(member.process, set()).add(member.global_rank)
        each: Counter[int] = Counter()  # ranks of one process, by job
        found: Counter[int] = Counter()  # processes, by job
        for process, ranks in held.items():
            each[job_of[process]] = max(each[job_of[process]], len(ranks))
            found[job_of[process]] += 1
        needed = sum(
            max(-(-ranks // max(each[job], 1)), found[job]) for job, ranks in widest.items()
        )
        said = self.processes.world_size(self.processes.last_attempt)
        if len(widest) == 1 and members_missing:
            needed = max(needed, -(-said // max(*each.values(), 1)))
        return max(needed or said, 1)
