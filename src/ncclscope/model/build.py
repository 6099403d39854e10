"""Makes the model of a capture, process by process, and keeps it beside the capture."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.library import spill_large_arrays_to
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.reader import is_dataset
from ncclscope.errors import NcclscopeError
from ncclscope.model.align.bounds import CollectiveBounds, bounds_of_steps, joined_steps
from ncclscope.model.align.host_clocks import HostClocks, solve
from ncclscope.model.capture_counts import (
    CaptureCounts,
    add_process,
    completeness_of,
    partly_recorded,
)
from ncclscope.model.decode_pool import Decoder, decoders
from ncclscope.model.lives import with_fates
from ncclscope.model.match.inferred_rooted import complete_rooted
from ncclscope.model.match.instances import Instances
from ncclscope.model.match.missing_operations import count_behind, missing_by_instance
from ncclscope.model.match.registry import ProcessRow, Registry
from ncclscope.model.model import Model, Progress
from ncclscope.model.process.decoded_process import DecodedProcess, Placement
from ncclscope.model.process.operation_bytes import total_bytes
from ncclscope.model.process.proxy_step_times import placed
from ncclscope.model.schema import NONE, Columns, row_chunks
from ncclscope.model.store.columns import Writer, fingerprint, load, load_current, manifest_of
from ncclscope.model.streams import (
    BY_SEQUENCE,
    NEEDED,
    FoundStreams,
    StreamCounter,
    number_by_sequence,
    rules_of,
)
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.functions import COUNTS_ONE_RANK

TIMES = (
    "call_ns",
    "call_end_ns",
    "launch_ns",
    "launch_end_ns",
    "enqueue_ns",
    "start_ns",
    "end_ns",
)
_MOST_THREADS = 8


def open_model(capture: Path, progress: Progress | None = None) -> Model:
    """The model of a capture: the saved one while it is current, else a new one."""
    try:
        mark = fingerprint(capture)
        make: Callable[[Path, str, Progress | None], Model] = build
        if is_dataset(capture):
            # A capture's model needs no engine: duckdb is imported for datasets alone.
            from ncclscope.model.store.parquet_dataset import read_dataset

            make = read_dataset
        return with_fates(load_current(capture, mark) or make(capture, mark, progress))
    except OSError as error:
        message = f"cannot make the model of {capture}: {error.strerror or error}"
        raise NcclscopeError(message, "It is made in the capture, or else in TMPDIR") from None


def build(capture: Path, mark: str, progress: Progress | None = None) -> Model:
    """Decodes every process, aligns their clocks, matches their operations, and saves all of it."""
    writer = Writer(capture)
    try:
        words, registry, streams, sums = Vocabulary(), Registry(), StreamCounter(), CaptureCounts()
        folders = process_folders(capture)
        for found in _decode(folders, writer, registry, words, sums, progress):
            streams.join(found)
        registry.tell_attempts_apart()
        operations = writer.columns("operations")
        with spill_large_arrays_to(writer.folder):
            clocks, instances = _joined(operations, registry, words, streams, sums)
            writer.append("instances", instances)
        comms, members, names = registry.tables()
        writer.append("communicators", comms)
        writer.append("members", members)
        writer.append("windows", registry.windows())
        model = Model(
            capture,
            {},
            words.lists,
            names,
            registry.processes,
            registry.nodes,
            completeness_of(registry, sums, instances, clocks),
            sums.wall_ns.get(0, 0),
            clocks.nodes,
        )
        place = writer.finish(capture, manifest_of(model, mark))
        return load(capture, place)
    except BaseException:
        writer.kept = False
        raise
    finally:
        if not writer.kept:  # what is mapped stays readable
            writer.discard()


def _joined(
    operations: Columns,
    registry: Registry,
    words: Vocabulary,
    streams: StreamCounter,
    sums: CaptureCounts,
) -> tuple[HostClocks, Columns]:
    """Brings the operations of all processes together, in place: one clock, and instances."""
    _complete_sizes(operations, registry, words)
    broken = _broken_communicators(operations, sums)
    if len(broken):
        number_by_sequence(operations, broken)
    if complete_rooted(operations, words) or len(broken):
        streams = _counted_again(operations, sums)
    clocks = _one_clock(operations, registry, words, streams, sums)
    instances = _match(operations, registry, words, streams, sums, clocks)
    order = operations["call_order"]
    order[order == BY_SEQUENCE] = NONE
    return clocks, instances


def _decode(
    folders: list[Path],
    writer: Writer,
    registry: Registry,
    words: Vocabulary,
    sums: CaptureCounts,
    progress: Progress | None,
) -> Iterator[FoundStreams]:
    """Decodes the processes in their order and has their operations written."""
    with decoders(folders, writer.folder) as workers:
        writing: list[Decoder] = []
        for number in range(len(folders)):
            if progress:
                progress(number, len(folders))
            worker = workers[number % len(workers)]
            if worker in writing:
                writing.remove(worker)
                yield worker.found()
            part = worker.part()
            if isinstance(part, str):
                sums.unreadable.append(part)
                continue
            worker.put(_placement(part, writer, registry, words, sums))
            writing.append(worker)
            add_process(sums, part, registry)
        for worker in writing:
            yield worker.found()


def _placement(
    part: DecodedProcess, writer: Writer, registry: Registry, words: Vocabulary, sums: CaptureCounts
) -> Placement:
    """The rows and codes of the capture for a process's own numbers."""
    row, comm_rows, global_ranks = registry.add(
        part.process, part.local, part.gpu_clock_error_ns, part.counts.calls
    )
    node = registry.processes[row].node
    first = writer.reserve("operations", part.rows)
    sums.rows.append(slice(first, first + part.rows))
    sums.sends.append(placed(part.sends, comm_rows, node))
    sums.receives.append(placed(part.receives, comm_rows, node))
    codes = {
        sort: np.array([words.code(sort, name) for name in names], np.int8)
        for sort, names in part.words.items()
    }
    return Placement(first, row, node, comm_rows, global_ranks, codes)


def _complete_sizes(operations: Columns, registry: Registry, words: Vocabulary) -> None:
    """Interfaces 1 to 3 do not tell how many ranks there are: their shares are multiplied now."""
    ranks, told = registry.ranks_of_communicators(), registry.ranks_were_told()
    shares = words.known("function", COUNTS_ONE_RANK)
    for comm in np.flatnonzero(~told):
        mine = (operations["communicator"] == comm) & np.isin(operations["function"], shares)
        share = operations["size_bytes"][mine]
        operations["size_bytes"][mine] = total_bytes(share, ranks[comm])


def _broken_communicators(operations: Columns, sums: CaptureCounts) -> npt.NDArray[np.int64]:
    """Communicators of processes that lost calls, or did not record all of them."""
    lost = [operations["communicator"][sums.rows[row]] for row in sums.broken]
    found = np.unique(np.concatenate([np.empty(0, np.int64), *lost])).astype(np.int64)
    known: npt.NDArray[np.int64] = found[found != NONE]
    return known


def _counted_again(operations: Columns, sums: CaptureCounts) -> StreamCounter:
    """The streams after operations have changed."""
    streams = StreamCounter()
    for row in sums.rows:
        streams.add({name: operations[name][row] for name in (*NEEDED, "node")})
    return streams


def _one_clock(
    operations: Columns,
    registry: Registry,
    words: Vocabulary,
    streams: StreamCounter,
    sums: CaptureCounts,
) -> HostClocks:
    """Aligns the nodes' clocks and moves all times to the first one's."""
    wall = [sums.wall_ns[node] for node in range(len(registry.nodes))]
    if len(wall) < 2:
        return solve(wall or [0])
    rules = rules_of(words.lists["function"], words.lists["algorithm"])
    meetings = CollectiveBounds(streams.streams(), streams.nodes(), rules)
    parts = _parts(operations, sums, registry)
    for part, process in parts:
        meetings.add(part, process.gpu_clock_error_ns)
    steps = bounds_of_steps(joined_steps(sums.sends), joined_steps(sums.receives))
    clocks = solve(wall, steps, meetings)

    def move(part: Columns, process: ProcessRow) -> None:
        for name in TIMES:
            moved = clocks.to_reference(process.node, part[name])
            part[name][:] = np.where(part[name] != NONE, moved, NONE)

    _side_by_side(move, *zip(*parts, strict=True))
    registry.move_times(clocks.to_reference)
    return clocks


def _match(
    operations: Columns,
    registry: Registry,
    words: Vocabulary,
    streams: StreamCounter,
    sums: CaptureCounts,
    clocks: HostClocks,
) -> Columns:
    """Matches operations across ranks; sets what depends on it, and returns the instances."""
    rules = rules_of(words.lists["function"], words.lists["algorithm"])
    instances = Instances(streams.streams(), rules)
    for row, process in zip(sums.rows, registry.processes, strict=True):
        mine = {name: np.asarray(values[row]) for name, values in operations.items()}
        instances.add(mine, process.gpu_clock_error_ns)
    table = instances.table(clocks, streams.nodes(), registry.ranks_of_communicators())

    def wait(part: Columns) -> None:
        for name, values in instances.waits(part).items():
            part[name][:] = values

    _side_by_side(wait, (part for part, _ in _parts(operations, sums, registry)))
    partly = partly_recorded(sums, registry)
    missing = missing_by_instance(operations, table, registry, partly)
    sums.totals["behind"] = behind = count_behind(operations, table, registry, missing)
    sums.totals["missing"] = int(missing.sum()) - behind
    return table


def _parts(
    operations: Columns, sums: CaptureCounts, registry: Registry
) -> list[tuple[Columns, ProcessRow]]:
    """The operations of each process, piece by piece, in place."""
    return [
        ({name: np.asarray(values[row][piece]) for name, values in operations.items()}, process)
        for row, process in zip(sums.rows, registry.processes, strict=True)
        for piece in row_chunks(row.stop - row.start)
    ]


def _side_by_side(do: Callable[..., None], *arguments: Iterable[Any]) -> None:
    """Does it for each process, several at a time: numpy calculates without the interpreter."""
    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST_THREADS)) as pool:
        list(pool.map(do, *arguments))
