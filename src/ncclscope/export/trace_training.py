"""Training steps, phases and the program's ranges as layers of a rank's timeline."""

from collections.abc import Iterator

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.capture.reader import is_dataset
from ncclscope.export.trace_model import OPEN, Argument, Details, Layer, Rank
from ncclscope.humanize import printable
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model, process_rows
from ncclscope.model.schema import NONE, Columns

DEEPEST = 8  # ranges inside each other; deeper ones are not drawn
_PHASE_TIMES = ("data_ns", "forward_ns", "backward_ns", "optimizer_ns", "tokens")


def training_layers(model: Model, rank: Rank, with_ranges: bool) -> Iterator[Layer]:
    """Steps and phases of the rank's process, and the ranges of its threads; nothing where the
    capture has no training context. Steps by the period of calls come alone.
    """
    steps, own = _rows_of_process(model, "steps", rank)
    if not model.has_context and not len(own):
        return
    names = [f"step {number}" for number in np.asarray(steps["step"])[own].tolist()]
    yield _layer(
        rank, "step", [("training", "steps")], names, np.arange(len(own)), np.zeros_like(own),
        steps, own,
        [Argument(name, np.asarray(steps[name])[own].astype(np.int64)) for name in _PHASE_TIMES],
    )  # fmt: skip
    if not model.has_context:
        return
    phases, own = _rows_of_process(model, "phases", rank)
    yield _layer(
        rank, "phase", [("training", "phases")], model.words["phase"],
        np.asarray(phases["phase"])[own].astype(np.int64), np.zeros_like(own), phases, own,
        [Argument("step", np.asarray(phases["step"])[own].astype(np.int64))],
    )  # fmt: skip
    ranges = ranges_of_process(model, rank.process) if with_ranges else None
    if ranges is not None:
        yield _ranges(rank, ranges)


def ranges_of_process(model: Model, process: int) -> Columns | None:
    """The ranges of a process that are drawn, without marks; None where it has none."""
    if is_dataset(model.path):
        return None
    columns = details_of_process(model, "ranges", process)
    if columns is None:
        return None
    kept = np.flatnonzero((columns["is_mark"] == 0) & (columns["depth"] < DEEPEST))
    return {name: values[kept] for name, values in columns.items()} if len(kept) else None


def _rows_of_process(model: Model, table: str, rank: Rank) -> tuple[Columns, Ints]:
    columns = model.tables[table]  # rows are in the order of processes
    first, last = process_rows(columns, rank.process)
    return columns, np.arange(first, last)


def _layer(
    rank: Rank,
    category: str,
    tracks: list[tuple[str, str]],
    names: list[str],
    name: Ints,
    track: Ints,
    columns: Columns,
    rows: Ints,
    arguments: list[Argument],
) -> Layer:
    start = np.asarray(columns["start_ns"])[rows].astype(np.int64)
    end = np.asarray(columns["end_ns"])[rows].astype(np.int64)

    def details(places: Ints) -> Details:
        some = [Argument(a.name, a.values[places], a.words, varies=True) for a in arguments]
        return Details(name[places], some)

    end = np.where(end == NONE, OPEN, np.maximum(end, start))
    return Layer(rank, category, tracks, names or ["?"], track, start, end, details)


def _ranges(rank: Rank, ranges: Columns) -> Layer:
    texts, name = np.unique(ranges["text"].astype(str), return_inverse=True)
    threads, track = np.unique(ranges["thread"], return_inverse=True)
    tracks = [("ranges", f"thread {thread}") for thread in threads.tolist()]
    rows = np.arange(len(name))
    source = [printable(str(text)) for text in np.unique(ranges["source"].astype(str))]
    of_source = np.unique(ranges["source"].astype(str), return_inverse=True)[1].reshape(-1)
    arguments = [Argument("source", of_source.astype(np.int64), source)]
    shown = [printable(text) for text in texts.tolist()]
    return _layer(
        rank, "range", tracks, shown, name.reshape(-1).astype(np.int64),
        track.reshape(-1).astype(np.int64), ranges, rows, arguments,
    )  # fmt: skip
