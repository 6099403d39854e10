"""Operations and GPU channels as rows of bars, on the one clock."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, SOURCES, STATES
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
    Ints,
    bars_of,
    packed_bars,
)
from ncclscope.web.callback_rows import Place

Rows = list[tuple[Place, Bars]]
_IN_FLIGHT = STATES.index("in flight")
_NEVER_LAUNCHED = STATES.index("never launched")
_LOWER = [SOURCES.index(name) for name in ("gpu-early", "gpu-partial")]
_REPAIRED = SOURCES.index("gpu-repaired")
_HOST_TIMED = [SOURCES.index(name) for name in ("proxy", "host", "enqueue", "none")]
_BEGINNINGS = ("start_ns", "launch_ns", "call_ns", "enqueue_ns")
_STAMP_LOOKS = {"repaired": REPAIRED, "recovered": REPAIRED, "rejected": UNTIMED}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which operations are shown; None: all."""

    functions: tuple[int, ...] | None = None  # colours
    sources: tuple[int, ...] | None = None
    smallest_bytes: int | None = None
    largest_bytes: int | None = None

    def of(self, columns: dict[str, Any]) -> Any:
        """Mask of the operations that fit, by their columns."""
        fits = np.ones(len(columns["code"]), bool)
        if self.functions is not None:
            fits &= np.isin(columns["code"], self.functions)
        if self.sources is not None:
            fits &= np.isin(columns["source"], self.sources)
        if self.smallest_bytes is not None:
            fits &= columns["size_bytes"] >= self.smallest_bytes
        if self.largest_bytes is not None:
            fits &= columns["size_bytes"] <= self.largest_bytes
        return fits


def spans_of(operations: dict[str, Any], rows: Any, last_ns: int) -> tuple[Ints, Ints, Ints]:
    """First and last ns of each operation as it is drawn, and which of its times they are."""
    start = np.full(len(rows), NONE, np.int64)
    for name in _BEGINNINGS:
        values = np.asarray(operations[name][rows])
        start = np.where(start == NONE, values, start)
    timed = np.asarray(operations["duration_ns"][rows]) != NONE
    state = np.asarray(operations["state"][rows])
    running = ~timed & np.isin(state, (_IN_FLIGHT, _NEVER_LAUNCHED))
    end = np.where(timed, np.asarray(operations["end_ns"][rows]), start)
    for first, last in (("call_ns", "call_end_ns"), ("launch_ns", "launch_end_ns")):
        of_host = np.asarray(operations[last][rows])
        end = np.where(~timed & (start == np.asarray(operations[first][rows])), of_host, end)
    end = np.where(running, np.maximum(last_ns, start), end)
    return start, np.maximum(end, start), running


def function_codes(model: Model) -> Any:
    """Colours by code of the word; the last place is for none."""
    names = model.words["function"]
    return np.array([*(palette.function_code(name) for name in names), palette.OTHER], np.uint8)


def operation_columns(model: Model, rows: Any, last_ns: int) -> dict[str, Any]:
    """Columns of bars for these operations, with what filters look at."""
    operations = model.tables["operations"]
    start, end, running = spans_of(operations, rows, last_ns)
    source = np.asarray(operations["source"][rows])
    look = np.where(running, OPEN, 0)
    for bit, mask in (
        (UNTIMED, np.isin(source, _HOST_TIMED) & ~running),
        (REPAIRED, source == _REPAIRED),
        (LOWER_BOUND, np.isin(source, _LOWER)),
        (INFERRED, np.asarray(operations["inferred"][rows]) == 1),
        (REPLAY, np.asarray(operations["replay"][rows]) == 1),
        (MISMATCH, _mismatched(model, np.asarray(operations["instance"][rows]))),
    ):
        look = look | np.where(mask, bit, 0)
    return {
        "start_ns": start,
        "end_ns": end,
        "wait_ns": np.maximum(np.asarray(operations["wait_ns"][rows]), 0),
        "ref": np.asarray(rows, np.int64),
        "code": function_codes(model)[np.asarray(operations["function"][rows])],
        "look": look,
        "source": source,
        "size_bytes": np.asarray(operations["size_bytes"][rows]),
    }


def _mismatched(model: Model, instance: Ints) -> Any:
    mismatch = model.tables["instances"]["mismatch"]
    if not len(mismatch):
        return np.zeros(len(instance), bool)
    return (instance != NONE) & (mismatch[np.maximum(instance, 0)] == 1)


def rows_by_communicator(model: Model, process: int) -> Iterator[tuple[int, int, bool, Ints]]:
    """(communicator, rank in it, whether they are parts of others, rows of operations) of a
    process.
    """
    operations = model.tables["operations"]
    first, last = np.searchsorted(operations["process"], (process, process + 1)).tolist()
    mine = np.arange(first, last)
    comm = np.asarray(operations["communicator"][first:last])
    rank = np.asarray(operations["rank"][first:last])
    parts = np.asarray(operations["part_of"][first:last]) != NONE
    for number, of_rank in _pairs(comm, rank):
        for is_part in (False, True):
            rows = mine[(comm == number) & (rank == of_rank) & (parts == is_part)]
            if len(rows):
                yield number, of_rank, is_part, rows


def _pairs(first: Any, second: Any) -> list[tuple[int, int]]:
    """The different pairs of two columns."""
    joined = np.unique(first.astype(np.int64) << 32 | second.astype(np.int64) & 0xFFFFFFFF)
    return [(int(one >> 32), int(np.int32(one & 0xFFFFFFFF))) for one in joined.tolist()]


def operation_rows(model: Model, process: int, last_ns: int) -> Rows:
    """A process's operations, by communicator and rank. Of open ones only `last_ns` is known."""
    out: Rows = []
    for communicator, rank, is_part, rows in rows_by_communicator(model, process):
        columns = operation_columns(model, rows, last_ns)
        known = columns["start_ns"] != NONE
        columns = {name: values[known] for name, values in columns.items()}
        for depth, one in enumerate(packed_bars(columns)):
            kind = "part" if is_part else "operation"
            out.append((Place(kind, communicator, rank, depth=depth), bars_of(one)))
    return out


def channel_rows(model: Model, process: int) -> Rows:
    """A process's kernels by the GPU's stamps, by communicator, rank and channel."""
    columns = details_of_process(model, "channels", process)
    if columns is None:
        return []
    known = (columns["operation"] != NONE) & (columns["start_ns"] != NONE)
    known &= columns["end_ns"] != NONE
    columns = {name: values[known] for name, values in columns.items()}
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
    out: Rows = []
    for communicator, of_rank in _pairs(comm, rank):
        here = (comm == communicator) & (rank == of_rank)
        for channel in np.unique(columns["channel"][here]).tolist():
            mine = np.flatnonzero(here & (columns["channel"] == channel))
            some = {name: values[mine] for name, values in bars.items()}
            for depth, one in enumerate(packed_bars(some | {"wait_ns": np.empty(0, np.int64)})):
                place = Place("channel", communicator, of_rank, channel, depth=depth)
                out.append((place, bars_of(one)))
    return out


def filtered(bars: Bars, model: Model, chosen: Filter) -> Bars:
    """Those bars of a row of operations that fit."""
    operations = model.tables["operations"]
    fits = chosen.of(
        {
            "code": bars.code,
            "source": np.asarray(operations["source"][bars.ref]),
            "size_bytes": np.asarray(operations["size_bytes"][bars.ref]),
        }
    )
    return kept(bars, fits)


def kept(bars: Bars, fits: Any) -> Bars:
    """Those bars of a row that a mask marks."""
    names = ("start_ns", "end_ns", "wait_ns", "ref", "code", "look")
    columns = {name: np.asarray(getattr(bars, name)) for name in names}
    return bars_of({n: values[fits] if len(values) else values for n, values in columns.items()})
