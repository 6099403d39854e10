"""A capture's model: its tables as columns, and its processes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from ncclscope.model.column_files import is_absent
from ncclscope.model.completeness import Completeness
from ncclscope.model.node_clock import NodeClock
from ncclscope.model.rows import GpuRow, ProcessRow
from ncclscope.model.schema import ORIGINS, Columns

__all__ = ["Model", "ProcessRow", "Progress", "windows_by_process"]

PERIODIC = ORIGINS.index("period")  # origin of steps that the period of calls shows


class Progress(Protocol):
    """Shows how far something is."""

    def __call__(self, done: int, of: int, stage: str = "", /) -> None:
        """So much is done, of how much; `stage`: of what, unless the caller's text says it."""


@dataclass(frozen=True, slots=True)
class Training:
    """What a job's program said about itself; empty where nothing was attached."""

    torch: str = ""  # its release
    device: str = ""  # name of the GPU
    parameters: int = 0  # of the model, on all ranks together
    compute_streams: dict[str, int] = field(default_factory=dict)  # CUDA streams, by process
    failures: list[str] = field(default_factory=list)  # what could not be attached
    kernel_files: list[str] = field(default_factory=list)  # traces of CUDA kernels, in the capture


@dataclass(frozen=True, slots=True)
class Model:
    """What a capture means. Columns are mapped files where the model was saved."""

    path: Path  # the capture
    tables: dict[str, Columns]  # as model/schema.py describes them
    words: dict[str, list[str]]  # names by column; a name's place is its code
    communicator_names: list[str]  # by row of `communicators`
    processes: list[ProcessRow]
    nodes: list[str]  # host names
    completeness: Completeness
    realtime_offset_ns: int  # wall clock = time + this
    clocks: tuple[NodeClock, ...] = ()  # by node, onto the one clock
    # By table columns without NONE; there may be more of them.
    whole: dict[str, frozenset[str]] = field(default_factory=dict)
    gpus: list[GpuRow] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)  # of communicators, by row; "": none
    module_names: list[str] = field(default_factory=list)  # by row of `modules`
    training: Training = field(default_factory=Training)
    began_ns: int | None = None  # of a part of a capture: when the whole one began
    seal: str = ""  # of the saved model that this is; "": not saved, or a part of a capture

    def communicator_name(self, row: int) -> str:
        """The name of a communicator, "?" where it is not known."""
        return self.communicator_names[row] if row >= 0 else "?"

    @property
    def has_context(self) -> bool:
        """Whether the program said a step, a phase or a module of any operation."""
        step = self.tables["operations"].get("step")
        said = step is not None and len(step) > 0 and not is_absent(step)
        return said and not self._has_periodic_steps_only()

    def _has_periodic_steps_only(self) -> bool:
        """Whether steps are known by the period of calls, and nothing else of the program is."""
        origins = self.tables["steps"]["origin"]  # alike in all rows, if they are periodic
        others = len(self.tables["phases"]["phase"]) or len(self.module_names)
        return bool(len(origins) and not others and origins[0] == PERIODIC)

    @property
    def dimensions(self) -> list[str]:
        """The dimension of each communicator, "" where it is not known."""
        names = [*self.words["dimension"], ""]  # the last stands for NONE
        return [names[code] for code in self.tables["communicators"]["dimension"].tolist()]


def windows_by_process(model: Model) -> list[list[tuple[int, int]] | None]:
    """By process the times in which it recorded single calls, from and to; None: always."""
    by_process: list[list[tuple[int, int]] | None] = [
        [] if row.paused else None for row in model.processes
    ]
    windows = model.tables["windows"]
    columns = (windows[name].tolist() for name in ("process", "start_ns", "end_ns"))
    for process, start, end in zip(*columns, strict=True):
        own_windows = by_process[process]
        if own_windows is not None:
            own_windows.append((start, end))
    return by_process


def process_edges(columns: Columns, processes: Sequence[int]) -> list[int]:
    """The first rows of processes in a table whose rows are in the order of processes."""
    column = columns["process"]
    # Numbers of the column's type: for others numpy copies all of it, once for each question.
    edges: list[int] = np.searchsorted(column, np.asarray(processes, column.dtype)).tolist()
    return edges


def process_rows(columns: Columns, process: int) -> tuple[int, int]:
    """Where a process's rows begin and end in such a table."""
    first, end = process_edges(columns, (process, process + 1))
    return first, end
