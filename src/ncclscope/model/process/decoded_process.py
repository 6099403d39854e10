"""One process of a capture: its operations in its own numbers, and their place in the model."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import take_small
from ncclscope.arrays.library import full_array
from ncclscope.capture.context_lines import JobContext, read_context
from ncclscope.capture.process import Process, open_process, open_recent
from ncclscope.capture.segment import Blocks
from ncclscope.capture.slot_log import SlotLog
from ncclscope.errors import FormatError
from ncclscope.model.column_files import write_columns
from ncclscope.model.process import durations, operations, proxy_step_times
from ncclscope.model.process.communicators import LocalCommunicators
from ncclscope.model.process.context import ProcessContext
from ncclscope.model.process.counters import ProcessCounters, counters_of
from ncclscope.model.process.events import events_of
from ncclscope.model.process.inferred_collectives import expand_groups
from ncclscope.model.process.launch_times import EventExcess, event_excess
from ncclscope.model.process.operations import StampCounts
from ncclscope.model.process.proxy_step_times import StepTimes
from ncclscope.model.schema import CAPTURED, GPU_SOURCES, IN_FLIGHT, NONE, Columns
from ncclscope.model.streams import StreamRanges, stream_ranges
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.datatypes import element_bits


@dataclass(frozen=True, slots=True)
class Counts:
    """What completeness needs to know of a process's operations."""

    calls: int  # on record
    calls_counted: int  # by the recorder, whether on record or not
    operations: int
    gpu: int
    in_flight: int
    untimed: Counter[str]  # by reason


@dataclass(frozen=True, slots=True)
class DecodedProcess:
    """One process without the columns of its operations. Communicators are its own numbers, times
    are on its host's clock.
    """

    process: Process  # without its slots and counters
    local: LocalCommunicators
    rows: int
    words: dict[str, list[str]]
    counts: Counts
    counters: ProcessCounters
    stamp_counts: StampCounts
    gpu_clock_error_ns: int
    event_excess: EventExcess
    sends: StepTimes
    receives: StepTimes
    impossible: int  # events left out: the process cannot have lived to see their times
    unsized: int  # operations with an impossible count
    of_unknown_datatype: dict[str, int]  # operations without a size, by datatype
    context: ProcessContext | None  # None: it recorded no ranges
    job: JobContext  # what its program said about itself


@dataclass(frozen=True, slots=True)
class Placement:
    """The capture's numbers in place of a process's own."""

    first_row: int
    process: int
    node: int
    communicators: npt.NDArray[np.int64]  # rows by number in the process
    global_ranks: npt.NDArray[np.int64]  # likewise
    codes: dict[str, npt.NDArray[np.int8]]  # by the process's own codes
    modules: npt.NDArray[np.int32]  # rows of `modules` by its own numbers


def without_bulk(process: Process) -> Process:
    """What is small of a process: a worker sends it through a pipe."""
    empty = np.empty(0, np.int64)
    no_slots = SlotLog([], Blocks(empty, empty, empty, empty), process.damage)
    return replace(process, slots=no_slots, call_counts=())


def decode_process(folder: Path, newest: int | None = None) -> tuple[DecodedProcess, Columns] | str:
    """One process of a capture with its columns, or why it cannot be read. `newest`: of the end of
    its log alone, at most this many slots of each of the last two files.
    """
    try:
        process = open_process(folder) if newest is None else open_recent(folder, newest)
    except (FormatError, OSError) as error:
        return str(error)
    words = Vocabulary()
    kinds = tuple(dict.fromkeys((*operations.KINDS, *proxy_step_times.KINDS)))
    decoded = events_of(process, kinds, operations.PLANS)
    made = operations.operations_from(decoded, words)
    columns = expand_groups(made.columns, made.local.ranks, words)
    operations.set_orders(columns)
    sends, receives = proxy_step_times.steps_of(decoded)
    unknown = _of_unknown_datatype(columns, words.lists["datatype"])
    counters = counters_of(process, words)
    decoded_process = DecodedProcess(
        process=without_bulk(process),
        local=made.local,
        rows=len(columns["event"]),
        words=words.lists,
        counts=_counts(columns, words.lists["reason"], process.calls_counted()),
        counters=counters,
        stamp_counts=made.stamp_counts,
        gpu_clock_error_ns=max(
            (clock.width_ns() for clock in (*made.clocks.values(), *made.event_clocks.values())),
            default=0,
        ),
        event_excess=event_excess(process.event_clocks),
        sends=sends,
        receives=receives,
        impossible=decoded.impossible,
        unsized=int(np.count_nonzero(columns["size_bytes"] == NONE)) - sum(unknown.values()),
        of_unknown_datatype=unknown,
        context=made.context,
        job=read_context(folder),
    )
    return decoded_process, columns


def _of_unknown_datatype(columns: Columns, datatypes: list[str]) -> dict[str, int]:
    """Operations by datatype, of datatypes that this release does not know: they have no size."""
    unknown = [code for code, name in enumerate(datatypes) if element_bits(name) is None]
    if not unknown:
        return {}
    unsized = columns["size_bytes"] == NONE
    counts = {
        datatypes[code]: int((unsized & (columns["datatype"] == code)).sum()) for code in unknown
    }
    return {name: number for name, number in counts.items() if number}


def _counts(columns: Columns, reasons: list[str], calls_counted: int) -> Counts:
    whole, state = columns["part_of"] == NONE, columns["state"]
    carried_out = whole & (state != CAPTURED)
    in_flight = carried_out & (state == IN_FLIGHT)
    untimed = carried_out & (columns["source"] == durations.NO_SOURCE) & ~in_flight
    codes, numbers = np.unique(columns["reason"][untimed], return_counts=True)
    by_gpu = carried_out & (columns["source"] < len(GPU_SOURCES))  # the best come first
    replays = int(columns["replays"][whole & (columns["replays"] > 0)].sum())
    reasons_counted = {
        reasons[code]: int(n) for code, n in zip(codes.tolist(), numbers, strict=True)
    }
    return Counts(
        calls=int(np.count_nonzero(whole & (columns["replay"] == 0))),
        calls_counted=calls_counted,
        operations=int(np.count_nonzero(carried_out)) + replays,
        gpu=int(np.count_nonzero(by_gpu)),
        in_flight=int(np.count_nonzero(in_flight)),
        untimed=Counter(reasons_counted)
        + Counter({durations.COUNTED_REPLAYS: replays} if replays else {}),
    )


def write_operations(columns: Columns, placement: Placement, folder: Path) -> StreamRanges:
    """Writes a process's operations into their rows of the model's columns, with rows and codes of
    the capture in place of its own numbers. Returns their streams. `columns` has these as well; its
    arrays stay as they are.
    """
    for sort, codes in placement.codes.items():
        if sort in columns:
            columns[sort] = take_small(codes, columns[sort])
    number = np.asarray(columns["communicator"], np.int32)
    columns["process"] = full_array(len(number), np.int32, placement.process)
    columns["node"] = full_array(len(number), np.int32, placement.node)
    columns["communicator"] = take_small(placement.communicators.astype(np.int32), number)
    columns["global_rank"] = take_small(placement.global_ranks.astype(np.int32), number)
    if "module" in columns:
        columns["module"] = take_small(placement.modules, columns["module"])
    if (columns["part_of"] != NONE).any():
        first = np.int64(placement.first_row)
        columns["part_of"] = np.where(columns["part_of"] != NONE, columns["part_of"] + first, NONE)
    write_columns(folder, "operations", placement.first_row, columns)
    return stream_ranges(columns)
