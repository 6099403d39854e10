"""Operations and GPU channels as rows of bars, on the capture's one clock."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclscope.analysis.measures import began_ns
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model, process_rows
from ncclscope.model.schema import IN_FLIGHT, NEVER_LAUNCHED, NONE, SOURCES
from ncclscope.web import palette
from ncclscope.web.bars import (
    INFERRED,
    LOWER_BOUND,
    MISMATCH,
    OPEN,
    REPAIRED,
    REPLAY,
    UNTIMED,
    Bars,
    make_bars,
    select_bars,
    split_rows,
)
from ncclscope.web.callback_rows import LaneKey, Rows
from ncclscope.web.kinds import CHANNEL, OPERATION, PART

# A call that was recorded into a CUDA graph: its replays are what is counted and found.
CAPTURED_STATE = "captured"
_LOWER_BOUNDS = [SOURCES.index(name) for name in ("gpu-early", "gpu-partial")]
_REPAIRED = SOURCES.index("gpu-repaired")
_HOST_TIMED = [SOURCES.index(name) for name in ("proxy", "host", "enqueue", "none")]
_STAMP_LOOKS = {"repaired": REPAIRED, "recovered": REPAIRED, "rejected": UNTIMED}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which operations are shown. None: no condition."""

    functions: tuple[int, ...] | None = None  # colour codes
    sources: tuple[int, ...] | None = None
    smallest_bytes: int | None = None
    largest_bytes: int | None = None

    def mask(self, model: Model, code: Any, rows: Any) -> Bools:
        """Which operations it shows, by their colour codes and rows of the model."""
        operations = model.tables["operations"]
        mask = np.ones(len(rows), np.bool_)
        if self.functions is not None:
            mask &= np.isin(code, self.functions)
        if self.sources is not None:
            mask &= np.isin(operations["source"][rows], self.sources)
        if self.smallest_bytes is not None:
            mask &= operations["size_bytes"][rows] >= self.smallest_bytes
        if self.largest_bytes is not None:
            mask &= operations["size_bytes"][rows] <= self.largest_bytes
        return mask


def drawn_times(operations: dict[str, Any], rows: Any, last_ns: int) -> tuple[Ints, Ints, Bools]:
    """Start and end of each operation as it is drawn, and whether it had not ended.

    One that has not ended is drawn up to `last_ns`. One without a duration is drawn as long as the
    host's call or launch took.
    """
    start = began_ns(operations, rows)
    timed = np.asarray(operations["duration_ns"][rows]) != NONE
    state = np.asarray(operations["state"][rows])
    running = ~timed & np.isin(state, (IN_FLIGHT, NEVER_LAUNCHED))
    end = np.where(timed, np.asarray(operations["end_ns"][rows]), start)
    for first, last in (("call_ns", "call_end_ns"), ("launch_ns", "launch_end_ns")):
        host_end = np.asarray(operations[last][rows])
        end = np.where(~timed & (start == np.asarray(operations[first][rows])), host_end, end)
    end = np.where(running, np.maximum(last_ns, start), end)
    return start, np.maximum(end, start), running


def function_codes(model: Model) -> Any:
    """Colour codes by code of the function; the last place, -1, is for none."""
    names = model.words["function"]
    return np.array([*(palette.function_code(name) for name in names), palette.OTHER], np.uint8)


def operation_columns(model: Model, rows: Any, last_ns: int) -> dict[str, Any]:
    """Columns of bars for these operations."""
    operations = model.tables["operations"]
    start, end, running = drawn_times(operations, rows, last_ns)
    source = np.asarray(operations["source"][rows])
    look = np.where(running, OPEN, 0)
    for bit, mask in (
        (UNTIMED, np.isin(source, _HOST_TIMED) & ~running),
        (REPAIRED, source == _REPAIRED),
        (LOWER_BOUND, np.isin(source, _LOWER_BOUNDS)),
        (INFERRED, np.asarray(operations["inferred"][rows]) == 1),
        (REPLAY, np.asarray(operations["replay"][rows]) == 1),
        (MISMATCH, _has_mismatch(model, np.asarray(operations["instance"][rows]))),
    ):
        look = look | np.where(mask, bit, 0)
    return {
        "start_ns": start,
        "end_ns": end,
        "wait_ns": np.maximum(np.asarray(operations["wait_ns"][rows]), 0),
        "ref": np.asarray(rows, np.int64),
        "code": function_codes(model)[np.asarray(operations["function"][rows])],
        "look": look,
    }


def _has_mismatch(model: Model, instance: Ints) -> Any:
    mismatch = model.tables["instances"]["mismatch"]
    if not len(mismatch):
        return np.zeros(len(instance), bool)
    return (instance != NONE) & (mismatch[np.maximum(instance, 0)] == 1)


def rows_by_communicator(model: Model, process: int) -> Iterator[tuple[int, int, bool, Ints]]:
    """A process's operations by communicator, rank in it, and whether they are parts of others:
    (communicator, rank, is part, rows).
    """
    operations = model.tables["operations"]
    first, last = process_rows(operations, process)
    own = np.arange(first, last)
    comm = np.asarray(operations["communicator"][first:last])
    rank = np.asarray(operations["rank"][first:last])
    parts = np.asarray(operations["part_of"][first:last]) != NONE
    for communicator, own_rank in _pairs(comm, rank):
        for is_part in (False, True):
            rows = own[(comm == communicator) & (rank == own_rank) & (parts == is_part)]
            if len(rows):
                yield communicator, own_rank, is_part, rows


def _pairs(first: Any, second: Any) -> list[tuple[int, int]]:
    """The distinct pairs of two columns."""
    pairs = np.unique(np.stack([first, second], axis=1).astype(np.int64), axis=0)
    return [(one, other) for one, other in pairs.tolist()]


def operation_rows(model: Model, process: int, last_ns: int) -> Rows:
    """A process's operations by communicator and rank. `last_ns`: its last known time."""
    packed: Rows = []
    for communicator, rank, is_part, rows in rows_by_communicator(model, process):
        columns = operation_columns(model, rows, last_ns)
        known = columns["start_ns"] != NONE
        columns = {name: values[known] for name, values in columns.items()}
        for depth, row in enumerate(split_rows(columns)):
            kind = PART if is_part else OPERATION
            packed.append((LaneKey(kind, communicator, rank=rank, depth=depth), make_bars(row)))
    return packed


def channel_rows(model: Model, process: int) -> Rows:
    """A process's kernels at their GPU stamps, by communicator, rank and channel."""
    columns = details_of_process(model, "channels", process)
    if columns is None:
        return []
    is_shown = (columns["operation"] != NONE) & (columns["start_ns"] != NONE)
    is_shown &= columns["end_ns"] != NONE
    columns = {name: values[is_shown] for name, values in columns.items()}
    operations, row = model.tables["operations"], columns["operation"]
    looks = np.zeros(len(model.words["stamp"]) + 1, np.uint8)
    for name, look in _STAMP_LOOKS.items():
        looks[model.words["stamp"].index(name)] = look
    bars = {
        "start_ns": columns["start_ns"],
        "end_ns": columns["end_ns"],
        "ref": row,
        "code": function_codes(model)[np.asarray(operations["function"][row])],
        "look": looks[columns["stamp"]],
    }
    comm, rank = (np.asarray(operations[name][row]) for name in ("communicator", "rank"))
    packed: Rows = []
    for communicator, own_rank in _pairs(comm, rank):
        is_own = (comm == communicator) & (rank == own_rank)
        for channel in np.unique(columns["channel"][is_own]).tolist():
            places = np.flatnonzero(is_own & (columns["channel"] == channel))
            own = {name: values[places] for name, values in bars.items()}
            for depth, split in enumerate(split_rows(own | {"wait_ns": np.empty(0, np.int64)})):
                key = LaneKey(CHANNEL, communicator, channel=channel, rank=own_rank, depth=depth)
                packed.append((key, make_bars(split)))
    return packed


def filter_operations(bars: Bars, model: Model, operation_filter: Filter) -> Bars:
    """The bars of a row of operations that a filter shows."""
    return select_bars(bars, operation_filter.mask(model, bars.code, bars.ref))
