"""Operations that must exist, as other ranks show, and are not on record."""

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.joins import take_small
from ncclscope.arrays.library import full_array
from ncclscope.model.match.communicator_table import CommunicatorTable
from ncclscope.model.process.durations import first_time
from ncclscope.model.schema import NONE, Columns

Ints = npt.NDArray[np.int32]
_NEVER = np.iinfo(np.int64).max
_NEEDED = ("process", "instance", "call_ns", "enqueue_ns")


def missing_by_instance(
    operations: Columns,
    instances: Columns,
    communicators: CommunicatorTable,
    partly_recorded: list[int],
) -> Ints:
    """How many operations each instance lacks; parts of an operation are not counted again.

    `partly_recorded`: processes that did not record all calls. What they lack is in their counters.
    """
    missing = full_array(len(instances["communicator"]), np.int32, 0)
    for rows in row_chunks(len(missing)):
        lacking = instances["ranks_expected"][rows] - instances["ranks_seen"][rows]
        missing[rows] = np.maximum(lacking, 0)
    if partly_recorded and missing.any():
        counted = _counted_only(operations, instances, communicators, partly_recorded)
        missing -= np.minimum(missing, counted)
    for rows in row_chunks(len(operations["part_of"])):
        is_part = operations["part_of"][rows] != NONE
        if is_part.any():
            whole = operations["instance"][rows][is_part]
            missing[whole[whole != NONE]] = 0
    return missing


def _counted_only(
    operations: Columns,
    instances: Columns,
    communicators: CommunicatorTable,
    processes: list[int],
) -> Ints:
    """By instance how many operations of these processes may be in their counters only."""
    members = communicators.count_members(set(processes))
    of_communicator = np.array(
        [members[row] for row in range(max(members, default=0) + 1)], np.int32
    )
    counted: Ints = take_small(of_communicator, instances["communicator"], 0)
    for rows in row_chunks(len(operations["process"])):
        own = np.isin(operations["process"][rows], processes)
        own &= operations["part_of"][rows] == NONE
        seen = operations["instance"][rows][own]
        np.subtract.at(counted, seen[seen != NONE], 1)
    return np.maximum(counted, 0)


def count_behind(
    operations: Columns,
    instances: Columns,
    communicators: CommunicatorTable,
    heard_ns: list[int],
    missing: Ints,
) -> int:
    """How many of the missing operations came after the last sign of their process: it was killed,
    or it runs and was read a moment before the others. `heard_ns`: by process, its last sign.
    """
    lacking = np.flatnonzero(missing)
    if not len(lacking):
        return 0
    began = np.full(len(lacking), _NEVER)
    heard = np.array(heard_ns, np.int64)
    for rows in row_chunks(len(operations["process"])):
        columns = {name: operations[name][rows] for name in _NEEDED}
        when, instance = first_time(columns), columns["instance"]
        np.maximum.at(heard, columns["process"], when)
        matched = np.flatnonzero((instance != NONE) & (when != NONE))
        matched = matched[missing[instance[matched]] > 0]
        np.minimum.at(began, np.searchsorted(lacking, instance[matched]), when[matched])
    behind, comms = 0, instances["communicator"][lacking]
    order = np.argsort(comms, kind="stable")
    numbers, first = np.unique(comms[order], return_index=True)
    for comm, own in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        ends = np.sort(heard[communicators.processes_of(comm)])
        silent = np.where(began[own] == _NEVER, 0, np.searchsorted(ends, began[own]))
        behind += int(np.minimum(silent, missing[lacking[own]]).sum())
    return behind
