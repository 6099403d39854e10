"""A capture's model: its tables as columns, and its processes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.model.align.host_clocks import NodeClock
from ncclscope.model.completeness import Completeness
from ncclscope.model.rows import GpuRow, ProcessRow
from ncclscope.model.schema import Columns

__all__ = ["Model", "ProcessRow", "Progress", "windows_by_process"]

Progress = Callable[[int, int], None]  # done, of how many


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
