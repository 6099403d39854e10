"""Operations that must exist, as other ranks show, and are not on record."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.joins import take_small
from ncclscope.arrays.library import full_array
from ncclscope.arrays.types import Ints
from ncclscope.model.match.communicator_table import CommunicatorTable
from ncclscope.model.process.durations import first_time
from ncclscope.model.schema import NONE, Columns

Counts = npt.NDArray[np.int32]
_NEVER = np.iinfo(np.int64).max
OF_SEEN = ("process", "part_of", "instance")  # columns of operations
OF_TIMES = ("process", "instance", "call_ns", "enqueue_ns")


@dataclass(frozen=True, slots=True)
class SeenInstances:
    """Instances of some operations."""

    of_parts: Ints  # to which parts of operations belong
    partly_recorded: Ints  # of processes that did not record all calls
    times_seen: Ints  # of each of these, by how many operations


def seen_instances(operations: Columns, partly_recorded: list[int]) -> SeenInstances:
    """The instances of some operations. `partly_recorded`: processes that did not record all
    calls.
    """
    is_part = operations["part_of"] != NONE
    instance = operations["instance"]
    whole = np.unique(instance[is_part]) if is_part.any() else np.empty(0, np.int64)
    seen, times = np.empty(0, np.int64), np.empty(0, np.int64)
    if partly_recorded:
        own = np.isin(operations["process"], partly_recorded) & ~is_part
        seen, times = np.unique(instance[own & (instance != NONE)], return_counts=True)
    return SeenInstances(whole[whole != NONE], seen, times)


def missing_by_instance(
    instances: Columns,
    communicators: CommunicatorTable,
    partly_recorded: list[int],
    seen: Iterable[SeenInstances],
) -> Counts:
    """How many operations each instance lacks; parts of an operation are not counted again.

    `partly_recorded`: processes that did not record all calls. What they lack is in their counters.
    """
    missing = full_array(len(instances["communicator"]), np.int32, 0)
    for rows in row_chunks(len(missing)):
        lacking = instances["ranks_expected"][rows] - instances["ranks_seen"][rows]
        missing[rows] = np.maximum(lacking, 0)
    counted: Counts | None = None
    if partly_recorded:
        counted = _members_of(instances, communicators, partly_recorded)
    wholes = []
    for part in seen:
        wholes.append(part.of_parts)
        if counted is not None:
            counted[part.partly_recorded] -= part.times_seen.astype(np.int32)
    if counted is not None:
        missing -= np.minimum(missing, np.maximum(counted, 0))
    for whole in wholes:
        missing[whole] = 0
    return missing


def _members_of(
    instances: Columns, communicators: CommunicatorTable, processes: list[int]
) -> Counts:
    """By instance how many members of its communicator are of these processes."""
    members = communicators.count_members(set(processes))
    of_communicator = np.array(
        [members[row] for row in range(max(members, default=0) + 1)], np.int32
    )
    counted: Counts = take_small(of_communicator, instances["communicator"], 0)
    return counted


@dataclass(frozen=True, slots=True)
class FirstTimes:
    """When some operations began."""

    instance: Ints  # of those that lack operations
    began_ns: Ints
    process: Ints
    heard_ns: Ints  # the last time that a process began an operation


def first_times(operations: Columns, missing: Counts) -> FirstTimes:
    """When some operations began. `missing`: by instance."""
    when, instance = first_time(operations), operations["instance"]
    process, of_process = np.unique(operations["process"], return_inverse=True)
    heard = np.full(len(process), NONE, np.int64)
    np.maximum.at(heard, of_process, when)
    matched = np.flatnonzero((instance != NONE) & (when != NONE))
    matched = matched[missing[instance[matched]] > 0]
    lacking, group = np.unique(instance[matched], return_inverse=True)
    began = np.full(len(lacking), _NEVER)
    np.minimum.at(began, group, when[matched])
    return FirstTimes(lacking, began, process, heard)


def count_behind(
    instances: Columns,
    communicators: CommunicatorTable,
    heard_ns: list[int],
    missing: Counts,
    times: Iterable[FirstTimes],
) -> int:
    """How many of the missing operations came after the last sign of their process: it was killed,
    or it runs and was read a moment before the others. `heard_ns`: by process, its last sign.
    """
    lacking = np.flatnonzero(missing)
    if not len(lacking):
        return 0
    began = np.full(len(lacking), _NEVER)
    heard = np.array(heard_ns, np.int64)
    for part in times:
        heard[part.process] = np.maximum(heard[part.process], part.heard_ns)
        at = np.searchsorted(lacking, part.instance)
        began[at] = np.minimum(began[at], part.began_ns)
    behind, comms = 0, instances["communicator"][lacking]
    order = np.argsort(comms, kind="stable")
    numbers, first = np.unique(comms[order], return_index=True)
    for comm, own in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        ends = np.sort(heard[communicators.processes_of(comm)])
        silent = np.where(began[own] == _NEVER, 0, np.searchsorted(ends, began[own]))
        behind += int(np.minimum(silent, missing[lacking[own]]).sum())
    return behind
