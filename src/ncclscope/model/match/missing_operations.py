"""Operations that must exist, as other ranks show, and are not on record."""

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import take_small
from ncclscope.arrays.library import full_array
from ncclscope.model.match.registry import Registry
from ncclscope.model.process.durations import first_time
from ncclscope.model.schema import NONE, Columns, row_chunks

Ints = npt.NDArray[np.int32]
_NEVER = np.iinfo(np.int64).max
_NEEDED = ("process", "instance", "call_ns", "enqueue_ns")


def missing_by_instance(
    operations: Columns, instances: Columns, registry: Registry, partly: list[int]
) -> Ints:
    """How many operations each instance lacks; parts of an operation are not counted again.
    `partly`: processes that did not record all calls. What these lack they have counted.
    """
    missing = full_array(len(instances["communicator"]), np.int32, 0)
    for piece in row_chunks(len(missing)):
        gap = instances["ranks_expected"][piece] - instances["ranks_seen"][piece]
        missing[piece] = np.maximum(gap, 0)
    if partly and missing.any():
        missing -= np.minimum(missing, _counted_only(operations, instances, registry, partly))
    for piece in row_chunks(len(operations["part_of"])):
        part = operations["part_of"][piece] != NONE
        if part.any():
            whole = operations["instance"][piece][part]
            missing[whole[whole != NONE]] = 0
    return missing


def _counted_only(
    operations: Columns, instances: Columns, registry: Registry, partly: list[int]
) -> Ints:
    """By instance how many operations of these processes may be in their counters only."""
    members = registry.members_of(partly)
    of = np.array([members[row] for row in range(max(members, default=0) + 1)], np.int32)
    counted: Ints = take_small(of, instances["communicator"], 0)
    for piece in row_chunks(len(operations["process"])):
        mine = np.isin(operations["process"][piece], partly)
        mine &= operations["part_of"][piece] == NONE
        seen = operations["instance"][piece][mine]
        np.subtract.at(counted, seen[seen != NONE], 1)
    return np.maximum(counted, 0)


def count_behind(operations: Columns, instances: Columns, registry: Registry, missing: Ints) -> int:
    """How many of those that instances lack lie behind all that is known of their process: it was
    killed, or it runs and was read a moment before the others.
    """
    lacking = np.flatnonzero(missing)
    if not len(lacking):
        return 0
    began = np.full(len(lacking), _NEVER)
    heard = np.array(registry.heard_ns, np.int64)
    for piece in row_chunks(len(operations["process"])):
        columns = {name: operations[name][piece] for name in _NEEDED}
        when, instance = first_time(columns), columns["instance"]
        np.maximum.at(heard, columns["process"], when)
        known = np.flatnonzero((instance != NONE) & (when != NONE))
        known = known[missing[instance[known]] > 0]
        np.minimum.at(began, np.searchsorted(lacking, instance[known]), when[known])
    behind, comms = 0, instances["communicator"][lacking]
    for comm in np.unique(comms):
        mine = comms == comm
        ends = np.sort(heard[registry.processes_of(int(comm))])
        silent = np.where(began[mine] == _NEVER, 0, np.searchsorted(ends, began[mine]))
        behind += int(np.minimum(silent, missing[lacking[mine]]).sum())
    return behind
