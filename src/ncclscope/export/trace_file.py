"""The skeleton of a trace file: a head, each rank with its layers, a tail."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Protocol

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.path_edges import path_edges_of
from ncclscope.export.parallel_ranks import write_ranks
from ncclscope.export.result import ExportResult
from ncclscope.export.trace_layers import layers_of, selected_rows
from ncclscope.export.trace_model import Layer, Rank
from ncclscope.export.trace_path import NO_PATH, path_layer
from ncclscope.model.model import Model, Progress
from ncclscope.model.sql_views import rows_of_table
from ncclscope.output_files import open_output, size_written

_HEAVY_BYTES = 500_000_000  # about what a browser still loads


class RankTrace(Protocol):
    """One rank's part of a trace while it is written."""

    def describe(self) -> None:
        """Writes the rank's name and labels."""

    def write_layer(self, layer: Layer) -> None:
        """Writes all slices of a layer."""


def write_trace(
    model: Model,
    selection: Selection,
    path: Path,
    operations_only: bool,
    critical_path: bool,
    progress: Progress | None,
    *,
    ranks: Sequence[Rank],
    open_rank: Callable[[BinaryIO, Rank], RankTrace],
    head: bytes,
    tail: bytes = b"",
) -> ExportResult:
    """Writes the selected operations, unless `operations_only` the work below them, and with
    `critical_path` the critical path of the selected time.
    """
    edges = path_edges_of(model, selection) if critical_path else None

    def write_rank(rank: Rank, out: BinaryIO) -> ExportResult:
        rows = selected_rows(model, selection, rank)
        if not len(rows.whole) and not len(rows.parts):
            return ExportResult(0, rows.untimed)
        trace = open_rank(out, rank)
        trace.describe()
        for layer in layers_of(model, rank, rows, selection, operations_only):
            trace.write_layer(layer)
        if edges is not None:
            trace.write_layer(path_layer(model, rank, edges))
        parts = 0 if operations_only else len(rows.parts)
        return ExportResult(len(rows.whole) + parts, rows.untimed)

    with open_output(path) as (out, scratch):
        out.write(head)
        operations = rows_of_table(model, "operations")
        written = write_ranks(ranks, operations, write_rank, scratch, out, progress)
        out.write(tail)
    missing = (NO_PATH,) if critical_path and edges is None else ()
    return replace(written, notes=(*_notes(path), *missing))


def _notes(path: Path) -> tuple[str, ...]:
    if path.suffix == ".gz" or (size_written(path) or 0) <= _HEAVY_BYTES:
        return ()
    hint = "viewers load all of it into memory: --last 30s, --rank or --operations-only"
    return (f"{hint} make it smaller",)
