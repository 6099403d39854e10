"""Makes the model of a capture, process by process, and saves it in the capture.

The stages: every process is decoded to operations on its own clock (process/), the clocks of the
nodes are aligned (align/), operations are matched across ranks (match/), and the tables are saved
(store/).
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ncclscope.arrays.library import spill_large_arrays_to
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.reader import none_readable
from ncclscope.errors import NcclscopeError
from ncclscope.model.align.bounds import steps_on_node
from ncclscope.model.capture_counts import completeness_of
from ncclscope.model.decode_pool import Decoder
from ncclscope.model.engine import Engine, Engines
from ncclscope.model.job import Job
from ncclscope.model.join_processes import JoinProcesses
from ncclscope.model.model import Model, Progress
from ncclscope.model.operation_files import OperationFiles
from ncclscope.model.process.decoded_process import DecodedProcess, Placement
from ncclscope.model.stages import remove_states
from ncclscope.model.store.checkpoints import (
    Checkpoint,
    load_checkpoints,
    save_checkpoint,
)
from ncclscope.model.store.saved_model import (
    Checked,
    Writer,
    manifest_of,
    remove_checkpoints,
)
from ncclscope.model.streams import StreamRanges

# What follows when all processes are decoded.
_STEPS = ("number calls", "align clocks", "match operations", "write tables", "check columns")


def build(
    capture: Path,
    mark: str,
    progress: Progress | None,
    engine_of: Engines,
    keep: bool = True,
    recent: Sequence[Path] | None = None,
) -> Model:
    """Decodes every process, aligns their clocks, matches their operations, and saves all of it,
    in the capture if `keep`.

    `mark`: the capture's fingerprint. `recent`: these processes alone, of which the engine's
    decoders read the ends of logs.
    """
    writer = Writer(capture, mark, keep)
    resumable = False
    try:
        folders = process_folders(capture) if recent is None else list(recent)
        with engine_of(folders, writer.folder) as engine:
            resumable = engine.repeats
            job = Job(recent=recent is not None)
            for ranges in _decode(folders, writer, job, progress, engine):
                job.streams.join(ranges)
            if job.recent:  # nothing says how many calls there were before
                job.counts.incomplete = list(range(len(job.process_rows)))
            job.registry.assign_attempts()
            job.context.complete_columns(writer, job.rows)
            model, checked = _join(capture, writer, job, engine, progress)
        return writer.finish(capture, manifest_of(model, mark), checked)
    except (NcclscopeError, OSError):  # of the latter one is a full disk
        # The next command goes on with what a cluster decoded.
        writer.kept = resumable and writer.has_checkpoints
        raise
    except BaseException:
        writer.kept = False
        raise
    finally:
        if not writer.kept:  # what is mapped stays readable
            writer.discard()
        writer.close()


def _join(
    capture: Path, writer: Writer, job: Job, engine: Engine, progress: Progress | None
) -> tuple[Model, Checked]:
    """Joins the decoded processes, and writes all tables; returns the model without them, and what
    its manifest says of them.
    """

    def begin(step: int) -> None:
        if progress:
            progress(step, len(_STEPS), _STEPS[step])

    rows = writer.rows("operations")
    operations = OperationFiles(writer.folder, rows, aside=engine.repeats)
    stages = JoinProcesses(operations, job, engine, engine.bundles(job.processes()))
    with spill_large_arrays_to(writer.folder):
        begin(0)
        sequenced = len(stages.number()) > 0
        begin(1)
        stages.align_events()
        clocks = stages.align()
        begin(2)
        instances = stages.match(clocks, writer, sequenced)
    begin(3)
    names = _append_tables(writer, job)
    modules = stages.count_modules(len(job.context.modules)) if job.context.modules else None
    job.context.append_tables(writer, modules, clocks.to_reference)
    completeness = completeness_of(job.registry, job.counts, instances, clocks)
    begin(4)
    checked = writer.check(engine.map, operations.versions)
    operations.settle()
    remove_states(writer.folder)
    model = Model(
        path=capture,
        tables={},
        words=job.words.lists,
        communicator_names=names,
        processes=job.process_rows,
        nodes=job.registry.processes.nodes,
        completeness=completeness,
        realtime_offset_ns=job.wall_ns.get(0, 0),
        clocks=clocks.nodes,
        gpus=job.registry.processes.gpus,
        descriptions=job.registry.descriptions(),
        module_names=list(job.context.modules),
        training=job.context.training(),
    )
    return model, checked


def _append_tables(writer: Writer, job: Job) -> list[str]:
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
    job: Job,
    progress: Progress | None,
    engine: Engine,
) -> Iterator[StreamRanges]:
    """Decodes the processes in their order and has their operations written; the streams of each
    follow when they are. FormatError where none of them can be read.
    """
    before = load_checkpoints(writer.folder, folders, engine.map)
    left = [number for number in range(len(folders)) if number not in before]
    with engine.decoders([folders[number] for number in left]) as workers:
        turns = dict(zip(left, itertools.cycle(workers), strict=False))
        writing: dict[Decoder, tuple[int, DecodedProcess, int]] = {}

        def written(worker: Decoder) -> StreamRanges:
            number, decoded, first_row = writing.pop(worker)
            ranges = worker.streams()
            if worker.checksum is not None:
                checkpoint = Checkpoint(decoded, ranges, first_row, worker.checksum)
                save_checkpoint(writer.folder, number, folders[number].name, checkpoint)
            return ranges

        for number in range(len(folders)):
            if progress:
                progress(number, len(folders))
            if number in before:
                yield _add_checkpoint(job, before[number], writer)
                continue
            worker = turns[number]
            if worker in writing:
                yield written(worker)
            decoded = worker.decode()
            if isinstance(decoded, str):
                job.counts.unreadable.append(decoded)
                continue
            placement = _add_process(job, decoded, writer)
            worker.write(placement)
            writing[worker] = number, decoded, placement.first_row
        for worker in list(writing):
            yield written(worker)
    if folders and not job.process_rows:
        raise none_readable(folders[0].parent, job.counts.unreadable)


def _add_checkpoint(job: Job, checkpoint: Checkpoint, writer: Writer) -> StreamRanges:
    """Adds a process that an earlier command had decoded; returns its streams."""
    if _add_process(job, checkpoint.decoded, writer).first_row != checkpoint.first_row:
        remove_checkpoints(writer.folder)
        message = f"cannot go on with the model that another command began in {writer.folder}"
        raise NcclscopeError(message, "Processes have changed meanwhile. Run it again")
    return checkpoint.ranges


def _add_process(job: Job, decoded: DecodedProcess, writer: Writer) -> Placement:
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
