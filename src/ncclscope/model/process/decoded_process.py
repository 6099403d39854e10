"""One process of a capture: its operations in its own numbers, and how they come to their rows."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import take_small
from ncclscope.capture.process import Process, open_process
from ncclscope.capture.segment import Blocks
from ncclscope.capture.slot_log import SlotLog
from ncclscope.errors import FormatError
from ncclscope.model.process import durations, operations, proxy_step_times
from ncclscope.model.process.communicators import LocalCommunicators
from ncclscope.model.process.events import events_of
from ncclscope.model.process.inferred_collectives import expand_groups
from ncclscope.model.process.operations import StampCounts
from ncclscope.model.process.proxy_step_times import StepTimes
from ncclscope.model.schema import GPU_SOURCES, NONE, Columns
from ncclscope.model.store.columns import write_columns
from ncclscope.model.streams import FoundStreams, found_streams
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.datatypes import element_bits


@dataclass(frozen=True, slots=True)
class Counts:
    """What completeness needs to know of a process's operations."""

    calls: int
    operations: int
    gpu: int
    in_flight: int
    untimed: Counter[str]  # by reason


@dataclass(frozen=True, slots=True)
class DecodedProcess:
    """One process but for its columns. Communicators are its own numbers, times its host's."""

    process: Process  # without its slots
    local: LocalCommunicators
    rows: int
    words: dict[str, list[str]]
    counts: Counts
    stamp_counts: StampCounts
    gpu_clock_error_ns: int
    sends: StepTimes
    receives: StepTimes
    impossible: int  # events left out, because their times cannot be
    unsized: int  # operations with a count that cannot be
    of_unknown_datatype: dict[str, int]  # operations without a size, by datatype


@dataclass(frozen=True, slots=True)
class Placement:
    """The capture's numbers for a process's own."""

    first_row: int
    process: int
    node: int
    communicators: npt.NDArray[np.int64]  # rows by number in the process
    global_ranks: npt.NDArray[np.int64]  # likewise
    codes: dict[str, npt.NDArray[np.int8]]  # by the process's own codes


def _without_slots(process: Process) -> Process:
    empty = np.empty(0, np.int64)
    return replace(process, slots=SlotLog([], Blocks(empty, empty, empty, empty), process.damage))


def decode_process(folder: Path) -> tuple[DecodedProcess, Columns] | str:
    """One process of a capture with its columns, or why it cannot be read."""
    try:
        process = open_process(folder)
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
    part = DecodedProcess(
        process=_without_slots(process),
        local=made.local,
        rows=len(columns["event"]),
        words=words.lists,
        counts=_counts(columns, words.lists["reason"]),
        stamp_counts=made.stamp_counts,
        gpu_clock_error_ns=max((clock.width_ns() for clock in made.clocks.values()), default=0),
        sends=sends,
        receives=receives,
        impossible=decoded.impossible,
        unsized=int(np.count_nonzero(columns["size_bytes"] == NONE)) - sum(unknown.values()),
        of_unknown_datatype=unknown,
    )
    return part, columns


def _of_unknown_datatype(columns: Columns, datatypes: list[str]) -> dict[str, int]:
    """Operations without a size, because this release does not know their datatype."""
    without = columns["size_bytes"] == NONE
    unknown = [code for code, name in enumerate(datatypes) if element_bits(name) is None]
    found = {
        datatypes[code]: int((without & (columns["datatype"] == code)).sum()) for code in unknown
    }
    return {name: number for name, number in found.items() if number}


def _counts(columns: Columns, reasons: list[str]) -> Counts:
    whole, state = columns["part_of"] == NONE, columns["state"]
    carried_out = whole & (state != durations.CAPTURED)
    flying = carried_out & (state == durations.IN_FLIGHT)
    untimed = carried_out & (columns["source"] == durations.NO_SOURCE) & ~flying
    codes, numbers = np.unique(columns["reason"][untimed], return_counts=True)
    by_gpu = carried_out & (columns["source"] < len(GPU_SOURCES))  # the best come first
    return Counts(
        calls=int(np.count_nonzero(whole & (columns["replay"] == 0))),
        operations=int(np.count_nonzero(carried_out)),
        gpu=int(np.count_nonzero(by_gpu)),
        in_flight=int(np.count_nonzero(flying)),
        untimed=Counter(
            {reasons[code]: int(n) for code, n in zip(codes.tolist(), numbers, strict=True)}
        ),
    )


def place(columns: Columns, placement: Placement, folder: Path) -> FoundStreams:
    """Writes the process's operations, with rows and codes of the capture in place of its own
    numbers, into their rows of the model's columns.
    """
    for sort, codes in placement.codes.items():
        if sort in columns:
            columns[sort] = take_small(codes, columns[sort])
    number = np.asarray(columns["communicator"], np.int32)
    columns["process"][:] = placement.process
    columns["node"][:] = placement.node
    columns["communicator"] = take_small(placement.communicators.astype(np.int32), number)
    columns["global_rank"] = take_small(placement.global_ranks.astype(np.int32), number)
    if (columns["part_of"] != NONE).any():
        first = np.int64(placement.first_row)
        columns["part_of"] = np.where(columns["part_of"] != NONE, columns["part_of"] + first, NONE)
    write_columns(folder, "operations", placement.first_row, columns)
    return found_streams(columns)
