"""A capture's model: its tables as columns, and who its processes are."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.model.align.host_clocks import NodeClock
from ncclscope.model.completeness import Completeness
from ncclscope.model.match.registry import ProcessRow
from ncclscope.model.schema import Columns

__all__ = ["Model", "ProcessRow", "Progress", "windows_by_process"]

Progress = Callable[[int, int], None]  # done, of how many


@dataclass(frozen=True, slots=True)
class Model:
    """What a capture means. Columns are mapped files where the model was saved."""

    path: Path  # the capture
    tables: dict[str, Columns]  # as model/tables.py describes them
    words: dict[str, list[str]]  # names by column; a name's place is its code
    communicator_names: list[str]  # by row of `communicators`
    processes: list[ProcessRow]
    nodes: list[str]  # host names
    completeness: Completeness
    realtime_offset_ns: int  # wall clock = time + this
    clocks: tuple[NodeClock, ...] = ()  # by node, onto the one clock
    # By table its columns of which every value is known; it may have more of them.
    whole: dict[str, frozenset[str]] = field(default_factory=dict)


def windows_by_process(model: Model) -> list[list[tuple[int, int]] | None]:
    """When each process recorded single calls, from and to; None: all the time."""
    found: list[list[tuple[int, int]] | None] = [
        [] if row.paused else None for row in model.processes
    ]
    windows = model.tables["windows"]
    columns = (windows[name].tolist() for name in ("process", "start_ns", "end_ns"))
    for process, start, end in zip(*columns, strict=True):
        mine = found[process]
        if mine is not None:
            mine.append((start, end))
    return found
