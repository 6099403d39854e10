"""The stages in which a model is made of decoded processes, as functions of bundles of processes.

    sizes, numbers   columns that need to know all processes
    bounds           what processes say about the clocks of their nodes
    move             times on the one clock
    states           what concerns each instance, by blocks of them; merged
    block            the table of a block's instances
    waits            each operation's instance and waits
    missing, behind  operations that are not on record

Between them, the command does what needs little of each process: build.py. The stage `report`, in
which operations of a saved model are summed up, is analysis/report_stage.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.align.bounds import CollectiveBounds
from ncclscope.model.align.host_clocks import HostClocks
from ncclscope.model.column_files import column_file, map_file, write_columns
from ncclscope.model.engine import ProcessOperations
from ncclscope.model.match.instances import ADDED, Instances
from ncclscope.model.match.missing_operations import (
    OF_SEEN,
    OF_TIMES,
    FirstTimes,
    SeenInstances,
    first_times,
    seen_instances,
)
from ncclscope.model.match.votes import ballots
from ncclscope.model.match.waits import STATE, Waits
from ncclscope.model.operation_files import OperationFiles
from ncclscope.model.process.operation_bytes import total_bytes
from ncclscope.model.schema import NONE, TIME_COLUMNS, Columns
from ncclscope.model.streams import (
    BY_SEQUENCE,
    NEEDED,
    Rules,
    StreamRanges,
    Streams,
    distinct,
    number_by_sequence,
    stream_ranges,
)
from ncclscope.threads import in_threads

Bundle = Sequence[ProcessOperations]
STATES = "states"  # the table that tasks share while a model is made
GPUS = -1  # in place of a block: the state that counts GPUs


def rows_of(process: ProcessOperations) -> slice:
    """Its rows of operations."""
    return slice(process.first_row, process.first_row + process.rows)


def chunks_of(bundle: Bundle) -> list[tuple[ProcessOperations, slice]]:
    """Some thousand rows of a process at a time."""
    return [
        (process, slice(process.first_row + rows.start, process.first_row + rows.stop))
        for process in bundle
        for rows in row_chunks(process.rows)
    ]


@dataclass(frozen=True, slots=True)
class Stage:
    """What all stages need."""

    operations: OperationFiles
    threads: int  # that a task may use


# ---- columns that need to know all processes ----
@dataclass(frozen=True, slots=True)
class CompleteSizes(Stage):
    """Multiplies one rank's share by the number of ranks where interfaces 1 to 3 did not say it."""

    ranks: Ints  # by communicator
    are_known: Bools
    functions: npt.NDArray[Any]  # codes of those that count one rank's share

    def __call__(self, bundle: Bundle) -> None:
        for _, rows in chunks_of(bundle):
            names = ("communicator", "function", "size_bytes")
            comm, function, size = self.operations.of(rows, names).values()
            own = np.flatnonzero((comm != NONE) & np.isin(function, self.functions))
            own = own[~self.are_known[comm[own]]]
            completed = size.copy()
            completed[own] = total_bytes(size[own], self.ranks[comm[own]])
            self.operations.replace(rows, {"size_bytes": completed})


@dataclass(frozen=True, slots=True)
class CommunicatorsOf(Stage):
    """Communicators of some processes."""

    processes: frozenset[int]

    def __call__(self, bundle: Bundle) -> Ints:
        comms = [np.empty(0, np.int64)]
        for process in bundle:
            if process.process in self.processes:
                own = self.operations.of(rows_of(process), ("communicator",))["communicator"]
                comms.append(distinct(own.astype(np.int64)))
        return np.unique(np.concatenate(comms))


@dataclass(frozen=True, slots=True)
class NumberBySequence(Stage):
    """Replaces numbers of calls on communicators of which some rank lost calls."""

    communicators: Ints

    def __call__(self, bundle: Bundle) -> None:
        names = ("call_order", "communicator", "replay", "form", "inferred", "sequence")
        for _, rows in chunks_of(bundle):
            columns = self.operations.of(rows, names)
            columns["call_order"] = columns["call_order"].copy()
            number_by_sequence(columns, self.communicators)
            self.operations.replace(rows, {"call_order": columns["call_order"]})


@dataclass(frozen=True, slots=True)
class CountStreams(Stage):
    """The streams of each process, after operations have changed."""

    def __call__(self, bundle: Bundle) -> list[StreamRanges]:
        names = (*NEEDED, "node")
        return [stream_ranges(self.operations.of(rows_of(process), names)) for process in bundle]


@dataclass(frozen=True, slots=True)
class CountModules(Stage):
    """Operations by module."""

    modules: int

    def __call__(self, bundle: Bundle) -> Ints:
        counts = np.zeros(self.modules, np.int64)
        for _, rows in chunks_of(bundle):
            own = self.operations.of(rows, ("module",))["module"]
            counts += np.bincount(own[own != NONE], minlength=self.modules)
        return counts


# ---- one clock ----
@dataclass(frozen=True, slots=True)
class FindBounds(Stage):
    """What processes say about the clocks of their nodes: cells of CollectiveBounds."""

    streams: Streams
    nodes: Mapping[int, Ints]  # by communicator
    rules: Rules

    def empty(self) -> CollectiveBounds:
        """Bounds of no process yet."""
        return CollectiveBounds(self.streams, self.nodes, self.rules)

    def bounds(self, bundle: Bundle) -> CollectiveBounds:
        """Bounds of some processes."""
        bounds = self.empty()
        for process, rows in chunks_of(bundle):
            bounds.add(self.operations.of(rows), process.width_ns)
        return bounds

    def __call__(self, bundle: Bundle) -> tuple[Ints, Ints, Ints]:
        return self.bounds(bundle).cells()


@dataclass(frozen=True, slots=True)
class MoveTimes(Stage):
    """Moves all times to the first node's clock."""

    clocks: HostClocks

    def __call__(self, bundle: Bundle) -> None:
        in_threads(self._move, chunks_of(bundle), self.threads)

    def _move(self, chunk: tuple[ProcessOperations, slice]) -> None:
        process, rows = chunk
        moved = {}
        for name, times in self.operations.of(rows, TIME_COLUMNS).items():
            on_reference = self.clocks.to_reference(process.node, times)
            moved[name] = np.where(times != NONE, on_reference, NONE)
        self.operations.replace(rows, moved)


# ---- instances ----
@dataclass(frozen=True, slots=True)
class Plan:
    """How operations are matched.

    blocks   streams whose instances are gathered together: places in `streams`
    """

    streams: Streams
    rules: Rules
    blocks: tuple[slice, ...]

    def part(self, block: int) -> Streams:
        """The streams of a block; none for GPUS."""
        return self.streams.part(slice(0, 0) if block == GPUS else self.blocks[block])

    def first_row(self, block: int) -> int:
        """The first row of a block's streams; 0 where there are no streams at all."""
        first = self.streams.first_row[self.blocks[block]]
        return int(first[0]) if len(first) else 0

    def block_of(self, place: Ints) -> Ints:
        """The blocks of streams."""
        starts = np.array([block.start for block in self.blocks], np.int64)
        return np.searchsorted(starts, place, side="right") - 1


@dataclass(frozen=True, slots=True)
class GatherStates(Stage):
    """By block what its instances are, as far as these processes take part in them."""

    plan: Plan

    def __call__(self, bundle: Bundle) -> dict[int, Instances]:
        plan, states = self.plan, dict[int, Instances]()
        for process in bundle:
            columns = self.operations.of(rows_of(process), ADDED)
            for block, own in self._by_block(columns):
                if block not in states:
                    states[block] = Instances(plan.part(block), plan.rules)
                states[block].add(own, process.width_ns)
        return states

    def _by_block(self, columns: Columns) -> Iterator[tuple[int, Columns]]:
        if len(self.plan.blocks) == 1:
            yield 0, columns
            return
        place, _ = self.plan.streams.find(columns)
        yield GPUS, columns
        block = np.where(place != NONE, self.plan.block_of(place), NONE)
        for number in distinct(block[block != NONE]).tolist():
            use = np.flatnonzero(block == number)
            yield number, {name: values[use] for name, values in columns.items()}


@dataclass(frozen=True, slots=True)
class CastBallots(Stage):
    """The votes of each process on mismatching instances."""

    plan: Plan
    rows: Ints  # of these instances, in order

    def __call__(self, bundle: Bundle) -> list[dict[str, npt.NDArray[Any]]]:
        cast = []
        for process in bundle:
            columns = self.operations.of(rows_of(process), ADDED)
            _, row = self.plan.streams.find(columns)
            cast += ballots(columns, row, self.rows)
        return cast


def count_state(state: Instances) -> tuple[int, Ints, dict[int, int]]:
    """How many instances a block has, the rows of mismatching ones, counted from its first, and the
    GPUs by node.
    """
    return state.count(), state.mismatches(), dict(state.gpus)


@dataclass(frozen=True, slots=True)
class Block:
    """A block whose state is complete."""

    number: int
    state: Instances
    first_instance: int
    mismatches: Ints  # rows of which the majority was found again
    agreed: Columns


@dataclass(frozen=True, slots=True)
class WriteBlock:
    """Writes the table of a block's instances, and the states on which waits depend."""

    folder: Path
    plan: Plan
    clocks: HostClocks
    nodes: Mapping[int, Ints]  # by communicator
    ranks: Ints  # by communicator
    gpus: Mapping[int, int]  # by node

    def __call__(self, block: Block) -> None:
        state = block.state
        if len(block.mismatches):
            state.set_agreed(block.mismatches, block.agreed)
        state.gpus.clear()
        state.gpus.update(self.gpus)
        table, states = state.table(self.clocks, self.nodes, self.ranks, block.first_instance)
        write_columns(self.folder, "instances", block.first_instance, table)
        write_columns(self.folder, STATES, self.plan.first_row(block.number), states, STATE)


def reserve_states(folder: Path, rows: int) -> None:
    """Makes the files of states, as long as they will be."""
    for column in STATE:
        with column_file(folder, STATES, column.name).open("wb") as file:
            file.truncate(rows * np.dtype(column.dtype).itemsize)


def map_states(folder: Path, rows: int) -> Columns:
    """The states of all blocks, mapped."""
    return {
        column.name: map_file(column_file(folder, STATES, column.name), column.dtype, rows, "r")
        for column in (STATE if rows else ())
    }


@dataclass(frozen=True, slots=True)
class SetWaits(Stage):
    """Sets each operation's instance and waits, and takes numbers back that are NCCL's own."""

    plan: Plan
    sequenced: bool  # some calls are numbered by NCCL's own count

    def __call__(self, bundle: Bundle) -> None:
        streams = self.plan.streams
        states = map_states(self.operations.folder, streams.rows)
        waits = Waits(streams, self.plan.rules, states)

        def set_waits(chunk: tuple[ProcessOperations, slice]) -> None:
            _, rows = chunk
            columns = self.operations.of(rows)
            values = waits.of(columns)
            order = columns["call_order"]
            if self.sequenced:
                restored = np.where(order == BY_SEQUENCE, NONE, order)
                self.operations.replace(rows, {"call_order": restored})
            self.operations.write(rows, values)

        in_threads(set_waits, chunks_of(bundle), self.threads)


# ---- what is not on record ----
@dataclass(frozen=True, slots=True)
class SeeInstances(Stage):
    """Instances of parts of operations, and of processes that did not record all calls."""

    partly_recorded: list[int]

    def __call__(self, bundle: Bundle) -> list[SeenInstances]:
        return [
            seen_instances(self.operations.of(rows, OF_SEEN), self.partly_recorded)
            for _, rows in chunks_of(bundle)
        ]


@dataclass(frozen=True, slots=True)
class FirstTimesOf(Stage):
    """When operations of instances began that lack some; `missing` is mapped from its file."""

    instances: int

    def __call__(self, bundle: Bundle) -> list[FirstTimes]:
        missing = map_missing(self.operations.folder, self.instances)
        return [
            first_times(self.operations.of(rows, OF_TIMES), missing)
            for _, rows in chunks_of(bundle)
        ]


def _missing_file(folder: Path) -> Path:
    return column_file(folder, STATES, "missing")


def map_missing(folder: Path, rows: int) -> npt.NDArray[np.int32]:
    """By instance how many operations are missing."""
    return map_file(_missing_file(folder), np.int32, rows, "r")


def write_missing(folder: Path, missing: npt.NDArray[np.int32]) -> None:
    """Has all tasks see how many operations are missing."""
    missing.tofile(_missing_file(folder))


def remove_states(folder: Path) -> None:
    """Removes what tasks share while a model is made."""
    for name in (*(column.name for column in STATE), "missing"):
        column_file(folder, STATES, name).unlink(missing_ok=True)
