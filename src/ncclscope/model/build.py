"""Makes the model of a capture, process by process, and saves it in the capture.

The stages: every process is decoded to operations on its own clock (process/), the clocks of the
nodes are aligned (align/), operations are matched across ranks (match/), and the tables are saved
(store/).
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.library import spill_large_arrays_to
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.liveness import ENDED, FATES, life_in
from ncclscope.capture.reader import is_dataset, none_readable
from ncclscope.errors import NcclscopeError
from ncclscope.humanize import plural
from ncclscope.model.align.bounds import (
    CollectiveBounds,
    ProxyStepTimes,
    bounds_of_steps,
    join_steps,
    steps_on_node,
)
from ncclscope.model.align.host_clocks import HostClocks, solve
from ncclscope.model.capture_counts import CaptureCounts, completeness_of, list_processes
from ncclscope.model.completeness import SIMULATION
from ncclscope.model.context_tables import ContextTables
from ncclscope.model.decode_pool import Decoder, Decoders, decoders
from ncclscope.model.match.counter_table import CounterTable
from ncclscope.model.match.inferred_rooted import complete_rooted
from ncclscope.model.match.instances import Instances
from ncclscope.model.match.missing_operations import count_behind, missing_by_instance
from ncclscope.model.match.registry import Registry
from ncclscope.model.model import Model, Progress
from ncclscope.model.process.decoded_process import DecodedProcess, Placement
from ncclscope.model.process.operation_bytes import total_bytes
from ncclscope.model.rows import ProcessRow
from ncclscope.model.schema import NONE, TIME_COLUMNS, Columns
from ncclscope.model.store.saved_model import Writer, fingerprint, load, load_current, manifest_of
from ncclscope.model.streams import (
    BY_SEQUENCE,
    NEEDED,
    StreamCounter,
    StreamRanges,
    number_by_sequence,
    rules_of,
)
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.functions import COUNTS_ONE_RANK

_MOST_THREADS = 32


def open_model(
    capture: Path, progress: Progress | None = None, decoders_of: Decoders = decoders
) -> Model:
    """The model of a capture: the saved one while it is current, else a new one. `decoders_of`:
    what decodes its processes.
    """
    try:
        mark = fingerprint(capture)
        make: Callable[[Path, str, Progress | None], Model]
        make = partial(build, decoders_of=decoders_of)
        if is_dataset(capture):
            # A capture's model needs no engine: duckdb is imported for datasets alone.
            from ncclscope.model.store.parquet_dataset import read_dataset

            make = read_dataset
        model = load_current(capture, mark) or make(capture, mark, progress)
        return model if is_dataset(capture) else _with_fates(model)
    except OSError as error:
        message = f"cannot make the model of {capture}: {error.strerror or error}"
        raise NcclscopeError(message, "It is made in the capture, or else in TMPDIR") from None


def _with_fates(model: Model) -> Model:
    """The model with a note of processes that were killed, still run, or are silent.

    Asked each time that a model is opened: a saved one does not notice that processes die. A
    dataset keeps the note of its capture.
    """
    by_fate: dict[str, list[ProcessRow]] = {}
    for row in model.processes:
        life = ENDED if row.ended else life_in(model.path / row.folder)
        if life != ENDED:
            by_fate.setdefault(FATES[life], []).append(row)
    if not by_fate:
        return model
    fates = [
        f"{plural(len(rows), 'process', 'processes')} {fate}: {list_processes(rows)}"
        for fate, rows in sorted(by_fate.items())
    ]
    notes = model.completeness.notes
    first = 1 if notes[:1] == [SIMULATION] else 0
    completeness = replace(model.completeness, notes=[*notes[:first], *fates, *notes[first:]])
    return replace(model, completeness=completeness)


@dataclass(slots=True)
class _Job:
    """What grows while processes are decoded."""

    words: Vocabulary = field(default_factory=Vocabulary)
    registry: Registry = field(default_factory=Registry)
    streams: StreamCounter = field(default_factory=StreamCounter)
    counters: CounterTable = field(default_factory=CounterTable)
    counts: CaptureCounts = field(default_factory=CaptureCounts)
    rows: list[slice] = field(default_factory=list)  # of operations, by process
    sends: list[ProxyStepTimes] = field(default_factory=list)
    receives: list[ProxyStepTimes] = field(default_factory=list)
    wall_ns: dict[int, int] = field(default_factory=dict)  # by node, wall clock minus monotonic
    context: ContextTables = field(default_factory=ContextTables)

    @property
    def process_rows(self) -> list[ProcessRow]:
        """Rows of `processes`."""
        return self.registry.processes.rows

    def chunks(self, operations: Columns) -> list[tuple[Columns, ProcessRow]]:
        """The operations of each process, some thousand rows at a time, in place."""
        return [
            ({name: np.asarray(values[own][rows]) for name, values in operations.items()}, process)
            for own, process in zip(self.rows, self.process_rows, strict=True)
            for rows in row_chunks(own.stop - own.start)
        ]


def build(
    capture: Path,
    mark: str,
    progress: Progress | None = None,
    decoders_of: Decoders = decoders,
) -> Model:
    """Decodes every process, aligns their clocks, matches their operations, and saves all of it.

    `mark`: the capture's fingerprint.
    """
    writer = Writer(capture)
    try:
        job = _Job()
        for ranges in _decode(process_folders(capture), writer, job, progress, decoders_of):
            job.streams.join(ranges)
        job.registry.assign_attempts()
        job.context.complete_columns(writer, job.rows)
        operations = writer.columns("operations")
        with spill_large_arrays_to(writer.folder):
            clocks, instances = _merge_processes(operations, job)
            writer.append("instances", instances)
        names = _append_tables(writer, job)
        job.context.append_tables(writer, operations, clocks.to_reference)
        model = Model(
            path=capture,
            tables={},
            words=job.words.lists,
            communicator_names=names,
            processes=job.process_rows,
            nodes=job.registry.processes.nodes,
            completeness=completeness_of(job.registry, job.counts, instances, clocks),
            realtime_offset_ns=job.wall_ns.get(0, 0),
            clocks=clocks.nodes,
            gpus=job.registry.processes.gpus,
            descriptions=job.registry.descriptions(),
            module_names=list(job.context.modules),
            training=job.context.training(),
        )
        return load(capture, writer.finish(capture, manifest_of(model, mark)))
    except BaseException:
        writer.kept = False
        raise
    finally:
        if not writer.kept:  # what is mapped stays readable
            writer.discard()


def _append_tables(writer: Writer, job: _Job) -> list[str]:
    """Writes the tables besides operations and instances; returns the communicators' names."""
    names, communicators = job.registry.communicator_names(), job.registry.communicators
    rows, members = communicators.tables(names, job.words)
    counters, histograms = job.counters.tables(communicators.ranks(), job.words)
    writer.append("communicators", rows)
    writer.append("members", members)
    writer.append("windows", job.registry.processes.windows())
    writer.append("counters", counters)
    writer.append("counter_histograms", histograms)
    return [name.text for name in names]


def _decode(
    folders: list[Path],
    writer: Writer,
    job: _Job,
    progress: Progress | None,
    decoders_of: Decoders,
) -> Iterator[StreamRanges]:
    """Decodes the processes in their order and has their operations written; the streams of each
    follow when they are. FormatError where none of them can be read.
    """
    with decoders_of(folders, writer.folder) as workers:
        writing: list[Decoder] = []
        for number in range(len(folders)):
            if progress:
                progress(number, len(folders))
            worker = workers[number % len(workers)]
            if worker in writing:
                writing.remove(worker)
                yield worker.streams()
            decoded = worker.decode()
            if isinstance(decoded, str):
                job.counts.unreadable.append(decoded)
                continue
            worker.write(_add_process(job, decoded, writer))
            writing.append(worker)
        for worker in writing:
            yield worker.streams()
    if folders and not job.process_rows:
        raise none_readable(folders[0].parent, job.counts.unreadable)


def _add_process(job: _Job, decoded: DecodedProcess, writer: Writer) -> Placement:
    """Adds a process to the job; returns the rows and codes for its own numbers."""
    number = len(job.process_rows)
    row, comm_rows, global_ranks = job.registry.add(decoded)
    first = writer.reserve("operations", decoded.rows)
    job.rows.append(slice(first, first + decoded.rows))
    job.sends.append(steps_on_node(decoded.sends, comm_rows, row.node))
    job.receives.append(steps_on_node(decoded.receives, comm_rows, row.node))
    job.wall_ns.setdefault(row.node, decoded.process.clock.realtime_offset_ns)
    codes = {
        sort: np.array([job.words.code(sort, name) for name in names], np.int8)
        for sort, names in decoded.words.items()
    }
    modules = job.context.add(decoded, number, row.node)
    placement = Placement(first, number, row.node, comm_rows, global_ranks, codes, modules)
    job.counters.add(decoded, placement)
    job.counts.add(decoded, number)
    return placement


def _merge_processes(operations: Columns, job: _Job) -> tuple[HostClocks, Columns]:
    """Puts the operations of all processes on one clock and matches them, in place; returns the
    clocks and the instances.
    """
    _complete_sizes(operations, job)
    incomplete = _incomplete_communicators(operations, job)
    if len(incomplete):
        number_by_sequence(operations, incomplete)
    if complete_rooted(operations, job.words) or len(incomplete):
        job.streams = _count_again(operations, job.rows)
    clocks = _align(operations, job)
    instances = _match(operations, job, clocks)
    order = operations["call_order"]
    order[order == BY_SEQUENCE] = NONE
    return clocks, instances


def _complete_sizes(operations: Columns, job: _Job) -> None:
    """Multiplies one rank's share by the number of ranks where interfaces 1 to 3 did not say it."""
    communicators = job.registry.communicators
    ranks, are_known = communicators.ranks(), communicators.ranks_are_known()
    functions = job.words.occurring_codes("function", COUNTS_ONE_RANK)
    if are_known.all():
        return
    comm = operations["communicator"]
    own = np.flatnonzero((comm != NONE) & np.isin(operations["function"], functions))
    own = own[~are_known[comm[own]]]
    operations["size_bytes"][own] = total_bytes(operations["size_bytes"][own], ranks[comm[own]])


def _incomplete_communicators(operations: Columns, job: _Job) -> npt.NDArray[np.int64]:
    """Communicators of processes that lost calls, or did not record all of them."""
    parts = [operations["communicator"][job.rows[process]] for process in job.counts.incomplete]
    comms = np.unique(np.concatenate([np.empty(0, np.int64), *parts])).astype(np.int64)
    incomplete: npt.NDArray[np.int64] = comms[comms != NONE]
    return incomplete


def _count_again(operations: Columns, rows: Iterable[slice]) -> StreamCounter:
    """The streams after operations have changed."""
    streams = StreamCounter()
    for own in rows:
        streams.add({name: operations[name][own] for name in (*NEEDED, "node")})
    return streams


def _align(operations: Columns, job: _Job) -> HostClocks:
    """Aligns the nodes' clocks and moves all times to the first one's."""
    wall_ns = [job.wall_ns[node] for node in range(len(job.registry.processes.nodes))]
    if len(wall_ns) < 2:
        return solve(wall_ns or [0])
    rules = rules_of(job.words.lists["function"], job.words.lists["algorithm"])
    collectives = CollectiveBounds(job.streams.streams(), job.streams.nodes(), rules)
    chunks = job.chunks(operations)
    for columns, process in chunks:
        collectives.add(columns, process.gpu_clock_error_ns)
    steps = bounds_of_steps(join_steps(job.sends), join_steps(job.receives))
    clocks = solve(wall_ns, steps, collectives)

    def move(columns: Columns, process: ProcessRow) -> None:
        for name in TIME_COLUMNS:
            moved = clocks.to_reference(process.node, columns[name])
            columns[name][:] = np.where(columns[name] != NONE, moved, NONE)

    _in_threads(move, *zip(*chunks, strict=True))
    job.registry.move_times(clocks.to_reference)
    return clocks


def _match(operations: Columns, job: _Job, clocks: HostClocks) -> Columns:
    """Matches operations across ranks, sets what depends on it, and returns the instances."""
    communicators = job.registry.communicators
    rules = rules_of(job.words.lists["function"], job.words.lists["algorithm"])
    instances = Instances(job.streams.streams(), rules)
    for own, process in zip(job.rows, job.process_rows, strict=True):
        columns = {name: np.asarray(values[own]) for name, values in operations.items()}
        instances.add(columns, process.gpu_clock_error_ns)
    table = instances.table(clocks, job.streams.nodes(), communicators.ranks())

    def set_waits(columns: Columns) -> None:
        for name, values in instances.waits(columns).items():
            columns[name][:] = values

    _in_threads(set_waits, (columns for columns, _ in job.chunks(operations)))
    partly = job.counts.partly_recorded(job.process_rows)
    missing = missing_by_instance(operations, table, communicators, partly)
    heard_ns = job.registry.processes.heard_ns
    behind = count_behind(operations, table, communicators, heard_ns, missing)
    job.counts.totals["behind"] = behind
    job.counts.totals["missing"] = int(missing.sum()) - behind
    return table


def _in_threads(do: Callable[..., None], *arguments: Iterable[Any]) -> None:
    """Calls `do` for each set of arguments in several threads: numpy releases the interpreter."""
    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST_THREADS)) as pool:
        list(pool.map(do, *arguments))
